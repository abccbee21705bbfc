"""Orders, and what is conserved."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulate.systems import STEPPERS, advance, apart, energy, floating_tree, moving, solid
from simulate.test_gradients import every_joint

import dynax as dx

TREE = floating_tree()
DRIFTING = TREE.replace(gravity=jnp.zeros(3))
"""The same tree where no force from outside acts."""
HINGED = floating_tree(dx.Revolute((0.0, 1.0, 0.5)))
"""A tree for which the variational stepper compiles in less time."""


@pytest.mark.parametrize(("stepper", "order"), STEPPERS.items())
def test_observed_order(stepper, order):
    q, v = moving(TREE)
    exact = advance(TREE, q, v, 0.4 / 1000, 1000, "rk4")
    coarse, fine = (apart(TREE, advance(TREE, q, v, 0.4 / n, n, stepper), exact) for n in (40, 80))
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize(("stepper", "order"), STEPPERS.items())
def test_energy_is_off_by_the_order(stepper, order):
    q, v = moving(DRIFTING)
    start = energy(DRIFTING, q, v)
    off = [abs(energy(DRIFTING, *advance(DRIFTING, q, v, 0.4 / n, n, stepper)) - start) for n in (160, 320)]
    assert np.log2(off[0] / off[1]) > order - 0.2


@pytest.mark.spec("INV-MOM")
def test_variational_conserves_momentum_to_rounding():
    q, v = moving(DRIFTING)
    start = dx.momentum(DRIFTING, q, v)
    end = advance(DRIFTING, q, v, 0.01, 1000, "variational")
    np.testing.assert_allclose(dx.momentum(DRIFTING, *end), start, rtol=0, atol=2e-13 * float(jnp.abs(start).max()))
    # Not for being near: at this length of step the other methods lose it at once.
    other = advance(DRIFTING, q, v, 0.01, 1000, "implicit_midpoint")
    assert jnp.abs(dx.momentum(DRIFTING, *other) - start).max() > 1e-6


def test_variational_changes_momentum_by_the_impulse_of_the_weight():
    q, v = moving(HINGED)
    end = advance(HINGED, q, v, 0.02, 50, "variational")
    change = dx.momentum(HINGED, *end) - dx.momentum(HINGED, q, v)
    np.testing.assert_allclose(change[3:], HINGED.mass.sum() * HINGED.gravity, atol=1e-12)


@pytest.mark.spec("INV-KE")
def test_variational_energy_does_not_drift():
    model = HINGED.replace(gravity=jnp.zeros(3))
    q, v = moving(model)
    start = energy(model, q, v)
    off = [abs(energy(model, *advance(model, q, v, 0.01, n, "variational")) / start - 1) for n in (300, 1200)]
    assert max(off) < 5e-4
    q, v = moving(DRIFTING)
    start = energy(DRIFTING, q, v)
    assert abs(energy(DRIFTING, *advance(DRIFTING, q, v, 0.001, 1000, "rk4")) / start - 1) < 1e-9


def test_symmetric_steppers_come_back():
    for model, stepper in ((TREE, "implicit_midpoint"), (HINGED, "variational")):
        q, v = moving(model)
        there = advance(model, q, v, 0.02, 50, stepper)
        assert apart(model, advance(model, *there, -0.02, 50, stepper), (q, v)) < 1e-11


def test_implicit_midpoint_is_not_finite_where_it_finds_no_solution():
    q, v = moving(TREE)
    assert not jnp.isfinite(advance(TREE, q, 100.0 * v, 10.0, 1, "implicit_midpoint")[1]).all()


def test_the_default_is_forward_dynamics_at_the_mean_velocity():
    """Its evaluations share one factor, whatever the joints: columns that move, rolling, driven in time."""
    model, dt = every_joint().at_time(0.3), 0.01
    model = model.replace(damping=0.1 + 0.2 * jnp.arange(model.nv), stiffness=jnp.full(model.nv, 3.0))
    stiff = model.replace(armature=model.armature + dt * model.damping, damping=jnp.zeros(model.nv))
    q, v = moving(model)
    tau = jnp.cos(jnp.arange(model.nv))

    @jax.jit
    def reached(stiff):
        def nearer(a, _):
            return dx.forward_dynamics(stiff, q, v + 0.5 * dt * a, tau - model.damping * v), None

        return v + dt * jax.lax.scan(nearer, jnp.zeros_like(v), length=3)[0]

    np.testing.assert_allclose(dx.step(model, q, v, tau, dt)[1], reached(stiff), rtol=1e-10, atol=1e-10)


def spinning() -> list:
    """A top at 40 rad/s about its tip, and a free body that tumbles about its middle axis; state, step [s]."""
    top = dx.ModelBuilder().body("top", joint=dx.Spherical(), inertia=solid(1.0, [0, 0, 0.5], [0.05, 0.05, 0.02]))
    free = dx.ModelBuilder(gravity=(0, 0, 0))
    free.body("body", joint=dx.Free(), inertia=solid(1.0, [0.1, 0.2, 0.3], [1.0, 2.0, 2.8]))
    return [
        (top.build(), [np.cos(0.2), np.sin(0.2), 0, 0], [0, 0, 40.0], 1e-3),
        (free.build(), [0, 0, 0, 1.0, 0, 0, 0], [0.05, 2, 0.05, 0.1, -0.2, 0.3], 1e-2),
    ]


@pytest.mark.parametrize(("model", "q", "v", "dt"), spinning(), ids=["top", "tumbling"])
def test_the_default_feeds_no_energy_into_what_spins(model, q, v, dt):
    """Gyroscopic forces of the beginning of the step make 4e12 J of 21 and 1e4 J of 4 in 20 000 steps."""
    q, v = jnp.array(q), jnp.array(v, float)
    start = float(energy(model, q, v))
    ends = [float(energy(model, *advance(model, q, v, dt, n, "semi_implicit"))) for n in (10_000, 20_000)]
    wavering = abs(float(energy(model, *advance(model, q, v, dt, 1, "semi_implicit"))) - start) + 1e-2 * abs(start)
    assert np.isfinite(ends).all()
    assert max(ends) < start + wavering
    assert min(ends) > start - 2.0 * wavering
