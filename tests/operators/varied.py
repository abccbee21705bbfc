"""A small tree with every way a joint can be unlike a hinge: floating, of several freedoms, with columns that move in
the body, not holonomic, driven. Smaller than `trees.MIXED`, since derivatives take long to compile."""

from __future__ import annotations

from functools import lru_cache

from trees import build, swing

import dynax as dx

JOINTS = (
    (-1, dx.Free()),
    (0, dx.Universal((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))),
    (1, dx.Spherical()),
    (0, dx.Reversed(dx.Spherical())),
    (3, dx.RollingBall(0.5)),
    (0, dx.Driven(dx.Revolute((0.0, 1.0, 0.0)), swing)),
    (5, dx.Planar((1.0, 1.0, 0.0))),
    (6, dx.Reversed(dx.RackAndPinion(0.4))),
)


@lru_cache
def varied() -> dx.Model:
    return build(JOINTS, seed=7)
