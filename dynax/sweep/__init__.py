"""The walks of the theory and their executions. Nothing else in dynax traverses a tree.

| execution | what runs | good for |
|---|---|---|
| `levels` | one padded scan over depths | everything; the fastest where each operation is a kernel of its own |
| `bodies` | one scan over bodies, depth first | trees, where the walk is one kernel: a humanoid gains a fifth |
| `segments` | one scan per distinct unbranched run | a few long limbs: a tenth faster, twice the time to compile |
| `kinds` (`KindWalk`) | a scan for each run of levels with the same kinds of nodes | nodes of different sizes |
| `associative` | scans of logarithmic depth (`associative`) | one long chain on an accelerator; slower on a CPU |
"""

from __future__ import annotations

from functools import lru_cache

from dynax.sweep.bodies import BodyWalk
from dynax.sweep.levels import LevelWalk
from dynax.sweep.rows import take_entries as take_entries
from dynax.sweep.rows import take_rows as take_rows
from dynax.sweep.segments import SegmentWalk
from dynax.sweep.walk import Walk as Walk

EXECUTIONS: dict[str, type[Walk]] = {"levels": LevelWalk, "bodies": BodyWalk, "segments": SegmentWalk}


@lru_cache(maxsize=512)
def walk(parents: tuple[int, ...], num_bases: int = 1, execution: str = "levels") -> Walk:
    """The execution of the walks over the forest `parents` (`-1 - b` for a body on base `b`), made once."""
    if execution not in EXECUTIONS:
        raise ValueError(f"unknown execution {execution!r}: choose one of {', '.join(EXECUTIONS)}")
    return EXECUTIONS[execution](parents, num_bases)


def execution_in_one_kernel(parents: tuple[int, ...], num_bases: int) -> str:
    """The fastest execution of a walk that becomes one kernel: by levels where no row looks up another."""
    levels = LevelWalk(parents, num_bases)
    return "levels" if levels.straight_out and levels.straight_in else "bodies"
