"""Small models that are driven."""

from __future__ import annotations

import dynax as dx


def rod(gravity=(0, 0, 0), com=(0, 0, 0), **options) -> dx.Model:
    """A flywheel of 0.01 kg m^2 about its centre."""
    inertia = dx.SpatialInertia(1.0, com, (0.01, 0.01, 0.01))
    return (
        dx.ModelBuilder(gravity=gravity).body("rod", joint=dx.Revolute((0, 1, 0)), inertia=inertia, **options).build()
    )


def arm(gravity=(0, 0, -9.81)) -> dx.Model:
    """Three hinges out of line."""
    b, parent = dx.ModelBuilder(gravity=gravity), "world"
    for k, axis in enumerate([(0, 0, 1), (0, 1, 0), (1, 0, 0)]):
        place = dx.Transform.from_translation((0.1, 0.05, -0.3 if k else 0.0))
        inertia = dx.SpatialInertia(1.0 + 0.2 * k, (0.1, 0.05, -0.2), (0.03, 0.04, 0.02))
        b.body(f"link{k}", parent=parent, joint=dx.Revolute(axis), joint_name=f"j{k}", placement=place, inertia=inertia)
        parent = f"link{k}"
    place = dx.Transform(dx.Rotation.exp([0.3, -0.2, 0.5]).matrix, [0.1, 0, -0.2])
    return b.frame("tip", body="link2", placement=place).build()
