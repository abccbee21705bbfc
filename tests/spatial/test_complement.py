"""The complement of the columns of a joint: its value, and derivatives that are those of a subspace."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.linear.cholesky import cholesky
from dynax.linear.solve import solve
from dynax.spatial.complement import complement


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def turned(a):
    return jnp.swapaxes(a, -1, -2)


@pytest.mark.parametrize("k", range(7))
def test_complement_is_orthonormal_and_perpendicular(rng, k):
    columns = rng.normal(size=(3, 5, 6, k)) * rng.uniform(0.01, 100.0, size=(3, 5, 1, k))
    found, mapped = jax.jit(lambda x: (complement(x), jax.vmap(jax.vmap(complement))(x)))(columns)
    assert found.shape == (3, 5, 6, 6 - k)
    close(turned(found) @ found, np.broadcast_to(np.eye(6 - k), (3, 5, 6 - k, 6 - k)), 1e-14)
    close(turned(columns / np.linalg.norm(columns, axis=-2, keepdims=True)) @ found, 0.0, 1e-13)
    close(mapped, found, 1e-14)


def curve(rng, k):
    """Columns that move along a curve through space, at each time."""
    start, *rates = rng.normal(size=(4, 6, k))
    return lambda t: start + jnp.sin(t) * rates[0] + t**2 * rates[1] + jnp.cos(2 * t) * rates[2]


@pytest.mark.parametrize("k", [1, 4])
def test_derivatives_are_those_of_the_subspace(rng, k):
    """The projector on the complement does not depend on the basis: all its derivatives must be right."""
    columns = curve(rng, k)

    def by_complement(t):
        s = columns(t)
        basis = complement(s)
        return jnp.concatenate([x.reshape(-1) for x in (basis @ basis.T, basis.T @ basis, s.T @ basis)])

    def by_columns(t):
        s = columns(t)
        projector = jnp.eye(6) - s @ solve(s.T @ s, s.T)
        return jnp.concatenate([projector.reshape(-1), jnp.eye(6 - k).reshape(-1), jnp.zeros(k * (6 - k))])

    def derivatives(f):
        first = jax.jacfwd(f)
        second = jax.jacfwd(first)
        return jax.jit(lambda t: (f(t), first(t), second(t), jax.jacfwd(second)(t), jax.jacrev(f)(t)))

    scale = 1.0
    for found, wanted in zip(derivatives(by_complement)(0.3), derivatives(by_columns)(0.3), strict=True):
        scale = max(scale, float(jnp.abs(wanted).max()))
        close(found, wanted, 1e-11 * scale)


def test_gradient_and_hessian_agree_with_differences(rng):
    """Of a function of the subspace alone, by the columns themselves."""
    weight = rng.normal(size=(6, 6))
    weight = weight @ weight.T

    def cost(columns):
        t = complement(columns)
        return 2.0 * jnp.sum(jnp.log(jnp.diagonal(cholesky(t.T @ weight @ t))))

    columns = jnp.asarray(rng.normal(size=(6, 2)))
    direction = jnp.asarray(rng.normal(size=(6, 2)))
    gradient, hessian = jax.jit(lambda x: (jax.grad(cost)(x), jax.jvp(jax.grad(cost), (x,), (direction,))[1]))(columns)
    h = 1e-5
    values = jax.jit(jax.vmap(cost))(jnp.stack([columns + h * direction, columns - h * direction]))
    slopes = jax.jit(jax.vmap(jax.grad(cost)))(jnp.stack([columns + h * direction, columns - h * direction]))
    close(jnp.sum(gradient * direction), (values[0] - values[1]) / (2 * h), 1e-8)
    close(hessian, (slopes[0] - slopes[1]) / (2 * h), 1e-7)


def test_nearly_dependent_columns_have_a_complement():
    """As those of a gimbal have, where its first and third axes meet."""
    columns = np.zeros((6, 3))
    columns[0, 0], columns[1, 1], columns[0, 2], columns[2, 2] = 1.0, 1.0, 1.0, 1e-16
    found = complement(columns)
    close(found.T @ found, np.eye(3), 1e-14)
    close(found.T @ columns, 0.0, 1e-14)


def test_single_precision_stays_single():
    for k in (0, 2, 6):
        assert jax.eval_shape(complement, jax.ShapeDtypeStruct((6, k), jnp.float32)).dtype == jnp.float32
