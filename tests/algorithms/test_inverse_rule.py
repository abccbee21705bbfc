"""Derivatives of inverse dynamics in closed form against those of the recursion itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import dynax as dx
from dynax.algorithms.rnea import rnea

#: Of every kind whose columns turn, change or stand still; rolling has no closed form.
HOLONOMIC = (
    (-1, dx.Free()),
    (0, dx.Spherical()),
    (1, dx.Universal((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))),
    (0, dx.Driven(dx.Revolute((0.0, 1.0, 0.0)), trees.swing)),
    (3, dx.Reversed(dx.Helical((0.0, 1.0, 1.0), pitch=0.2))),
    (1, dx.UserJoint(trees.bent_screw, 2)),
    (-1, dx.Planar((1.0, 1.0, 0.0))),
)


def pair(model, q, a, external):
    """Forces along the tangent of `q`, by the rule and by the recursion."""

    def forces(function):
        def along(dq, v, a, model=model, external=external):
            return function(model, dx.integrate(model, q, dq), v, a, external)

        return along

    return forces(dx.inverse_dynamics), forces(rnea)


def close(found, expected):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9), found, expected)


@pytest.mark.spec("RBDA-5.5-DERIV", "RBDA-X-GRAD")
def test_both_ways_twice_and_in_batches(rng):
    model = trees.tree("arm")
    s = trees.states(model, 3)
    w, rates = rng.normal(size=model.nv), rng.normal(size=(3, model.nv))

    def all_of(function):
        def needed(x, q):
            return w @ function(model, q + x[0], x[1], x[2], None)

        def one(q, v, a):
            x = jnp.stack([jnp.zeros_like(v), v, a])
            slope = jax.grad(needed)(x, q)
            _, twice = jax.jvp(lambda x: jax.grad(needed)(x, q), (x,), (rates,))
            ahead = jax.jvp(lambda x: function(model, q + x[0], x[1], x[2], None), (x,), (rates,))[1]
            return slope, twice, ahead, jax.jacfwd(lambda v: function(model, q, v, a, None))(v)

        return jax.jit(jax.vmap(one))(s.q, s.v, s.a)

    close(all_of(dx.inverse_dynamics), all_of(rnea))


@pytest.mark.spec("RBDA-5.5-DERIV")
def test_bias_and_parameters(rng):
    model = trees.tree("arm")
    s = trees.states(model, 1)
    q, v, external, w = s.q[0], s.v[0], s.external[0], rng.normal(size=model.nv)

    def slopes(function):
        def power(v, mass, external):
            return w @ function(model.replace(mass=mass), q, v, external)

        return jax.jit(jax.grad(power, argnums=(0, 1, 2)))(v, model.mass, external)

    close(slopes(dx.bias_force), slopes(lambda model, q, v, external: rnea(model, q, v, None, external)))


@pytest.mark.slow
@pytest.mark.spec("RBDA-5.5-DERIV", "RBDA-X-GRAD")
def test_every_kind_of_joint(rng):
    model = trees.build(HOLONOMIC, seed=5)
    s = trees.states(model, 1)
    q, v, a, external = s.q[0], s.v[0], s.a[0], s.external[0]
    w, rates = rng.normal(size=model.nv), jnp.asarray(rng.normal(size=(3, model.nv)))
    still = jnp.zeros_like(v)

    def all_of(function):
        leaves = {"mass": model.mass, "com": model.com, "joint_parameters": model.joint_parameters, "time": model.time}

        def power(dq, v, a, leaves, external):
            return w @ function(dq, v, a, model.replace(**leaves), external)

        slopes = jax.jit(jax.grad(power, argnums=(0, 1, 2, 3, 4)))(still, v, a, leaves, external)
        return slopes, jax.jit(lambda: jax.jvp(function, (still, v, a), tuple(rates))[1])()

    by_rule, by_recursion = pair(model, q, a, external)
    close(all_of(by_rule), all_of(by_recursion))
