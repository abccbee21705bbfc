"""Equations of motion as linear functions of the parameters of a model (Atkeson, An & Hollerbach 1986; Gautier 1990).

    tau = Y(q, v, a) pi          wrench of a free base = its six rows of Y          v . tau = (v' Y) pi
    energy = y(q, v) pi          M v = P(q, v) pi          d(M v)/dt = tau + F(q, v) pi

The first needs accelerations, which a log has only as differences; the energy, whose growth is the work of the joints,
and the momentum do not (Gautier 1997; Wensing, Kim & Slotine 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.algorithms.frames import forward_kinematics
from dynax.algorithms.regressor import inverse_dynamics_regressor
from dynax.embedding.meanings import tree_motion
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.identify.terms import Term, checked, driven
from dynax.linear.matrices import product
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import configuration_rate, difference, random_configuration


def regressor(
    model: Model | EmbeddedModel,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    terms: Sequence[Term] = ("inertias",),
) -> jax.Array:
    """The matrix `Y` with `Y parameter_vector(model, terms)` the joint forces of `inverse_dynamics`, `(nv, p)`.

    Of an embedded model the rows are those of the independent freedoms, `X^T Y` of the tree that carries the loops, so
    that joints which the loops move count with their friction. For many samples use `jax.vmap`.

    **Arguments:** `q`, `(nq,)`; `v`, `a`, `(nv,)`. `terms`: what the columns stand for, in this order, from
    `"inertias"` (ten per body), `"armature"`, `"damping"`, `"friction_loss"` (smoothed over `model.friction_velocity`),
    `"stiffness"`, `"offset"` (one per freedom that is not of a free base).
    """
    return _regressor(model, *as_state(model, q=q, v=v, a=a), checked(terms))


@partial(jax.jit, static_argnums=4)
def _regressor(model: Model | EmbeddedModel, q, v, a, terms: tuple[Term, ...]) -> jax.Array:
    tree, own = tree_of(model), driven(model)
    mixed = jnp.eye(tree.nv, dtype=q.dtype)
    velocity, acceleration = v, a
    if isinstance(model, EmbeddedModel):
        motion = tree_motion(model, q, v)
        mixed, velocity, acceleration = motion.x.T, motion.v, product(motion.x, a) + motion.bias
    columns = {
        "armature": lambda: acceleration,
        "damping": lambda: velocity,
        "friction_loss": lambda: jnp.tanh(velocity / tree.friction_velocity.astype(q.dtype)),
        "stiffness": lambda: difference(tree, tree.spring_reference.astype(q.dtype), q),
        "offset": lambda: jnp.ones_like(velocity),
    }
    blocks = [
        inverse_dynamics_regressor(model, q, v, a) if term == "inertias" else (mixed * columns[term]())[:, own]
        for term in terms
    ]
    return jnp.concatenate(blocks, axis=1)


def base_wrench_regressor(model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> jax.Array:
    """The rows of `Y` for the wrench `[moment; force]` on a free base, in its axes about its origin, `(6, 10 n)`.

    They need no torque of a joint: what holds the base in flight is zero, on the ground it is what the feet feel, and
    they see all that the other rows see (Ayusawa, Venture & Nakamura 2014). `ValueError` for a model without a free
    base, or with several.
    """
    roots = model.topology.free_roots
    if len(roots) != 1:
        raise ValueError(f"model {model.name!r} has {len(roots)} free bases: a base wrench is that of exactly one")
    rows = model.v_slice(model.joint_names[int(roots[0])])
    return regressor(model, q, v, a)[rows]


def power_regressor(
    model: Model | EmbeddedModel, q: ArrayLike, v: ArrayLike, a: ArrayLike, *, terms: Sequence[Term] = ("inertias",)
) -> jax.Array:
    """`v^T Y`: the power of the joint forces as a linear function of the parameters, shape `(p,)` [W]."""
    q, v, a = as_state(model, q=q, v=v, a=a)
    return product(v, regressor(model, q, v, a, terms=terms))


def _weightless(model: Model | EmbeddedModel) -> Model | EmbeddedModel:
    return model.replace(gravity=jnp.zeros_like(tree_of(model).gravity))


def momentum_regressor(model: Model | EmbeddedModel, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """The matrix `P` with `M(q) v = P pi`, the generalised momentum of the rigid bodies, shape `(nv, 10 n)`."""
    q, v = as_state(model, q=q, v=v)
    return regressor(_weightless(model), q, jnp.zeros_like(v), v)


def momentum_rate_regressor(model: Model | EmbeddedModel, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """The matrix `F` with `d(M v)/dt = tau + F pi`: `C^T v` less gravity, without accelerations, shape `(nv, 10 n)`.

    `Mdot = C + C^T` holds for any generalised speeds, quaternions and free bases included.
    """
    q, v = as_state(model, q=q, v=v)
    # d(M v)/dt at a = 0 is Mdot v, and the bias force is C v + g.
    grown = jax.jvp(lambda q: momentum_regressor(model, q, v), (q,), (configuration_rate(model, q, v),))[1]
    return grown - regressor(model, q, v, jnp.zeros_like(v))


def energy_regressor(model: Model | EmbeddedModel, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """The row `y` with `y pi` the kinetic and potential energy of the rigid bodies, shape `(10 n,)` [J].

    Between two instants it grows by the work of the joint forces. Zero weight is at the world's origin.
    """
    q, v = as_state(model, q=q, v=v)
    poses, gravity = forward_kinematics(model, q), tree_of(model).gravity.astype(q.dtype)
    lifted = jnp.concatenate([poses.translation[:, None], jnp.swapaxes(poses.rotation, 1, 2)], axis=1)
    weight = -product(lifted, gravity)
    potential = jnp.concatenate([weight, jnp.zeros((len(weight), 6), q.dtype)], axis=1).reshape(-1)
    return 0.5 * product(v, momentum_regressor(model, q, v)) + potential


def random_regressor(
    model: Model | EmbeddedModel, samples: int = 200, *, terms: Sequence[Term] = ("inertias",), seed: int = 0
) -> np.ndarray:
    """Regressors of random states within the limits of positions, stacked, shape `(samples nv, p)`, in NumPy.

    Velocities are of 2 and accelerations of 5 units per second (squared), so that weight does not outshine them.
    """
    rng = np.random.default_rng(seed)
    speeds = np.asarray(rng.normal(size=(2, samples, model.nv)) * [[[2.0]], [[5.0]]], tree_of(model).mass.dtype)
    terms = checked(terms)
    return np.concatenate(np.asarray(_sampled(model, jax.random.key(seed), *speeds, terms)))


@partial(jax.jit, static_argnums=4)
def _sampled(model: Model | EmbeddedModel, key, v, a, terms: tuple[Term, ...]) -> jax.Array:
    q = jax.vmap(partial(random_configuration, model))(jax.random.split(key, len(v)))
    return jax.vmap(lambda *state: _regressor(model, *state, terms))(q, v, a)
