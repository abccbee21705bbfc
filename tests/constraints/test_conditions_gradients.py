"""Derivatives of accelerations and multipliers where gears and conditions, not loops, tie the joints together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.mechanisms import at, rod

import dynax as dx


def made(kind: str) -> dx.Model:
    """A chain of three hinges and a fourth on the ground."""
    builder = dx.ModelBuilder()
    for name, parent in zip(("one", "two", "three", "four"), ("world", "one", "two", "world"), strict=True):
        joint, placement = dx.Revolute((0.0, 1.0, 0.2)), at(0.4)
        builder.body(name, parent=parent, joint=joint, placement=placement, inertia=rod(0.5, 1.2), joint_name=name)
    if kind in ("linear", "all"):
        builder.gear("four", "two", ratio=1.3)
    if kind in ("function", "all"):
        builder.gear("three", "one", ratio=1.2, function=lambda x: 0.3 * jnp.sin(x) + 0.25 * x**2)
    if kind in ("condition", "all"):
        builder.condition("tied", lambda model, q: jnp.sin(q[0]) + q[1] * q[2] - 0.3 * q[3] - 0.1)
    return builder.build()


@pytest.mark.spec("RBDA-9.6-GEAR", "RBDA-9.6-NONLIN")
@pytest.mark.parametrize("kind", [*(pytest.param(k, marks=pytest.mark.slow) for k in ("function", "condition")), "all"])
def test_accelerations_and_multipliers(kind):
    model = made(kind)
    q = dx.assemble(model, jnp.array([0.3, 0.2, 0.4, 0.1])).q
    v = dx.admissible_velocity(model, q, jnp.array([0.5, -0.3, 0.7, 0.2]))
    weights = jnp.cos(jnp.arange(4.0 + len(dx.constraint_residual(model, q))))

    def power(x: tuple) -> jax.Array:
        q, v, tau, ratio = x
        found = dx.constrained_dynamics(model.replace(coupling_ratio=ratio), q, v, tau, settle=0.1)
        return weights @ jnp.concatenate([found.a, found.multipliers])

    x = q, v, jnp.array([0.4, 1.0, -0.6, 0.3]), model.coupling_ratio
    value, gradient = jax.jit(power), jax.jit(jax.grad(power))(x)
    rate = jax.jit(lambda x, dx: jax.jvp(power, (x,), (dx,))[1])
    for k, name in enumerate(("q", "v", "tau", "ratio")):
        along = [jnp.zeros_like(part) for part in x]
        along[k] = jnp.sin(1.0 + jnp.arange(float(x[k].size)))
        ahead, behind = (value(tuple(p + h * d for p, d in zip(x, along, strict=True))) for h in (1e-6, -1e-6))
        slope = float(ahead - behind) / 2e-6
        assert float(gradient[k] @ along[k]) == pytest.approx(slope, rel=1e-6, abs=1e-8), name
        assert float(rate(x, tuple(along))) == pytest.approx(slope, rel=1e-6, abs=1e-8), name
    assert np.all(np.isfinite(np.concatenate([np.asarray(g) for g in gradient])))


def test_a_tree_without_any():
    """It moves as by forward dynamics, and every velocity is admissible."""
    builder = dx.ModelBuilder()
    builder.body("one", joint=dx.Revolute((0.0, 1.0, 0.0)), inertia=rod(0.5), joint_name="one")
    model, (q, v, tau) = builder.build(), jnp.array([[0.3], [0.5], [0.2]])
    found = dx.constrained_dynamics(model, q, v, tau)
    np.testing.assert_allclose(found.a, dx.forward_dynamics(model, q, v, tau), rtol=1e-14)
    assert found.multipliers.shape == (0,)
    np.testing.assert_array_equal(dx.admissible_velocity(model, q, v), v)
