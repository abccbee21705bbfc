"""A forest contracted to its roots, many joints at a time: a schedule for assembling bodies in logarithmic depth.

Every cluster of bodies already assembled hangs on its parent by one joint, and all that still hangs on the cluster does
so at one body of it: two handles are enough. Each level does one of two things to as many clusters as it can (Miller
and Reif 1985, "Parallel tree contraction and its application"):

- **compress**: a cluster that carries exactly one other is joined with it;
- **rake**: a cluster that carries several takes up those of them that carry nothing, all at once.

A chain of n bodies takes `ceil(log2 n)` levels. So does a balanced binary tree, and any tree a small multiple of it:
what a level leaves are the branches, fewer than the leaves it raked, and half of each unbranched run.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np


class Level(NamedTuple):
    """Joints assembled at the same time. A cluster bears the number of its first body."""

    near: np.ndarray
    """Clusters that are joined with the one they carry ..."""
    far: np.ndarray
    """... which is this one; the result bears the number of `near`."""
    trunks: np.ndarray
    """Clusters that take up ..."""
    leaves: np.ndarray
    """... these, which carry nothing."""
    trunk_of_leaf: np.ndarray
    """For each leaf the position of its cluster in `trunks`."""


@lru_cache(maxsize=512)
def contraction(parents: tuple[int, ...]) -> tuple[Level, ...]:
    """The levels that leave one cluster for each tree of the forest; negative parents are bases."""
    carried: list[list[int]] = [[] for _ in parents]
    for body, parent in enumerate(parents):
        if parent >= 0:
            carried[parent].append(body)
    above, alive = list(parents), list(range(len(parents)))
    levels = []
    while any(above[cluster] >= 0 for cluster in alive):
        near, far, trunks, leaves, position = [], [], [], [], []
        busy: set[int] = set()
        for cluster in alive:
            raked = [child for child in carried[cluster] if not carried[child]]
            if len(carried[cluster]) > 1 and raked:
                position += [len(trunks)] * len(raked)
                trunks.append(cluster)
                leaves += raked
                busy.update(raked, [cluster])
        for cluster in alive:  # parents first, so that the pairs of a run begin at its top
            if cluster not in busy and len(carried[cluster]) == 1 and carried[cluster][0] not in busy:
                near.append(cluster)
                far.append(carried[cluster][0])
                busy.update([cluster, carried[cluster][0]])
        for cluster, child in zip(near, far, strict=True):
            carried[cluster] = carried[child]
            for grandchild in carried[child]:
                above[grandchild] = cluster
        for leaf in leaves:
            carried[above[leaf]].remove(leaf)
        gone = {*far, *leaves}
        alive = [cluster for cluster in alive if cluster not in gone]
        levels.append(Level(*(np.array(rows, dtype=int) for rows in (near, far, trunks, leaves, position))))
    return tuple(levels)
