"""Joints at the ends of their ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.simulate import Touching

G, DT, END = 9.81, 0.005, 0.7
ROD = dx.SpatialInertia(2.0, (0.5, 0, 0), np.diag([1e-3, 0.1, 0.1]))
INERTIA = 0.1 + 2.0 * 0.25
"""About the hinge."""


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def pendulum(gravity=G):
    """A rod that hangs down at pi/2, since a turn about y takes x to -z, and stops at `END` to both sides of zero."""
    builder = dx.ModelBuilder(gravity=(0, 0, -gravity))
    builder.body("rod", joint=dx.Revolute((0, 1, 0)), inertia=ROD, position_limits=(-END, END))
    return builder.build()


def told(scene, q, v, tau):
    return Touching().touched(scene, jnp.array([q]), jnp.array([v]), jnp.array([tau]), jnp.asarray(DT))


def test_pendulum_at_its_stop():
    """It falls on the stop and stays; the stop bears what gravity asks for, to both sides."""
    scene = c.scene(pendulum(), [])
    assert scene.limited == (("rod_joint", 0),)
    for side in (1.0, -1.0):
        own = scene.replace(gravity=jnp.array([0, 0, -side * G]))
        run = dx.rollout(own, jnp.zeros(1), jnp.zeros(1), jnp.zeros((300, 1)), DT)
        close(run.q[-1], side * END, 1e-6)
        assert np.max(side * run.q) < END + 1e-6
        weight = side * 2.0 * G * 0.5 * np.cos(END)
        close(told(own, run.q[-1, 0], 0.0, 0.0).stops / DT, -weight, 1e-5)
        energy = dx.kinetic_energy(own.model, run.q[-1], run.v[-1])
        assert energy < 1e-12
        assert np.all(run.touch.energy < 1e-9)
        assert run.touch.contacts[-1] == 1
        assert run.touch.contacts[10] == 0


def test_impact_at_a_stop():
    """Without a bounce: it arrives at the end of the step, and all its energy is gone in the next."""
    scene = c.scene(pendulum(0.0), [])
    landing = told(scene, END - 0.006, 2.0, 0.0)
    close(landing.q, END, 1e-8)
    close(landing.stops, -INERTIA * (2.0 - 0.006 / DT), 1e-5)
    rest = told(scene, END, 2.0, 0.0)
    close(rest.v, 0.0, 1e-5)
    close(rest.report.energy, -0.5 * INERTIA * 4.0, 1e-4)
    away = told(scene, END, -2.0, 0.0)
    close(away.v, -2.0, 1e-12)
    assert away.report.contacts == 0
    free = dx.step(c.scene(pendulum(0.0), [], limits=False), jnp.array([END]), jnp.array([2.0]), jnp.zeros(1), DT)
    close(free[1], 2.0, 1e-12)


def test_derivatives_at_a_stop():
    """What rests on a stop goes where the stop goes, and not where it is pushed; the stop takes what pushes."""
    scene = c.scene(pendulum(0.0), [])

    @jax.jit
    def end(tau, upper):
        own = scene.replace(position_limits=jnp.stack([jnp.full(1, -END), upper[None]], axis=1))
        found = told(own, END, 0.0, tau)
        return jnp.stack([found.q[0], found.stops[0]])

    x = jnp.asarray(3.0), jnp.asarray(END)
    forward, backward = (jax.jit(f(end, argnums=(0, 1)))(*x) for f in (jax.jacfwd, jax.jacrev))
    for a, b in zip(forward, backward, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)
    close(forward[0], [0.0, -DT], 1e-6)
    # It is kept from the stop's new place within the step, and pushed out of it in the time of relaxation.
    assert forward[1][0] > 0.19
    h = 1e-6
    inwards = (end(x[0], x[1]) - end(x[0], x[1] - h)) / h
    outwards = (end(x[0], x[1] + h) - end(x[0], x[1])) / h
    assert min(np.max(np.abs(forward[1] - d) / np.abs(d)) for d in (inwards, outwards)) < 1e-3


def test_batch_in_float32():
    scene = jax.tree.map(lambda x: x.astype(jnp.float32), c.scene(pendulum(), []))
    q = jnp.linspace(-0.6, 0.6, 8, dtype=jnp.float32)[:, None]
    run = jax.jit(
        jax.vmap(lambda q: dx.rollout(scene, q, jnp.zeros(1, q.dtype), jnp.zeros((300, 1), q.dtype), DT, every=3))
    )(q)
    assert run.q.dtype == jnp.float32
    close(run.q[:, -1], END, 1e-4)
    assert run.touch.contacts.shape == (8, 101)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_slider_with_one_end(side):
    """Where there is no limit there is none; a joint that starts beyond its end comes back in time."""
    ends = (0.0, np.inf) if side == "lower" else (-np.inf, 0.0)
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    builder.body("a", joint=dx.Prismatic((1, 0, 0)), inertia=dx.SpatialInertia(1.0, (0, 0, 0), np.eye(3)))
    builder.body("b", joint=dx.Prismatic((1, 0, 0)), inertia=ROD, position_limits=ends)
    scene = c.scene(builder.build(), [])
    assert scene.limited == (("b_joint", 0),)
    sign = 1.0 if side == "lower" else -1.0
    run = dx.rollout(scene, jnp.array([0.0, -sign * 0.01]), jnp.zeros(2), jnp.zeros((200, 2)), DT)
    assert run.touch.penetration[1] == 0  # of shapes, of which there are none
    assert sign * run.q[-1, 1] > -1e-4
    assert sign * run.v[-1, 1] < 0.5
