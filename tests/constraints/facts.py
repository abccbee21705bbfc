"""Everything about a closed mechanism at one state, for NumPy to check: one compilation for each model."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

import dynax as dx
from dynax.constraints.residual import rows_at


class Facts(NamedTuple):
    phi: np.ndarray
    k: np.ndarray
    """`K`."""
    rate: np.ndarray
    bias: np.ndarray
    """The right side of `K a = bias`."""
    h: np.ndarray
    c: np.ndarray


@jax.jit
def _facts(model, q, v) -> Facts:
    rows = rows_at(model, q, v)
    return Facts(rows.residual, rows.matrix, rows.rate, rows.bias, dx.mass_matrix(model, q), dx.bias_force(model, q, v))


_many = jax.jit(jax.vmap(_facts, in_axes=(None, 0, 0)))


def facts(model, q, v) -> Facts:
    """Of one state, or of many with a leading axis."""
    q, v = np.asarray(q, float), np.asarray(v, float)
    found = _many(model, np.atleast_2d(q), np.atleast_2d(v))
    return Facts(*(np.asarray(x)[0] if q.ndim == 1 else np.asarray(x) for x in found))


def close(a, b, tolerance=1e-10):
    """To a tolerance relative to the largest entry of `b`, or to one."""
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1.0))


def null_space(k, tolerance=1e-9):
    """An orthonormal basis of the admissible velocities."""
    _, s, vt = np.linalg.svd(k, full_matrices=True)
    rank = int(np.sum(s > tolerance * max(s.max(initial=0.0), 1e-300)))
    return vt[rank:].T


def admissible(k, v, right=0.0):
    """The velocity nearest to `v` with `K v = right`."""
    return v - np.linalg.pinv(k, rcond=1e-10) @ (k @ v - right)


def solution(f: Facts, tau):
    """Accelerations and the forces of the constraints, by dense elimination."""
    g = null_space(f.k)
    particular = np.linalg.pinv(f.k, rcond=1e-10) @ f.bias
    a = particular + g @ np.linalg.solve(g.T @ f.h @ g, g.T @ (tau - f.c - f.h @ particular))
    return a, f.h @ a + f.c - tau
