"""The log-determinant of the mass matrix and the potential made of it, in O(n) (Jain, SOA-LOGDET, LOGDET-GRAD, FIXMAN).

From the innovations factor, log det M = sum log D. Along the motion `u = S dq` of one joint, what the joint carries
stays as it is, seen from its body; its axes `S` may change in the body by `dS`, and what it hands to its parent moves:

    d log det M = 2 tr(D^-1 dS^T P S) - 2 tr((u x)^T P+ Y) - 2 tr(G dS^T P+ Y)      Y = phi* Upsilon of the parent phi

with `u x` the 6x6 matrix of the cross product. For one freedom with a fixed axis only the second term is left, and it
is `-2 tr(P Upsilon (u x)^T)`: minus, where the source prints plus.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.algorithms.articulated import hinged
from dynax.algorithms.factor import factorize, log_det
from dynax.bodies.hinge import Hinge, HingeGains, slot_rows
from dynax.compile.batching import batch_last
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import integrate_rows
from dynax.model.kinds import for_models
from dynax.operators.upsilon import Compliance, compliances
from dynax.spatial import ArticulatedInertia, Force, Mat3, Vec3
from dynax.sweep import take_rows
from dynax.tree.bodies import world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.nodes import articulate
from dynax.tree.setup import Setup, setup, slot_columns


class Outlook(NamedTuple):
    """What the gradient reads, in slot rows, world axes about the joints."""

    slots: Hinge
    gains: HingeGains
    handed: ArticulatedInertia
    """`P+`"""
    above: Compliance
    """`Y`"""
    rotation: Mat3


def outlook(model: Model, s: Setup) -> Outlook:
    """One walk inward for the articulated inertias, one outward for the compliances."""
    kin = kinematics(model, s)
    inertias, slots = world_inertias(s, kin), slot_rows(model, s, kin)

    def inward(handed, x):
        slot, inertia = x
        p, gains = articulate(handed, inertia, slot)
        return slot.handed(p), (gains, p)

    tree = hinged(model, s, slots, inertias)
    zero = ArticulatedInertia.zero(jnp.zeros(s.batch, s.dtype))
    p, (gains, handed) = tree.order.walk.gather(inward, zero, (slots, tree.inertia))
    above = compliances(s.layout, s.root_rotation, slots, gains, tree.bases.closed(p))
    return Outlook(slots, gains, handed, above, s.layout.to_slots(kin.rows.rotation, s.layout.slot_body))


def turning(handed: ArticulatedInertia, above: Compliance) -> Force:
    """The force `b` with `u . b = tr((u x)^T P+ Y)` for every motion `u`."""
    moment = handed.inertia.matrix @ above.angular.matrix + handed.coupling @ above.coupling.T
    force = handed.coupling.T @ above.coupling + handed.mass.matrix @ above.linear.matrix
    mixed = handed.coupling.T @ above.angular.matrix + handed.mass.matrix @ above.coupling.T
    return Force(_axial(moment + force), _axial(mixed))


def _axial(a: Mat3) -> Vec3:
    """The vector `b` with `w . b = tr((w x)^T a)`."""
    return Vec3(a.zy - a.yz, a.xz - a.zx, a.yx - a.xy)


def log_det_gradient(model: Model, q: jax.Array) -> jax.Array:
    """The gradient along the tangent space, shape `(nv, *batch)`; zero for the free roots."""
    s = setup(model, q)
    x, plan = outlook(model, s), s.layout
    # A joint moves what its first slot hands on.
    first = np.full(len(plan.body_of_row), -1)
    ends = np.flatnonzero(plan.slot_first >= 0)
    first[plan.slot_first[ends]] = ends
    at_first = plan.to_slots(take_rows(turning(x.handed, x.above), first), plan.slot_body)
    still = jnp.zeros((len(plan.root_velocity), *s.batch), s.dtype)
    gradient = plan.order.vector(still, -2.0 * x.slots.column.dot(at_first))
    if model.topology.all_screws:
        return gradient
    gain = x.gains.gain / x.gains.root
    own = (gain - x.handed @ (x.above @ gain)).rotate_back(x.rotation)

    def along_columns(dq: jax.Array) -> jax.Array:
        """Its gradient at zero is `dS . own`, summed over the columns of each joint."""
        moved = setup(model, integrate_rows(model, q, dq))
        return jnp.sum(slot_columns(moved, model).dot(own))

    return gradient + 2.0 * jax.grad(along_columns)(jnp.zeros((model.nv, *s.batch), s.dtype))


_log_determinant = batch_last(lambda model, q: log_det(factorize(model, q)))
_log_det_gradient = batch_last(log_det_gradient)


@for_models
def log_determinant(model: Model, q: ArrayLike) -> jax.Array:
    """The natural logarithm of the determinant of the mass matrix, armature included, in O(n); a scalar.

    It is minus infinity where nothing resists a freedom: a massless last body without armature.

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _log_determinant(model, *as_state(model, q=q))


def fixman_potential(model: Model, q: ArrayLike, kT: ArrayLike) -> jax.Array:
    """Fixman's potential `(kT / 2) log det M(q)` [J], in O(n); a scalar (Fixman 1974; Jain 1997).

    At thermal equilibrium rigid bonds weight configurations by `sqrt(det M)`; with this potential they no longer do.

    **Arguments:**

    - `q`: configuration, shape `(nq,)`.
    - `kT`: Boltzmann's constant times the temperature [J].
    """
    return 0.5 * jnp.asarray(kT) * log_determinant(model, q)


def fixman_torque(model: Model, q: ArrayLike, kT: ArrayLike) -> jax.Array:
    """The joint forces of `fixman_potential`, minus its gradient along the tangent space, in O(n); shape `(nv,)` [N, N
    m].

    In closed form from articulated inertias and compliances, for joints of every type. The first joint of a tree feels
    none if its columns are fixed in its body, nor does a free root.

    **Arguments:** as for `fixman_potential`.
    """
    return -0.5 * jnp.asarray(kT) * _log_det_gradient(model, *as_state(model, q=q))
