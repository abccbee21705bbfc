"""The walks of the theory and their executions. Nothing else in dynax traverses a tree.

| execution | what runs | good for |
|---|---|---|
| `levels` | one padded scan over depths | everything; the default, the fastest in a batch on most robots |
| `segments` | one scan per distinct unbranched run | a few long limbs: a tenth faster, twice the time to compile |
| `associative` | scans of logarithmic depth (`associative`) | one long chain on an accelerator; slower on a CPU |
| `products` | pointer doubling by 0/1 matrices (`doubling`) | one state of many bodies on a CPU |
"""

from __future__ import annotations

from functools import lru_cache

from dynax.sweep.levels import LevelWalk
from dynax.sweep.segments import SegmentWalk
from dynax.sweep.walk import Walk as Walk
from dynax.sweep.walk import take_rows as take_rows

EXECUTIONS: dict[str, type[Walk]] = {"levels": LevelWalk, "segments": SegmentWalk}


@lru_cache(maxsize=512)
def walk(parents: tuple[int, ...], num_bases: int = 1, execution: str = "levels") -> Walk:
    """The execution of the walks over the forest `parents` (`-1 - b` for a body on base `b`), made once."""
    if execution not in EXECUTIONS:
        raise ValueError(f"unknown execution {execution!r}: choose one of {', '.join(EXECUTIONS)}")
    return EXECUTIONS[execution](parents, num_bases)
