"""Rollouts of embedded models through dead points of their coordinates, and where they must stop."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms

import dynax as dx
from dynax.embedding.aggregation import aggregates
from dynax.embedding.coefficients import Embedding

ROCKER = mechanisms.four_bar()
MODEL = dx.embed(ROCKER.model, ROCKER.q, independent=["rocker_joint"])
Q = dx.assemble(ROCKER.model, ROCKER.q, hold=["crank_joint"]).q
DT, STEPS = 0.02, 100


def moved(v, mass, q, controls):
    return dx.rollout(MODEL.replace(mass=mass), q, v, controls, DT, stepper="rk4", checkpoint=False)


turn = jax.jit(moved)


V, MASS, NOTHING = jnp.array([0.8]), MODEL.mass, jnp.zeros((STEPS, 1))
BROKEN = NOTHING.at[30].set(jnp.nan)


def energies(model, run):
    return jax.vmap(lambda q, v: dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q))(run.q, run.v)


@pytest.mark.spec("EMBED-RANK", "ERR-18")
def test_a_crank_turns_though_its_rocker_is_the_coordinate():
    """A rocker turns round twice in each turn: `X` is infinite there. The motion goes on."""
    run = turn(V, MASS, Q, NOTHING)
    assert np.ptp(run.q[:, 0]) > 2 * np.pi
    assert set(np.asarray(run.status).tolist()) == {dx.RolloutStatus.GOOD, dx.RolloutStatus.OTHER_COORDINATES}
    assert "OTHER_COORDINATES" in repr(run)
    assert not run.stopped.any()
    closed = jax.vmap(lambda q: dx.constraint_residual(ROCKER.model, q))(run.q)
    assert np.abs(closed).max() < 1e-10
    # The rocker's rate is that of its angle, through zero and back.
    middle = (run.q[2:, 2] - run.q[:-2, 2]) / (2 * DT)
    np.testing.assert_allclose(run.v[1:-1, 0], middle, atol=0.03)
    assert np.ptp(np.sign(run.v[:, 0])) == 2
    good = np.abs(run.v[:, 0]) > 0.1  # elsewhere the rocker's rate does not tell the crank's
    total = np.asarray(energies(MODEL, run))
    assert np.ptp(total[good]) < 1e-3 * total[0]


def test_a_step_that_fails_is_not_taken():
    """A torque that is none: the state of before, by row, a status, and the derivatives of the state of before."""
    before, run = turn(V, MASS, Q, NOTHING), turn(V, MASS, Q, BROKEN)
    assert dx.RolloutStatus(int(run.status[-1])) is dx.RolloutStatus.NOT_FINITE
    assert "NOT_FINITE at row 31" in repr(run)
    np.testing.assert_array_equal(run.stopped, np.arange(STEPS + 1) > 30)
    np.testing.assert_array_equal(run.q[:31], before.q[:31])
    np.testing.assert_array_equal(run.q[31:], np.broadcast_to(before.q[30], (STEPS - 30, 3)))
    np.testing.assert_array_equal(run.v[31:], np.broadcast_to(before.v[30], (STEPS - 30, 1)))


@pytest.mark.slow
def test_derivatives_through_a_dead_point_and_after_a_stop():
    """By the velocity and the masses at the beginning; those of a state that is held are its own."""

    def end(v, mass, controls):
        return jnp.sin(moved(v, mass, Q, controls).q[-1, 0])

    slopes = jax.jit(jax.grad(end, argnums=(0, 1)))
    small = 1e-5
    for controls, row in ((NOTHING, -1), (BROKEN, 30)):
        slope = slopes(V, MASS, controls)
        for k in range(2):
            ends = []
            for sign in (1, -1):
                args = [V, MASS]
                args[k] = args[k] * (1 + sign * small)
                ends.append(float(jnp.sin(turn(*args, Q, NOTHING).q[row, 0])))
            along = float(jnp.vdot(slope[k], (V, MASS)[k]))
            assert along == pytest.approx((ends[0] - ends[1]) / (2 * small), rel=1e-5, abs=1e-7)


def test_open_loops():
    """Said before anything moves, or, where numbers are not known, in the status."""
    far = ROCKER.q + jnp.array([0.0, 0.3, 0.0])
    with pytest.raises(ValueError, match=r"'close' of model 'four-bar' is open at the beginning.*dx\.assemble"):
        dx.rollout(MODEL, far, V, NOTHING, DT)
    with pytest.raises(ValueError, match=r"'close' of model 'four-bar' is open.*residual is -?\d"):
        dx.rollout(ROCKER.model, far, jnp.zeros(3), lambda t, q, v: 0 * v, DT, steps=3)
    with pytest.raises(ValueError, match="'close' of model 'four-bar' is open at the beginning"):
        jax.make_jaxpr(lambda controls: dx.rollout(MODEL, far, V, controls, DT))(NOTHING)  # the beginning is known
    run = turn(V, MASS, far, NOTHING)
    np.testing.assert_array_equal(run.status, dx.RolloutStatus.OPEN)
    np.testing.assert_array_equal(run.q, np.broadcast_to(far, run.q.shape))


def energy_of_a_rollout(model, q, v, dt, steps):
    run = jax.jit(lambda q, v: dx.rollout(model, q, v, jnp.zeros((steps, model.nv)), dt, stepper="rk4"))(q, v)
    return run, np.asarray(energies(model, run))


@pytest.mark.slow
@pytest.mark.spec("EMBED-RANK", "ERR-18")
def test_n_four_bar_passes_its_square():
    """Two squares fall through the horizontal, where their mobility jumps for a moment, and say so; on it none leads
    on.

    At a distance `d` of that place a loop that is closed to a rounding fixes the bars to a rounding by `d`, their rates
    to a rounding by `d ** 2` and their accelerations to a rounding by `d ** 3`. So what a fall loses there depends on
    how near the square one of its stages happens to come, not on the step's length: many falls are looked at. Energy
    goes with the square of the speed: where that changes by a part `x / 2`, energy does by `x + x ** 2 / 4`.
    """
    mechanism = mechanisms.n_four_bar()
    tilted = 0.3 * jnp.array([1.0, 1.0, 1.0, -1.0, -1.0])
    model = dx.embed(mechanism.model, tilted)
    controls, speeds = jnp.zeros((3000, 1)), jnp.linspace(0.9, 1.1, 32)[:, None]
    fallen = jax.jit(jax.vmap(lambda q, v: dx.rollout(model, q, v, controls, 1e-3, stepper="rk4")))
    run = fallen(jnp.tile(tilted, (32, 1)), speeds)
    total = np.asarray(jax.vmap(partial(energies, model))(run))
    assert (np.abs(run.q[..., 0]).max(axis=1) > np.pi).all()
    assert not run.stopped.any()
    passing = np.asarray(run.status) == dx.RolloutStatus.NEARLY_SINGULAR
    assert (passing.sum(axis=1) > 0).all()
    assert (passing.sum(axis=1) < 100).all()
    np.testing.assert_array_less(np.abs(np.cos(run.q[passing, 0])), 0.1)
    loss = np.ptp(total, axis=1) / np.asarray(total[:, 0])
    assert np.median(loss) < 1e-7
    q, v, dt = np.asarray(run.q[:, 1:, 0]), np.asarray(run.v[..., 0]), 1e-3
    before = dt * (v[:, 1:] - v[:, :-1])  # the acceleration, by the square of the step
    middle, end = q + 0.5 * dt * v[:, 1:], q + dt * v[:, 1:] + 0.5 * before
    distance = np.min([np.abs(np.cos(x)).min(axis=1) for x in (middle, middle + 0.25 * before, end)], axis=0)
    change = np.finfo(loss.dtype).eps / distance**3
    np.testing.assert_array_less(loss, 1e-6 + change + 0.25 * change**2)
    # And only there, where a status says so.
    lost = np.abs(np.diff(total, axis=1)) > 1e-6 * total[:, :1]
    assert passing[:, 1:][lost].all()
    flat = 0.5 * np.pi / 0.3 * tilted
    still = fallen(jnp.tile(flat, (32, 1)), speeds)
    np.testing.assert_array_equal(still.status, dx.RolloutStatus.SINGULAR)
    np.testing.assert_array_equal(still.q[:, -1], jnp.tile(flat, (32, 1)))


@pytest.mark.slow
@pytest.mark.spec("EMBED-RANK", "EMBED-COORD")
def test_three_loops_in_coordinates_that_fail():
    """Andrews' mechanism, an aggregate of seven bodies, turned by its crank but written in the angle of a lever."""
    squeezer = mechanisms.andrews()
    model = squeezer.model
    (made,) = aggregates(model.topology, [set(range(7))] * 3)
    lever = model.v_slice("k3_joint").start
    embedded = dx.EmbeddedModel(model, Embedding((made,), (tuple(j for j in range(7) if j != lever),)))
    q = dx.assemble(model, jnp.asarray(squeezer.q).at[0].add(0.5), hold=["k1_joint"]).q
    v = dx.admissible_velocity(model, q, jnp.zeros(7).at[0].set(50.0), hold=["k1_joint"])
    run, total = energy_of_a_rollout(embedded, q, v[lever : lever + 1], 1e-4, 3000)
    assert np.ptp(run.q[:, 0]) > 4 * np.pi
    assert not run.stopped.any()
    assert (run.status == dx.RolloutStatus.OTHER_COORDINATES).any()
    assert np.ptp(total) < 1e-9 * total[0]


def test_a_tree_has_no_status():
    """And every trajectory unpacks to three."""
    run = dx.Trajectory(*(jnp.zeros((3, n)) for n in (1, 1, 1)))
    time, q, v = run
    assert run[1] is q
    assert len(run) == 3
    assert run.status is None
    assert time.shape == q.shape == v.shape
    assert not run.stopped.any()
