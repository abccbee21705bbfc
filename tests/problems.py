"""Problems with known answers, and the answers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax.spatial import Transform

G = 9.81
Y = (0.0, 1.0, 0.0)


class Problem(NamedTuple):
    """A model and, for any state, the mass matrix and the bias force it must have."""

    model: dx.Model
    mass: object
    bias: object


def at(x=0.0, y=0.0, z=0.0) -> Transform:
    return Transform(np.eye(3), np.array([x, y, z], dtype=float))


def point(mass: float, *place: float) -> dx.SpatialInertia:
    return dx.SpatialInertia(mass, place)


def pendulum(m=1.3, l=0.7) -> Problem:
    """A point that hangs down at rest and turns about y."""
    model = dx.ModelBuilder().body("bob", joint=dx.Revolute(Y), inertia=point(m, 0, 0, -l)).build()
    return Problem(model, lambda q: [[m * l**2]], lambda q, v: [m * G * l * np.sin(q[0])])


def physical_pendulum(m=2.0, c=0.4, central=0.3) -> Problem:
    inertia = dx.SpatialInertia(m, (0, 0, -c), (0.1, central, 0.2))
    model = dx.ModelBuilder().body("bar", joint=dx.Revolute(Y), inertia=inertia).build()
    return Problem(model, lambda q: [[central + m * c**2]], lambda q, v: [m * G * c * np.sin(q[0])])


def double_pendulum(m=(1.3, 0.8), l=(0.7, 0.5)) -> Problem:
    """Two points on massless rods, angles relative."""
    (m1, m2), (l1, l2) = m, l
    model = (
        dx.ModelBuilder()
        .body("upper", joint=dx.Revolute(Y), inertia=point(m1, 0, 0, -l1))
        .body("lower", parent="upper", joint=dx.Revolute(Y), placement=at(z=-l1), inertia=point(m2, 0, 0, -l2))
        .build()
    )

    def mass(q):
        c = np.cos(q[1])
        both = m2 * (l2**2 + l1 * l2 * c)
        return [[m1 * l1**2 + m2 * (l1**2 + l2**2 + 2 * l1 * l2 * c), both], [both, m2 * l2**2]]

    def bias(q, v):
        h = m2 * l1 * l2 * np.sin(q[1])
        lower = m2 * G * l2 * np.sin(q[0] + q[1])
        return [-h * v[1] * (2 * v[0] + v[1]) + (m1 + m2) * G * l1 * np.sin(q[0]) + lower, h * v[0] ** 2 + lower]

    return Problem(model, mass, bias)


def spring_mass(m=0.8, k=12.0, d=0.3, rest=0.2) -> Problem:
    """A level slide with a spring and a damper."""
    joint = dx.Prismatic((1.0, 0.0, 0.0))
    model = (
        dx.ModelBuilder()
        .body("block", joint=joint, inertia=point(m, 0, 0, 0), stiffness=k, damping=d, spring_reference=rest)
        .build()
    )
    return Problem(model, lambda q: [[m]], lambda q, v: [k * (q[0] - rest) + d * v[0]])


def cart_pole(m=(2.0, 0.4), l=0.6) -> Problem:
    """A cart on x and a point on a rod that stands up at zero."""
    m1, m2 = m
    model = (
        dx.ModelBuilder()
        .body("cart", joint=dx.Prismatic((1.0, 0.0, 0.0)), inertia=point(m1, 0, 0, 0))
        .body("pole", parent="cart", joint=dx.Revolute(Y), inertia=point(m2, 0, 0, l))
        .build()
    )

    def mass(q):
        c = m2 * l * np.cos(q[1])
        return [[m1 + m2, c], [c, m2 * l**2]]

    return Problem(model, mass, lambda q, v: [-m2 * l * np.sin(q[1]) * v[1] ** 2, -m2 * G * l * np.sin(q[1])])


def free_body(moments=(0.2, 0.5, 0.4), m=1.7) -> dx.Model:
    """A body that flies, its centre of mass at its origin: projectile, Euler top."""
    return dx.ModelBuilder().body("body", joint=dx.Free(), inertia=dx.SpatialInertia(m, (0, 0, 0), moments)).build()


def heavy_top() -> dx.Model:
    """The heavy top of the benchmark B-TOP: a point fixed, the centre of mass at (0, 1, 0)."""
    inertia = dx.SpatialInertia(15.0, (0.0, 1.0, 0.0), (0.234375, 0.46875, 0.234375))
    return dx.ModelBuilder().body("top", joint=dx.Spherical(), inertia=inertia).build()


ZIGZAG_TORQUE = (126.4936, 97.4663, 69.9762, 43.7998, 21.9371, 6.1646)
ZIGZAG_ROUNDED = (126.0, 97.5, 70.0, 43.8, 21.9, 6.16)
ZIGZAG_ACCELERATION = (0.6592, 1.3654, 1.3808, 0.5894, 0.9057, 1.0705)


def planar_chain(n: int) -> dx.Model:
    """Unit links in a plane without gravity: mass 1, length 1, centre at a half, moment 1/12."""
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    link = dx.SpatialInertia(1.0, (0.5, 0.0, 0.0), (0.0, 1 / 12, 1 / 12))
    for k in range(n):
        builder.body(
            f"link{k}",
            parent=f"link{k - 1}" if k else "world",
            joint=dx.Revolute((0, 0, 1)),
            placement=at(1.0) if k else None,
            inertia=link,
        )
    return builder.build()


def zigzag() -> tuple[dx.Model, jnp.ndarray]:
    """Six links, the angles between them alternating by 75 degrees (Featherstone 2008, section 10.2)."""
    return planar_chain(6), jnp.asarray(np.deg2rad([75.0, -75.0, 75.0, -75.0, 75.0, -75.0]))
