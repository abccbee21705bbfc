"""The walk of a chain in logarithmic depth: the accelerations of the recursion, whatever the joints and the masses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import dynax as dx
from dynax.algorithms.aba import aba
from dynax.routes.chain import aba_associative
from dynax.sweep.associative import RADIX, is_chain, of_children, of_parents, prefixes, suffixes

HINGES = (dx.Revolute((0.0, 0.0, 1.0)), dx.Revolute((0.0, 1.0, 0.0)), dx.Revolute((1.0, 1.0, 0.0)))
SCREWS = (
    dx.Revolute((1.0, 2.0, 0.5)),
    dx.Prismatic((1.0, 0.0, 1.0)),
    dx.Reversed(dx.Helical((0.0, 1.0, 1.0), pitch=0.2)),
)
OTHERS = (dx.Spherical(), dx.Driven(dx.Revolute((0.0, 1.0, 0.0)), trees.swing), dx.Planar())


def chain(joints, length: int, *, floating: bool = False, passive: bool = False) -> dx.Model:
    """Bodies in a row with random numbers, their joints taken in turn."""
    kinds = ([dx.Free()] if floating else []) + [joints[k % len(joints)] for k in range(length)]
    return trees.build([(k - 1, kind) for k, kind in enumerate(kinds)], seed=length, passive=passive)


def lightened(model: dx.Model) -> dx.Model:
    """The same with massless bodies, three in a row, and very light ones between them; the last is as it was."""
    scale = jnp.asarray([0.0, 0.0, 0.0, 1.0, 1e-4, 1e-4, 0.0, 1.0])
    return model.replace(
        mass=model.mass * scale, inertia=model.inertia * scale[:, None], armature=jnp.zeros_like(model.armature)
    )


def states(model: dx.Model, count: int):
    """Batch axis last, as the algorithms want it."""
    s = trees.states(model, count)
    return tuple(jnp.moveaxis(x, 0, -1) for x in (s.q, s.v, s.tau, s.external))


def relative(found, expected) -> float:
    """The largest error of a state over its largest acceleration."""
    expected = np.asarray(expected, dtype=float)
    return float((np.abs(np.asarray(found, dtype=float) - expected).max(0) / np.abs(expected).max(0)).max())


recursion, in_parallel = jax.jit(aba), jax.jit(aba_associative)

CHAINS = {
    "8 screws": lambda: chain(SCREWS, 8, passive=True),
    "8 screws, light bodies": lambda: lightened(chain(SCREWS, 8, passive=True)),
    "33 hinges on a free root": lambda: chain(HINGES, 33, floating=True),
    "joints with several freedoms or none": lambda: chain(OTHERS, 3),
}


@pytest.mark.parametrize("name", CHAINS)
def test_accelerations_are_those_of_the_recursion(name):
    model = CHAINS[name]()
    state = states(model, 3)
    assert relative(in_parallel(model, *state), recursion(model, *state)) < 1e-10


def test_a_long_chain_keeps_its_digits_in_both_precisions():
    model = chain(HINGES, 128)
    state = states(model, 8)
    expected = recursion(model, *state)
    assert relative(in_parallel(model, *state), expected) < 1e-10
    single = tuple(x.astype(jnp.float32) for x in state)
    found = in_parallel(model, *single)
    assert found.dtype == jnp.float32
    assert relative(found, expected) < 3.0 * relative(recursion(model, *single), expected)


def test_gradients_are_those_of_the_recursion():
    model = chain(HINGES, RADIX + 1, passive=True)  # two blocks, the second one filled up
    q, v, tau, _ = states(model, 1)
    weight = jnp.arange(1.0, model.nv + 1.0)

    def slope(function):
        def value(mass, q, v, tau):
            return weight @ function(model.replace(mass=mass), q, v, tau)

        return jax.jit(jax.grad(value, argnums=(0, 1, 2, 3)))(model.mass, q[:, 0], v[:, 0], tau[:, 0])

    for found, expected in zip(slope(aba_associative), slope(aba), strict=True):
        assert np.all(np.isfinite(found))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())


def test_what_is_no_chain_is_refused():
    branched = trees.tree("arm")
    beside = trees.build([(-1, dx.Free()), (-1, dx.Revolute((0.0, 0.0, 1.0)))])
    for model in (branched, beside):
        with pytest.raises(ValueError, match="chain"):
            aba_associative(model, *(x[..., 0] for x in states(model, 1)[:3]))


@pytest.mark.parametrize("rows", [1, 2, 8, 9, 64, 65, 130])
def test_prefixes_and_suffixes_of_products(rows, rng):
    """Matrices do not commute: the order counts. Against plain loops."""
    matrices = np.eye(2) + 0.1 * rng.normal(size=(rows, 2, 2))
    unit = jnp.eye(2)
    expected = [matrices[0]]
    for matrix in matrices[1:]:
        expected.append(expected[-1] @ matrix)
    np.testing.assert_allclose(prefixes(jnp.matmul, unit, jnp.asarray(matrices)), expected, rtol=1e-12, atol=1e-12)
    expected = [matrices[-1]]
    for matrix in matrices[-2::-1]:
        expected.append(matrix @ expected[-1])
    found = suffixes(jnp.matmul, unit, jnp.asarray(matrices))
    np.testing.assert_allclose(found, expected[::-1], rtol=1e-12, atol=1e-12)


def test_neighbours():
    y = {"x": jnp.arange(1.0, 4.0)}
    np.testing.assert_array_equal(of_parents({"x": jnp.array([7.0])}, y)["x"], [7.0, 1.0, 2.0])
    np.testing.assert_array_equal(of_children(y)["x"], [2.0, 3.0, 0.0])
    assert is_chain((-2, 0, 1))
    assert not any(map(is_chain, ((), (-1, -1), (-1, 0, 0))))
