"""Rows looked up at known places: against indexing, in every derivative, and without a scatter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from dynax.compile.one_kernel import CALLS, LOOPS, equations
from dynax.sweep.rows import FEW, copied, read_place, take_entries, take_rows

PLACES = {
    "turned": [3, 0, 2, 1],
    "some": [4, 1],
    "none": [],
    "all missing": [-1, -1],
    "some missing": [2, -1, 0, -1],
    "repeated": [1, 1, 0, 3, 1],
    "often": [2] * (FEW + 3) + [0, 4, 4],
    "one row alone, often": [4] * (2 * FEW + 1),
    "all of them often": [k % 5 for k in range(6 * FEW)],
}


def expected(a, index):
    return np.concatenate([a, np.zeros_like(a[:1])])[np.asarray(index, int)]


@pytest.mark.parametrize("places", PLACES)
def test_rows_and_what_was_asked_of_each(places, rng):
    index = np.array(PLACES[places], int)
    a = rng.normal(size=(5, 3))
    found, pull = jax.vjp(lambda a: take_rows(a, index), jnp.asarray(a))
    np.testing.assert_array_equal(found, expected(a, index))
    bar = rng.normal(size=found.shape)
    asked = np.zeros_like(a)
    for row, own in zip(index, bar, strict=True):
        asked[row] += own * (row >= 0)
    np.testing.assert_allclose(pull(jnp.asarray(bar))[0], asked, atol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_samples_of_a_batch_are_looked_up_at_once(axis, rng):
    index = np.array([1, 1, -1, 3])
    a = rng.normal(size=(4, 2))
    many = np.stack([a, 2.0 * a, -a], axis)
    found = jax.vmap(lambda a: take_rows(a, index), in_axes=axis)(jnp.asarray(many))
    np.testing.assert_array_equal(found, np.stack([expected(x, index) for x in (a, 2.0 * a, -a)]))
    turned = jax.vmap(jax.grad(lambda a: jnp.sum(take_rows(a, index) ** 2)), in_axes=axis)(jnp.asarray(many))
    np.testing.assert_allclose(turned[1], 2.0 * turned[0], rtol=1e-14)


def test_derivatives_of_every_order(rng):
    a = jnp.asarray(rng.normal(size=(5, 2)))
    index = np.array(PLACES["often"] + PLACES["some missing"], int)
    check_grads(lambda a: jnp.sin(take_rows(a, index)), (a,), order=2, atol=1e-6, rtol=1e-6)


def test_a_place_that_the_program_finds_is_read_and_written(rng):
    a = rng.normal(size=(4, 3))

    def read(a, place):
        return read_place(jnp.asarray(a), place)

    for place in range(4):
        np.testing.assert_array_equal(jax.jit(read)(a, place), a[place : place + 1])
        bar = jax.grad(lambda a, k=place: jnp.sum(jnp.cos(read(a, k))))(a)
        np.testing.assert_allclose(bar, np.where(np.arange(4)[:, None] == place, -np.sin(a), 0.0), atol=1e-15)
    check_grads(lambda a: jnp.sin(read(a, 2)), (a,), order=2, atol=1e-6, rtol=1e-6)
    several = jax.vmap(read, in_axes=(None, 0))(a, jnp.array([2, 0]))
    np.testing.assert_array_equal(several[:, 0], a[[2, 0]])
    np.testing.assert_array_equal(jax.vmap(read, in_axes=(2, None))(np.stack([a, -a], 2), 1)[1], -a[1:2])


def test_what_goes_backward_can_be_in_one_kernel(rng):
    a = jnp.asarray(rng.normal(size=(5, 3)))

    def of(a):
        picked = take_rows(a, np.array([4, 4, -1, 0]))
        shared = sum(take_entries(a, np.array([0, 2]), 3))
        return jnp.sum(copied(picked) ** 2) + jnp.sum(shared * read_place(a, jnp.argmax(picked[:, 0]) % 4))

    names = {equation.primitive.name for equation in equations(jax.make_jaxpr(jax.grad(of))(a).jaxpr)}
    assert "dynax_rows" in names
    assert names - LOOPS - CALLS <= {"argmax", "reduce_sum", "rem"}
