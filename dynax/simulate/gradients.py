"""The menu of derivatives of steps with contact. None of them changes a motion; `docs/contact.md` says what each gets
wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Exact:
    """Those of the steps as they are."""


@dataclass(frozen=True)
class Smoothed:
    """Those of steps with contact relaxed by `kappa` [J], the product of impulse and opening speed at each contact:
    what is at a distance presses a little, what sticks slips a little. In a rollout `kappa` may be traced, so that it
    can fall from one optimisation to the next without compiling again. Steps of which the relaxed ones are not found,
    as with `kappa` 0, have those of `Exact()`."""

    kappa: Any
    """`None` for the one of the scene, `Scene.kappa`."""


@dataclass(frozen=True)
class FromDistance:
    """A surrogate: shapes that will be less than `reach` [m] apart at the end of a step are taken to touch in part,
    the more the nearer. Forces are not felt; only derivatives see them (Paulus et al. 2025)."""

    reach: float = 0.02


@dataclass(frozen=True)
class Bundle:
    """The mean of those of `count` steps from states nearby: configuration and velocity differ by normally distributed
    numbers of the size `spread` [m, rad, m/s, rad/s], always the same ones (Suh et al. 2022)."""

    count: int
    spread: float = 0.01

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"`count` is {self.count}, expected how many states nearby there are")


Gradient = Exact | Smoothed | FromDistance | Bundle
