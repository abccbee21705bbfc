"""How fast stops close: limits, which move one freedom each, beside others, against matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.contact.stop_rows import StopRows


def stops(rng, freedoms, others, n, batch):
    signs = rng.choice([-1.0, 1.0], size=(len(freedoms), *batch))
    return StopRows(freedoms, jnp.asarray(signs), jnp.asarray(rng.normal(size=(others, n, *batch))))


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize(
    ("freedoms", "others", "n"), [((3, 0), 2, 5), ((1,), 0, 2), ((0, 1, 2), 0, 3), ((), 2, 4), ((), 0, 3), ((), 0, 0)]
)
def test_products_and_their_derivatives_are_those_of_matrices(freedoms, others, n, batch, rng):
    rows = stops(rng, freedoms, others, n, batch)
    count = len(freedoms) + others
    dense = np.array(rows.dense)
    assert dense.shape == (count, n, *batch)
    assert len(rows) == count
    assert [tuple(np.flatnonzero(row.reshape(n, -1).any(axis=1))) for row in dense[: len(freedoms)]] == [
        (freedom,) for freedom in freedoms
    ]
    v, f = rng.normal(size=(n, *batch)), rng.normal(size=(count, *batch))
    np.testing.assert_allclose(rows.times(jnp.asarray(v)), np.einsum("kn...,n...->k...", dense, v), atol=1e-14)
    np.testing.assert_allclose(rows.push(jnp.asarray(f)), np.einsum("kn...,k...->n...", dense, f), atol=1e-14)

    x, g = rng.normal(size=(n, *batch)), rng.normal(size=(count, *batch))
    both = jax.grad(lambda rows: jnp.sum(f * rows.times(x)) + jnp.sum(g * rows.times(v)))(rows)
    own = rows.by_entries(*map(jnp.asarray, (f, x, g, v)))
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(both), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-14)
