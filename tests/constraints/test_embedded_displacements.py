"""Derivatives of `integrate` of embedded loops, which closes them again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms

import dynax as dx
from dynax.compile.one_kernel import equations
from dynax.embedding.closing import CORRECTIONS


def slope(function, x, along, h=1e-3):
    """By differences of fourth order."""
    f = [function(x + k * h * along) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)


def displaced(name):
    """Where a mechanism ends after two displacements, the second with all lengths changed by one part: a function of
    both and that part, and a place."""
    part = getattr(mechanisms, name)()
    embedded = dx.embed(part.model, part.q)
    nv, lengths = embedded.nv, embedded.tree.placements.translation

    def ends(x):
        changed = dx.Transform(embedded.tree.placements.rotation, lengths * (1 + x[2 * nv]))
        start = dx.integrate(embedded, part.q, x[:nv])
        return jnp.sin(dx.integrate(embedded.replace(placements=changed), start, x[nv : 2 * nv]))

    return ends, np.concatenate([0.1 * np.random.default_rng(1).normal(size=2 * nv), [0.0]])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["four_bar", "wishbone"])
def test_by_displacements_and_lengths(name):
    """Of joints that follow wholly, in closed form; and of balls that follow in part, by the corrections themselves."""
    ends, x = displaced(name)
    value, backward = jax.jit(ends), jax.jit(jax.jacrev(ends))(x)
    by_differences = np.stack([slope(value, x, along) for along in np.eye(len(x))], axis=1)
    np.testing.assert_allclose(backward, by_differences, atol=1e-8)


@pytest.mark.slow
def test_forward_and_again():
    ends, x = displaced("four_bar")
    np.testing.assert_allclose(jax.jit(jax.jacfwd(ends))(x), jax.jit(jax.jacrev(ends))(x), atol=1e-12)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(ends(x))))
    hessian = jax.jit(jax.jacfwd(jax.grad(lambda x: jnp.sum(ends(x)))))(x)
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-10)
    np.testing.assert_allclose(hessian[0], slope(gradient, x, np.eye(len(x))[0]), atol=1e-7)


def test_no_correction_is_differentiated():
    ends, x = displaced("four_bar")
    program = jax.make_jaxpr(jax.grad(lambda x: jnp.sum(ends(x))))(x)
    assert not any(e.primitive.name == "scan" and e.params["length"] == CORRECTIONS for e in equations(program.jaxpr))
