"""How far bodies may bend, and what else a state is no state for.

The kinetic energy of a body that bends is right to second order in its modes and their rates together. Bent further,
it is negative for some motion, and where the tree's is too, its mass matrix has no factor: forward dynamics is NaN.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.compile.batching import batch_last
from dynax.constraints.residual import constraint_names, constraint_residual
from dynax.embedding.flexible import at_frames, state
from dynax.embedding.flexible_composite import composite
from dynax.embedding.model import CLOSED, EmbeddedModel
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
    q, v = as_state(model, q=q, v=v, optional=("v",))
    return reported(model, q, v, _faults(model, q, v))


@extend(check_state, EmbeddedModel)
def _(model, q, v=None):
    """What the tree's configuration may not be, and loops that it does not close."""
    q, v = as_state(model, q=q, v=v, optional=("v",))
    tree = model.tree
    bending = isinstance(tree, FlexibleModel)
    faults = _faults(tree, q, None) if bending else joint_faults(tree, q, None)
    open_at = jnp.abs(constraint_residual(tree, q)) > CLOSED
    text = "{!r} is not closed by `q`: dx.normalize(model, q) closes loops from near, gears and conditions too"
    wrong, messages = [faults.wrong], list(faults.messages)
    for name, rows in constraint_names(tree).items():
        wrong.append(jnp.any(open_at[rows], keepdims=True))
        messages.append(text.format(name))
    if v is not None:
        wrong.append(~jnp.isfinite(v))
        messages += [f"`v` of joint {name!r} is not finite" for name in model.independent_joints]
    return reported(model, q, v, Faults(jnp.concatenate(wrong), messages))


def _faults(model, q: jax.Array, v: jax.Array | None) -> Faults:
    """Those of joints, and bodies that are bent too far."""
    faults = joint_faults(model, q, v)
    text = (
        "body {!r} is bent too far: its kinetic energy, of second order in its modes, is negative for some motion; "
        "accelerations are wrong or no numbers. Bend it less, or choose the inertia of the undeformed body, "
        "body.at_level('ruthless')"
    )
    wrong = jnp.concatenate([faults.wrong, _bent_too_far(model, q)])
    return Faults(wrong, [*faults.messages, *(text.format(member.name) for member in model.members)])


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
