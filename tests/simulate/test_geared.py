"""Steps of trees with linear gears, against the same gears as conditions of the user's own, which take another way."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.mechanisms import at, rod

import dynax as dx
from dynax.simulate.geared import closing

DT = 2e-3


def robot(as_gears: bool = True) -> dx.Model:
    """Six joints: a gear, one that follows it, a differential of two sources, and a hinge that is held."""
    builder = dx.ModelBuilder()
    parents = {"a": "world", "b": "a", "c": "world", "d": "c", "e": "world", "f": "b"}
    for k, (name, parent) in enumerate(parents.items()):
        axis = np.array([[0.0, 1.0, 0.2], [1.0, 0.1, 0.0], [0.1, 0.0, 1.0]][k % 3])
        joint = dx.Prismatic(axis) if name == "d" else dx.Revolute(axis)
        placement, inertia = at(0.2 + 0.05 * k), rod(0.4, 0.5 + 0.1 * k)
        builder.body(name, parent=parent, joint=joint, placement=placement, inertia=inertia, joint_name=name)
    if as_gears:
        builder.gear("b", "a", ratio=1.5, offset=0.1)
        builder.gear("d", "b", ratio=-0.2)
        builder.gear("e", ("a", "c"), ratio=(0.5, 0.7), offset=-0.05)
        builder.gear("f", (), offset=0.3)
    else:

        def tied(model, q):
            a, b, c, d, e, f = q
            ties = b - 1.5 * a - 0.1, d + 0.2 * b, e - 0.5 * a - 0.7 * c + 0.05, f - 0.3
            return jnp.stack(ties)

        builder.condition("tied", tied, 4)
    return builder.build().replace(damping=jnp.full(6, 0.05), friction_loss=jnp.where(jnp.arange(6) == 3, 0.02, 0.0))


GEARED, GENERAL = robot(), robot(as_gears=False)


def begun(rng: np.random.Generator) -> tuple[jax.Array, jax.Array, jax.Array]:
    q = dx.integrate(GEARED, dx.neutral(GEARED), jnp.asarray(0.4 * rng.normal(size=6)))
    q = dx.assemble(GEARED, q).q
    v = dx.admissible_velocity(GEARED, q, jnp.asarray(rng.normal(size=6)))
    return q, v, jnp.asarray(rng.normal(size=(6, 6)))


def ends(model: dx.Model, stepper: str, q, v, tau) -> jax.Array:
    run = dx.rollout(model, q, v, tau, DT, stepper=stepper)
    return jnp.concatenate([run.q[-1], run.v[-1]])


@pytest.mark.spec("RBDA-9.6-GEAR")
@pytest.mark.parametrize("stepper", ["semi_implicit", pytest.param("rk4", marks=pytest.mark.slow)])
def test_the_motion_is_that_under_conditions(rng, stepper):
    assert GEARED.structure.geared
    assert not GENERAL.structure.geared
    q, v, tau = begun(rng)

    def both(q, v, tau):
        return jnp.stack([ends(model, stepper, q, v, tau) for model in (GEARED, GENERAL)])

    found, other = jax.jit(both)(q, v, tau)
    np.testing.assert_allclose(found, other, atol=1e-12)
    assert np.abs(np.asarray(dx.constraint_residual(GEARED, found[: GEARED.nq]))).max() < 1e-14


@pytest.mark.spec("RBDA-9.6-GEAR")
def test_gradients_of_steps(rng):
    """By everything, against differences; those by forces also against the general way, to second order."""
    q, v, tau = begun(rng)
    weights = jnp.asarray(rng.normal(size=GEARED.nq + GEARED.nv))

    def loss(x: dict) -> jax.Array:
        names = ("coupling_ratio", "mass", "damping", "friction_loss")
        model = GEARED.replace(**{name: x[name] for name in names})
        q0 = dx.integrate(model, q, x["turn"])
        run = dx.rollout(model, q0, x["v"], x["tau"], x["dt"])
        return weights @ jnp.concatenate([jnp.sin(run.q[-1]), run.v[-1]])

    names = ("coupling_ratio", "mass", "damping", "friction_loss")
    x = {name: getattr(GEARED, name) for name in names}
    x |= {"turn": jnp.zeros(6), "v": v, "tau": tau[:3], "dt": jnp.asarray(DT)}
    value, gradient = jax.jit(loss), jax.jit(jax.grad(loss))(x)
    for name in x:
        along = jnp.asarray(rng.normal(size=x[name].shape)) * (x[name] != 0 if name == "friction_loss" else 1.0)
        h = 1e-6 * float(jnp.maximum(jnp.abs(x[name]).max(), 1.0))
        slope = (value(x | {name: x[name] + h * along}) - value(x | {name: x[name] - h * along})) / (2 * h)
        np.testing.assert_allclose(np.sum(gradient[name] * along), slope, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.slow
@pytest.mark.spec("RBDA-9.6-GEAR")
def test_second_derivatives_of_a_step(rng):
    q, v, tau = begun(rng)
    weights = jnp.asarray(rng.normal(size=GEARED.nq + GEARED.nv))

    def hessian(model):
        return jax.hessian(lambda tau: weights @ jnp.sin(ends(model, "semi_implicit", q, v, jnp.stack([tau] * 2))))

    found, other = (jax.jit(hessian(model))(1e3 * tau[0]) for model in (GEARED, GENERAL))
    np.testing.assert_allclose(found, other, atol=1e-9 * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.spec("RBDA-9.6-GEAR")
def test_in_batches_and_in_single_precision(rng):
    """A ratio of its own for each sample, too; and from rest, in the neutral position of a model without weight."""
    q, v, tau = begun(rng)
    ratio = GEARED.coupling_ratio
    ratios = ratio * jnp.asarray([[1.0], [0.9]])

    def ended(ratio, q, v):
        return ends(GEARED.replace(coupling_ratio=ratio.astype(q.dtype)), "semi_implicit", q, v, tau.astype(q.dtype))

    one = jax.jit(ended)
    many = jax.jit(jax.vmap(ended, (0, None, None)))(ratios, q, v)
    for k in range(2):
        np.testing.assert_allclose(many[k], one(ratios[k], q, v), atol=1e-13)
    single = one(ratio, q.astype(jnp.float32), v.astype(jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, many[0], atol=1e-5)
    still = GEARED.replace(gravity=jnp.zeros(3))
    rest = dx.assemble(still, dx.neutral(still)).q
    stays = jax.jit(lambda q: ends(still, "semi_implicit", q, jnp.zeros(6), jnp.zeros((3, 6))))(rest)
    np.testing.assert_allclose(stays[: GEARED.nq], rest, atol=1e-14)


@pytest.mark.spec("RBDA-9.6-GEAR")
def test_a_velocity_that_gears_do_not_allow(rng):
    """It ends in the first step as by the impulse of `admissible_velocity`; a step of no length is finite."""
    q, _, _ = begun(rng)
    wild = jnp.asarray(rng.normal(size=6))
    plain = GEARED.replace(damping=jnp.zeros(6), friction_loss=jnp.zeros(6), gravity=jnp.zeros(3))
    step = jax.jit(lambda dt: dx.step(plain, q, wild, jnp.zeros(6), dt)[1])
    wanted = dx.admissible_velocity(plain, q, wild)
    errors = [float(jnp.abs(step(dt) - wanted).max()) for dt in (1e-4, 5e-5)]
    assert errors[0] < 1e-2
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.05)
    assert bool(jnp.isfinite(step(0.0)).all())
    np.testing.assert_array_equal(closing(plain, wild, jnp.zeros(())), 0.0)


@pytest.mark.spec("RBDA-9.6-GEAR")
def test_which_gears_are_told_apart():
    def made(*gears, loop: bool = False) -> bool:
        builder = dx.ModelBuilder()
        for name in "abc":
            builder.body(name, joint=dx.Revolute((0.0, 1.0, 0.0)), inertia=rod(0.5), joint_name=name)
        for follower, sources, options in gears:
            builder.gear(follower, sources, **options)
        if loop:
            builder.condition("held", lambda model, q: q[2], 1)
        return builder.build().structure.geared

    linear = ("b", "a", {"ratio": 2.0})
    assert made(linear)
    assert made(linear, ("c", "b", {"ratio": 2.0}))
    assert not made()
    assert not made(linear, ("c", "b", {}), ("a", "c", {}))  # in a ring
    assert not made(("b", "a", {"function": jnp.sin}))
    assert not made(linear, loop=True)
