"""What a rollout carries from step to step, and when that of an embedded model stops.

A step that fails is not taken: the state stays what it was, with a status that says why, and so do the derivatives,
which are gated where they enter the step and where they leave it: of zero times infinity nothing comes out.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from dynax.compile.batching import KEPT
from dynax.compile.zeros import is_zero
from dynax.constraints.independent import LOOSE
from dynax.contact.alart_curnier import Remembered
from dynax.contact.compliant import Patch, compliant_forces
from dynax.contact.scene import Scene
from dynax.embedding.charts import Charted, charted, in_chart, own_columns
from dynax.embedding.coefficients import Columns
from dynax.embedding.model import EmbeddedModel
from dynax.model import Model
from dynax.simulate.compliant import Compliant
from dynax.simulate.geared import geared, on_gears
from dynax.simulate.stepper import AbstractStepper, AnySystem, State, kept, later
from dynax.simulate.touching import Touching
from dynax.simulate.touching_end import nothing
from dynax.simulate.trajectory import RolloutStatus, TouchReport

SINGULAR = 1e-6
"""The last pivot of the conditions by the first: nearer to it no step passes a singular configuration by."""
NEARLY_SINGULAR = 1e-2
"""The same where a motion that goes on is marked: some robots' steps lead past in one."""


class Carried(NamedTuple):
    q: jax.Array
    v: jax.Array
    """Of the model's own independent freedoms."""
    chart: InChart | None = None
    """Of embedded models."""
    touch: TouchReport | None = None
    """Of scenes."""
    patch: Patch | None = None
    """Of scenes whose surfaces yield."""
    forces: jax.Array | None = None
    """Of contacts in the step before, where sensors ask for them, as `Moment.forces`."""
    remembered: Remembered | None = None
    """Of contacts in the step before, where steps have impulses."""


class InChart(NamedTuple):
    columns: Columns
    velocity: jax.Array
    status: jax.Array
    """As a number that has a derivative of zero."""


def begin(method: AbstractStepper, model: AnySystem, q: jax.Array, v: jax.Array, felt: bool = False) -> Carried:
    """The first of them; `felt`: with forces of contacts, none yet."""
    if isinstance(model, Scene):
        patch = Patch.fitting(model, q) if isinstance(method, Compliant) else None
        forces = jnp.zeros((len(model.candidates), 3), q.dtype) if felt else None
        remembered = nothing(model, q.dtype) if isinstance(method, Touching) else None
        touch = TouchReport.none(q.dtype)
        return Carried(q, v, touch=touch, patch=patch, forces=forces, remembered=remembered)
    if not isinstance(model, EmbeddedModel):
        return Carried(q, v)
    return _seen(in_chart(model, own_columns(model, q.dtype), jnp.zeros_like(v)), q, v)


def plain(method: AbstractStepper, model: AnySystem, q, v, tau, dt) -> State:
    """A step in the model's own freedoms."""
    own = cast(Model, model)  # steppers take an embedded model in its place
    q, v = method.step(own, q, v, tau, dt)
    if method.keeps_gears and geared(own):
        return on_gears(own, q), v
    return kept(later(own, dt), (q, v))


def advanced(method: AbstractStepper, model: AnySystem, at: Carried, tau: jax.Array, dt: jax.Array) -> Carried:
    """A step of the method; `model` is that of its beginning."""
    if isinstance(model, Scene) and isinstance(method, Touching):
        found = method.touched(model, at.q, at.v, tau, dt, at.remembered)
        forces = None if at.forces is None else found.impulses / dt
        remembered = lax.stop_gradient(found.remembered)
        return Carried(found.q, found.v, touch=found.report, forces=forces, remembered=remembered)
    if isinstance(model, Scene) and isinstance(method, Compliant):
        assert at.patch is not None
        found = method.yielded(model, at.q, at.v, at.patch, tau, dt)
        forces = None if at.forces is None else compliant_forces(model, found.q, found.v, found.patch).forces
        return Carried(found.q, found.v, touch=found.report, patch=found.patch, forces=forces)
    if not isinstance(model, EmbeddedModel):
        return Carried(*plain(method, model, at.q, at.v, tau, dt))
    return _guarded(method, model, at, tau, dt)


def _seen(model: EmbeddedModel, q: jax.Array, velocity: jax.Array) -> Carried:
    """What a state in a chart is, in the chart that serves there."""
    found = charted(model, q, velocity)
    return Carried(q, found.own, InChart(found.columns, found.velocity, _status(model, q, found)))


def _status(model: EmbeddedModel, q: jax.Array, found: Charted) -> jax.Array:
    same = [jnp.all(a == b) for a, b in zip(found.columns, own_columns(model, q.dtype), strict=True)]
    finite = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(found.velocity)) & jnp.all(jnp.isfinite(found.own))
    cases = (
        (~finite, RolloutStatus.NOT_FINITE),
        (~(found.error < LOOSE), RolloutStatus.OPEN),
        (found.least < SINGULAR, RolloutStatus.SINGULAR),
        (found.least < NEARLY_SINGULAR, RolloutStatus.NEARLY_SINGULAR),
        (~jnp.all(jnp.array([True, *same])), RolloutStatus.OTHER_COORDINATES),
    )
    told = jnp.select([case for case, _ in cases], [float(status) for _, status in cases], RolloutStatus.GOOD.value)
    return lax.stop_gradient(told.astype(q.dtype))


def _stepped(method: AbstractStepper, model: EmbeddedModel, at: Carried, tau: jax.Array, dt: jax.Array) -> Carried:
    assert at.chart is not None
    now = in_chart(model, lax.stop_gradient(at.chart.columns), tau)
    q, velocity = plain(method, now, at.q, at.chart.velocity, jnp.zeros_like(tau), dt)
    return _seen(later(now, dt), q, velocity)


def _or_stay(at: Carried, new: Carried) -> tuple[jax.Array, Carried]:
    """Whether the motion stops, and the state it then keeps."""
    assert at.chart is not None
    assert new.chart is not None
    before, after = at.chart.status, new.chart.status
    already = before >= RolloutStatus.OPEN
    stop = already | (after >= RolloutStatus.OPEN)
    status = jnp.where(already, before, after)
    held = at._replace(chart=at.chart._replace(status=status))
    return stop, jax.tree.map(partial(jnp.where, stop), held, new)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _guarded(method: AbstractStepper, model: EmbeddedModel, at: Carried, tau: jax.Array, dt: jax.Array) -> Carried:
    return _or_stay(at, _stepped(method, model, at, tau, dt))[1]


def _guarded_rate(method: AbstractStepper, primals: tuple, tangents: tuple) -> tuple[Carried, Carried]:
    leaves, structure = jax.tree.flatten(primals)
    rates = jax.tree.leaves(tangents)
    moving = [k for k, rate in enumerate(rates) if not is_zero(rate)]

    def of_moving(values: list) -> tuple[Carried, Carried]:
        every = list(leaves)
        for k, value in zip(moving, values, strict=True):
            every[k] = value
        new = _stepped(method, *structure.unflatten(every))
        return new, new

    _, along, new = jax.linearize(of_moving, [leaves[k] for k in moving], has_aux=True)
    stop, result = _or_stay(primals[1], new)
    stop = checkpoint_name(stop, KEPT)  # or the way back would look for the chart of the end again, to know this
    rate = along([jnp.where(stop, 0.0, rates[k]) for k in moving])
    before = jax.tree.map(_instantiated, primals[1], tangents[1])
    return result, jax.tree.map(partial(jnp.where, stop), before, rate)


def _instantiated(primal: jax.Array, rate: Any) -> jax.Array:
    return jnp.zeros_like(primal) if is_zero(rate) else rate


_guarded.defjvp(_guarded_rate, symbolic_zeros=True)
