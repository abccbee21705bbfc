"""The derivative of inverse dynamics of bodies that bend transposed, in closed form.

Weights `w` of the forces that freedoms need are velocities `W = X w` of the skeleton, so that their power is that of
the forces on all bodies. As the skeleton moves, its rates are those of a tree of rigid bodies (`derivatives.adjoint`),
in which a body that bends has another power,

    p(eta, etad, v) = [W; w] . (M(eta) [a; etadd] + b(eta, etad, v))    F = dp/dW    A = dp/da = M [W; w]
                                                                        C = dp/dv + v x* A, a couple

With the rates `l_q, l_v, l_a, l_W` by displacements, velocities, accelerations and weights of the places,

    by eta     X^T l_q + d/deta (l_v . X etad + l_a . (X etadd + Xdot etad) + l_W . X w + p)
    by etad    X^T l_v + d/detad (l_a . Xdot etad + p)

So JAX differentiates formulas of single bodies and joints, and no walk. Arrays have the axes of the batch last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.coriolis import VelocityMoment
from dynax.algorithms.factor import Factor, factorized, solve
from dynax.bodies.flexible import FlexibleBodies, Modal, Places
from dynax.compile.fence import apart
from dynax.derivatives.adjoint import AtJoints, Couple, at_joints, couple_of
from dynax.derivatives.implicit import Change
from dynax.derivatives.rule import Point, full
from dynax.embedding.flexible import (
    Inertias,
    State,
    at_frames,
    expanded,
    frames,
    heavy_bodies,
    joined,
    of_skeleton,
    on_bodies,
    on_modes,
    own_bodies,
    passive,
    state_of,
)
from dynax.embedding.flexible_nodes import nodes
from dynax.embedding.flexible_plan import plan
from dynax.embedding.rule import ClosedForm
from dynax.model.configuration import rate_rows
from dynax.model.flexible import FlexibleModel
from dynax.spatial import Force, Mat3, Motion
from dynax.sweep import take_entries, take_rows
from dynax.sweep.sums import summed
from dynax.tree.bodies import body_force, external_forces, per_velocity
from dynax.tree.freedoms import columns_of
from dynax.tree.kinematics import kinematics, moved
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, lift, setup


def closed_adjoint(model: FlexibleModel, paths: list) -> ClosedForm | None:
    """Where the state alone moves, and has as many directions as velocities."""
    if paths or not all(joint.holonomic for joint in model.skeleton.topology.joints):
        return None
    return ClosedForm(_rates, _adjoint)


def _full(parts: Any, batch: tuple[int, ...]) -> Any:
    return jax.tree.map(partial(full, batch=batch), parts)


def _adjoint(
    given: Callable[[tuple], tuple[FlexibleModel, Any]], at: Point, bar: jax.Array, factor: Factor | None
) -> Change:
    model, external = given(())
    m = _in_motion(model, at.q, at.v, at.a)
    if factor is None:
        p = plan(model.skeleton.topology, model.members)
        factor = factorized(nodes(model, m.x, m.setup, m.kin, m.inertias, p))
    weights = solve(factor, bar[:, None])[:, 0]
    along_q, along_v, _ = power_rates_in(model, m, external, weights)
    return Change((), -along_q, -along_v, weights)


def _rates(given: Callable[[tuple], tuple[FlexibleModel, Any]], at: Point, weights: jax.Array) -> Change:
    model, external = given(())
    return Change((), *power_rates_in(model, _in_motion(model, at.q, at.v, at.a), external, weights))


class InMotion(NamedTuple):
    """A motion, whose inertias the factor asks for too, and how the formulas of single bodies are differentiated
    there."""

    q: jax.Array
    v: jax.Array
    up: jax.Array
    """Accelerations of the modes, `(bodies, m, *batch)`."""
    x: State
    a: jax.Array
    """Of the skeleton."""
    setup: Setup
    kin: Parts
    rotation: Mat3
    """Of the frames of bodies that bend."""
    velocity: Motion
    """In their axes."""
    inertias: Inertias
    force: Force
    """On these frames, in their axes."""
    of_places: Callable
    """Cotangents of modes and their rates from those of places."""
    of_bodies: Callable
    """Those, and that of the frames' velocities, from cotangents of the forces on frames and modes."""


def _in_motion(model: FlexibleModel, q: jax.Array, v: jax.Array, a: jax.Array) -> InMotion:
    tree, at = model.skeleton, placed(model, q, v)
    x = at.x
    s, whole = setup(tree, x.q, x.v), x.drift + expanded(model, x.bodies, x.columns, a)
    kin = kinematics(tree, s, x.v, whole, positions=True, accelerations=True, gravity=True)
    heavy = heavy_bodies(model)
    turn = s.layout.body_order(Parts(*(k.rotation for k in kin)))
    turn, fixed = take_rows((turn, s.layout.body_order(s.constants).inertia), heavy)
    rigid = on_bodies(model, s, heavy, fixed.rotate(turn))
    return in_motion(model, (q, v, a), at, whole, s, kin, rigid)


class Placed(NamedTuple):
    """A state, and how its places are differentiated."""

    x: State
    of_places: Callable


def placed(model: FlexibleModel, q: jax.Array, v: jax.Array) -> Placed:
    """Whatever the accelerations are."""
    places, bodies = model.places, FlexibleBodies(model, q)
    eta, rate = bodies.modes(q, places.modes_q), bodies.modes(v, places.modes_v)
    moves, of_places, pose = _with_pull(lambda *y: _moves_and_pose(bodies, *y), (eta, rate), q.ndim - 1)
    return Placed(state_of(model, bodies, q, v, eta, rate, Places(pose, *moves)), of_places)


def in_motion(
    model: FlexibleModel, own: tuple, at: Placed, whole: jax.Array, s: Setup, kin: Parts, rigid: Parts
) -> InMotion:
    """From the model's own `(q, v, a)`, and the accelerations, motions and rigid inertias of the skeleton."""
    (q, v, a), x, bodies = own, at.x, at.x.bodies
    up = bodies.modes(a, model.places.modes_v)
    motion = Parts(*((k.rotation, k.velocity, k.acceleration) for k in kin))
    rotation, *both = at_frames(model, s, motion)
    velocity, acceleration = jax.tree.map(apart, [m.rotate_back(rotation) for m in both])

    def bent(eta: jax.Array, rate: jax.Array, velocity: Motion) -> tuple[tuple[Force, jax.Array], Modal]:
        inertia, more, own = bodies.moving(eta, rate, velocity)
        force, modal = inertia.momentum(acceleration, up)
        return (force + more, modal + own + bodies.elastic(eta, rate)), inertia

    (force, _), of_bodies, bending = _with_pull(bent, (x.eta, x.rate, velocity), len(s.batch))
    inertias = Inertias(bending, rigid)
    return InMotion(q, v, up, x, whole, s, kin, rotation, velocity, inertias, force, at.of_places, of_bodies)


def _with_pull(function: Callable, at: tuple, axes: int) -> tuple[Any, Callable, Any]:
    """`jax.vjp` of a function with something else beside its value. Where the first of the axes of the batch has length
    one there, cotangents may have more, which are pulled back from the same point one by one."""
    value, pull, other = jax.vjp(function, *at, has_aux=True)

    def pulled(bars: Any) -> Any:
        if jax.tree.leaves(bars)[0].shape == jax.tree.leaves(value)[0].shape:
            return pull(bars)

        def one(bars: Any) -> Any:
            found = pull(jax.tree.map(lambda y: jnp.expand_dims(y, y.ndim - axes + 1), bars))
            return jax.tree.map(lambda y: jnp.squeeze(y, y.ndim - axes), found)

        found = jax.vmap(one)(jax.tree.map(lambda y: jnp.moveaxis(y, y.ndim - axes, 0), bars))
        return jax.tree.map(lambda y: jnp.moveaxis(y, 0, y.ndim - axes), found)

    return value, pulled, other


def power_rates(model: FlexibleModel, q, v, a, external, weights: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The rates of `weights . inverse_dynamics(q, v, a)` along the tangent of `q`, along `v`, and along `a`, which are
    `M w`; vectors like `v`."""
    return power_rates_in(model, _in_motion(model, q, v, a), external, weights)


def power_rates_in(
    model: FlexibleModel, m: InMotion, external, weights: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The same in a known motion, of which the first axis of the batch may have length one where the weights have
    more."""
    x, kin, bodies, places = m.x, m.kin, m.x.bodies, model.places
    s = m.setup._replace(batch=weights.shape[1:])
    pairs, weight = bodies.modes(weights, places.modes_v), expanded(model, bodies, x.columns, weights)
    moving = moved(model.skeleton, s, kin, weight)
    by_eta, by_rate, by_up, own = _of_bodies(model, m, s, moving, pairs)
    if external is not None:
        outside = external_forces(s, kin, external)
        own[2] = Parts(*(f - e for f, e in zip(own[2], outside, strict=True)))
    at = at_joints(s, kin, moving, *own)

    # Free joints of places: their columns are their own axes.
    rotation = s.layout.body_order(Parts(*((k.rotation,) for k in kin)))[0]
    which = model.skeleton.topology.body_of_velocity[places.freedoms[bodies.displaced, 0]]
    turn, forces = take_rows((rotation, at), which)
    l_q, l_v, l_a, l_w = (jax.tree.map(lambda y: apart(y)[:, None], force.rotate_back(turn)) for force in forces)
    rate, up, pair = (take_rows(y, bodies.owner[bodies.displaced]) for y in (x.rate, m.up, pairs))
    by_columns, by_drift = l_v * rate + l_a * up + l_w * pair, jax.tree.map(lambda y: y[:, 0], l_a)
    by_places = m.of_places((Motion(by_columns.angular, by_columns.linear), Motion(by_drift.angular, by_drift.linear)))
    by_eta, by_rate, by_up = (
        own + more + _by_body(bodies, x.moves.dot(force))
        for own, more, force in zip((by_eta, by_rate, by_up), (*by_places, 0.0), (l_q, l_v, l_a), strict=True)
    )

    q, v = _full((m.q, m.v), s.batch)
    total, pull = jax.vjp(
        lambda d, v: _resisted(model, x, q + rate_rows(model, q, d), v, weights), jnp.zeros_like(v), v
    )
    *parts, by_a = _by_columns(model, s, kin, at)
    parts = parts, *_by_own(model, x, s, rotation, at, m.a, weight)
    bends = on_modes(model, apart(by_eta)), on_modes(model, apart(by_rate))
    every = jax.tree.map(apart, [bends, pull(jnp.ones_like(total)), *parts])
    along_q, along_v = (reduce(jnp.add, each) for each in zip(*every, strict=True))
    reflected = per_velocity(model.skeleton.armature, weight) * weight
    return along_q, along_v, by_a + on_modes(model, apart(by_up)) + take_rows(reflected, places.own_v)


def _moves_and_pose(bodies: FlexibleBodies, eta: jax.Array, rate: jax.Array) -> tuple:
    found = bodies.places(eta, rate)
    return (found.columns, found.drift), found.pose


def _by_body(bodies: FlexibleBodies, of_places: jax.Array) -> jax.Array:
    """Sums over the displaced places of each body."""
    owner = bodies.owner[bodies.displaced]
    return jnp.stack([summed(take_rows(of_places, np.flatnonzero(owner == k)), 0) for k in range(owner.max() + 1)])


def _of_bodies(model: FlexibleModel, m: InMotion, s: Setup, moving: Parts, pairs: jax.Array) -> tuple:
    """The rates of all bodies' power by themselves: by modes, their rates and their accelerations, and `A`, `C` and
    `F`; `s` has the batch of the weights."""
    rotation, velocity, inertia = m.rotation, m.velocity, m.inertias.bending
    motions = s.layout.body_order(Parts(*((k.velocity, k.acceleration, w) for k, w in zip(m.kin, moving, strict=True))))
    weight = take_rows(motions[2], frames(model)).rotate_back(rotation)
    momentum, by_up = inertia.momentum(weight, pairs)
    by_eta, by_rate, by_velocity = m.of_bodies((Force(weight.angular, weight.linear), pairs))
    couple = Couple(by_velocity.angular + velocity.cross(momentum).angular)
    bending = momentum.rotate(rotation), Couple(rotation @ couple.moment), m.force.rotate(rotation)
    heavy = heavy_bodies(model)
    velocity, acceleration, weight = take_rows(motions, heavy)
    own = take_rows(s.layout.body_order(m.inertias.rigid), heavy)
    couple = couple_of(VelocityMoment.of(own, velocity), weight)
    rigid = own @ weight, couple, body_force(own, velocity, acceleration)
    where = np.concatenate([frames(model), heavy])
    every = [on_bodies(model, s, where, joined(a, b)) for a, b in zip(bending, rigid, strict=True)]
    return by_eta, by_rate, by_up, every


def _resisted(model: FlexibleModel, x: State, q: jax.Array, v: jax.Array, weights: jax.Array) -> jax.Array:
    """The power of the weights against damping, friction and springs of joints."""
    at, like = model.places, q[None, None, :1]
    none = [jnp.zeros((len(at.freedoms), n, *q.shape[1:]), like.dtype) for n in (7, 6)]
    whole = [of_skeleton(y, zero, place) for y, zero, place in zip((q, v), none, (at.q, at.v), strict=True)]
    return jnp.sum(weights * passive(model, x._replace(q=whole[0], v=whole[1])), axis=0)


def _by_columns(model: FlexibleModel, s: Setup, kin: Parts, at: AtJoints) -> tuple[jax.Array, ...]:
    """The rates by displacements, velocities and accelerations of joints whose columns stand still, vectors like
    `v`."""
    own = model.places.own_v >= 0
    freedoms = model.places.own_v[own]
    columns = columns_of(model.skeleton, s, kin, freedoms)
    by = take_rows(at, model.skeleton.topology.body_of_velocity[freedoms])
    rates = tuple(apart(columns.dot(force)) for force in (by.displacement, by.velocity, by.acceleration))
    return take_rows(rates, np.where(own, np.cumsum(own) - 1, -1))


def _by_own(model: FlexibleModel, x: State, s: Setup, rotation: Mat3, at: AtJoints, a, weight) -> list:
    """What columns that move add to these, each kind of joint by itself; `a` and `weight` are the skeleton's."""
    topology, time = model.skeleton.topology, lift(model.skeleton.time, 0, len(s.batch), s.dtype)
    parameters = lift(model.skeleton.joint_parameters, 1, len(s.batch), s.dtype)
    found = []
    for kind, members, _ in s.motions:
        bodies = members[np.isin(members, own_bodies(model))]
        if kind.screw is not None or not kind.nv or not len(bodies):
            continue
        q = take_entries(x.q, topology.q_start[bodies], kind.nq)
        rates, ups, pairs = (take_entries(y, topology.v_start[bodies], kind.nv) for y in (x.v, a, weight))
        q, rates = _full((q, rates), s.batch)
        constants = take_entries(parameters, topology.parameter_start[bodies], len(kind.parameters))
        clock = jnp.broadcast_to(time, q[0].shape)
        turn, by = take_rows((rotation, at), bodies)
        _, velocity, acceleration, paired = (force.rotate_back(turn) for force in by)

        def power(d, v, kind=kind, q=q, rates=rates, ups=ups, pairs=pairs, constants=constants, clock=clock,
                  velocity=velocity, acceleration=acceleration, paired=paired):  # fmt: skip
            near = tuple(map(jnp.add, q, kind.rate(q, d, constants)))
            own = kind.motion(near, v, constants, clock)
            total = kind.motion(near, rates, constants, clock).velocity.dot(velocity)
            for column, up, pair in zip(own.columns, ups, pairs, strict=True):
                total = total + up * column.dot(acceleration) + pair * column.dot(paired)
            return total if own.bias is None else total + own.bias.dot(acceleration)

        total, pull = jax.vjp(power, tuple(map(jnp.zeros_like, rates)), rates)
        place = np.full(topology.nv, -1)
        place[(topology.v_start[bodies] + np.arange(kind.nv)[:, None]).reshape(-1)] = np.arange(kind.nv * len(bodies))
        own = model.places.own_v
        which = np.where(own >= 0, place[own], -1)
        found.append(tuple(take_rows(jnp.concatenate(rate), which) for rate in pull(jnp.ones_like(total))))
    return found
