"""The innovations factor: a square root of the mass matrix with no fill-in, for every joint and free roots."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from operators.matrices import case, close, matrices

import dynax as dx

NAMES = sorted(trees.TREES)
METHODS = ("apply", "apply_transpose", "solve_root", "solve_root_transpose")


@jax.jit
def results(factor, x):
    """Everything a factor gives, on the columns of a matrix."""
    return {name: getattr(factor, name)(x) for name in METHODS}, factor.inverse(), factor.logdet()


@lru_cache
def factored(name: str):
    c = case(name)
    factor = dx.innovations_factor(c.model, c.q)
    return c, factor, jax.tree.map(np.asarray, results(factor, jnp.eye(c.model.nv)))


@pytest.mark.spec("OP-F", "LEM-0.1", "LEM-0.2", "LEM-0.3", "SOA-MINV", "SOA-MV", "SOA-LOGDET")
@pytest.mark.parametrize("name", NAMES)
def test_factor(name):
    c, _, (found, inverse, logdet) = factored(name)
    root = found["apply"]
    close(found["apply_transpose"], root.T, 1e-13)
    close(found["solve_root"], np.linalg.inv(root), 1e-11)
    close(found["solve_root_transpose"], np.linalg.inv(root.T), 1e-11)
    close(root @ root.T, c.mass, 1e-13)
    close(inverse, np.linalg.inv(c.mass), 1e-11)
    assert np.array_equal(inverse, inverse.T)
    sign, value = np.linalg.slogdet(c.mass)
    assert sign == 1
    assert abs(logdet - value) < 1e-12 * max(1.0, abs(value))
    # Upper triangular with positive diagonal, as sparse as the tree: the transpose of the factor of the matrix.
    close(root, dx.factor_ltl(c.mass, c.model.topology.expanded_parents).lower.T, 1e-13)
    assert not np.any(root[~c.model.topology.velocity_support.T])


@pytest.mark.spec("OP-F", "LEM-0.1")
def test_the_operators_factor():
    """L is [1 + H phi K] D^1/2: with the first undone, a root of each block of D is left."""
    c, _, (found, _, _) = factored("screws")
    d = matrices(c.ops, ("tool",), ("W", "D"))
    half = np.asarray(d["W"]) @ found["apply"]
    close(half @ half.T, d["D"], 1e-12)
    of = c.model.topology.body_of_velocity
    close(np.where(of[:, None] == of, 0.0, half), 0 * half, 1e-13)


@pytest.mark.spec("MB-SAMPLE")
@pytest.mark.parametrize("name", ["screws", "arm"])
def test_thermal_velocities(name, key):
    """[1 - H psi K]* D^-1/2 xi: the covariance is kT M^-1, exactly and in many samples; energy kT / 2 per freedom."""
    c, factor, (found, _, _) = factored(name)
    kt, count = 0.37, 40_000
    back = found["solve_root_transpose"]
    close(back @ back.T, np.linalg.inv(c.mass), 1e-11)
    samples = np.asarray(jax.jit(jax.vmap(lambda key: factor.sample(key, kt)))(jax.random.split(key, count)))
    noise = jax.random.normal(jax.random.split(key, count)[5], (c.model.nv,))
    close(samples[5], np.sqrt(kt) * back @ np.asarray(noise), 1e-12)
    # In the coordinates that make them white, entries of the covariance scatter by sqrt((1 + delta) / count).
    white = samples @ found["apply"] / np.sqrt(kt)
    assert np.abs(white.mean(0)).max() < 5 / np.sqrt(count)
    assert np.abs(white.T @ white / count - np.eye(c.model.nv)).max() < 5 * np.sqrt(2 / count)
    energy = 0.5 * np.einsum("si,ij,sj->s", samples, c.mass, samples)
    assert abs(energy.mean() / (0.5 * c.model.nv * kt) - 1) < 5 * np.sqrt(2 / (c.model.nv * count))


@pytest.mark.spec("SOA-LOGDET")
def test_gradients(rng):
    """Right along the tangent space, finite in all parameters, in a random state and the neutral one."""
    model = trees.build(((-1, dx.Free()), (0, dx.Revolute()), (0, dx.Revolute((1.0, 0.5, 0.0)))))
    qs = jnp.stack([trees.states(model, 1).q[0], dx.neutral(model)])
    step, x = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(2))

    def value(t, model, q):
        factor = dx.innovations_factor(model, dx.integrate(model, q, t * step))
        return factor.logdet() + x @ factor.solve(x)

    @jax.jit
    def program(t, model, qs):
        slope = jax.value_and_grad(value, argnums=(0, 1))
        return jax.vmap(lambda q: jax.vmap(slope, (0, None, None))(t, model, q))(qs)

    values, (rates, by_model) = program(jnp.array([-1e-5, 0.0, 1e-5]), model, qs)
    close(rates[:, 1], (values[:, 2] - values[:, 0]) / 2e-5, 1e-7)
    for leaf in jax.tree.leaves((rates, by_model)):
        assert np.all(np.isfinite(leaf))
    assert np.abs(by_model.mass).min() > 0


def test_transformations_and_types(rng):
    c, factor, (found, _, _) = factored("screws")
    x = rng.normal(size=c.model.nv)
    solution = np.linalg.solve(c.mass, x)
    for name in METHODS:
        close(getattr(factor, name)(x), found[name] @ x, 1e-12)  # a vector as a column
    close(factor.solve(x), solution, 1e-11)
    close(factor.mass_product(x), c.mass @ x, 1e-12)
    batch = jax.tree.map(lambda a: jnp.stack([a, a]), factor)
    close(jax.vmap(lambda f, x: f.solve(x))(batch, jnp.stack([x, -x])), np.stack([solution, -solution]), 1e-11)
    single = dx.innovations_factor(c.model, c.q.astype(jnp.float32))
    assert single.solve(x).dtype == single.logdet().dtype == jnp.float32
    close(single.solve(x), solution, 1e-4)
    assert single.sample(jax.random.key(0)).dtype == jnp.float32
    assert repr(factor) == f"InnovationsFactor(nv={c.model.nv})"
    with pytest.raises(ValueError, match=rf"vectors \({c.model.nv},\)"):
        factor.solve(np.zeros(3))
