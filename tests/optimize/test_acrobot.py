"""An acrobot, driven at the elbow alone, against the optimum that others report."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import converged, near, runge_kutta

from dynax import optimize as o

G = 9.81


def acrobot(x: jax.Array, u: jax.Array, _) -> jax.Array:
    """That of ALTRO: angles from the horizontal and between the links, whose masses at their ends, moments and lengths
    are one, with friction of one."""
    (a, b), v = x[:2], x[2:]
    c, s = jnp.cos(b), jnp.sin(b)
    first = (2.0 * v[0] * v[1] + v[1] ** 2) * s - v[0] - (2.0 * jnp.cos(a) + jnp.cos(a + b)) * G
    second = u[0] - s * v[0] ** 2 - v[1] - jnp.cos(a + b) * G
    m11, m12, m22 = 5.0 + 2.0 * c, 2.0 + c, 2.0
    a = jnp.stack([m22 * first - m12 * second, m11 * second - m12 * first]) / (m11 * m22 - m12 * m12)
    return jnp.concatenate([v, a])


@pytest.mark.slow
@pytest.mark.spec("OC-09")
def test_altro():
    """From the rollout of no torque."""
    N, h, goal = 100, 0.05, jnp.array([np.pi / 2, 0.0, 0.0, 0.0])
    problem = o.problem(
        o.plant(runge_kutta(acrobot, h, 4), states=4, controls=1),
        jnp.array([-np.pi / 2, 0.0, 0.0, 0.0]),
        h,
        knots=N,
        costs=[o.residual(lambda x, u, p: x - goal, h), o.residual(lambda x, u, p: u, 0.01 * h)],
        end_costs=[o.residual(lambda x, p: x - goal, 100.0)],
        end_constraints=[o.equality(lambda x, p: x - goal)],
        lower=-15.0,
        upper=15.0,
    )
    u = jnp.zeros((N, 1))
    result = converged(o.solve(problem, u, o.rollout(problem, u), second_order=True))
    near(result.cost, 50.0466, 1e-3)
    assert result.violation < 1e-6
