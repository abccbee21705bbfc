"""Derivatives of the forward dynamics of embedded loops, against differences: by the state, off the loops too, by
masses and by where a loop is closed."""

from __future__ import annotations

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import kernels
from constraints import mechanisms

import dynax as dx
from dynax.compile import pieces, versions

STEP = 1e-5


@lru_cache(maxsize=1)
def case():
    """A four-bar on a body that floats, and a direction for all that moves it."""
    rng = np.random.default_rng(14)
    part = mechanisms.four_bar()
    trunk = dx.ModelBuilder(gravity=(0.3, -9.81, 0.4), name="trunk")
    trunk.body("trunk", joint=dx.Free(), inertia=mechanisms.rod(2.0, 30.0))
    model = dx.attach(trunk.build(), part.model, body="trunk")
    start = np.concatenate([dx.integrate(trunk.build(), dx.neutral(trunk.build()), rng.normal(size=6)), part.q])
    embedded = dx.embed(model, start)
    q = np.asarray(dx.assemble(model, start).q)
    v, tau = rng.normal(size=(2, embedded.nv))
    leaves = model.mass, model.loop_predecessors.translation
    point = (np.zeros(model.nv), v, tau, *map(np.asarray, leaves))
    along = tuple(rng.normal(size=np.shape(x)) for x in point)

    @jax.jit
    def value(d, v, tau, mass, place):
        """The configuration is moved as the tree's, so that the loop opens."""
        turned = dx.integrate(model, q, d)
        there = embedded.tree.loop_predecessors
        there = dx.Transform(there.rotation, place)
        changed = embedded.replace(mass=mass, loop_predecessors=there)
        return jnp.sin(dx.forward_dynamics(changed, turned, v, tau)).sum()

    return value, point, along


def moved(point, along, step):
    return tuple(x + step * d for x, d in zip(point, along, strict=True))


@pytest.mark.skipif(not versions.available() or jax.default_backend() != "cpu", reason="kernels are of a CPU")
def test_each_way_is_one_kernel(monkeypatch):
    """What is found, and the way back, where long programs are left whole: nothing of a library is in them."""
    monkeypatch.setattr(pieces, "LONGEST", math.inf)
    value, point, _ = case()
    assert kernels(jax.jit(jax.grad(value, argnums=range(5))).lower(*point).as_text()) == 2


@pytest.mark.slow
@pytest.mark.spec("EMBED-ABA")
def test_gradients_by_state_and_parameters():
    value, point, along = case()
    gradient = jax.jit(jax.grad(value, argnums=range(5)))(*point)
    for k, (bar, d) in enumerate(zip(gradient, along, strict=True)):
        only = tuple(d if j == k else np.zeros_like(x) for j, x in enumerate(point))
        ends = (value(*moved(point, only, sign * STEP)) for sign in (1, -1))
        slope = np.subtract(*ends) / (2 * STEP)
        assert abs(np.sum(bar * d) - slope) <= 1e-7 * max(1.0, abs(slope)), k


@pytest.mark.slow
def test_tangents_and_second_derivatives():
    value, point, along = case()
    first = jax.jit(jax.grad(value, argnums=range(5)))
    tangent = jax.jit(lambda *x: jax.jvp(value, x, along)[1])(*point)
    power = sum(np.sum(bar * d) for bar, d in zip(first(*point), along, strict=True))
    np.testing.assert_allclose(tangent, power, rtol=1e-11)
    found = jax.jit(lambda *x: jax.jvp(first, x, along)[1])(*point)
    ends = [first(*moved(point, along, sign * STEP)) for sign in (1, -1)]
    for rate, ahead, behind in zip(found, *ends, strict=True):
        slope = (np.asarray(ahead) - np.asarray(behind)) / (2 * STEP)
        np.testing.assert_allclose(rate, slope, atol=1e-6 * max(1.0, np.abs(slope).max()))


@pytest.mark.slow
def test_third_derivatives():
    """By what has a closed form: the state, the forces and the masses."""
    value, point, along = case()
    point, along, place = point[:4], along[:4], point[4]
    slope = jax.grad(lambda *x: value(*x, place), argnums=range(4))
    second = jax.jit(lambda *x: jax.jvp(slope, x, along)[1])
    found = jax.jit(lambda *x: jax.jvp(second, x, along)[1])(*point)
    for function, rates in ((slope, second(*point)), (second, found)):
        ends = [function(*moved(point, along, sign * STEP)) for sign in (1, -1)]
        for rate, ahead, behind in zip(rates, *ends, strict=True):
            expected = (np.asarray(ahead) - np.asarray(behind)) / (2 * STEP)
            np.testing.assert_allclose(rate, expected, atol=1e-6 * max(1.0, np.abs(expected).max()))
