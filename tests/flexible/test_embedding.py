"""Loops with bodies that bend, embedded in the tree."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.systems import RIGID, at, body_of, nodal_data
from flexible.test_loops import closed_arm

import dynax as dx
from dynax.embedding.meanings import tree_motion

close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)


def coupler(modes: int) -> dx.FlexibleBody:
    """A rod of a metre that bends in the plane of the mechanism."""
    rod = dx.beam_elements(dx.BeamSection.tube(0.01, 0.002, E=70e9, density=2700.0), 1.0, elements=6)
    held: dict[str | int, str] = {k: "1345" if k else "123456" for k in range(7)}
    return rod.body(rod.modes(modes, held=held), level="full")


def four_bar(rod: Any, *, camera: Any = None) -> Any:
    """Crank, coupler and rocker in a plane, the loop closed at the coupler's tip."""
    turn = dx.Revolute((0, 0, 1))
    builder = dx.ModelBuilder(gravity=(0, -9.81, 0))
    builder.body("crank", joint=turn, inertia=dx.SpatialInertia(0.5, (0.2, 0, 0), (0.01, 0.02, 0.02)))
    builder.body("coupler", parent="crank", joint=turn, placement=at(0.4, 0, 0), inertia=rod)
    ground = dx.SpatialInertia(0.7, (0.3, 0, 0), (0.01, 0.03, 0.03))
    builder.body("rocker", joint=turn, placement=at(1.1, 0, 0), inertia=ground)
    if camera is not None:
        builder.body("camera", parent="rocker", placement=at(0, 0, 0.1), inertia=camera)
    tip: dict[str, Any] = {"predecessor": "coupler/tip"}
    if isinstance(rod, dx.SpatialInertia):
        tip = {"predecessor": "coupler", "predecessor_placement": at(1.0, 0, 0)}
    builder.loop("pin", successor="rocker", successor_placement=at(0.8, 0, 0), joint=turn, **tip)
    return builder.build()


def start(model, modes: slice, rng) -> jax.Array:
    """A bent configuration that closes."""
    guess = dx.neutral(model) + np.array([1.2, -0.7, *[0.0] * (model.nq - 2)])
    return dx.assemble(model, guess.at[modes].set(0.02 * rng.normal(size=modes.stop - modes.start)).at[-1].set(1.3)).q


def compared(embedded, q, y, tau, external):
    """Motions of the embedded model, and of its tree by multipliers."""
    tree = embedded.tree
    move = tree_motion(embedded, q, y)
    a = dx.forward_dynamics(embedded, q, y, move.x.T @ tau, external)
    kkt = dx.constrained_dynamics(tree, q, move.v, tau, external, method="kkt")
    mass = dx.mass_matrix(embedded, q)
    return {
        "kkt": (move.x @ a + move.bias, kkt.a),
        "admissible": (dx.constraint_rate(tree, q, move.v), 0.0),
        "inverse": (dx.inverse_dynamics(embedded, q, y, a, external), move.x.T @ tau),
        "factor": (dx.inverse_mass_matrix(embedded, q) @ mass, jnp.eye(embedded.nv)),
        "energy": (dx.kinetic_energy(embedded, q, y), 0.5 * y @ mass @ y),
    }


@pytest.mark.spec("FLEX-CC", "EMBED-ABA")
def test_a_four_bar_with_a_coupler_that_bends(rng):
    """One freedom of the mechanism and two modes: what accelerations leave of the tree's equations does no work, and
    they keep the loop closed, which is the motion by multipliers."""
    tree = four_bar(coupler(2))
    q = start(tree, tree.q_slice("coupler/modes"), rng)
    embedded = dx.embed(tree, q)
    assert embedded.nv == 3
    assert embedded.aggregates == (("crank", "coupler/base", "coupler", "coupler/tip", "rocker"),)
    assert embedded.independent_joints.count("coupler/modes") == 2
    y, tau = rng.normal(size=embedded.nv), rng.normal(size=tree.nv)
    external = rng.normal(size=(tree.num_bodies, 6))
    move = tree_motion(embedded, q, y)
    a = dx.forward_dynamics(embedded, q, y, move.x.T @ tau, external)
    whole, matrix = move.x @ a + move.bias, dx.constraint_jacobian(tree, q)
    close(matrix @ move.v, 0.0)
    close(matrix @ whole, dx.constraint_bias(tree, q, move.v))
    close(move.x.T @ (dx.inverse_dynamics(tree, q, move.v, whole, external) - tau), 0.0)
    dx.check_state(embedded, q, y)
    for state, words in (
        ((q.at[-1].add(0.01), y), "'pin' is not closed by `q`"),
        ((q.at[0].set(np.nan), y), "`q` of joint 'crank_joint' is not finite"),
        ((q, jnp.asarray(y).at[0].set(np.inf)), f"`v` of joint '{embedded.independent_joints[0]}' is not finite"),
    ):
        with pytest.raises(ValueError, match=words):
            dx.check_state(embedded, *state)
    # What it does not do it refuses by name.
    for stepper, name in (("implicit_midpoint", "ImplicitMidpoint"), ("variational", "Variational")):
        with pytest.raises(ValueError, match=f"{name} does not know the stiffness of modes.*'rk4'"):
            dx.step(embedded, q, y, y, 0.01, stepper=stepper)
    with pytest.raises(ValueError, match="operators of 'model', with loops embedded and bodies that bend"):
        dx.spatial_operators(embedded, q)


@pytest.mark.slow
@pytest.mark.spec("FLEX-CC", "EMBED-ABA")
def test_a_four_bar_by_multipliers_its_energy_and_its_derivatives(rng):
    tree = four_bar(coupler(2))
    q = start(tree, tree.q_slice("coupler/modes"), rng)
    embedded = dx.embed(tree, q)
    assert dx.embedding_quality(embedded, q).dependent[0] > 0.1
    y, along = rng.normal(size=(2, embedded.nv))
    tau, external = rng.normal(size=tree.nv), rng.normal(size=(tree.num_bodies, 6))
    for found, expected in jax.jit(compared)(embedded, q, y, tau, external).values():
        close(found, expected)

    def moves(q, y):
        return dx.kinetic_energy(embedded, q, y) + dx.potential_energy(embedded, q)

    @jax.jit
    def acceleration(scale, q, y):
        (rod,) = tree.bodies
        rod = dataclasses.replace(rod, stiffness=scale * rod.stiffness, mass=scale * rod.mass)
        other = embedded.replace(bodies=(rod,))
        return dx.forward_dynamics(other, q, y, jnp.zeros_like(y))

    a = acceleration(1.0, q, y)
    energy, power = jax.jvp(moves, (q, y), (dx.configuration_rate(embedded, q, y), a))
    assert abs(power) < 1e-10 * energy * np.abs(a).max()

    step = 1e-6
    ends = [acceleration(1.0 + s, dx.integrate(embedded, q, s * along), y + s * along) for s in (-step, step)]
    tangent = 1.0, dx.configuration_rate(embedded, q, along), along
    forwards = jax.jit(lambda *x: jax.jvp(acceleration, x, tangent)[1])(1.0, q, y)
    np.testing.assert_allclose((ends[1] - ends[0]) / (2 * step), forwards, rtol=1e-6, atol=1e-6 * np.abs(a).max())
    slopes = jax.jit(jax.grad(lambda *x: acceleration(*x) @ along, argnums=(0, 1, 2)))(1.0, q, y)
    assert all(np.isfinite(g).all() for g in slopes)
    close(sum(jnp.sum(g * t) for g, t in zip(slopes, tangent, strict=True)), along @ forwards)


@pytest.mark.slow
def test_a_coupler_of_no_modes_is_a_rigid_one(rng):
    """Beside another body that bends, on the rocker."""
    rod, camera = coupler(0), coupler(1)
    own = dx.SpatialInertia(float(rod.mass), np.asarray(rod.first_moment / rod.mass), np.asarray(_central(rod)))
    y, found = rng.normal(size=2), []
    for body in (rod, own):
        tree = four_bar(body, camera=camera)
        q = start(tree, tree.q_slice("camera/modes"), np.random.default_rng(0))
        embedded = dx.embed(tree, q, independent=("crank_joint",))
        found.append((q, dx.forward_dynamics(embedded, q, y, 0.0 * y), dx.mass_matrix(embedded, q)))
    for one, other in zip(*found, strict=True):
        close(one, other)


def _central(body: dx.FlexibleBody) -> np.ndarray:
    c = np.asarray(body.first_moment / body.mass)
    return np.asarray(body.inertia) - float(body.mass) * (c @ c * np.eye(3) - np.outer(c, c))


@pytest.mark.slow
def test_loops_gears_and_conditions_embedded(rng):
    """Two bodies that bend in one aggregate, tied modes, a gear, and a condition that knows the time."""
    tree = closed_arm(rng)
    # The tips are where a random configuration has them, from which gear and condition move them little.
    q = dx.integrate(tree, dx.neutral(tree), 0.2 * rng.normal(size=tree.nv))
    pose, (tip, camera) = dx.forward_kinematics(tree, q), map(tree.body_index, ("boom/tip", "camera"))
    end = pose.rotation[camera].T @ (pose.translation[tip] - pose.translation[camera])
    tree = tree.replace(loop_successors=dx.Transform(np.eye(3)[None], end[None]))
    q = dx.assemble(tree, q).q
    embedded = dx.embed(tree, q)
    assert embedded.nv == tree.nv - 5
    y, tau = rng.normal(size=embedded.nv), rng.normal(size=tree.nv)
    found = jax.jit(compared)(embedded, q, y, tau, jnp.zeros((tree.num_bodies, 6)))
    for name in ("kkt", "admissible", "inverse", "factor"):
        close(*found[name])


@pytest.mark.slow
def test_a_closed_chain_on_a_bus_that_floats_and_bends(rng):
    """Behind a free base that bends, beside a boom outside of the loop: momentum and energy along the motion."""
    data, turn = nodal_data(rng, 2), dx.Revolute((0, 0, 1))
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    builder.body("bus", joint=dx.Free(), inertia=body_of(data))
    builder.body("boom", parent="bus/side", joint=dx.Spherical(), inertia=body_of(nodal_data(rng, 1)))
    builder.body("crank", parent="bus/tip", joint=turn, placement=at(0.1, 0, 0), inertia=RIGID)
    builder.body("coupler", parent="crank", joint=turn, placement=at(0.4, 0, 0), inertia=coupler(1))
    builder.body("rocker", parent="bus/tip", joint=turn, placement=at(1.2, 0, 0), inertia=RIGID)
    builder.loop("pin", predecessor="coupler/tip", successor="rocker", successor_placement=at(0.8, 0, 0), joint=turn)
    tree: Any = builder.build()
    bodies = tuple(dataclasses.replace(body, damping=0.0 * body.damping) for body in tree.bodies)
    tree = tree.replace(bodies=bodies)
    guess = dx.neutral(tree)
    for name, angle in (("crank_joint", 1.2), ("coupler_joint", -0.7), ("rocker_joint", 1.3)):
        guess = guess.at[tree.q_slice(name)].set(angle)
    q = dx.assemble(tree, guess).q
    embedded = dx.embed(tree, q)
    y, tau = rng.normal(size=embedded.nv), rng.normal(size=tree.nv)
    for found, expected in jax.jit(compared)(embedded, q, y, tau, None).values():
        close(found, expected)

    @jax.jit
    def along(q, y):
        def whole(q, y):
            energy = dx.kinetic_energy(embedded, q, y) + dx.potential_energy(embedded, q)
            return dx.momentum(embedded, q, y), energy

        a = dx.forward_dynamics(embedded, q, y, jnp.zeros_like(y))
        return jax.jvp(whole, (q, y), (dx.configuration_rate(embedded, q, y), a))

    (momentum, energy), (force, power) = along(q, y)
    np.testing.assert_allclose(force, 0.0, atol=1e-11 * np.abs(momentum).max())
    np.testing.assert_allclose(power, 0.0, atol=1e-11 * energy)


@pytest.mark.slow
def test_a_mechanism_goes_through_its_dead_points(rng):
    """A second of a heavy crank turning round: the energy stays, loops stay closed, other freedoms serve on the way."""
    tree = four_bar(coupler(1))
    (rod,) = tree.bodies
    tree = tree.replace(bodies=(dataclasses.replace(rod, damping=0.0 * rod.damping),))
    q = start(tree, tree.q_slice("coupler/modes"), rng)
    embedded = dx.embed(tree, q, independent=("rocker_joint",))
    y = jnp.zeros(embedded.nv).at[embedded.independent_joints.index("rocker_joint")].set(6.0)
    path = dx.rollout(embedded, q, y, jnp.zeros((8000, embedded.nv)), 1.25e-4, stepper="rk4", every=400)
    status = dx.RolloutStatus
    assert not path.stopped.any(), status(int(path.status[-1]))
    energy = [float(dx.kinetic_energy(embedded, a, b) + dx.potential_energy(embedded, a))
              for a, b, told in zip(path.q, path.v, path.status, strict=True) if told == status.GOOD]  # fmt: skip
    np.testing.assert_allclose(energy, energy[0], rtol=1e-7)
    gaps = [np.abs(dx.constraint_residual(tree, a)).max() for a in path.q]
    assert max(gaps) < 1e-9
