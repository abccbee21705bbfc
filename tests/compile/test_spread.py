"""A function of one sample that is read with the batch last gives what `vmap` gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dynax.compile.batching import trailing
from dynax.compile.spread import spread
from dynax.sweep import take_rows
from dynax.sweep.sums import summed


@jax.custom_jvp
def cubed(x):
    return x**3


@cubed.defjvp
def _(primals, tangents):
    return cubed(*primals), 3.0 * primals[0] ** 2 * tangents[0]


doubled_rows = trailing(lambda _, x, y: 2.0 * x * summed(y, 0))


def steps(x, y):
    def one(carry, own):
        total, k = carry
        return (total + own * k, k + 1.0), total * own

    carry, rows = lax.scan(one, (y[0], jnp.zeros(())), x)
    back = lax.scan(lambda c, own: (c - own, c), 0.0, x, reverse=True)[1]
    return carry[0], rows, back


OF_ONE = {
    "elements": lambda x, y: jnp.where(x > 0, jnp.sin(x) / (2.0 + y), jnp.clip(x, -0.5, y)),
    "constants": lambda x, y: np.arange(3.0) * x + np.eye(3)[1],
    "a scalar": lambda x, y: jnp.where(x[0] > 0, x, y) * y[2],
    "shapes": lambda x, y: jnp.stack([x, y]).reshape(3, 2).T[::-1, 1:],
    "concatenated": lambda x, y: jnp.concatenate([x[1:], jnp.zeros(2), y[:1]]),
    "padded": lambda x, y: lax.pad(x, 0.5, [(1, 2, 1)]),
    "padded with a number of its own": lambda x, y: lax.pad(x, y[0], [(1, 0, 0)]),
    "sums": lambda x, y: (jnp.sum(x * y), jnp.max(x), jnp.argmax(y), jnp.all(x > y), summed(x[:, None] * y, 1)),
    "products": lambda x, y: (
        x @ y,
        jnp.outer(x, y) @ x,
        jnp.einsum("ab,cb->ac", jnp.outer(x, y), jnp.outer(y, x) + 1.0),
        jnp.einsum("kab,kb->ka", jnp.stack([jnp.outer(x, y), jnp.outer(y, y)]), jnp.stack([x, y])),
        jnp.tensordot(jnp.outer(x, y), jnp.outer(y, x)),
    ),
    "products of nothing": lambda x, y: jnp.einsum("kab,kb->ka", jnp.zeros((0, 3, 3)) * x, jnp.zeros((0, 3)) * y),
    "rows": lambda x, y: (take_rows(x, np.array([2, -1, 0])), x[np.array([2, 0])], x.at[1].set(y[0])),
    "a place of its own": lambda x, y: x[jnp.argmax(y)],
    "a call": lambda x, y: jnp.linalg.norm(x) * jnp.cross(x, y),
    "a rule": lambda x, y: cubed(x) + cubed(y[0]),
    "loops": steps,
    "a loop until it is done": lambda x, y: lax.while_loop(lambda a: jnp.sum(a) < 10.0, lambda a: 1.0 + a * a, x),
    "a choice": lambda x, y: lax.cond(x[0] > 0, lambda: x + y, lambda: x * y),
    "all pairs": lambda x, y: jax.vmap(lambda a: jax.vmap(lambda b: jnp.arctan2(a, 2.0 + b * b))(y))(x),
    "what has the batch last itself": lambda x, y: doubled_rows((), x, y),
    "the same in rows": lambda x, y: jax.vmap(lambda a: doubled_rows((), a, x))(jnp.stack([x, y])),
    "a slope": lambda x, y: jax.grad(lambda x: jnp.sum(jnp.sin(x) * y) ** 2)(x),
}
DIFFERENTIABLE = [name for name in OF_ONE if name != "a loop until it is done"]


def samples(rng, *batch):
    return [jnp.asarray(rng.normal(size=(3, *batch))) for _ in range(2)]


def of_each(function, x, y):
    """By `vmap`, the batch axes last."""
    for _ in range(x.ndim - 1):
        function = jax.vmap(function, in_axes=-1, out_axes=-1)
    return function(x, jnp.broadcast_to(y, x.shape))


def assert_same(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)


@pytest.mark.spec("RBDA-X-BATCH")
@pytest.mark.parametrize("name", OF_ONE)
def test_it_is_what_vmap_gives(rng, name):
    """Of one batch axis, of two, of none, and where one argument is the same for all."""
    function = OF_ONE[name]
    for batch in ((5,), (2, 5), ()):
        x, y = samples(rng, *batch)
        found = jax.jit(lambda x, y, batch=batch: spread(function, [x, y], batch))(x, y)
        assert_same(found, of_each(function, x, y))
    x, y = samples(rng, 5)
    assert_same(spread(function, [x, y[:, :1]], (5,)), of_each(function, x, y[:, :1]))
    assert_same(spread(function, [x[:, :1], y[:, :1]], (5,)), of_each(function, *(z[:, :1] + 0.0 * z for z in (x, y))))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_so_are_derivatives(rng, name):
    function, (x, y) = OF_ONE[name], samples(rng, 5)

    def total(run, x, y):
        real = [z for z in jax.tree.leaves(run(x, y)) if jnp.issubdtype(z.dtype, jnp.floating)]
        return sum(jnp.sum(jnp.sin(z)) for z in real)

    ours = jax.grad(lambda *z: total(lambda x, y: spread(function, [x, y], (5,)), *z), argnums=(0, 1))
    theirs = jax.grad(lambda *z: total(lambda x, y: of_each(function, x, y), *z), argnums=(0, 1))
    assert_same(jax.jit(ours)(x, y), jax.jit(theirs)(x, y))
