"""What is left of gears when some of their joints are fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dynax.errors import ModelError
from dynax.model.closures import GearRecord


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
