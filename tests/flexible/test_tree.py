"""Trees with bodies that bend, by recursion over nodes, against sums over their particles."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.systems import RIGID, System, arm, at, body_of, by_particles, chain, floating, nodal_data, random_state
from simulate.systems import advance, energy

import dynax as dx
from dynax.embedding.flexible import inverse
from dynax.embedding.flexible_adjoint import power_rates
from dynax.embedding.flexible_meanings import kept_flexible_dynamics
from dynax.embedding.flexible_nodes import forward

close = partial(np.testing.assert_allclose, rtol=1e-11, atol=1e-11)


@pytest.mark.spec(
    "FLEX-TREE", "FLEX-ID", "FLEX-CRB", "FLEX-MASS", "FLEX-F", "FLEX-ABA", "FLEX-ABA-SPLIT", "FLEX-RICC", "FLEX-LEM4",
    "FLEX-AM", "ERR-15", "ERR-16", "ERR-17",
)  # fmt: skip
def test_recursions_are_sums_over_particles(rng):
    """Rigid and flexible bodies mixed, several children, the first node moving: nothing here is modal but `q`."""
    system = System(rng)
    model = system.model
    q, v, a, tau = random_state(model, rng)
    mass, needed = by_particles(system, q, v, a)
    close(dx.mass_matrix(model, q), mass)
    close(dx.inverse_dynamics(model, q, v, a), needed)
    close(0.5 * v @ mass @ v, dx.kinetic_energy(model, q, v))
    expected = np.linalg.solve(mass, tau - (needed - mass @ a))
    for execution in ("levels", "segments"):
        found = dx.forward_dynamics(model, q, v, tau, execution=execution)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    full = jax.jit(partial(forward, full=True))(model, q, v, tau, None)
    np.testing.assert_allclose(full, found, rtol=1e-12, atol=1e-12 * np.abs(found).max())
    close(dx.inverse_mass_matrix(model, q) @ mass, np.eye(model.nv))
    close(dx.log_determinant(model, q), np.linalg.slogdet(mass)[1])


@pytest.mark.spec("FLEX-BM", "FLEX-ANODE", "FLEX-KIN", "FLEX-LOCK/PRESC")
def test_a_free_tree_keeps_momentum_and_energy(rng):
    """At one state, by derivatives along its motion: nothing is lost to a step of time. And what is seen of it moves as
    it says."""
    model = floating(nodal_data(rng, 3), nodal_data(rng, 2))
    q, v, a, tau = random_state(model, rng)
    names = ("bus", "bus/tip", "boom/side", "wheel")
    external = np.zeros((model.num_bodies, 6))
    external[[model.body_index(name) for name in names]] = rng.normal(size=(4, 6))

    @jax.jit
    def found(model, q, v, a, tau, external):
        rate = dx.configuration_rate(model, q, v)

        def along(function, a):
            return jax.jvp(function, (q, v), (rate, a))

        def whole(q, v):
            return dx.momentum(model, q, v), dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q)

        def seen(q, v):
            return dx.forward_kinematics(model, q), dx.body_velocities(model, q, v)

        damped = tuple(dataclasses.replace(body, damping=0.0 * body.damping) for body in model.bodies)
        loose = model.replace(bodies=damped)
        jacobians = [dx.jacobian(model, q, name, frame="body") for name in names]
        return {
            "free": along(whole, dx.forward_dynamics(loose, q, v, jnp.zeros_like(v))),
            "seen": along(seen, a),
            "accelerations": dx.body_accelerations(model, q, v, a),
            "jacobians": jacobians,
            "biases": [dx.jacobian_bias(model, q, v, name, frame="body") for name in names],
            "pushed": dx.inverse_dynamics(model, q, v, a, external),
            "alone": dx.inverse_dynamics(model, q, v, a),
            "transmitted": dx.joint_forces(model, q, v, a, external),
            "hybrid": dx.hybrid_dynamics(model, q, v, tau, a, ("bus/modes", "boom_joint"), external),
        }

    x = found(model, q, v, a, tau, external)
    (momentum, energy), (force, power) = x["free"]
    np.testing.assert_allclose(force, 0.0, atol=1e-12 * np.abs(momentum).max())
    np.testing.assert_allclose(power, 0.0, atol=1e-12 * energy)

    (poses, velocities), (rates, accelerations) = x["seen"]
    moving = np.einsum("nij,ni->nj", poses.rotation, rates.translation)
    spin = np.einsum("nij,nik->njk", poses.rotation, rates.rotation)
    close(velocities, np.column_stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0], moving]))
    close(x["accelerations"], accelerations)
    places = [model.body_index(name) for name in names]
    for body, jacobian, bias in zip(places, x["jacobians"], x["biases"], strict=True):
        close(jacobian @ v, velocities[body])
        close(jacobian @ a + bias, accelerations[body])
    pushes = sum(jacobian.T @ external[body] for body, jacobian in zip(places, x["jacobians"], strict=True))
    close(x["alone"] - x["pushed"], pushes)
    close(x["transmitted"][0], x["pushed"][:6])
    held, forces = x["hybrid"]
    given = np.zeros(model.nv, dtype=bool)
    given[model.v_slice("bus/modes")] = given[model.v_slice("boom_joint")] = True
    np.testing.assert_array_equal(np.where(given, a, 0.0), np.where(given, held, 0.0))
    np.testing.assert_array_equal(np.where(given, 0.0, tau), np.where(given, 0.0, forces))
    close(dx.inverse_dynamics(model, q, v, held, external), forces)


def test_what_is_known_of_numbers_changes_nothing(rng):
    """A model that knows its frames to be clamped and which places weigh, against one whose numbers are traced."""
    light = chain(2, 1)
    mass = light.skeleton.mass.at[light.body_index("b1/tip")].set(0.7)
    model = light.replace(mass=mass)
    assert [(m.clamped, m.loaded) for m in light.members] == [(True, ()), (True, ())]
    assert [(m.clamped, m.loaded) for m in model.members] == [(True, ()), (True, (model.body_index("b1/tip"),))]
    q, v, tau = 0.01 * rng.normal(size=(3, model.nv))

    @jax.jit
    def traced(bodies, mass):
        other = light.replace(bodies=bodies, mass=mass)
        assert not any(m.clamped for m in other.members)
        assert all(len(m.loaded) == 2 for m in other.members)
        return dx.forward_dynamics(other, q, v, tau)

    moved = tuple(jax.tree.map(lambda a: a + 0.0, body) for body in model.bodies)
    known = dx.forward_dynamics(model, q, v, tau)
    close(traced(moved, mass), known, atol=1e-9 * np.abs(known).max())


@pytest.mark.spec("FLEX-DATA")
def test_no_modes_are_a_rigid_body(rng):
    """The same model, number by number, but for the rounding of a centre of mass."""
    data = nodal_data(rng, 0)
    arms = data["position"] - (com := data["mass"] @ data["position"] / data["mass"].sum())
    tensor = sum(m * (r @ r * np.eye(3) - np.outer(r, r)) for m, r in zip(data["mass"], arms, strict=True))
    flexible, rigid = dx.ModelBuilder(), dx.ModelBuilder()
    for builder, inertia in ((flexible, body_of(data)), (rigid, None)):
        builder.body("hub", joint=dx.Revolute((0, 1, 0)), inertia=RIGID)
        if inertia is None:
            own = dx.SpatialInertia(data["mass"].sum(), com - data["position"][0], tensor)
            builder.body("panel", parent="hub", joint=dx.Revolute((1, 0, 0)), placement=at(0.1, 0, 0), inertia=own)
            tip: dict[str, Any] = {"parent": "panel", "placement": at(*(data["position"][2] - data["position"][0]))}
        else:
            builder.body("panel", parent="hub", joint=dx.Revolute((1, 0, 0)), placement=at(0.1, 0, 0), inertia=inertia)
            tip = {"parent": "panel/tip"}
        builder.body("camera", joint=dx.Revolute((0, 0, 1)), inertia=RIGID, **tip)
    one, other = flexible.build(), rigid.build()
    assert type(one) is type(other)
    for name in ("mass", "com", "inertia", "placements", "hinges"):
        jax.tree.map(
            partial(np.testing.assert_allclose, rtol=1e-13, atol=1e-13), getattr(one, name), getattr(other, name)
        )


@pytest.mark.spec("FLEX-LIN", "B-BEAM")
@pytest.mark.parametrize(
    ("joint", "modes", "hubs", "exact"),
    [
        (dx.Revolute((0, 0, 1)), 2, np.array([0.0, 0.1]), [[15.43517], [6.96426]]),
        (dx.Revolute((0, 0, 1)), 3, np.array([0.0]), [[15.41940, 50.12742]]),
        (dx.Planar((0, 0, 1)), 2, np.array([0.0]), [[22.47662]]),
    ],
)
def test_frequencies_of_a_beam_on_a_joint(joint, modes, hubs, exact):
    """Modes of a cantilever behind a joint are those of another beam: forward dynamics linearised at rest."""
    unit = dx.BeamSection(EA=1e4, EIy=1.0, EIz=1.0, GJ=1.0, mass_per_length=1.0)
    beam = dx.beam_elements(unit, 1.0, elements=40)
    held: dict[str | int, str] = {k: "1345" if k else "123456" for k in range(41)}
    body = beam.body(beam.modes(modes, held=held))
    model = dx.ModelBuilder(gravity=(0, 0, 0)).body("beam", joint=joint, inertia=body).build()

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    @partial(jax.vmap, in_axes=(None, 0), out_axes=1)
    def pull(hub, d):
        own = model.replace(armature=model.armature.at[0].add(hub))
        zero = jnp.zeros(model.nv)
        return dx.forward_dynamics(own, dx.integrate(own, dx.neutral(own), d), zero, zero)

    step = 1e-6 * np.eye(model.nv)  # differences: derivatives make longer programs
    for matrix, wanted in zip((pull(hubs, step) - pull(hubs, -step)) / 2e-6, exact, strict=True):
        found = np.sqrt(np.sort(np.abs(np.linalg.eigvals(matrix))))[joint.nv :]
        np.testing.assert_allclose(found[: len(wanted)], wanted, rtol=2e-6)


def small(rng) -> dx.FlexibleModel:
    """A body of two modes on a hinge, with a rigid one on its tip."""
    builder = dx.ModelBuilder()
    builder.body("boom", joint=dx.Revolute((0, 1, 0)), inertia=body_of(nodal_data(rng, 2)))
    builder.body("tip", parent="boom/tip", joint=dx.Revolute((1, 0, 0)), inertia=RIGID)
    return cast(dx.FlexibleModel, builder.build())


def test_derivatives_and_batches(rng):
    """By the state, and by stiffness, shapes and mass of a body: against differences, and the same in reverse."""
    model = small(rng)
    q, v, tau, along = random_state(model, rng)

    def acceleration(scale, q, v):
        (body,) = model.bodies
        scaled = {name: scale * getattr(body, name) for name in ("stiffness", "node_rotation", "mass", "modal_mass")}
        other = model.replace(bodies=(dataclasses.replace(body, **scaled),))
        return dx.forward_dynamics(other, q, v, tau)

    tangent = (1.0, dx.configuration_rate(model, q, along), along)
    forward_mode = jax.jit(lambda *at: jax.jvp(acceleration, at, tangent)[1])(1.0, q, v)
    step = 1e-5
    at_steps = jax.jit(jax.vmap(acceleration))(
        *(jnp.stack([x - step * dx, x + step * dx]) for x, dx in zip((1.0, q, v), tangent, strict=True))
    )
    np.testing.assert_allclose((at_steps[1] - at_steps[0]) / (2 * step), forward_mode, rtol=1e-7, atol=1e-6)
    backward = jax.jit(jax.grad(lambda *at: acceleration(*at) @ tau, argnums=(0, 1, 2)))(1.0, q, v)
    np.testing.assert_allclose(sum(jnp.sum(g * t) for g, t in zip(backward, tangent, strict=True)), forward_mode @ tau)


@pytest.mark.parametrize("moving", [(1, 2, 3), pytest.param((0, 1, 2, 3), marks=pytest.mark.slow)])
def test_the_acceleration_that_rollouts_keep(rng, moving):
    """Where rollouts keep it derivatives are those of forward dynamics, of a batch, by the state, which has a closed
    form, and by a body's stiffness too."""
    model = small(rng)
    q, v, tau, weights = (jnp.stack([x, 0.7 * x]) for x in random_state(model, rng))

    def of(function):
        @jax.checkpoint
        def power(stiffness, q, v, tau, weights):
            bodies = (dataclasses.replace(model.bodies[0], stiffness=stiffness),)
            return weights @ function(model.replace(bodies=bodies), q, v, tau, None)

        gradient = jax.vmap(jax.grad(power, argnums=moving), in_axes=(None, 0, 0, 0, 0))
        return jax.jit(gradient)(model.bodies[0].stiffness, q, v, tau, weights)

    for ours, theirs in zip(*map(jax.tree.leaves, map(of, (kept_flexible_dynamics, dx.forward_dynamics))), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max())


@pytest.mark.parametrize("bent", [0.05, 0.0])
@pytest.mark.parametrize("kind", [arm, floating])
def test_rates_of_power_are_derivatives_of_inverse_dynamics(rng, kind, bent):
    """Joints of all sorts, columns that move among them, unlike numbers of modes, first nodes that move, a free base
    that bends: the closed form is what differentiating the recursion gives, also where nothing is bent."""
    model = kind(nodal_data(rng, 3), nodal_data(rng, 2), (0.1, 0.2, -9.0)) if kind is floating else kind(
        nodal_data(rng, 3), nodal_data(rng, 2)
    )  # fmt: skip
    modes = np.concatenate([row[row >= 0] for row in model.places.modes_q])
    q = dx.random_configuration(model, jax.random.key(1)).at[modes].set(bent * rng.normal(size=len(modes)))
    v, a, weights = jnp.asarray(rng.normal(size=(3, model.nv)))
    external = jnp.asarray(rng.normal(size=(model.num_bodies, 6)))

    def power(step, v, a):
        return weights @ inverse(model, q + dx.configuration_rate(model, q, step), v, a, external)

    expected = jax.jit(jax.grad(power, argnums=(0, 1, 2)))(jnp.zeros(model.nv), v, a)
    found = jax.jit(lambda q, v: power_rates(model, q, v, a, external, weights))(q, v)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13 * np.abs(theirs).max())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [arm, floating])
def test_jacobians_of_accelerations_undo_those_of_forces(rng, kind):
    """All ways back by one motion, of a batch: `M da/dx = -dID/dx`, whose right side is not found so."""
    model = kind(nodal_data(rng, 3), nodal_data(rng, 2))
    q, v, tau, _ = (jnp.stack([x, y]) for x, y in zip(random_state(model, rng), random_state(model, rng), strict=True))
    external = jnp.asarray(rng.normal(size=(2, model.num_bodies, 6)))

    @jax.jit
    @jax.vmap
    def both(q, v, tau, external):
        a = dx.forward_dynamics(model, q, v, tau, external)
        found = dx.forward_dynamics_derivatives(model, q, v, tau, external)
        return found, dx.inverse_dynamics_derivatives(model, q, v, a, external)

    found, forces = both(q, v, tau, external)
    for along, needed in ((found.q, forces.q), (found.v, forces.v), (found.tau, -np.eye(model.nv) + 0.0 * forces.a)):
        undone = np.asarray(forces.a) @ np.asarray(along)
        np.testing.assert_allclose(undone, -np.asarray(needed), rtol=1e-9, atol=1e-10 * np.abs(needed).max())


@pytest.mark.slow
@pytest.mark.spec("FLEX-LIN")
def test_second_derivatives_of_accelerations(rng):
    """By the state and the forces, and by a stiffness after the state: those of the gradient's differences."""
    model = small(rng)
    q, v, tau, weights = random_state(model, rng)
    rates = list(jnp.asarray(rng.normal(size=(3, model.nv))))
    stiffness, change = model.bodies[0].stiffness, jnp.asarray(rng.normal(size=model.bodies[0].stiffness.shape))

    def power(stiffness, step, v, tau):
        stiff = model.replace(bodies=(dataclasses.replace(model.bodies[0], stiffness=stiffness),))
        return weights @ dx.forward_dynamics(stiff, q + dx.configuration_rate(model, q, step), v, tau)

    slope = jax.jit(jax.grad(power, argnums=(1, 2, 3)))
    point = stiffness, jnp.zeros(model.nv), v, tau
    for way in ((jnp.zeros_like(stiffness), *rates), (change + change.T, *map(jnp.zeros_like, rates))):
        found = jax.jit(lambda *way: jax.jvp(slope, point, way)[1])(*way)
        ahead, behind = (slope(*(x + sign * 1e-5 * d for x, d in zip(point, way, strict=True))) for sign in (1, -1))
        for rate, there, here in zip(found, ahead, behind, strict=True):
            np.testing.assert_allclose(rate, (there - here) / 2e-5, atol=1e-6 * max(1.0, np.abs(rate).max()))


def test_motion_in_time(rng):
    """The steppers keep the energy as their orders say."""
    damped = small(rng)
    bodies = tuple(dataclasses.replace(body, damping=0.0 * body.damping) for body in damped.bodies)
    model: Any = damped.replace(bodies=bodies)
    q, v, *_ = random_state(model, rng)

    start = energy(model, q, v)
    assert abs(energy(model, *advance(model, q, v, 0.002, 100, "rk4")) / start - 1.0) < 1e-8
    rolled = jax.jit(lambda dt: dx.rollout(model, q, v, jnp.zeros((200, model.nv)), dt))
    coarse, fine = (energy(model, path.q[n], path.v[n]) / start - 1.0
                    for path, n in ((rolled(0.002), 100), (rolled(0.001), 200)))  # fmt: skip
    np.testing.assert_allclose(fine / coarse, 0.5, atol=0.05)


def test_what_is_refused(rng):
    builder = dx.ModelBuilder()
    builder.body("boom", joint=dx.Revolute((0, 1, 0)), inertia=body_of(nodal_data(rng, 2)))
    with pytest.raises(dx.ModelError, match="bends: what it carries hangs on a node"):
        builder.body("tip", parent="boom")
    model = builder.build()
    zero = np.zeros(model.nv)
    with pytest.raises(ValueError, match="with bodies that bend"):
        dx.forward_dynamics(model, zero, zero, zero, execution="associative")
    with pytest.raises(ValueError, match="does not know the stiffness of modes"):
        dx.step(model, zero, zero, zero, 0.01, stepper="implicit_midpoint")
    with pytest.raises(TypeError, match=r"dx\.mass_matrix of FlexibleModel 'model': .* unexpected .*'execution'"):
        dx.mass_matrix(model, zero, execution="segments")
    for function in (dx.sparse_constrained_dynamics, dx.open_system):
        with pytest.raises(TypeError, match="takes a Model, not FlexibleModel"):
            function(model, zero, zero, zero)
    with pytest.raises(KeyError, match="boom/modes"):
        model.v_slice("boom/modest")
