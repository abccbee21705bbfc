"""Rows looked up by tables that are data: against indexing, in every derivative, and without a scatter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from dynax.compile.one_kernel import CALLS, LOOPS, equations
from dynax.sweep import walk
from dynax.sweep.links import linked

CHILDREN = np.array([[0, 2, 5], [1, 5, 5]])  # of three rows, among five; 3 and 4 are nobody's
PARENTS = np.array([[0, 0, 1, 3, 3]])


def summed(a):
    return jnp.concatenate([a, jnp.zeros_like(a[:1])])[CHILDREN].sum(0)


def children(a):
    return linked(a, jnp.asarray(CHILDREN), jnp.asarray(PARENTS))


def test_rows_and_what_was_asked_of_each(rng):
    a, bar = jnp.asarray(rng.normal(size=(5, 2))), jnp.asarray(rng.normal(size=(3, 2)))
    np.testing.assert_allclose(children(a), summed(a), rtol=1e-14)
    found, expected = (jax.vjp(f, a)[1](bar)[0] for f in (children, summed))
    np.testing.assert_array_equal(found, expected)
    check_grads(lambda a: jnp.sin(children(a)), (a,), order=2, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_batches(axis, rng):
    many = jnp.asarray(rng.normal(size=(4, 5, 2)))
    found = jax.vmap(children, in_axes=axis)(jnp.moveaxis(many, 0, axis))
    np.testing.assert_allclose(found, jax.vmap(summed)(many), rtol=1e-14)
    tables = jnp.stack([jnp.asarray(CHILDREN)] * 4), jnp.stack([jnp.asarray(PARENTS)] * 4)
    np.testing.assert_allclose(jax.vmap(linked)(many, *tables), jax.vmap(summed)(many), rtol=1e-14)


def test_derivatives_of_walks_have_no_scatter(rng):
    """A tree whose levels are of different widths, in every order of them, outward and inward."""
    parents = (-1, 0, 0, 1, 1, 2, 3, -2, 7, 7)
    tree = walk(parents, 2, "levels")
    x = jnp.asarray(rng.normal(size=(len(parents), 3)))
    rows = np.array([0 if body < 0 else body for body in tree.rows])
    here = np.array([body >= 0 for body in tree.rows], float)[:, None]

    def outward(x):
        def step(above, own):
            found = jnp.sin(above) + own
            return found, found

        return (tree.scatter(step, jnp.ones((2, 3)), x[rows]) * here)[:, None]

    def plain(x):
        found = []
        for body, parent in enumerate(parents):
            found.append(jnp.sin(jnp.ones(3) if parent < 0 else found[parent]) + x[body])
        return (jnp.stack([found[body] for body in rows]) * here)[:, None]

    np.testing.assert_allclose(outward(x), plain(x), rtol=1e-14)
    bar = jnp.asarray(rng.normal(size=outward(x).shape))
    np.testing.assert_allclose(jax.vjp(outward, x)[1](bar)[0], jax.vjp(plain, x)[1](bar)[0], rtol=1e-12)

    def back(given, bar):
        """Of the walk alone: the rows of the test are looked up by JAX."""

        def along(given):
            return tree.scatter(lambda above, own: (jnp.sin(above) + own,) * 2, jnp.ones((2, 3)), given)

        return jax.vjp(along, given)[1](bar)[0]

    used = {e.primitive.name for e in equations(jax.make_jaxpr(back)(x[rows], x[rows]).jaxpr)}
    assert used <= LOOPS | CALLS, used - LOOPS - CALLS
