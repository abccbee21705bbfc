"""The Coriolis matrix with `Mdot - 2C` skew (Niemeyer and Slotine 1991; Echeandia and Wensing 2021).

Per body `B s = (tr(N) w - N w ; w x p)` with `p` the linear momentum and `N` the first moment of velocity over mass;
both add up over subtrees, so a composite `B` is 12 numbers. With `Sdot` the true rate of a column,

    C_ij = S_i . (I^c Sdot_j + B^c S_j)    with the composite of the deeper body.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.compile.batching import batch_last
from dynax.compile.prepared import Lines
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Force, Mat3, Motion, RigidInertia, Vec3
from dynax.spatial.components import Sym3, component_dataclass
from dynax.tree.bodies import carried_sums, world_inertias
from dynax.tree.freedoms import freedoms, in_velocity_order, on_support, pair, per_freedom
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import column_rates, setup


@component_dataclass
class VelocityMoment:
    """`p = sum m u` and `N = sum m u r^T` over particles with velocity `u` at `r` from the joint."""

    p: Vec3
    n: Mat3

    @staticmethod
    def of(inertia: RigidInertia, velocity: Motion) -> VelocityMoment:
        h, i, w = inertia.moment, inertia.inertia, velocity.angular
        half = 0.5 * i.trace
        second = Sym3(half - i.xx, half - i.yy, half - i.zz, -i.xy, -i.yz, -i.xz).matrix  # sum m r r^T
        columns = tuple(w.cross(column) for column in second.columns)
        return VelocityMoment((inertia @ velocity).linear, velocity.linear.outer(h) + Mat3.from_columns(*columns))

    def __add__(self, other: VelocityMoment) -> VelocityMoment:
        return VelocityMoment(self.p + other.p, self.n + other.n)

    def shift_to_parent(self, offset: Vec3) -> VelocityMoment:
        return VelocityMoment(self.p, self.n + self.p.outer(offset))

    def apply(self, s: Motion) -> Force:
        """`B s`."""
        w = s.angular
        return Force(w * self.n.trace - self.n @ w, w.cross(self.p))

    def apply_transpose(self, s: Motion) -> Force:
        """`B^T s`: a pure couple."""
        w = s.angular
        couple = w * self.n.trace - self.n.transpose_apply(w) + self.p.cross(s.linear)
        return Force(couple, Vec3.zero(couple.x))


def velocity_moments(kin: Parts, inertias: Parts) -> Parts:
    """The velocity moment of each body by itself."""
    return Parts(
        VelocityMoment.of(inertias.roots, kin.roots.velocity), VelocityMoment.of(inertias.rows, kin.rows.velocity)
    )


def coriolis(model: Model, q, v) -> jax.Array:
    """The Coriolis matrix `(nv, nv, *batch)`."""
    s = setup(model, q, v, "automatic", stopped=True)
    kin = kinematics(model, s, v, positions=True)
    inertias = world_inertias(s, kin)
    rows = freedoms(model, s, kin)
    sums = carried_sums(s, kin, inertias, velocity_moments(kin, inertias))
    composite, moment = (per_freedom(s, total) for total in sums)
    velocity = per_freedom(s, Parts(kin.roots.velocity, kin.rows.velocity))
    rate = velocity.cross(rows.column)
    own = column_rates(s, model, v)
    if own is not None:
        slots = own.rotate(s.layout.to_slots(kin.rows.rotation, s.layout.slot_body))
        still = Motion.zero(jnp.zeros((len(s.layout.root_velocity), *s.batch), s.dtype))
        rate = rate + in_velocity_order(s, still, slots)
    at = rows.position
    below = pair(composite @ rows.column, rate, at, at) + pair(moment.apply_transpose(rows.column), rows.column, at, at)
    above = pair(composite @ rate + moment.apply(rows.column), rows.column, at, at)
    return on_support(model, below, jnp.swapaxes(above, 0, 1))


_coriolis = batch_last(coriolis, lines=Lines.PARTS)


@for_models
def coriolis_matrix(model: Model, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """A matrix `C` with `C v` the Coriolis and centrifugal forces and `Mdot - 2 C` skew, shape `(nv, nv)`.

    **Arguments:** `q`: configuration, shape `(nq,)`; `v`: velocity, shape `(nv,)`. Driven joints are taken at rest.
    """
    return _coriolis(model, *as_state(model, q=q, v=v))
