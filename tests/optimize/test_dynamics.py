"""Derivatives of forward and inverse dynamics as solvers take them, of both orders, against those of the library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import near

import dynax as dx
from dynax.model.configuration import bracket_rows
from dynax.optimize.dynamics import acceleration, joint_force

BODY = dx.SpatialInertia(1.3, (0.1, -0.2, 0.15), np.diag([0.3, 0.4, 0.5]))


@pytest.fixture(scope="module")
def model() -> dx.Model:
    """A ball in the world, on it a hinge with a spring, damping and a rotor."""
    builder = dx.ModelBuilder()
    builder.body("ball", joint=dx.Spherical(), inertia=BODY)
    arm = dx.Transform(dx.Rotation.exp((0.3, -0.2, 0.5)), (0.1, 0.3, -0.2))
    builder.body("arm", parent="ball", joint=dx.Revolute((0, 1, 1)), placement=arm, inertia=BODY)
    made = builder.build()
    leaves = {name: jnp.full(4, x) for name, x in (("stiffness", 2.0), ("damping", 0.3), ("armature", 0.1))}
    return made.replace(**leaves)


def moved(model, key, rng):
    """`function -> (z, mass) -> weights . function` at a state moved along `z`, and masses."""
    q = dx.random_configuration(model, key)
    v, last, weights = (jnp.asarray(rng.normal(size=4)) for _ in range(3))

    def of(function):
        def paired(z, mass):
            at = dx.integrate(model, q, z[:4]), v + z[4:8], last + z[8:]
            return jnp.sum(weights * function(model.replace(mass=mass), *at))

        return paired

    return of


def differences(function, model, which):
    """Rates of the gradient of `function(z, mass)` along `z`, and along masses, central."""
    h, units = 1e-5, 1e-5 * jnp.eye(14)[which]
    slopes = jax.jit(jax.vmap(jax.grad(function)))
    found = (slopes(sign * units[:, :12], model.mass + sign * units[:, 12:]) for sign in (1, -1))
    return (next(found) - next(found)).T / (2 * h)


def test_curvature_is_the_derivative_of_the_slope(model, rng, key):
    """`d(J'l)` of forward dynamics along every direction, against differences of the library's own gradient."""
    of = moved(model, key, rng)
    expected = differences(of(dx.forward_dynamics), model, slice(12))
    H = jax.jit(jax.hessian(of(acceleration)))(jnp.zeros(12), model.mass)
    size = np.max(np.abs(expected))
    near(H, expected, 1e-8 * size)
    near(H, H.T, 1e-12 * size)
    assert np.min(np.abs(np.diag(H)[:4])) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "known"), [(joint_force, dx.inverse_dynamics), (acceleration, dx.forward_dynamics)])
def test_curvature_by_masses_too(model, rng, key, ours, known):
    of = moved(model, key, rng)
    expected = differences(of(known), model, slice(14))
    found = jax.jit(jax.jacfwd(jax.grad(of(ours)), (0, 1)))(jnp.zeros(12), model.mass)
    near(jnp.concatenate(found, axis=1), expected, 1e-8 * np.max(np.abs(expected)))


@pytest.mark.slow
def test_third_derivatives(rng):
    """Of two hinges, along a curve and by masses, against differences of the second ones."""
    builder = dx.ModelBuilder()
    builder.body("upper", joint=dx.Revolute((0, 1, 0)), inertia=BODY)
    builder.body("lower", parent="upper", joint=dx.Revolute((0, 0, 1)), inertia=BODY)
    model = builder.build()
    (*at, weights), ways = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))

    def along(t, mass):
        state = (x + t * way for x, way in zip(at, ways, strict=True))
        return jnp.sum(weights * acceleration(model.replace(mass=mass), *state))

    second, h = jax.jit(jax.grad(jax.grad(along))), 1e-4
    third, by_masses = jax.jit(jax.jacfwd(jax.grad(jax.grad(along)), (0, 1)))(0.0, model.mass)
    near(third, (second(h, model.mass) - second(-h, model.mass)) / (2 * h), 1e-7 * abs(third))
    for k, slope in enumerate(by_masses):
        more, less = (second(0.0, model.mass.at[k].add(change)) for change in (h, -h))
        near(slope, (more - less) / (2 * h), 1e-6 * jnp.max(jnp.abs(by_masses)))


JOINTS = [
    dx.Spherical(), dx.Free(), dx.Planar(), dx.Reversed(dx.Free()), dx.RollingBall(0.4), dx.SphereInCylinder(),
    dx.Universal(),
]  # fmt: skip


@pytest.mark.parametrize("joint", JOINTS, ids=repr)
def test_brackets(joint, rng):
    """`log(exp(a) exp(b)) = a + b + [a, b] / 2 + ...`: the second-order part, by differences."""
    builder = dx.ModelBuilder()
    builder.body("body", joint=joint, inertia=BODY)
    model = builder.build()
    a, b = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(2))
    start, h = dx.neutral(model), 1e-3

    def after(a, b):
        return dx.difference(model, start, dx.integrate(model, dx.integrate(model, start, a), b))

    found = (after(h * a, h * b) - after(h * b, h * a) + after(-h * a, -h * b) - after(-h * b, -h * a)) / (2 * h * h)
    near(bracket_rows(model, a, b), found, 1e-5)
