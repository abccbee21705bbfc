"""Friction of drives: curves in closed form, what is held at rest, and stiff bristles in long steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import dynax as dx
from dynax import actuate

NUMBERS = {"coulomb": 1.0, "static": 1.5, "stribeck_velocity": 0.1}
STRIBECK = actuate.StribeckFriction(actuate.Direct(), **NUMBERS, viscous=0.4, softness=1e-4)
LUGRE = actuate.LuGreFriction(actuate.Direct(), 1e5, **NUMBERS, damping=300.0, viscous=0.4)
NONE = jnp.zeros(1)


def curve(v: float) -> float:
    return np.sign(v) * (1.0 + 0.5 * np.exp(-((v / 0.1) ** 2))) + 0.4 * v


def test_friction_curves():
    for v in (-2.0, -0.05, -0.001, 0.001, 0.05, 0.3, 2.0):
        at = jnp.full(1, v)
        assert -STRIBECK((), NONE, NONE, at)[0][0] == pytest.approx(curve(v), rel=1e-6)
        # Bristles that bend no further.
        bent = (jnp.full(1, np.sign(v) * (1.0 + 0.5 * np.exp(-((v / 0.1) ** 2))) / 1e5), ())
        force, (bending, _) = LUGRE(bent, NONE, NONE, at)
        assert bending[0] == pytest.approx(0.0, abs=1e-12)
        assert -force[0] == pytest.approx(curve(v), rel=1e-12)
    gear = actuate.AsymmetricFriction(actuate.Direct(), [1.0, 0.2], [1.4, 0.5], softness=1e-3)
    one = lambda v: -gear((), NONE, NONE, jnp.full(1, v))[0][0]  # noqa: E731
    assert one(2.0) == pytest.approx(1.4, abs=1e-12)
    assert one(-2.0) == pytest.approx(-2.4, abs=1e-12)
    # Wherever it moves it brakes, and the command comes through.
    speeds = jnp.linspace(-3e-3, 3e-3, 41)
    for law in (gear, STRIBECK):
        force = jax.vmap(lambda v, law=law: law((), NONE, NONE, v[None])[0][0])(speeds)
        assert np.all(np.asarray(force * speeds)[np.abs(speeds) > 1e-9] < 0.0)
        assert law((), jnp.full(1, 7.0), NONE, NONE)[0][0] == pytest.approx(7.0, abs=1e-12)


def test_derivatives_of_friction_are_finite_at_rest():
    def force(law, v):
        state = law.initial(1, jnp.float64)
        state = law.advance(state, NONE, NONE, v, jnp.asarray(1e-3))
        return law(state, NONE, NONE, v)[0][0]

    for law in (STRIBECK, LUGRE, actuate.AsymmetricFriction(actuate.Direct(), [1.0, 0.2], [1.4, 0.5])):
        by_law, by_velocity = jax.grad(force, argnums=(0, 1))(jax.tree.map(jnp.asarray, law), NONE)
        assert np.all(np.isfinite(np.concatenate([np.ravel(x) for x in jax.tree.leaves((by_law, by_velocity))])))
        assert by_velocity[0] < 0.0


@pytest.mark.parametrize("v", [0.0, 1e-6, -0.02, 0.5])
def test_bristles_bend_as_their_equation_says(v):
    held, dt = 1.0 + 0.5 * np.exp(-((v / 0.1) ** 2)), 2e-4
    wanted = solve_ivp(lambda _, z: v - 1e5 * abs(v) / held * z, (0.0, dt), [2e-6], rtol=1e-12, atol=1e-18).y[0, -1]
    z = LUGRE.advance((jnp.full(1, 2e-6), ()), NONE, NONE, jnp.full(1, v), jnp.asarray(dt))[0]
    assert z[0] == pytest.approx(wanted, rel=1e-9)


def test_a_pushed_block_holds_still_or_slides():
    """LuGre's block in steps that are long for its bristles (100 radians of theirs in one): pushed by less than the
    Coulomb friction it moves by what bends them, by more it runs as fast as the curve of friction lets it."""
    block = dx.SpatialInertia(0.1, (0.0, 0.0, 0.0), (1e-3, 1e-3, 1e-3))
    model = dx.ModelBuilder().body("block", joint=dx.Prismatic((1.0, 0.0, 0.0)), inertia=block).build()
    law = actuate.LuGreFriction(actuate.Direct(), 1e7, **NUMBERS, damping=2e3, viscous=0.4)
    drive = actuate.on_joints(model, ["block_joint"], law)
    start = jnp.zeros(1)

    @jax.jit
    @jax.vmap
    def pushed(force):
        return dx.rollout(model, start, start, jnp.full((2000, 1), force), 1e-2, actuators=drive)

    run = pushed(jnp.array([0.7, 3.0]))
    ((bend, _),) = run.actuators
    assert 1e7 * bend[0, -1, 0] == pytest.approx(0.7, rel=1e-6)
    # The bristles slip a little as they bend, `dz/dx = 1 - s0 z / g`, and more as the block swings on them.
    least = -1.5e-7 * np.log(1.0 - 0.7 / 1.5)
    assert least * (1.0 - 1e-3) < run.q[0, -1, 0] < 10.0 * least
    assert run.v[1, -1, 0] == pytest.approx(brentq(lambda v: curve(v) - 3.0, 1.0, 10.0), rel=1e-6)


def test_joints_without_friction_have_no_bristles():
    """Beside one that has: from rest and in motion as without the law, also where all numbers are zero."""
    block = dx.SpatialInertia(1.0, (0.0, 0.0, 0.0), (1e-2, 1e-2, 1e-2))
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    for name in "abc":
        builder.body(name, joint=dx.Prismatic((1.0, 0.0, 0.0)), inertia=block)
    model = builder.build()
    bristles, forces = jnp.array([1e4, 1e4, 0.0]), jnp.full((10, 3), 5.0)

    def lugre(held):
        return actuate.LuGreFriction(actuate.Direct(), bristles, *held, 0.1, 30.0)

    def run(law, v):
        drives = actuate.on_joints(model, ["a_joint", "b_joint", "c_joint"], law)
        return dx.rollout(model, jnp.zeros(3), v, forces, 1e-2, actuators=drives).q[-1]

    held = jnp.array([[1.0, 0.0, 0.0], [1.5, 0.0, 0.0]])
    slopes = jax.jit(jax.grad(lambda held, v: jnp.sum(run(lugre(held), v)), argnums=(0, 1)))
    for v in (jnp.zeros(3), jnp.full(3, 2.0)):
        found, free = run(lugre(held), v), run(actuate.Direct(), v)
        np.testing.assert_array_equal(found[1:], free[1:])
        assert found[0] < free[0]
        assert all(np.all(np.isfinite(slope)) for slope in slopes(held, v))

    def force(held, v):
        law = lugre(held)
        return law(law.advance((jnp.zeros(3), ()), NONE, NONE, v, 1e-2), NONE, NONE, v)[0]

    # The first bit of friction is felt as what it is.
    v = jnp.full(3, 2.0)
    above = (force(held.at[0, 1].add(1e-6), v) - force(held, v)) / 1e-6
    np.testing.assert_allclose(jax.jacrev(force)(held, v)[:, 0, 1], above, rtol=1e-6)
    assert above[1] < -0.9


BLOCK = dx.SpatialInertia(1.0, (0.0, 0.0, 0.0), (1e-2, 1e-2, 1e-2))
SLIDER = dx.ModelBuilder().body("block", joint=dx.Prismatic((1.0, 0.0, 0.0)), inertia=BLOCK).build()


def slid(law, speed, pushes, dt):
    drive = actuate.on_joints(SLIDER, ["block_joint"], law)
    return dx.rollout(SLIDER, jnp.zeros(1), jnp.full(1, speed), pushes[:, None], dt, actuators=drive)


@pytest.mark.parametrize(("bristles", "damping"), [(1e4, 30.0), (1e5, 300.0), (1e6, 0.0)])
def test_what_begins_in_motion_is_braked_by_friction_alone(bristles, damping):
    """1 kg at 2 m/s on bristles that are not bent yet and slip long before the first step ends: as by an ODE solver, up
    to what friction takes in one step, and the bristles' damping as they bend."""
    law = actuate.LuGreFriction(actuate.Direct(), bristles, **NUMBERS, damping=damping)

    def rate(_, x):
        bending = x[0] - bristles * abs(x[0]) * x[1] / (1.0 + 0.5 * np.exp(-((x[0] / 0.1) ** 2)))
        return -bristles * x[1] - damping * bending, bending

    right = solve_ivp(rate, (0.0, 0.1), [2.0, 0.0], "Radau", [0.01, 0.1], rtol=1e-10, atol=1e-12).y[0]
    for dt in (1e-2, 1e-3, 1e-4):
        count = round(0.1 / dt)
        found = slid(law, 2.0, jnp.zeros(count), dt).v
        np.testing.assert_allclose(found[[count // 10, -1], 0], right, atol=dt + damping / bristles)


@pytest.mark.parametrize("damping", [0.0, 300.0])
def test_what_stiff_bristles_stop_stays_at_rest(damping):
    """Also where the friction of one step would turn a block round: under pushes with the motion and against it."""
    law = actuate.LuGreFriction(actuate.Direct(), 1e6, **NUMBERS, damping=damping)
    pushes, speeds = jnp.array([-0.9, -0.3, 0.0, 0.3, 0.9]), jnp.array([3e-4, 3e-3, 0.03, 0.3])
    over = jax.vmap(jax.vmap(lambda speed, push: slid(law, speed, jnp.full(1200, push), 1e-2), (None, 0)), (0, None))
    run = jax.jit(over)(speeds, pushes)
    assert np.max(np.abs(run.v[..., -100:, 0])) < 1e-9
    np.testing.assert_allclose(1e6 * run.actuators[0][0][:, :, -1, 0], jnp.broadcast_to(pushes, (4, 5)), atol=1e-6)


def test_a_step_with_bristles_has_no_jump_where_the_velocity_changes_sign():
    law = actuate.LuGreFriction(actuate.Direct(), 1e4, **NUMBERS, damping=30.0)
    taken = [law.slopes((jnp.full(1, 1e-4), ()), NONE, NONE, jnp.full(1, v), 1e-2) for v in (-1e-12, 1e-12)]
    np.testing.assert_allclose(*taken, rtol=1e-6)


def test_bristles_are_as_stiff_within_other_laws():
    law, pushes = actuate.LuGreFriction(actuate.Direct(), 1e6, **NUMBERS), jnp.full(100, 0.7)
    run = slid(law, 0.0, pushes, 1e-2)
    for same in (actuate.ForceLimited(law, -50.0, 50.0), actuate.CommandLimited(law, -50.0, 50.0)):
        np.testing.assert_allclose(slid(same, 0.0, pushes, 1e-2).v, run.v, rtol=1e-9, atol=1e-15)
    late = slid(actuate.Delayed(actuate.ForceLimited(law, -50.0, 50.0), 3), 0.0, pushes, 1e-2)
    np.testing.assert_allclose(late.v[4:], run.v[1:-3], rtol=1e-9, atol=1e-15)
    # A limit that is reached holds the force.
    force, *slopes = actuate.ForceLimited(law, -0.1, 0.1).slopes((jnp.full(1, 1e-6), ()), NONE, NONE, NONE, 1e-2)
    assert force[0] == -0.1
    np.testing.assert_array_equal(slopes, 0.0)
    # And a learned law's is held within others as by itself.
    learned = actuate.CommandLimited(actuate.Learned(lambda command, length, velocity: -9.0 * velocity), -1.0, 1.0)
    force, *slopes = learned.slopes((), NONE, NONE, jnp.ones(1), 1e-2)
    assert force[0] == -9.0
    np.testing.assert_array_equal(slopes, 0.0)
