"""The systems that steppers are tried on, and a loop of any number of steps that is compiled once."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx

STEPPERS = {"semi_implicit": 1, "explicit": 1, "heun": 2, "rk4": 4, "implicit_midpoint": 2, "variational": 2}
"""The names and their orders."""


def at(*translation: float) -> dx.Transform:
    return dx.Transform(np.eye(3), np.array(translation))


def solid(mass: float, com, moments) -> dx.SpatialInertia:
    return dx.SpatialInertia(mass, com, np.diag(moments))


def floating_tree(joint: dx.AbstractJoint | None = None) -> dx.Model:
    """A free body that carries a joint, by default a spherical one, which carries a hinge with a rotor and a spring."""
    b = dx.ModelBuilder(name="floating")
    b.body("trunk", joint=dx.Free(), inertia=solid(2.0, [0.05, 0.02, -0.03], [0.1, 0.15, 0.2]))
    arm, hand = solid(1.0, [0.0, 0.1, 0.25], [0.05, 0.04, 0.03]), solid(0.7, [0.1, 0.0, 0.2], [0.02, 0.03, 0.01])
    b.body("arm", parent="trunk", joint=joint or dx.Spherical(), placement=at(0.3, 0.1, 0.0), inertia=arm)
    hinge = dx.Revolute((1.0, 0.3, 0.0))
    b.body("hand", parent="arm", joint=hinge, placement=at(0, 0, 0.5), inertia=hand, armature=0.05, stiffness=0.8)
    return b.build()


def double_pendulum(name: str = "pendulum", damping: float = 0.1) -> dx.Model:
    """Two hinges under gravity, small enough to differentiate at leisure."""
    b, hinge = dx.ModelBuilder(name=name), dx.Revolute((0.0, 1.0, 0.0))
    b.body("upper", joint=hinge, damping=damping, inertia=solid(1.0, [0, 0, -0.5], [0.1, 0.1, 0.01]))
    lower = solid(0.7, [0, 0, -0.4], [0.05, 0.05, 0.01])
    b.body("lower", parent="upper", joint=hinge, placement=at(0, 0, -1), armature=0.02, inertia=lower)
    return b.build()


def moving(model: dx.Model) -> tuple[jax.Array, jax.Array]:
    """A state that excites everything."""
    q, v = jax.random.split(jax.random.key(3))
    return dx.random_configuration(model, q), jax.random.normal(v, (model.nv,))


@jax.jit
def energy(model: dx.Model, q, v) -> jax.Array:
    return dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q)


@partial(jax.jit, static_argnames="stepper")
def advance(model: dx.Model, q, v, dt, steps, stepper: str) -> tuple[jax.Array, jax.Array]:
    """The state after `steps` free steps."""
    still = jnp.zeros(model.nv)
    return jax.lax.fori_loop(0, steps, lambda _, s: dx.step(model, *s, still, dt, stepper=stepper), (q, v))


def apart(model: dx.Model, one, other) -> float:
    """How far two states are from each other."""
    return float(np.linalg.norm(dx.difference(model, one[0], other[0])) + np.linalg.norm(one[1] - other[1]))
