"""The derivative of inverse dynamics of embedded loops transposed, in closed form.

Weights `w` of the embedded forces `X^T (ID(q, u, A) - f)` are velocities `W = X w` of the tree, so that their power is
`W . (ID(q, u, A) - f)` at the velocities `u = X v` and accelerations `A` of the tree. All of these meet conditions,

    K W = 0      K u = 0      K A = k(q, u)

so that they change with `q` by what `Y1^+` makes of the changes of these. Turned round, forces on dependent freedoms
are borne by multipliers, and with those of the tree's own rates `p_q, p_u, p_A` (`derivatives.adjoint`)

    alpha = Y1^+T (ID - f)      beta = Y1^+T p_A      gamma = Y1^+T (p_u + beta . dk/du)
    by v    X^T (p_u + beta . dk/du)
    by q    p_q - alpha . dK W - gamma . dK u - beta . (dK A - dk)

No elimination is differentiated, and no walk: the last terms are those of `constraints.powers`. Forces of joints by
resistance, `slope U` at other velocities `U = X y`, add `delta = Y1^+T slope W` and `-delta . dK U`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.factor import Factor, factorized, solve
from dynax.constraints.powers import Bent, in_closed_form, power_slopes
from dynax.derivatives.adjoint import Weights, is_local, local_power, whole_adjoint
from dynax.derivatives.implicit import Change
from dynax.derivatives.rule import Point, full
from dynax.embedding.coefficients import expanded, multipliers, plan_of, reduced
from dynax.embedding.dynamics import Resisted, State, in_motion, placed
from dynax.embedding.model import EmbeddedModel
from dynax.embedding.rule import ClosedForm
from dynax.model import Model
from dynax.tree.bodies import passive_force, per_velocity
from dynax.tree.kinematics import moved
from dynax.tree.layout import Parts

EXECUTION = "automatic"


def closed_adjoint(model: EmbeddedModel, paths: list) -> ClosedForm | None:
    """Where conditions have a closed form, and leaves that move leave all motions as they are."""
    if not has_closed_adjoint(model) or not all(map(_is_local, paths)):
        return None
    by_bodies = any(path[0].idx == 1 or path[1].name == "tree" for path in paths)
    return ClosedForm(partial(_rates, by_bodies), partial(_adjoint, by_bodies))


def has_closed_adjoint(model: EmbeddedModel) -> bool:
    """Whether the derivatives by `q` and `v` have a closed form."""
    return isinstance(model.tree, Model) and in_closed_form(model.tree.structure)


def _is_local(path: tuple) -> bool:
    if path[0].idx == 1:
        return True
    return path[1].name == "chart" or (path[1].name == "tree" and is_local((path[0], path[2])))


Given = Callable[[tuple], tuple[EmbeddedModel, Any]]


def _adjoint(by_bodies: bool, given: Given, at: Point, bar: jax.Array, factor: Factor | None) -> Change:
    embedded, x = _in_motion(given, at)
    if factor is None:
        p, spot = x.coordinates.plan, x.spot
        factor = factorized(placed(embedded.tree, spot.setup, spot.kin, p.rows, x.coordinates.x, spot.inertias)[1])
    weights = solve(factor, bar[:, None])[:, 0]
    rates = _rates_in(x, by_bodies, given, at, weights)
    return jax.tree.map(jnp.negative, rates)._replace(last=weights)


def _rates(by_bodies: bool, given: Given, at: Point, weights: jax.Array) -> Change:
    return _rates_in(_in_motion(given, at)[1], by_bodies, given, at, weights)


def _in_motion(given: Given, at: Point) -> tuple[EmbeddedModel, State]:
    embedded, _ = given(at.leaves)
    p = plan_of(embedded.tree, embedded.embedding)
    return embedded, in_motion(embedded.tree, at.q, at.v, p, embedded.chart, EXECUTION)


def _rates_in(x: State, by_bodies: bool, given: Given, at: Point, weights: jax.Array) -> Change:
    """`by_bodies`: whether leaves that move act on bodies or joints, and not only forces of the chart."""
    embedded, external = given(at.leaves)
    found = paired(embedded, x, Point(at.q, at.v, at.a, ()), weights, external)

    def power(leaves: tuple) -> jax.Array:
        """In the motion that is known."""
        embedded, external = given(leaves)
        resisted, wrenches = (external, None) if isinstance(external, Resisted) else (None, external)
        joints = jnp.sum(found.weights.freedoms * _against(embedded, resisted, x, at.v), axis=0)
        if not by_bodies:
            return joints
        own = local_power(embedded.tree, found.kin, at.q, x.v, found.a, wrenches, found.weights, EXECUTION)
        return joints + own

    total, pull = jax.vjp(power, at.leaves)
    (leaves,) = pull(jnp.ones_like(total))
    return Change(leaves, found.along_q, found.along_v, found.along_a)


class Paired(NamedTuple):
    """Inverse dynamics paired with weights, in one motion."""

    along_q: jax.Array
    """Rates of the power along the tangent of the tree, shape `(tree nv, *batch)`."""
    along_v: jax.Array
    """Shape `(nv, *batch)`."""
    along_a: jax.Array
    """The mass matrix times the weights, shape `(nv, *batch)`."""
    kin: Parts
    """The tree's motion, with its accelerations."""
    a: jax.Array
    """The tree's accelerations."""
    weights: Weights
    """Of the tree."""


def paired(embedded: EmbeddedModel, x: State, at: Point, weights: jax.Array, external: Any) -> Paired:
    """The power of embedded `weights`, shape `(nv, *batch)`, in the motion `x`; batch axes of the motion may have
    length one where those of the weights are longer. `external`: wrenches on bodies, or `Resisted`."""
    model, p, c, u = embedded.tree, x.coordinates.plan, x.coordinates, x.v
    resisted, wrenches = (external, None) if isinstance(external, Resisted) else (None, external)
    along, a = expanded(p, c.x, weights), x.drift + expanded(p, c.x, at.a)
    change = moved(model, x.setup, x.kin, a)
    kin = Parts(*(k._replace(acceleration=k.acceleration + d) for k, d in zip(x.kin, change, strict=True)))
    both = Weights(along, moved(model, x.setup, x.kin, along))
    own = whole_adjoint(model, x.setup, kin, x.spot.inertias, at.q, u, a, wrenches, both)

    def borne(force: jax.Array) -> jax.Array:
        return multipliers(p, c.elimination, force, len(x.conditions.residual))

    along_q, along_u = own.along_q, own.along_v
    if x.conditions.places is not None:
        tau = own.forces + passive_force(model, at.q, u) + per_velocity(model.armature, a) * a
        tau = tau + _against(embedded, resisted, x, at.v)
        ends, batch = x.conditions.places[0], weights.shape[1:]
        places = jax.tree.map(partial(full, batch=batch), (ends.rotation, ends.translation, ends.columns))
        ends = ends._replace(rotation=places[0], translation=places[1], columns=places[2])
        pairs = [(-borne(tau), along)]
        if resisted is not None:
            pairs.append((-borne(resisted.slope * along), resisted.against(p, c.x, u, at.v)[1]))
        by_q, by_u = power_slopes(model, ends, pairs, Bent(-borne(own.along_a), a, full(u, batch)))
        assert by_u is not None
        along_u = along_u + by_u
        along_q = along_q + by_q + power_slopes(model, ends, [(-borne(along_u), u)])[0]
    return Paired(along_q, reduced(p, c.x, along_u), reduced(p, c.x, own.along_a), kin, a, both)


def _against(embedded: EmbeddedModel, resisted: Resisted | None, x: State, v: jax.Array) -> jax.Array:
    """What joints need besides."""
    force = jnp.zeros_like(x.v) if embedded.chart is None else -embedded.chart.force
    return force if resisted is None else force + resisted.against(x.coordinates.plan, x.coordinates.x, x.v, v)[0]
