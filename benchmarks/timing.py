"""Contenders take turns, so that what else the machine does falls on all of them alike.

The clock is the processor time of the process: it stands still while somebody else has the core. Wall time is kept
beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple


class Taken(NamedTuple):
    """Seconds, for some number of calls."""

    cpu: float
    wall: float


Block = Callable[[int], Taken]
"""Makes so many calls and says what they took."""


@dataclass
class Contender:
    engine: str
    route: str
    block: Block
    answer: Any = None
    """What it computed for the first states, in our conventions; `None` where there is nothing to compare."""
    evaluations: int = 1
    """In a call."""
    overhead: float = 0.0
    """Processor seconds per evaluation that are not the engine's, taken off."""
    first: float | None = None
    """Seconds of processor time the first call took: tracing and compiling."""
    note: str = ""


@dataclass(frozen=True)
class Pace:
    """How long to measure."""

    block: float
    """The least a block takes [s]; 0 for a single call."""
    total: float
    """What a contender may take altogether [s], if the least number of rounds allows."""
    least: int
    most: int
    compilations: int

    def compiling(self) -> Pace:
        return Pace(0.0, 0.0, self.compilations, self.compilations, self.compilations)


FULL = Pace(block=0.02, total=2.0, least=5, most=31, compilations=3)
QUICK = Pace(block=0.005, total=0.2, least=3, most=7, compilations=1)
SMOKE = Pace(block=0.0, total=0.0, least=1, most=1, compilations=1)


@dataclass
class Samples:
    """Seconds per evaluation."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        return {"cpu": median(self.cpu), "wall": median(self.wall), "least": min(self.cpu), "rounds": len(self.cpu)}


def timed(call: Callable[[], Any]) -> Block:
    """A block of calls, after one that fills the caches and is not counted."""

    def block(count: int) -> Taken:
        call()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(count):
            call()
        return Taken(time.process_time() - cpu, time.perf_counter() - wall)

    return block


def alternate(contenders: Sequence[Contender], pace: Pace) -> list[Samples]:
    """Blocks of all contenders in turn, many times."""
    counts, rounds = [1] * len(contenders), pace.least
    if pace.block:
        lengths = [max(contender.block(1).wall, 1e-7) for contender in contenders]
        counts = [max(1, round(pace.block / length)) for length in lengths]
        longest = max(length * count for length, count in zip(lengths, counts, strict=True))
        rounds = int(min(pace.most, max(pace.least, pace.total / longest)))
    samples = [Samples() for _ in contenders]
    for _ in range(rounds):
        for contender, count, sample in zip(contenders, counts, samples, strict=True):
            taken = contender.block(count)
            evaluations = count * contender.evaluations
            sample.cpu.append(taken.cpu / evaluations - contender.overhead)
            sample.wall.append(taken.wall / evaluations - contender.overhead)
    return samples


def per_call(block: Block, calls: int = 200, rounds: int = 9) -> float:
    """Median processor seconds of one call."""
    return median(block(calls).cpu / calls for _ in range(rounds))
