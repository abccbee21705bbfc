"""Chains of gears: those that close on themselves, and what is left when some of their joints are fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dynax.errors import ModelError
from dynax.model.closures import GearRecord
from dynax.model.structure import Finding, Structure


@dataclass(frozen=True)
class Given:
    """A function of several coordinates with one of them given."""

    function: Callable
    place: int
    value: float

    def __call__(self, *rest):
        return self.function(*rest[: self.place], self.value, *rest[self.place :])


def gears_with(gears: Mapping[str, GearRecord], fixed: Mapping[str, float]) -> dict[str, GearRecord]:
    """The gears of the joints that still move, `fixed` giving the coordinates of the others.

    A source that is fixed adds to the offset. A follower that is fixed holds its one source, or makes the first of
    several follow the others; `ModelError` where that cannot be said by gears.
    """
    kept: dict[str, GearRecord] = {}
    for gear in gears.values():
        for source in gear.sources:
            if source in fixed:
                gear = _without(gear, source, fixed[source])
        if gear.joint in fixed:
            if not gear.sources:
                continue
            gear = _turned(gear, fixed[gear.joint], {*gears, *kept} - {*fixed})
        kept[gear.joint] = gear
    return kept


def _without(gear: GearRecord, source: str, value: float) -> GearRecord:
    k = gear.sources.index(source)
    rest = gear.sources[:k] + gear.sources[k + 1 :]
    if gear.function is None:
        return replace(
            gear,
            sources=rest,
            ratios=gear.ratios[:k] + gear.ratios[k + 1 :],
            offset=gear.offset + gear.ratios[k] * value,
        )
    if rest:
        return replace(gear, sources=rest, function=Given(gear.function, k, value))
    found = float(np.asarray(gear.function(value)))
    return replace(gear, sources=(), ratios=(), offset=gear.offset + gear.ratios[0] * found, function=None)


def _turned(gear: GearRecord, value: float, taken: set[str]) -> GearRecord:
    """The same condition as one on a source."""
    free = [k for k, source in enumerate(gear.sources) if gear.function is None and gear.ratios[k]]
    free = [k for k in free if gear.sources[k] not in taken]
    if not free:
        raise ModelError(
            f"follows {', '.join(map(repr, gear.sources))} by a gear that cannot be read the other way round",
            element=f"joint {gear.joint!r}",
            hint="fix what it follows instead",
        )
    k = free[0]
    return GearRecord(
        gear.sources[k],
        gear.sources[:k] + gear.sources[k + 1 :],
        tuple(-r / gear.ratios[k] for r in gear.ratios[:k] + gear.ratios[k + 1 :]),
        (value - gear.offset) / gear.ratios[k],
    )


def gear_cycles(structure: Structure, numbers: Mapping[str, np.ndarray]) -> list[Finding]:
    """A finding for each cycle of gears, such as two joints that mimic one another: it leaves the joints no freedom.

    **Arguments:** `numbers`: float64 and not batched, by the names of `dynax.model.numbers.number_shapes`.
    """
    follows: dict[str, tuple[str, float, float]] = {}
    ratios, offsets = iter(numbers["coupling_ratio"]), iter(numbers["coupling_offset"])
    for (joint, *sources), function in zip(structure.couplings, structure.coupling_functions, strict=True):
        own = [float(next(ratios)) for _ in range(len(sources) if function is None else 1)]
        offset = float(next(offsets))
        if function is None and len(sources) == 1:
            follows[joint] = (sources[0], own[0], offset)
    findings, settled = [], set()
    for joint in follows:
        path: dict[str, None] = {}
        while joint in follows and joint not in settled and joint not in path:
            path[joint] = None
            joint = follows[joint][0]
        if joint in path:
            cycle = list(path)[list(path).index(joint) :]
            findings.append(Finding(f"gear of joint {joint!r}", _of_cycle(cycle, follows)))
        settled.update(path)
    return findings


def _of_cycle(cycle: list[str], follows: Mapping[str, tuple[str, float, float]]) -> str:
    """What becomes of joints that follow one another in a ring: `q = ratio q + offset`, once around."""
    ratio, offset = 1.0, 0.0
    for joint in cycle:
        _, own, shift = follows[joint]
        offset += ratio * shift
        ratio *= own
    ring = " follows ".join(repr(joint) for joint in (*cycle[:8], *(["..."] if len(cycle) > 8 else []), cycle[0]))
    if ratio != 1.0:
        return f"{ring}, by ratios whose product is {ratio:g}: together they hold these joints where they are"
    return f"{ring}: " + (
        "one of these gears is redundant" if offset == 0.0 else "no position meets all of these gears"
    )
