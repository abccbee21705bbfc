"""Adaptive solves by an integrator that is not ours."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulate.systems import STEPPERS, advance, double_pendulum, floating_tree, moving, solid

import dynax as dx

diffrax = pytest.importorskip("diffrax")


@pytest.mark.spec("RBDA-3.1-STATE")
def test_adaptive_solve_agrees_with_small_steps():
    model = floating_tree()
    assert model.nq != model.nv
    q, v = moving(model)
    run = dx.solve(model, q, v, None, jnp.array([0.0, 0.2, 0.4]), rtol=1e-10, atol=1e-12)
    exact = advance(model, q, v, 0.4 / 1000, 1000, "rk4")
    np.testing.assert_allclose(run.q[0], q, atol=1e-15)
    np.testing.assert_allclose(dx.difference(model, run.q[-1], exact[0]), 0.0, atol=1e-8)
    np.testing.assert_allclose(run.v[-1], exact[1], atol=1e-8)
    np.testing.assert_allclose(run.q, jax.vmap(lambda q: dx.normalize(model, q))(run.q), atol=1e-15)


@pytest.mark.spec("RBDA-10.1-TRUNC")
def test_adaptive_steps_pay_off_on_a_whip():
    """A long pendulum with a light tip: its acceleration is all spikes. The orders are in `test_steppers.py`."""
    model = double_pendulum("whip", damping=0.0)
    model = model.replace(mass=jnp.array([1.0, 0.01]), inertia=model.inertia * jnp.array([[1.0], [1e-3]]),
                          armature=jnp.zeros(2))  # fmt: skip
    q, v = jnp.array([2.0, -2.5]), jnp.zeros(2)
    term, controller = dx.diffrax_term(model), diffrax.PIDController(rtol=1e-6, atol=1e-6)

    def adaptive(controller):
        return diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 3.0, None, (q, v), stepsize_controller=controller, max_steps=100_000
        )

    exact = adaptive(diffrax.PIDController(rtol=1e-11, atol=1e-11)).ys[0][0]
    solution = adaptive(controller)
    error = float(jnp.abs(solution.ys[0][0] - exact).max())
    assert error < 1e-3
    evaluations = 6 * int(solution.stats["num_steps"])
    fixed = advance(model, q, v, 3.0 / (evaluations // 4), evaluations // 4, "rk4")[0]
    assert float(jnp.abs(fixed - exact).max()) > 3.0 * error
    assert set(STEPPERS.values()) == {1, 2, 4}


@pytest.mark.spec("RBDA-3.1-ALPHA")
def test_configuration_rate_is_linear_and_keeps_pose_and_velocity_together(rng):
    b = dx.ModelBuilder()
    for parent, name, joint in (("world", "a", dx.Free()), ("a", "b", dx.Spherical()), ("b", "c", dx.Planar())):
        b.body(name, parent=parent, joint=joint, inertia=solid(1.0, [0, 0, 0.1], [0.1, 0.1, 0.1]))
    model = b.build()
    q, v, u = dx.random_configuration(model, jax.random.key(0)), *jnp.asarray(rng.normal(size=(2, model.nv)))
    rate = dx.configuration_rate(model, q, v)
    both = dx.configuration_rate(model, q, 2.0 * v + u)
    np.testing.assert_allclose(both, 2.0 * rate + dx.configuration_rate(model, q, u), atol=1e-13)
    pose, pose_rate = jax.jvp(lambda q: dx.forward_kinematics(model, q), (q,), (rate,))
    spin = jnp.swapaxes(pose.rotation, 1, 2) @ pose_rate.rotation
    angular = jnp.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
    linear = jnp.einsum("nji,nj->ni", pose.rotation, pose_rate.translation)
    np.testing.assert_allclose(jnp.concatenate([angular, linear], 1), dx.body_velocities(model, q, v), atol=1e-13)
    # Integrated by a method that knows no manifold, it leads where `integrate` does.
    term = diffrax.ODETerm(lambda t, q, _: dx.configuration_rate(model, q, v))
    control = diffrax.PIDController(rtol=1e-11, atol=1e-11)
    end = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, None, q, stepsize_controller=control).ys[0]
    np.testing.assert_allclose(end, dx.integrate(model, q, v), atol=1e-8)


@pytest.mark.slow
def test_feedback_is_continuous_and_differentiable():
    model, q, v = double_pendulum(), jnp.array([0.3, -0.8]), jnp.zeros(2)

    @jax.jit
    @jax.value_and_grad
    def last(gain):
        return dx.solve(model, q, v, lambda t, q, v: -gain * v, jnp.array([0.0, 1.0]), rtol=1e-9).q[-1, 0]

    same = advance(model.replace(damping=model.damping + 0.5), q, v, 1e-3, 1000, "rk4")[0]
    value, gradient = last(0.5)
    np.testing.assert_allclose(value, same[0], atol=1e-7)
    np.testing.assert_allclose(gradient, (last(0.5 + 1e-4)[0] - last(0.5 - 1e-4)[0]) / 2e-4, rtol=1e-4)


def test_errors(monkeypatch):
    model = double_pendulum()
    with pytest.raises(ValueError, match=r"`times` has shape \(1,\)"):
        dx.solve(model, [0.0, 0.0], [0.0, 0.0], None, [0.0])
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(ImportError, match=r"pip install \"dynax\[diffrax\]\""):
        dx.diffrax_term(model)
