"""How far bodies may bend.

The kinetic energy of a body that bends is right to second order in its modes and their rates together. Bent further,
it is negative for some motion, and where the tree's is too, its mass matrix has no factor: forward dynamics is NaN.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.compile.batching import batch_last
from dynax.embedding.flexible import at_frames, composite, state
from dynax.model.checks import as_state
from dynax.model.flexible import FlexibleModel
from dynax.model.kinds import extend
from dynax.model.validity import Faults, check_state, joint_faults, reported
from dynax.spatial import Motion
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import setup

_composite = batch_last(composite)


@extend(check_state, FlexibleModel)
def _(model, q, v=None):
    q, v = as_state(model, q=q, v=v)
    faults = joint_faults(model, q, v)
    text = (
        "body {!r} is bent too far: its kinetic energy, of second order in its modes, is negative for some motion; "
        "accelerations are wrong or no numbers. Bend it less, or choose the inertia of the undeformed body, "
        "body.at_level('ruthless')"
    )
    wrong = jnp.concatenate([faults.wrong, _bent_too_far(model, q)])
    messages = [*faults.messages, *(text.format(member.name) for member in model.members)]
    return reported(model, q, v, Faults(wrong, messages))


@jax.jit
def _bent_too_far(model: FlexibleModel, q: jax.Array) -> jax.Array:
    """For each body that bends whether it takes most from the energy of a motion whose energy is not positive."""
    mass = _composite(model, q)
    diagonal = jnp.abs(jnp.diagonal(mass))
    size = jnp.sqrt(jnp.where(diagonal > 0.0, diagonal, 1.0))
    values, vectors = jnp.linalg.eigh(mass / size / size[:, None])
    energies = _energies(model, q, vectors[:, 0] / size)
    rounding = 10.0 * jnp.finfo(q.dtype).eps
    return (values[0] < -rounding) & (jnp.arange(len(energies)) == jnp.argmin(energies))


@batch_last
def _energies(model: FlexibleModel, q: jax.Array, v: jax.Array) -> jax.Array:
    """The kinetic energy of each body that bends."""
    at = state(model, q, v)
    s = setup(model.tree, at.q, at.v)
    kin = kinematics(model.tree, s, at.v, positions=True)
    rotation, velocity = at_frames(model, s, Parts(*((k.rotation, k.velocity) for k in kin)))
    own: Motion = velocity.rotate_back(rotation)
    force, modal = at.bodies.inertia(at.eta).momentum(own, at.rate)
    return 0.5 * (own.dot(force) + jnp.sum(modal * at.rate, axis=1))
