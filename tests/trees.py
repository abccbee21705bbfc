"""Random trees with every type of joint, and random states of them.

`TREES` names the trees most tests run on; `tree(name)` builds one once. Placements, anchors, inertias, armature,
damping, springs and gravity are random but the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax.spatial import Transform


def swing(t):
    """A schedule for driven joints."""
    return 0.4 * jnp.sin(1.7 * t) + 0.1 * t


def bent_screw(q):
    """A user's joint: a screw along z whose pitch grows with the angle, and a lift along x."""
    c, s = jnp.cos(q[0]), jnp.sin(q[0])
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    rotation = jnp.stack([jnp.stack([c, -s, zero]), jnp.stack([s, c, zero]), jnp.stack([zero, zero, one])])
    return Transform(rotation, jnp.stack([0.3 * q[1], zero, 0.2 * q[0] + 0.1 * q[0] ** 2]))


MIXED = (
    (-1, dx.Revolute((1.0, 2.0, 0.5))),
    (0, dx.Universal((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))),
    (1, dx.Spherical()),
    (2, dx.Rolling(0.3, axis=(0.0, 1.0, 0.0), direction=(1.0, 0.0, 0.0))),
    (0, dx.Cylindrical((0.3, -1.0, 0.2))),
    (4, dx.Reversed(dx.Helical((0.0, 1.0, 1.0), pitch=0.2))),
    (5, dx.Planar((1.0, 1.0, 0.0))),
    (0, dx.Driven(dx.Revolute((0.0, 1.0, 0.0)), swing)),
    (7, dx.Gimbal("zyx")),
    (7, dx.Reversed(dx.RackAndPinion(0.4))),
    (0, dx.Prismatic((1.0, 0.0, 1.0))),
    (10, dx.UserJoint(bent_screw, 2)),
    (-1, dx.Free()),
    (12, dx.Translation()),
    (13, dx.Reversed(dx.Spherical())),
    (12, dx.Free()),
    (15, dx.RollingBall(0.5)),
    (15, dx.RackAndPinion(0.25, axis=(1.0, 0.0, 0.0), direction=(0.0, 1.0, 0.0))),
    (12, dx.Reversed(dx.Planar())),
    (-1, dx.Helical((0.0, 0.2, 1.0), pitch=-0.15)),
    (-1, dx.Free()),
    (20, dx.Revolute((0.0, 0.0, 1.0))),
)
SCREWS = (
    (-1, dx.Free()),
    (0, dx.Revolute((0.0, 1.0, 0.0))),
    (1, dx.Helical((1.0, 0.0, 0.3), pitch=0.1)),
    (2, dx.Reversed(dx.Revolute((0.0, 0.0, 1.0)))),
    (0, dx.Prismatic((1.0, 0.0, 1.0))),
    (4, dx.Reversed(dx.Prismatic((0.0, 1.0, 1.0)))),
    (4, dx.Reversed(dx.Helical((0.0, 1.0, 0.0), pitch=-0.2))),
    (0, dx.Revolute((1.0, 1.0, 1.0))),
)
ARM = tuple((p, dx.Revolute(a)) for p, a in zip(
    (-1, 0, 1, 2, 1, 4, 4),
    ((0, 0, 1), (0, 1, 0), (1, 0, 0.5), (0, 1, 0), (1, 1, 0), (0, 0, 1), (0, 1, -1)),
    strict=True,
))  # fmt: skip

TREES = {"mixed": MIXED, "screws": SCREWS, "arm": ARM}
"""Every joint, on the ground and floating; one-freedom joints on a floating base; hinges on the ground."""


def random_pose(rng: np.random.Generator, reach: float = 0.5) -> Transform:
    rotation = dx.Rotation.exp(rng.normal(size=3))
    return Transform(np.asarray(rotation.matrix), reach * rng.normal(size=3))


def random_inertia(rng: np.random.Generator) -> dx.SpatialInertia:
    """Of eight particles: a real body, away from its frame's origin."""
    points, masses = 0.4 * rng.normal(size=(8, 3)) + 0.2 * rng.normal(size=3), rng.uniform(0.1, 0.4, 8)
    com = masses @ points / masses.sum()
    r = points - com
    second = np.einsum("k,ki,kj->ij", masses, r, r)
    return dx.SpatialInertia(masses.sum(), com, np.trace(second) * np.eye(3) - second)


def build(
    joints: Sequence[tuple[int, dx.AbstractJoint]],
    seed: int = 0,
    *,
    passive: bool = True,
    order: Sequence[int] | None = None,
) -> dx.Model:
    """A tree of `(parent, joint)` with random numbers; `order` adds the bodies in another order, parents first.

    A body's numbers depend on its index and the seed alone. With `passive`, joints have armature, damping, springs and
    dry friction. Springs of rotations are the same about all axes, and joints that turn and move together have none:
    only then is a force along the logarithm the gradient of an energy.
    """
    rng = np.random.default_rng([seed, 99])
    builder = dx.ModelBuilder(gravity=np.array([1.0, -2.0, -9.0]) + rng.normal(size=3), name="tree")
    for index in range(len(joints)) if order is None else order:
        parent, joint = joints[index]
        own = np.random.default_rng([seed, index])
        free = joint.nv == 6 and parent < 0
        stiffness = np.random.default_rng([seed, index, 1]).uniform(0.0, 3.0, joint.nv)
        if joint.nq != joint.nv:
            stiffness[:] = stiffness[0] * (joint.nv == 3)
        elif "Planar" in repr(joint):
            stiffness[:] = 0.0
        extra = (
            {
                "armature": own.uniform(0.0, 0.3, joint.nv) * (not free),
                "damping": own.uniform(0.0, 0.5, joint.nv) * (not free),
                "friction_loss": own.uniform(0.0, 0.2, joint.nv) * (not free),
                "stiffness": stiffness,
            }
            if passive and joint.nv
            else {}
        )
        builder.body(
            f"b{index}",
            parent="world" if parent < 0 else f"b{parent}",
            joint=joint,
            placement=random_pose(own),
            inertia=random_inertia(own),
            anchor=0.3 * own.normal(size=3),
            **extra,
        )
    rng = np.random.default_rng([seed, 98])
    builder.frame("tool", body=f"b{len(joints) - 1}", placement=random_pose(rng))
    builder.frame("mark", placement=random_pose(rng))
    # Smooth enough for central differences; the default width of dry friction is a hundredth of a radian per second.
    model = builder.build()
    return model.replace(friction_velocity=jnp.asarray(0.5), time=jnp.asarray(0.3))


def elsewhere(model: dx.Model, rng: np.random.Generator) -> dx.Model:
    """The same bodies, described about other points than their centres of mass."""
    d = rng.normal(size=(model.num_bodies, 3))
    mass, (x, y, z) = np.asarray(model.mass), d.T
    squares = np.stack([y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -y * z, -x * z], 1)
    inertia = model.inertia + mass[:, None] * squares
    return model.replace(com=model.com + d, first_moment=-mass[:, None] * d, inertia=inertia)


@lru_cache(maxsize=64)
def tree(name: str, passive: bool = True) -> dx.Model:
    """One of `TREES`."""
    return build(TREES[name], seed=sorted(TREES).index(name), passive=passive)


class State(NamedTuple):
    """`(q, v, a, tau, external)`, or several of them with a leading axis."""

    q: jax.Array
    v: jax.Array
    a: jax.Array
    tau: jax.Array
    external: jax.Array


def states(model: dx.Model, count: int = 4, seed: int = 0) -> State:
    """Random states of a model."""
    rng = np.random.default_rng([seed, model.nv])
    keys = jax.random.split(jax.random.key(seed), count)
    q = jax.vmap(lambda key: dx.random_configuration(model, key))(keys)
    v, a, tau = (jnp.asarray(rng.normal(size=(count, model.nv))) for _ in range(3))
    return State(q, v, a, 3.0 * tau, jnp.asarray(rng.normal(size=(count, model.num_bodies, 6))))


def random_parents(rng: np.random.Generator, bodies: int, *, reach: int = 4, bases: int = 1) -> tuple[int, ...]:
    """A parent array with branches; bodies hang on base `b` as `-1 - b`."""
    return tuple(int(rng.integers(max(-bases, i - reach), i)) if i else -1 for i in range(bodies))
