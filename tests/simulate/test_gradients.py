"""Derivatives of rollouts against differences, and finite where joints are at their special places."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulate.systems import advance, at, double_pendulum, moving, solid

import dynax as dx
from dynax.compile.one_kernel import equations
from dynax.routes.forward_dynamics import kept_forward_dynamics

MODEL = double_pendulum()
Q, V = jnp.array([0.3, -0.8]), jnp.array([0.5, 0.1])
FORCES = 0.3 * jnp.sin(jnp.arange(20.0)).reshape(10, 2)


def slope(function, x, direction, h=1e-5):
    """The derivative along `direction`, by differences of fourth order."""
    f = [function(jax.tree.map(lambda a, d, k=k: a + k * h * d, x, direction)) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("rk4", "variational")]


@pytest.mark.parametrize("stepper", ["semi_implicit", "implicit_midpoint", *SLOW])
def test_gradient_of_a_rollout(stepper, rng):
    inputs = {
        "q": Q, "v": V, "controls": FORCES, "dt": jnp.asarray(0.02), "mass": MODEL.mass, "damping": MODEL.damping,
        "armature": MODEL.armature, "com": MODEL.com, "gravity": MODEL.gravity,
        "placement": MODEL.placements.translation,
    }  # fmt: skip

    @jax.jit
    def loss(x):
        leaves = {name: x[name] for name in ("mass", "damping", "armature", "com", "gravity")}
        placements = dx.Transform(MODEL.placements.rotation, x["placement"])
        model = MODEL.replace(placements=placements, **leaves)
        run = dx.rollout(model, x["q"], x["v"], x["controls"], x["dt"], stepper=stepper)
        return (run.q**2).sum() + (run.v[-1] ** 3).sum()

    gradient = jax.jit(jax.grad(loss))(inputs)
    for name in inputs:
        direction = jax.tree.map(jnp.zeros_like, inputs)
        direction[name] = jnp.asarray(rng.normal(size=inputs[name].shape))
        along = float(jnp.vdot(gradient[name], direction[name]))
        assert along == pytest.approx(float(slope(loss, inputs, direction)), rel=1e-7, abs=1e-8), name


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_acceleration_that_rollouts_keep(order, rng):
    """Derivatives are those of forward dynamics, by the state and by leaves, also under a checkpoint."""
    weights, tau = jnp.asarray(rng.normal(size=(2, 2)))

    def of(function):
        @jax.checkpoint
        def power(q, v, mass):
            return weights @ function(MODEL.replace(mass=mass), q, v, tau, None)

        gradient = jax.grad(power, argnums=(0, 1, 2))
        x = Q, V, MODEL.mass
        return jax.jit(gradient)(*x) if order == 1 else jax.jit(lambda *x: jax.jvp(gradient, x, x)[1])(*x)

    kept, free = of(kept_forward_dynamics), of(dx.forward_dynamics)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-11, atol=1e-12), kept, free)


@pytest.mark.parametrize("stepper", ["semi_implicit", pytest.param("implicit_midpoint", marks=pytest.mark.slow)])
def test_forward_mode_and_hessian(stepper):
    def loss(q):
        return (dx.rollout(MODEL, q, V, FORCES[:3], 0.05, stepper=stepper).q[-1] ** 2).sum()

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def derivatives(q, direction):
        """The gradient, and rates of value and gradient: one program, which is what takes time."""
        (_, gradient), rates = jax.jvp(jax.value_and_grad(loss), (q,), (direction,))
        return gradient, *rates

    (gradient, _), forward, hessian = derivatives(Q, jnp.eye(2))
    np.testing.assert_allclose(forward, gradient, rtol=1e-10)
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12)
    row = slope(lambda q: derivatives(q, jnp.eye(2))[0][0], Q, jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(hessian[0], row, rtol=1e-7)


def test_gradient_of_a_step_that_turns_slips_and_sticks():
    """Of the implicit midpoint: a ball joint turns, one axis of it sticks, a hinge with a spring slips."""
    b = dx.ModelBuilder()
    b.body("arm", joint=dx.Spherical(), inertia=solid(1.0, [0.0, 0.1, 0.25], [0.05, 0.04, 0.03]))
    hand, hinge = solid(0.7, [0.1, 0.0, 0.2], [0.02, 0.03, 0.01]), dx.Revolute((1.0, 0.3, 0.0))
    b.body("hand", parent="arm", joint=hinge, placement=at(0, 0, 0.5), inertia=hand, armature=0.05, stiffness=0.8)
    tree = b.build()
    rubbing = jnp.array([30.0, 0.0, 0.0, 0.2])
    q, v = moving(tree)
    inputs = {
        "dq": jnp.zeros(4), "v": v.at[0].set(0.0), "tau": jnp.array([0.0, 0.2, -0.3, 0.4]), "dt": jnp.asarray(0.05),
        "mass": tree.mass, "com": tree.com, "stiffness": tree.stiffness, "gravity": tree.gravity,
        "friction_loss": rubbing,
    }  # fmt: skip

    def loss(x):
        model = tree.replace(**{name: x[name] for name in x if hasattr(tree, name)})
        start = dx.integrate(tree, q, x["dq"])
        after, v = dx.step(model, start, x["v"], x["tau"], x["dt"], stepper="implicit_midpoint")
        return (dx.difference(tree, q, after) ** 2).sum() + (v**3).sum(), v

    (_, v), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(inputs)
    assert abs(v[0]) < 1e-6 < abs(v[3])
    value = jax.jit(lambda x: loss(x)[0])
    for k, name in enumerate(inputs):
        direction = jax.tree.map(jnp.zeros_like, inputs)
        direction[name] = jax.random.normal(jax.random.key(k), inputs[name].shape)
        direction["friction_loss"] *= rubbing > 0  # the others have none, and less is no friction
        along = float(jnp.vdot(gradient[name], direction[name]))
        assert along == pytest.approx(float(slope(value, inputs, direction)), rel=1e-7, abs=1e-8), name


def test_policy_with_parameters():
    @jax.jit
    def loss(gains):
        def policy(t, q, v):
            return -gains["p"] * q - gains["d"] * v + jnp.cos(t)

        return (dx.rollout(MODEL, Q, V, policy, 0.02, steps=10).q[-1] ** 2).sum()

    gains = {"p": jnp.asarray(2.0), "d": jnp.array([0.3, 0.1])}
    gradient = jax.jit(jax.grad(loss))(gains)
    for name in gains:
        direction = jax.tree.map(jnp.zeros_like, gains)
        direction[name] = jnp.ones_like(gains[name])
        assert float(gradient[name].sum()) == pytest.approx(float(slope(loss, gains, direction)), rel=1e-7)


def every_joint() -> dx.Model:
    b = dx.ModelBuilder()
    joints = [
        dx.Free(), dx.Spherical(), dx.Planar(), dx.Universal(), dx.Cylindrical((1, 0, 0)), dx.Helical((0, 0, 1), 0.1),
        dx.Prismatic((0, 1, 0)), dx.Translation(), dx.Gimbal("zyx"), dx.Revolute((1, 0, 0)),
        dx.Reversed(dx.Spherical()), dx.RollingBall(0.2), dx.Rolling(0.1), dx.RackAndPinion(0.1),
        dx.Driven(dx.Revolute((0, 0, 1)), lambda t: 0.1 * t**2),
    ]  # fmt: skip
    for k, joint in enumerate(joints):
        # A comb: each joint on a body of its own, two to a tooth.
        parent = "world" if k % 2 == 0 else f"b{k - 1}"
        inertia = solid(1.0, [0.1, 0.0, -0.2], [0.1, 0.2, 0.15])
        b.body(f"b{k}", parent=parent, joint=joint, placement=at(0.1, 0.2, 0.0), inertia=inertia)
    return b.build()


def test_all_joints_from_rest_at_identity():
    model = every_joint()

    def loss(model, q, v, tau):
        q, v = dx.step(model, q, v, tau, 0.01)
        return (q**2).sum() + (v**2).sum()

    q, v = dx.neutral(model), jnp.zeros(model.nv)
    value, gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)))(model, q, v, jnp.zeros(model.nv))
    assert jnp.isfinite(value)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(gradient))


@pytest.mark.parametrize("name", ["implicit_midpoint", pytest.param("variational", marks=pytest.mark.slow)])
def test_implicit_steppers_start_from_rest_at_identity(name):
    b = dx.ModelBuilder()
    b.body("ball", joint=dx.Spherical(), inertia=solid(1.0, [0.1, 0, -0.2], [0.1, 0.2, 0.15]), friction_loss=0.1)
    model = b.build()

    def loss(model, q, v):
        return (dx.step(model, q, v, jnp.zeros(3), 0.01, stepper=name)[0] ** 2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(model, dx.neutral(model), jnp.zeros(3))
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(gradient))


def test_gradient_of_a_step_of_what_rolls():
    """Whose derivative is that of the evaluations themselves, not the closed form."""
    b = dx.ModelBuilder()
    b.body("ball", joint=dx.RollingBall(0.3), inertia=solid(1.0, [0.05, 0.02, 0.1], [0.02, 0.03, 0.04]))
    model = b.build()

    @jax.jit
    def loss(v):
        return (dx.step(model, dx.neutral(model), v, jnp.ones(3), 0.02)[1] ** 3).sum()

    v, direction = jnp.array([4.0, -3.0, 5.0]), jnp.array([1.0, 2.0, -1.0])
    along = float(jax.jit(jax.grad(loss))(v) @ direction)
    assert along == pytest.approx(float(slope(loss, v, direction)), rel=1e-7)


def test_a_gradient_evaluates_no_step_twice():
    """What the evaluations found is kept, a few numbers, and the backward walk starts from it."""

    def loss(v):
        return dx.rollout(MODEL, Q, v, FORCES, 0.01).q[-1].sum()

    program = jax.make_jaxpr(jax.grad(loss))(V)
    calls = [x.params["function"].core for x in equations(program.jaxpr) if x.primitive.name == "dynax_batch_last"]
    assert sum(core.__qualname__.startswith("stepped") for core in calls) == 1


def test_rolling_ball_keeps_order_four():
    """Its position follows from the path, so methods in a chart of its three velocities are of order two."""
    b = dx.ModelBuilder()
    b.body("ball", joint=dx.RollingBall(0.3), inertia=solid(1.0, [0.05, 0.02, 0.1], [0.02, 0.03, 0.04]))
    model = b.build()
    q, v = dx.neutral(model), jnp.array([4.0, -3.0, 5.0])
    ends = {n: advance(model, q, v, 1.0 / n, n, "rk4")[0] for n in (40, 80, 800)}
    off = [float(np.linalg.norm(ends[n] - ends[800])) for n in (40, 80)]
    assert np.log2(off[0] / off[1]) == pytest.approx(4.0, abs=0.3)
