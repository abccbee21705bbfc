"""Where models stay, and the regulators that keep them there."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from constraints import mechanisms
from flexible.systems import body_of, nodal_data
from optimize.standard import near

import dynax as dx
from dynax import optimize as o

REGULATED = jax.jit(o.regulator)


@pytest.mark.parametrize("discrete", [True, False])
def test_riccati_against_scipy(rng, discrete):
    for n, m in ((2, 1), (6, 2), (14, 7)):
        A, B, S = rng.normal(size=(n, n)), rng.normal(size=(n, m)), 0.1 * rng.normal(size=(n, m))
        Q, R = rng.normal(size=(n, n)), np.eye(m) + 0.1
        Q = Q @ Q.T + np.eye(n)
        solve = scipy.linalg.solve_discrete_are if discrete else scipy.linalg.solve_continuous_are
        expected = solve(A, B, Q, R, s=S)
        system = dx.Linearization(jnp.asarray(A), jnp.asarray(B), dt=jnp.ones(()) if discrete else None)
        found = REGULATED(system, Q, R, S)
        near(found.P, expected, 1e-10 * np.max(expected))
        assert found.residual < 1e-11
        values = np.linalg.eigvals(A + B @ found.K)
        assert np.max(np.abs(values) if discrete else values.real + 1.0) < 1.0


@pytest.mark.parametrize("dt", [0.02, None])
def test_gradients_of_a_regulator(dt):
    """Forward, reverse and by differences; and nothing that looks right where nothing makes it stable."""
    A, B = jnp.array([[0.0, 1.0], [3.0, -0.2]]), jnp.array([[0.0], [1.0]])
    A, B = (A, B) if dt is None else (jnp.eye(2) + dt * A, dt * B)

    def gain(x, reached=1.0):
        system = dx.Linearization(A.at[1, 0].multiply(x[0]), reached * B, dt=None if dt is None else jnp.asarray(dt))
        return o.regulator(system, jnp.diag(jnp.stack([x[1], 1.0 + x[2]])), jnp.eye(1)).K

    x = jnp.array([1.0, 2.0, 0.1])
    ahead, back = jax.jit(lambda x: (jax.jacfwd(gain)(x), jax.jacrev(gain)(x)))(x)
    near(ahead, back, 1e-11 * np.max(np.abs(back)))
    many = jax.jit(jax.vmap(gain))(x + 1e-5 * np.concatenate([np.eye(3), -np.eye(3)]))
    near(ahead[0], ((many[:3] - many[3:]) / 2e-5)[:, 0].T, 1e-7 * np.max(np.abs(ahead)))
    assert np.all(np.isnan(gain(x, 0.0)))


def cart_pole() -> dx.Model:
    builder = dx.ModelBuilder()
    builder.body("cart", joint=dx.Prismatic((1, 0, 0)), inertia=dx.SpatialInertia(1.0, np.zeros(3), np.eye(3)))
    bob = dx.SpatialInertia(0.3, (0.0, 0.0, 0.5), np.zeros((3, 3)))
    return builder.body("pole", parent="cart", joint=dx.Revolute((0, 1, 0)), inertia=bob).build()


def test_a_pole_is_balanced():
    """From a tenth of a radian the nonlinear system comes to rest, and the cost is the value, for small deviations."""
    model, push = cart_pole(), jnp.array([[1.0], [0.0]])
    system = dx.linearize(model, jnp.zeros(2), jnp.zeros(2), jnp.zeros(1), actuation=push, dt=0.01)
    held = REGULATED(system, jnp.eye(4), 0.1 * jnp.eye(1))

    def policy(t, q, v):
        return push[:, 0] * (held.K @ jnp.concatenate([q, v]))[0]

    path = dx.rollout(model, jnp.array([0.0, 0.1]), jnp.zeros(2), policy, 0.01, steps=2000)
    near(path.q[-1], 0.0, 1e-6)
    path = dx.rollout(model, jnp.array([0.0, 1e-3]), jnp.zeros(2), policy, 0.01, steps=2000)
    x = np.concatenate([path.q, path.v], axis=1)[:-1]
    cost = 0.5 * np.sum(x**2) + 0.05 * np.sum((x @ held.K.T) ** 2)
    np.testing.assert_allclose(cost, 0.5 * x[0] @ held.P @ x[0], rtol=1e-4)


def test_a_mechanism_with_a_loop_is_held():
    """A four-bar at a pose that its crank holds: the regulator of the tree with its loop is that of the crank alone."""
    bars = mechanisms.four_bar()
    crank = jnp.array([[1.0], [0.0], [0.0]])
    rest = dx.find_equilibrium(bars.model, bars.q, actuation=crank, hold=["crank_joint"])
    assert rest.status == o.Status.CONVERGED
    whole = dx.linearize(bars.model, rest.q, jnp.zeros(3), rest.u, actuation=crank)
    near(whole.drift, 0.0, 1e-10)
    # In the crank's own coordinates.
    keep = whole.projection
    assert keep is not None
    x = np.linalg.lstsq(keep[::3], np.eye(2), rcond=None)[0]
    own = dx.Linearization((whole.A @ keep @ x)[::3], whole.B[::3])
    Q = jnp.diag(jnp.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]))
    one, other = o.regulator(whole, Q, jnp.eye(1)), o.regulator(own, jnp.eye(2), jnp.eye(1))
    near(one.K @ keep @ x, other.K, 1e-9 * np.max(np.abs(other.K)))


def two_links(**limits) -> dx.Model:
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    for name, parent, offset in (("upper", "world", 0.0), ("lower", "upper", 1.0)):
        builder.body(name, parent=parent, joint=dx.Revolute((0, 0, 1)), placement=mechanisms.at(offset), **limits,
                     inertia=dx.SpatialInertia(1.0, (0.5, 0.0, 0.0), np.diag([0.0, 0.1, 0.1])))  # fmt: skip
    return builder.build()


def test_which_unknowns_are_free():
    """An arm that is held, one that hangs, one that a weak shoulder holds where it can, and one that it cannot."""
    model, g = two_links(), 9.81
    pose = jnp.array([0.3, 0.4])
    held = dx.find_equilibrium(model, pose, hold=model.joint_names)
    near(held.q, pose, 0.0)
    elbow = 0.5 * g * np.cos(0.7)
    near(held.u, [1.5 * g * np.cos(0.3) + elbow, elbow], 1e-10)
    hanging = dx.find_equilibrium(model, jnp.array([-1.2, 0.2]), actuation=np.zeros((2, 0)))
    near(np.exp(1j * np.asarray(hanging.q)), [-1j, 1.0], 1e-10)

    shoulder = partial(dx.find_equilibrium, model, actuation=np.eye(2)[:, :1], hold=["upper_joint"])
    found = shoulder(jnp.array([0.5, -1.8]))
    near(found.q, [0.5, -0.5 - np.pi / 2], 1e-10)
    near(found.u, 1.5 * g * np.cos(0.5), 1e-10)
    weak = shoulder(jnp.array([0.5, -1.8]), upper=10.0)
    assert weak.status == o.Status.INFEASIBLE
    assert weak.u[0] == 10.0
    # Free again, it goes to where so much is enough; the slope of that by the limit is a closed form.
    freed = partial(dx.find_equilibrium, model, jnp.array([0.5, -1.8]), actuation=np.eye(2)[:, :1])
    found = freed(lower=10.0, upper=10.0)
    slope = jax.jacrev(lambda u: freed(lower=u, upper=u).q)(10.0)
    near(np.cos(found.q[0]), 10.0 / (1.5 * g), 1e-10)
    near(slope[0], -1.0 / (1.5 * g * np.sin(found.q[0])), 1e-9)
    with pytest.raises(KeyError, match="upper_joint"):
        dx.find_equilibrium(model, pose, hold=["upperjoint"])
    with pytest.raises(ValueError, match=r"`u` has shape \(3,\), expected \(2,\)"):
        dx.find_equilibrium(model, pose, jnp.zeros(3))


def at_rest(q, t=0.0):
    """Two links with nothing that drives them, under a gravity that has turned by `t`."""
    turned = two_links().replace(gravity=9.81 * jnp.stack([jnp.sin(t), -jnp.cos(t), 0.0 * t]))
    found = dx.find_equilibrium(turned, jnp.stack([q, 0.0 * q]), actuation=jnp.zeros((2, 0)))
    return found.q, found


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_where_it_rests_already(dtype):
    """Hanging, standing, and so after a turn: what is needed there is rounding, which was the measure of forces."""
    angles = jnp.array([-0.5, 0.5, 1.5], dtype) * np.pi
    q, found = jax.jit(jax.vmap(at_rest))(angles)
    assert np.all(found.status == o.Status.CONVERGED), found.error
    assert q.dtype == dtype
    near(q[:, 0], angles, 10.0 * jnp.finfo(dtype).eps)


@pytest.mark.slow
def test_what_rests_already_follows_gravity():
    slopes = jax.jit(jax.vmap(jax.jacfwd(lambda q, t: at_rest(q, t)[0], argnums=1), (0, None)))
    near(slopes(jnp.array([-0.5, 0.5, 1.5]) * np.pi, 0.0), [[1.0, 0.0]] * 3, 1e-8)


def test_limits_of_a_model():
    """A link falls to its stop and does not come to rest there by itself; a weak joint cannot hold it up."""
    model = two_links(position_limits=(-1.0, 1.0), effort_limit=12.0)
    found = dx.find_equilibrium(model, jnp.array([-0.5, 0.0]), actuation=np.zeros((2, 0)))
    assert found.status == o.Status.INFEASIBLE
    near(found.q[0], -1.0, 0.0)
    found = dx.find_equilibrium(model, jnp.array([0.2, 0.0]))
    assert found.status == o.Status.CONVERGED
    assert np.max(np.abs(found.u)) <= 12.0
    near(found.u, dx.gravity_force(model, found.q), 1e-9)


def test_a_panel_sags(rng):
    """A body held at one place bends until its modes carry its weight."""
    model = dx.ModelBuilder(gravity=(0.3, -0.2, -9.0)).body("panel", inertia=body_of(nodal_data(rng, 2))).build()
    found = dx.find_equilibrium(model, dx.neutral(model), actuation=np.zeros((2, 0)))
    assert found.status == o.Status.CONVERGED
    near(dx.bias_force(model, found.q, jnp.zeros(2)), 0.0, 1e-9)
    assert np.max(np.abs(found.q)) > 0.1
