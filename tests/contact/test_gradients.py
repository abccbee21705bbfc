"""The menu of derivatives of steps with contact: no motion changes, and each is what it says."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import dynax as dx
from dynax import contact as c
from dynax.contact.balance import balanced
from dynax.contact.coulomb import Impact, unbalanced
from dynax.contact.relaxed import relaxed
from dynax.contact.solving import after
from dynax.contact.stop_rows import StopRows
from dynax.simulate import Bundle, Exact, FromDistance, Smoothed, Touching, touching

G, DT = 9.81, 0.01


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def ball(restitution=0.0, gravity=G):
    inertia = dx.SpatialInertia(1.0, (0, 0, 0), (0.004,) * 3)
    model = dx.ModelBuilder(gravity=(0, 0, -gravity)).body("ball", joint=dx.Prismatic((0, 0, 1)), inertia=inertia)
    material = c.Material(restitution=restitution)
    return c.scene(
        model.build(), [c.Collider("world", c.Plane(), material=material), c.Collider("ball", c.Sphere(0.0))]
    )


def problems(key, count=6):
    """Bodies of 6 freedoms on four contacts, pushed in all directions."""
    keys = jax.random.split(key, 4)
    half = jax.random.normal(keys[0], (count, 6, 6))
    inertia = half @ half.mT + jnp.eye(6)
    jacobian = jax.random.normal(keys[1], (count, 4, 3, 6))
    free = jax.random.normal(keys[2], (count, 6))
    target = jnp.zeros((count, 4, 3)).at[..., 2].set(0.1 * jax.random.normal(keys[3], (count, 4)))
    mobility = jnp.einsum("bki,bij,bkj->bk", jacobian[:, :, 2], jnp.linalg.inv(inertia), jacobian[:, :, 2])
    friction, stops = jnp.full((count, 4), 0.4), StopRows((), jnp.zeros((count, 0)), jnp.zeros((count, 0, 6)))
    return Impact(inertia, free, free, jacobian, target, 1e-6 * mobility, mobility, friction, stops)


def relaxed_velocity(problem, kappa, near):
    v, law = relaxed(problem, kappa, near.v, near.impulses)
    return balanced(problem, law, v), law


def test_relaxed_contact(key):
    """It solves its own law, whatever `kappa`; its derivatives are its differences; without `kappa` it is Coulomb's."""
    given = problems(key)
    near = jax.jit(jax.vmap(after))(given)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None))
    def solved(problem, near, kappa):
        v, law = relaxed_velocity(problem, kappa, near)
        gamma = problem.impulses(law, v)
        opening = problem.local(v)[:, 2] - problem.target[:, 2] + problem.compliance * gamma[:, 2]
        return unbalanced(problem, v, gamma), gamma[:, 2] * opening, law.lost, law.found, v

    for kappa in (1e-1, 1e-3, 1e-5, 1e-9):
        left, product, lost, found, v = solved(given, near, kappa)
        assert np.all(found)
        close(lost, 0.0, 1e-9)
        close(left, 0.0, 1e-8)
        close(product / kappa, 1.0, 1e-6)
    close(v, near.v, 1e-5)
    one, beside = (jax.tree.map(lambda x: x[0], of) for of in (given, near))

    def of(x):
        problem = one._replace(free=x[:6], target=one.target.at[:, 2].set(x[6:10]))
        return relaxed_velocity(problem, x[10], beside)[0]

    x = jnp.concatenate([one.free, one.target[:, 2], jnp.array([1e-2])])
    forth, back = (jax.jit(j(of))(x) for j in (jax.jacfwd, jax.jacrev))
    close(forth, back, 1e-9)
    h = 1e-6 * np.eye(11)
    many = jax.jit(jax.vmap(of))(jnp.concatenate([x + h, x - h]))
    close(forth, ((many[:11] - many[11:]) / 2e-6).T, 1e-6)
    assert np.all(np.isfinite(jax.jit(jax.hessian(lambda x: of(x)[0]))(x)))


def test_relaxed_hits_are_found(key):
    """Of slender rods that fall on one end, whose slip friction turns round, stops or lets go on (an interior-point
    method left one in four of them, and 1.5 times the momentum)."""
    keys = jax.random.split(key, 3)
    free, turns = jax.random.normal(keys[0], (1000, 6)), jax.random.normal(keys[1], (1000, 4))
    frames = jax.vmap(lambda x: dx.Rotation.from_quaternion(x / jnp.linalg.norm(x)).matrix)(turns)
    inertia = jnp.diag(jnp.array([0.1, 0.1, 0.01, 1.0, 1.0, 1.0]))
    one = jnp.ones(1)

    def hit(free, frame, bounce):
        end = frame @ jnp.concatenate([jnp.array([[0, 1.0, 0], [-1.0, 0, 0], [0, 0, 0]]), jnp.eye(3)], axis=1)
        mobility = end[2] @ jnp.linalg.solve(inertia, end[2])
        target = jnp.zeros((1, 3)).at[0, 2].set(-bounce * jnp.minimum(end[2] @ free, 0.0))
        return Impact(
            inertia, free, free, end[None], target, 1e-6 * one * mobility, mobility * one, one, StopRows.none(end)
        )

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None))
    def solved(problem, near, kappa):
        v, law = relaxed_velocity(problem, kappa, near)
        return law.found, unbalanced(problem, v, problem.impulses(law, v))

    bounce = jnp.where(jax.random.bernoulli(keys[2], shape=(1000,)), 0.8, 0.0)
    problems = jax.vmap(hit)(free, frames, bounce)
    near = jax.jit(jax.vmap(after))(problems)
    for kappa in (10.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8):
        found, left = solved(problems, near, kappa)
        assert np.all(found)
        close(left, 0.0, 1e-8)


def test_no_motion_changes_and_kappa_may_be_traced():
    """A ball that comes down: the relaxed derivative knows of the ground before it is there, and is that of the step
    where `kappa` is nothing; another `kappa` compiles nothing."""
    scene, heights = ball(), jnp.array([0.02, 0.17])

    @jax.jit
    def end(z, kappa):
        stepper = Touching(gradient=Smoothed(kappa))
        run = lambda z: dx.rollout(scene, z[None], jnp.array([-1.0]), jnp.zeros((10, 1)), DT, stepper=stepper)  # noqa: E731
        return jax.vmap(lambda z: jax.jvp(lambda z: run(z).q[-1, 0], (z,), (1.0,)))(z)

    plain = jax.vmap(lambda z: dx.rollout(scene, z[None], jnp.array([-1.0]), jnp.zeros((10, 1)), DT).q[-1, 0])(heights)
    slopes = []
    for kappa in (1e-1, 1e-2, 1e-8):
        value, slope = end(heights, kappa)
        close(value, plain, 1e-12)
        close(slope[0], 0.0, 0.02)  # it lies on the ground
        slopes.append(slope[1])
    assert 0.0 < slopes[0] < 0.98 < slopes[1] < slopes[2]
    close(slopes[2], 1.0, 1e-4)
    assert end._cache_size() == 1


@pytest.mark.parametrize("gradient", [Exact(), Smoothed(1e-3), FromDistance(0.05), Bundle(400, 0.01)])
def test_one_step(gradient):
    """A ball that a step leaves at `d` above the ground: what each says of its velocity by where it was."""
    scene = ball(gravity=0.0)
    d = jnp.array([-0.02, 0.004, 0.02, 0.2])

    def velocity(z):
        found = Touching(gradient=gradient).touched(scene, z[None], jnp.array([-1.0]), jnp.zeros(1), jnp.asarray(DT))
        return found.v[0], (found.q[0], found.impulses, found.report.status)

    both = jax.vmap(jax.value_and_grad(velocity, has_aux=True))
    (v, aux), slope = jax.jit(both)(d + DT)
    close(v, jnp.where(d < 0, -(d + DT) / DT * (d + DT > 0) - (d + DT) / (DT + 0.02) * (d + DT < 0), -1.0), 1e-5)
    assert np.all(aux[2] == 0)
    match gradient:
        case Exact():
            expected = [-1 / (DT + 0.02), 0.0, 0.0, 0.0]
        case Smoothed(kappa):
            # gamma (u + gap / dt) = kappa with u = -1 + gamma: the slope of the velocity is that of gamma.
            w = 0.5 * (d / DT + jnp.sqrt((d / DT) ** 2 + 4 * kappa))
            expected = -(kappa / w**2) / (1 + kappa / w**2) / jnp.where(d + DT > 0, DT, DT + 0.02)
            expected = expected.at[0].set(-1 / (DT + 0.02))
        case FromDistance(reach):
            expected = -((1 - jnp.clip(d / reach, 0, 1)) ** 2) / DT
            expected = expected.at[0].set(-1 / (DT + 0.02))
        case Bundle(_, spread):
            # What of the balls nearby touch; both places and velocities differ.
            touch = norm.cdf(-np.asarray(d) / (spread * np.hypot(1, DT)))
            inside = norm.cdf(-np.asarray(d + DT) / spread)
            expected = -inside / (DT + 0.02) - (touch - inside) / DT
    close(slope, expected, 1e-3 / DT if isinstance(gradient, Exact | FromDistance) else 0.06 / DT)


def walker():
    """On two legs whose hips have limits."""
    builder, shapes = dx.ModelBuilder(gravity=(0, 0, -G)), [c.Collider("world", c.Plane())]
    builder.body("trunk", joint=dx.Free(), inertia=dx.SpatialInertia(2.0, (0, 0, 0.05), np.diag([0.02, 0.03, 0.02])))
    leg, foot = dx.SpatialInertia(0.4, (0, 0, -0.1), 0.002 * np.eye(3)), dx.Transform.from_translation((0, 0, -0.2))
    for side, y in (("left", 0.1), ("right", -0.1)):
        hip = dx.Transform.from_translation((0, y, 0))
        joint, limits = dx.Revolute((0, 1, 0)), (-0.3, 0.3)
        builder.body(side, parent="trunk", joint=joint, placement=hip, inertia=leg, position_limits=limits)
        shapes.append(c.Collider(side, c.Sphere(0.02), foot))
    return c.scene(builder.build(), shapes)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [Smoothed(None), FromDistance(0.05)])
def test_trees_have_those_of_all_models(gradient, key, monkeypatch):
    """By the rule of trees and by JAX's own, which other models have: forwards and backwards, by state, forces,
    friction, time and `kappa`; one foot lands, the other's hip is at its limit."""
    scene = walker()
    nv, q = scene.nv, jnp.array([0, 0, 0.218, 1, 0, 0, 0, 0.0, 0.3])
    v = jnp.array([0.1, 0.3, -0.2, 0.2, 0.1, -0.4, 0.1, 4.0])

    def step(x):
        moved, faster, pushed, (friction, dt, kappa) = jnp.split(x, [nv, 2 * nv, 3 * nv])
        rough = tuple(c.Material(friction=0.6 + friction) for _ in scene.shapes)
        own = dataclasses.replace(scene, materials=rough, kappa=1e-3 + kappa)
        state = dx.integrate(scene.model, q, moved), v + faster
        found = Touching(gradient=gradient).touched(own, *state, pushed, 0.005 + dt)
        return jnp.concatenate([found.q, found.v, found.impulses.ravel(), found.stops])

    zero = jnp.zeros(3 * nv + 3)
    end = jax.jit(step)(zero)
    of_feet, of_stops = np.asarray(end[-11:-5]).reshape(2, 3), np.asarray(end[-2:])
    assert np.all((of_feet[:, 2] > 0.1) == [True, False])
    assert np.all((of_stops < -1e-3) == [False, True])
    forth, back = (jax.jit(jacobian(step))(zero) for jacobian in (jax.jacfwd, jax.jacrev))
    monkeypatch.setattr(touching, "closed_form", lambda model: False)
    others, most = jax.jit(jax.jacfwd(step))(zero), np.max(np.abs(forth))
    close(back / most, forth / most, 1e-8)  # by systems that are as ill-conditioned as contacts are hard
    close(others / most, forth / most, 1e-6)  # as hard as they are taken to stay


@pytest.mark.slow
def test_ball_at_the_wall():
    """The example of the page: elastic, and so the true derivative is -1. None of the steps' knows."""
    scene = ball(1.0, 0.0)

    def end(z, gradient):
        run = dx.rollout(scene, z[None], jnp.array([-5.0]), jnp.zeros((20, 1)), DT, stepper=Touching(gradient=gradient))
        return run.q[-1, 0]

    for gradient, says in ((Exact(), 1.0), (Smoothed(1e-2), 1.02)):
        value, slope = jax.jit(lambda z, g=gradient: jax.jvp(lambda z: end(z, g), (z,), (1.0,)))(0.547)
        close(value, 0.453, 0.1)
        close(slope, says, 0.05)


def test_what_it_refuses():
    with pytest.raises(ValueError, match="`gradient` is 'exact'"):
        Touching(gradient="exact")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`count` is 0"):
        Bundle(0)
    with pytest.raises(ValueError, match="no `kappa`"):
        jax.eval_shape(partial(Touching(gradient=Smoothed(None)).step, ball()), *(jnp.ones(1),) * 3, jnp.asarray(DT))


ROWS = """
import resource
import jax
import jax.numpy as jnp
from dynax.contact.motion import _rows

resource.setrlimit(resource.RLIMIT_DATA, (6_000_000_000, 6_000_000_000))
grad = jax.jit(jax.grad(lambda signs, *x: jnp.sum(_rows(signs, *x) ** 2), argnums=(1, 2, 3, 4, 5)))
for k, n in ((4, 8), (4, 12), (8, 7), (8, 8), (8, 16)):
    shapes = (k, n), (k, 3, 3), (k, 3), (n, 3), (n, 3), (n, 3)
    grad.lower(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).compile()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
def test_the_compiler_finds_its_way_through_rows():
    """The gradient of a box on the ground under a body with two hinges took more than 24 GB to compile."""
    done = subprocess.run([sys.executable, "-c", ROWS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
