"""The linear-quadratic problem: against dense systems, the stationary equation, and itself in logarithmic depth."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from dynax.optimize import LQ, solve_lqr


def random_problems(rng, count, N, n, m) -> LQ:
    """Problems with cross and affine terms, `[Q S; S' R]` positive definite."""
    root = rng.normal(size=(count, N + 1, n + m, n + m))
    cost = root @ root.swapaxes(-1, -2) / (n + m) + 0.05 * np.eye(n + m)
    A = rng.normal(size=(count, N, n, n)) / np.sqrt(n)
    B, c = rng.normal(size=(count, N, n, m)), rng.normal(size=(count, N, n))
    q, r = rng.normal(size=(count, N + 1, n)), rng.normal(size=(count, N, m))
    return LQ(A, B, c, cost[..., :n, :n], cost[:, :-1, :n, n:], cost[:, :-1, n:, n:], q, r)


def dense_solution(lq: LQ, x0, d=0.0):
    """States, controls and multipliers by the whole system of the conditions of optimality."""
    N, n, m = lq.B.shape
    size = (N + 1) * n + N * m
    hessian, slope = np.zeros((size, size)), np.zeros(size)
    rows, right = np.zeros(((N + 1) * n, size)), np.zeros((N + 1) * n)
    xs = [slice(k * n, (k + 1) * n) for k in range(N + 1)]
    us = [slice((N + 1) * n + k * m, (N + 1) * n + (k + 1) * m) for k in range(N)]
    for k in range(N + 1):
        hessian[xs[k], xs[k]], slope[xs[k]] = lq.Q[k], lq.q[k]
        rows[xs[k], xs[k]] = -np.eye(n)
    right[xs[0]] = -x0
    for k in range(N):
        hessian[xs[k], us[k]], hessian[us[k], xs[k]] = lq.S[k], lq.S[k].T
        hessian[us[k], us[k]], slope[us[k]] = lq.R[k], lq.r[k]
        rows[xs[k + 1], xs[k]], rows[xs[k + 1], us[k]], right[xs[k + 1]] = lq.A[k], lq.B[k], -lq.c[k]
    miss = d * np.eye((N + 1) * n)
    miss[:n] = 0.0  # the first state is given
    system = np.block([[hessian, rows.T], [rows, -miss]])
    found = np.linalg.solve(system, np.concatenate([-slope, right]))
    split = np.split(found, [(N + 1) * n, size])
    return split[0].reshape(N + 1, n), split[1].reshape(N, m), split[2].reshape(N + 1, n)


def assert_near(found, expected, tolerance):
    scale = max(np.abs(np.asarray(expected)).max(), 1e-300)
    assert np.abs(np.asarray(found) - expected).max() <= tolerance * scale


CASES = [
    *((size, None, False) for size in ((1, 1, 1), (7, 3, 2), (12, 14, 7), (100, 4, 1), (3, 26, 13))),
    *(((7, 3, 2), dual, parallel) for dual, parallel in ((0.3, False), (None, True), (0.3, True))),
]


@pytest.mark.spec("OC-02")
@pytest.mark.parametrize(("size", "dual", "parallel"), CASES, ids=str)
def test_it_is_the_dense_solution(rng, size, dual, parallel):
    lq = random_problems(rng, 40, *size)
    x0 = rng.normal(size=(40, size[1]))
    solve = jax.jit(jax.vmap(lambda lq, x0: solve_lqr(lq, x0, dual=dual, parallel=parallel)))
    found = solve(jax.tree.map(jnp.asarray, lq), jnp.asarray(x0))
    assert np.all(found.policy.convex)
    for k in range(40):
        x, u, multipliers = dense_solution(LQ(*(a[k] for a in lq)), x0[k], dual or 0.0)
        assert_near(found.x[k], x, 1e-9)
        assert_near(found.u[k], u, 1e-9)
        assert_near(found.multipliers[k], multipliers, 1e-9)


def cart_pole(N: int, dtype=np.float64) -> LQ:
    """Upright, mc 1, mp .3, l .5, h .01, explicit Euler; Q = I h, R = .1 h, QN = 100 I."""
    mc, mp, l, g, h = 1.0, 0.3, 0.5, 9.81, 0.01
    A = np.eye(4) + h * np.array(
        [[0, 0, 1, 0], [0, 0, 0, 1], [0, mp * g / mc, 0, 0], [0, (mc + mp) * g / (mc * l), 0, 0]]
    )
    B = h * np.array([[0], [0], [1 / mc], [1 / (mc * l)]])
    return stationary(A, B, h * np.eye(4), 0.1 * h * np.eye(1), 100 * np.eye(4), N, dtype)


def stationary(A, B, Q, R, end, N, dtype) -> LQ:
    n, m = B.shape
    zero = [np.zeros((N, *shape)) for shape in ((n,), (n, m), (m,))]
    Q = np.concatenate([np.broadcast_to(Q, (N, n, n)), end[None]])
    A, B, R = (np.broadcast_to(x, (N, *x.shape)) for x in (A, B, R))
    parts = A, B, zero[0], Q, zero[1], R, np.zeros((N + 1, n)), zero[2]
    return LQ(*(jnp.asarray(x, dtype) for x in parts))


def arm(N: int, dtype=np.float64) -> LQ:
    """A random plant of seven joints: masses, springs and dampers."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(7, 7))
    inverse = np.linalg.inv(root @ root.T / 7 + np.eye(7))
    h, eye = 0.01, np.eye(7)
    a = inverse @ np.hstack([-5 * eye, -eye])
    A = np.block([[eye + h * h * a[:, :7], h * eye + h * h * a[:, 7:]], [h * a[:, :7], eye + h * a[:, 7:]]])
    B = np.vstack([h * h * inverse, h * inverse])
    return stationary(A, B, h * np.eye(14), 0.1 * h * eye, 100 * np.eye(14), N, dtype)


@pytest.mark.spec("OC-03")
@pytest.mark.parametrize(("plant", "N"), [(cart_pole, 1000), (arm, 512)])
def test_parallel_is_sequential(plant, N):
    """Of the cart-pole the last 100 knots are those of a horizon of 100."""
    lq = plant(N)
    x0 = jnp.ones(lq.A.shape[-1])
    solve = jax.jit(solve_lqr, static_argnames="parallel")
    one, other = (solve(lq, x0, parallel=p) for p in (False, True))
    assert_near(other.policy.K, one.policy.K, 1e-10)
    assert_near(other.x, one.x, 1e-10)
    for parallel, tolerance in ((False, 2e-5), (True, 2e-4)):
        short = solve(plant(N, np.float32), x0.astype(np.float32), parallel=parallel)
        assert short.policy.K.dtype == np.float32
        assert_near(short.policy.K, one.policy.K, tolerance)


def test_the_stationary_gain_solves_the_discrete_riccati_equation():
    lq = cart_pole(4000)
    A, B, Q, R = (np.asarray(x[0]) for x in (lq.A, lq.B, lq.Q, lq.R))
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    K = -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    assert_near(jax.jit(solve_lqr)(lq, jnp.ones(4)).policy.K[0], K, 1e-9)


def test_no_minimum_is_said(rng):
    """One knot of one problem bends the wrong way; the other problem is as it would be alone."""
    lq = jax.tree.map(jnp.asarray, random_problems(rng, 2, 5, 3, 2))
    bad = lq._replace(R=lq.R.at[0, 2].add(-100.0 * jnp.eye(2)))
    solve = jax.jit(jax.vmap(solve_lqr))
    found, whole = solve(bad, jnp.ones((2, 3))), solve(lq, jnp.ones((2, 3)))
    assert not found.policy.convex[0, 2]
    assert np.all(found.policy.convex[0, 3:])
    assert np.array_equal(found.u[1], whole.u[1])


def test_shapes_are_named(rng):
    lq = jax.tree.map(lambda x: jnp.asarray(x[0]), random_problems(rng, 1, 5, 3, 2))
    with pytest.raises(ValueError, match=r"`S` has shape \(4, 3, 2\), expected \(5, 3, 2\) for 5 knots"):
        solve_lqr(lq._replace(S=lq.S[1:]), jnp.ones(3))
    with pytest.raises(ValueError, match=r"`x0` has shape \(2,\)"):
        solve_lqr(lq, jnp.ones(2))
