"""The fewest contacts that do what many do (Featherstone 2008, chapter 11.6)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from dynax.contact.complementarity import complementary

SAME = {"float64": 1e-7, "float32": 1e-3}
"""What is left of a normal, by its size, that is nothing."""


def minimal_set(normals: Any) -> np.ndarray:
    """Which contacts are needed: the numbers of those whose normals are no sum of others, each times a number that is
    not negative. Of a face that lies on a plane those are its corners; what holds them apart from the plane holds all.

    **Arguments:** `normals`: shape `(k, n)`, the rate of each gap by the velocity, as `normal . J` of
    `contact_jacobian`, or `[p x n; n]` of points on one body. Of those that are the same the last is kept.

    Not for `jit`: how many there are is the answer. Each is a nonnegative least-squares problem, of which the
    conditions are a complementarity problem with `M = N N^T`, `d = -N n_i`.
    """
    rows = np.array(normals, dtype=np.result_type(normals, np.float32))
    if rows.ndim != 2 or not np.all(np.isfinite(rows)):
        raise ValueError(f"`normals` has shape {rows.shape}, expected finite numbers of shape (k, n)")
    size = np.linalg.norm(rows, axis=1)
    rows = rows / np.where(size > 0, size, 1.0)[:, None]
    kept = size > 0
    for k in np.flatnonzero(kept):
        others = kept & (np.arange(len(rows)) != k)
        some = np.where(others[:, None], rows, 0.0)
        m = some @ some.T + np.diag(~others).astype(rows.dtype)
        x = np.asarray(complementary(jnp.asarray(m), jnp.asarray(-some @ rows[k])).x)
        kept[k] = np.linalg.norm(x @ some - rows[k]) > SAME[rows.dtype.name]
    return np.flatnonzero(kept)
