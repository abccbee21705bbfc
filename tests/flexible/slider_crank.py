"""The flexible slider-crank of Simeon (1996), problem `crank` of the test set for initial value problems."""

from __future__ import annotations

import numpy as np

import dynax as dx

CRANK, ROD, SPEED = 0.15, 0.30, 150.0
AREA, DENSITY, MODULUS, HEIGHT = 0.008**2, 7870.0, 2e11, 0.008
TURNS = np.pi / ROD * np.array([1.0, 2.0, 0.0, 0.0])
"""How far each mode turns the first end of the rod."""


def rod() -> dx.FlexibleBody:
    """Two sine shapes across and two parabolas along the rod, whose axis joins its ends, by the published integrals:
    the mass of the parabolas lacks a factor of 1/15 in them."""
    pi, m, k = np.pi, DENSITY * AREA * ROD, MODULUS * AREA / ROD
    mass = m * np.array([[0.5, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 8, 1], [0, 0, 1, 2]])
    bending = k * pi**4 / 24.0 * (HEIGHT / ROD) ** 2
    stiffness = np.zeros((4, 4))
    stiffness[0, 0], stiffness[1, 1] = bending, 16.0 * bending
    stiffness[2:, 2:] = k / 3.0 * np.array([[16, -8], [-8, 7]])
    translation, rotation, rate = np.zeros((3, 4)), np.zeros((3, 4)), np.zeros((4, 3, 4))
    translation[0] = m * np.array([0, 0, 2 / 3, 1 / 6])
    translation[1] = m * np.array([2 / pi, 0, 0, 0])
    rotation[2] = m * ROD * np.array([1 / pi, -0.5 / pi, 0, 0])
    across = m * np.array([[-16 / pi**3, 8 / pi**3 - 1 / pi], [0.0, 0.5 / pi]])
    rate[:2, 2, 2:], rate[2:, 2, :2] = across, -across.T
    first, second = np.zeros((4, 3, 3)), np.zeros((4, 4, 3, 3))
    first[:, 2, 2] = 2.0 * m * ROD * np.array([0, 0, 1 / 3, 1 / 6])
    second[:, :, 2, 2] = 2.0 * mass
    ends = np.zeros((2, 3, 4)), np.zeros((2, 3, 4))
    ends[0][1, 0, 3] = 1.0
    ends[1][0, 2], ends[1][1, 2] = TURNS, TURNS * np.array([-1.0, 1.0, 1.0, 1.0])
    return dx.FlexibleBody.from_integrals(
        mass=0.151104,
        first_moment=np.array([0.5 * 0.151104 * ROD, 0, 0]),
        inertia=np.diag([1e-6, 0.0045339259, 0.0045339259]),
        translation_coupling=translation,
        rotation_coupling=rotation,
        rotation_coupling_rate=rate,
        inertia_first=first,
        inertia_second=second,
        modal_mass=mass,
        stiffness=stiffness,
        node_names=("crank", "slider"),
        node_position=np.array([[0, 0, 0], [ROD, 0, 0]]),
        node_translation=ends[0],
        node_rotation=ends[1],
    )


def slider_crank() -> dx.FlexibleModel:
    """`q = [crank, joint of the rod's first end, modes (4), slider]`."""
    turn = dx.Revolute((0, 0, 1))
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    builder.body("crank", joint=turn, inertia=dx.SpatialInertia(0.0, (0, 0, 0), (0, 0, 0.002727)))
    end = dx.Transform.from_translation((CRANK, 0, 0))
    builder.body("rod", parent="crank", joint=turn, placement=end, inertia=rod())
    slider = dx.SpatialInertia(0.075552, (0, 0, 0), (0, 0, 0))
    builder.body("slider", joint=dx.Prismatic((1, 0, 0)), inertia=slider)
    builder.loop("pin", predecessor="rod/slider", successor="slider", joint=dx.Spherical())
    builder.condition("drive", lambda model, q: q[0] - SPEED * model.time)
    return builder.build()  # pyright: ignore[reportReturnType]


def published(p: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The model's state from `[crank, angle of the rod, slider, modes]` and their rates."""

    def own(x: np.ndarray) -> np.ndarray:
        return np.array([x[0], x[1] - x[0] + TURNS @ x[3:], *x[3:], x[2]])

    return own(p), own(v)
