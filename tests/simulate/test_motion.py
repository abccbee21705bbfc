"""All steps of a lone motion in one kernel: the numbers and the derivatives of steps one by one."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from simulate.systems import double_pendulum

import dynax as dx
from dynax.compile import one_kernel
from dynax.simulate.motion import motion

pytestmark = pytest.mark.skipif(not one_kernel.expected(), reason="this version of JAX has no such kernels")

SMALL = double_pendulum()
Q, V = jnp.array([0.3, -0.8]), jnp.array([0.5, 0.1])
FORCES = 0.3 * jnp.sin(jnp.arange(24.0)).reshape(12, 2)


def by_steps(model, q, v, forces, dt, **options):
    """The rollout under a policy that says the same: it may be any function, so that its steps are not together."""

    rows = jnp.pad(forces, ((0, 1), (0, 0)))  # at least one, also where none is asked for

    def policy(t, q, v, k):
        return rows[k], k + 1

    return dx.rollout(model, q, v, policy, dt, steps=len(forces), memory=jnp.array(0), **options)[0]


def in_loops(function, *args) -> bool:
    """Whether steps are in a loop of the program, and not in a kernel."""
    found = one_kernel.equations(jax.make_jaxpr(function)(*args).jaxpr)
    return any(equation.primitive.name == "scan" for equation in found)


def same(found, expected, tolerance):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert np.all(np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max(initial=0.0))


Y = (0.0, 1.0, 0.0)
TREES = {
    "driven": (
        (-1, dx.Revolute(Y)),
        (0, dx.Driven(dx.Revolute(Y), trees.swing)),
        (1, dx.UserJoint(trees.bent_screw, 2)),
    ),
    "rolling": ((-1, dx.RollingBall(0.5)),),
    "mixed": trees.MIXED,
}


@pytest.mark.parametrize(
    ("name", "stepper", "dtype"),
    [
        ("driven", "semi_implicit", jnp.float64),
        ("rolling", "explicit", jnp.float32),
        pytest.param("mixed", "semi_implicit", jnp.float64, marks=pytest.mark.slow),
        pytest.param("mixed", "explicit", jnp.float64, marks=pytest.mark.slow),
        pytest.param("driven", "rk4", jnp.float64, marks=pytest.mark.slow),
        pytest.param("driven", "heun", jnp.float32, marks=pytest.mark.slow),
        pytest.param("mixed", "semi_implicit", jnp.float32, marks=pytest.mark.slow),
    ],
)
def test_every_joint(name, stepper, dtype, rng):
    """One joint goes where time says, and dry friction holds some. A batch is that of steps one by one."""
    model = trees.build(TREES[name]).at_time(0.4)
    q = jnp.asarray(dx.neutral(model), dtype)
    v, *forces = jnp.asarray(rng.normal(size=(5, model.nv)), dtype)
    given = q, v, jnp.stack(forces)
    together, apart = (partial(run, model, dt=0.02, stepper=stepper) for run in (dx.rollout, by_steps))
    assert not in_loops(together, *given)
    assert in_loops(jax.vmap(together), *(x[None] for x in given))
    same(together(*given), jax.jit(apart)(*given), 1e-12 if dtype == jnp.float64 else 1e-5)


def test_numbers_of_steps():
    whole = by_steps(SMALL.at_time(2.0), Q, V, FORCES, 0.01, stepper="rk4")
    for steps, every in ((12, 4), (1, 1), (0, 1), (0, 3)):
        found = dx.rollout(SMALL.at_time(2.0), Q, V, FORCES[:steps], 0.01, every=every, stepper="rk4")
        same(found, jax.tree.map(lambda x, n=steps, k=every: x[: n + 1 : k], whole), 1e-13)


def test_only_the_methods_as_they_are(monkeypatch):
    """A method made of one, and any method where there are no such kernels, goes step by step."""

    class Slower(dx.SemiImplicitEuler):
        def step(self, model, q, v, tau, dt):
            return super().step(model, q, v, tau, 0.5 * dt)

    def by(stepper):
        return in_loops(partial(dx.rollout, stepper=stepper), SMALL, Q, V, FORCES, 0.02)

    assert not by("semi_implicit")
    assert not by("explicit")
    assert by(Slower())
    assert not by("rk4")
    assert by("implicit_midpoint")
    monkeypatch.setattr(one_kernel, "available", lambda: False)
    jax.clear_caches()
    assert by("semi_implicit")
    jax.clear_caches()


# Derivatives of rollouts themselves are compared with differences in `test_gradients.py`. Here it is that whatever asks
# for them is given those of steps one by one, in whose place something stands that is quickly differentiated.


def instead(known, q, v, controls):
    model, dt = known
    rows = jnp.cumsum(jnp.sin(controls) * q * model.mass + dt * v**2, axis=0)
    return rows, jnp.cos(rows) * v


def gradient(cost):
    return jax.grad(cost, argnums=(0, 1, 2, 3, 4))


def along(cost):
    return lambda *x: jax.jvp(partial(cost, *x[:3]), x[3:], (jnp.cos(x[3]), 0.3 * x[4]))


def curvature_along(cost):
    return lambda *x: jax.jvp(lambda *u: gradient(cost)(*x[:3], *u), x[3:], (jnp.cos(x[3]), 0.3 * x[4]))


def hessian(cost):
    return jax.hessian(cost, argnums=(0, 1))


def gradients_of_a_batch(cost):
    axes = None, 0, None, 0, None
    return lambda mass, q, v, u, dt: jax.vmap(gradient(cost), axes)(mass, q + batch, v, u + batch[:, None], dt)


def gradient_of_a_batch(cost):
    axes = None, 0, None, 0, None

    def whole(mass, q, v, u, dt):
        return jnp.sum(jax.vmap(cost, axes)(mass, q + batch, v, u + batch[:, None], dt) ** 2)

    return gradient(whole)


def one_after_another(cost):
    """In a scan, through which masses and the length of steps stay the same."""

    def whole(mass, q, v, u, dt):
        def ahead(state, own):
            value = cost(mass, *state, own, dt)
            return (state[0] + value, state[1] * jnp.cos(value)), value

        return jnp.sum(jax.lax.scan(ahead, (q, v), u.reshape(3, 4, 2))[1])

    return gradient(whole)


batch = jnp.array([[0.0], [0.4], [-0.3]])
ASKED = [gradient, along, curvature_along, hessian, gradients_of_a_batch, gradient_of_a_batch, one_after_another]


@pytest.mark.parametrize("asked", ASKED)
def test_derivatives_are_those_of_steps_one_by_one(asked):
    def of(run):
        def cost(mass, q, v, controls, dt):
            rows = run((SMALL.replace(mass=mass), dt), q, v, controls)
            return jnp.sum(rows[0] ** 2) + jnp.sum(rows[1][-1])

        return jax.jit(asked(cost))

    given = SMALL.mass, Q, V, FORCES, jnp.asarray(0.02)
    same(of(motion(dx.SemiImplicitEuler(), 1, instead))(*given), of(instead)(*given), 1e-12)
