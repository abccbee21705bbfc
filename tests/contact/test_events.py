"""Motion with events: when they happen, and what depends on it."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.simulate import EventStatus, run_events

G = 9.81


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def fall(state, h):
    z, v = state
    return z + h * v - 0.5 * G * h * h, v - G * h


def height(state):
    return state[0][None]


@jax.jit
def bounced(z, e, duration, dt=0.05):
    """A ball dropped from `z`."""
    start = (z, jnp.zeros_like(z))
    return run_events(fall, height, lambda s, _: (s[0], -e * s[1]), start, duration, dt, budget=80)


BALL = jnp.array([1.0, 0.8, 3.0])
SLOPES = [0.091738661043, 1.163887720985, -0.015354133385]


def last(x):
    return bounced(*x).state[0]


@pytest.mark.spec("T01", "RBDA-11.5-PROC")
def test_bouncing_ball():
    """Value, first and second derivatives, in every mode of differentiation and in a batch."""
    close(last(BALL), 0.068707460966, 1e-11)
    starts = BALL + jnp.linspace(0, 0.01, 8)[:, None]
    forward, backward = (jax.jit(jax.vmap(jacobian(last))) for jacobian in (jax.jacfwd, jax.jacrev))
    close(forward(starts)[0], SLOPES, 1e-10)
    close(backward(starts), forward(starts), 1e-12)
    close(forward(starts)[3], jax.jacfwd(last)(starts[3]), 1e-12)
    close(jax.jit(jax.hessian(last))(BALL)[0, 0], -22.060984399961, 1e-9)


@pytest.mark.spec("T02", "RBDA-11.5-PROC")
def test_times_of_bounces():
    run = bounced(1.0, 0.8, 3.0)
    bounces = run.times[run.which >= 0]
    first = np.sqrt(2 / G)
    close(bounces, first * (1 + 2 * np.cumsum(np.append(0, 0.8 ** np.arange(1, 6)))), 1e-12)
    close(bounces[:5], [0.451523641, 1.173961467, 1.751911727, 2.214271935, 2.584160102], 1e-9)
    assert run.events == 6
    assert run.status == EventStatus.FINISHED
    # The bounces of this ball come to an end after 4.06 s; nothing ends them but the budget.
    endless = bounced(1.0, 0.8, 5.0, dt=1.0)
    assert endless.status == EventStatus.BUDGET
    close(endless.time, 4.063712769, 1e-6)
    close(bounced(1.0, 0.5, 5.0, dt=1.0).time, 1.354570923, 1e-9)  # 2^-80 of them are left


@pytest.mark.spec("T02", "RBDA-11.5-INTERP")
def test_order_of_the_flow_is_that_of_the_times():
    """With a flow of second order, here of a ball with drag, times of bounces are of second order."""

    def rates(state):
        _, v = state
        return jnp.stack([v, -G - 0.3 * v * jnp.abs(v)])

    def heun(state, h):
        k = rates(state)
        end = rates(tuple(jnp.stack(state) + h * k))
        return tuple(jnp.stack(state) + 0.5 * h * (k + end))

    @partial(jax.jit, static_argnums=1)
    def second(dt, budget):
        start = (jnp.array(1.0), jnp.array(0.0))
        run = run_events(heun, height, lambda s, _: (s[0], -0.8 * s[1]), start, 1.3, dt, budget)
        return jnp.sort(jnp.where(run.which >= 0, run.times, jnp.inf))[1]

    times = np.array([second(0.04 / k, 35 * k) for k in (1, 2, 4, 32)])
    error = np.abs(times[:3] - times[3])
    assert np.all(error[:-1] / error[1:] > 3.3), error


@pytest.mark.spec("T03")
def test_wall():
    """An elastic wall turns a displacement round: steps of fixed length say it does not."""

    @jax.jit
    def end(z):
        flow = lambda s, h: (s[0] + h * s[1], s[1])  # noqa: E731
        start = (z, jnp.full_like(z, -5.0))
        return run_events(flow, height, lambda s, _: (s[0], -s[1]), start, 1.0, 0.01, budget=120).state[0]

    close(end(2.95), 2.05, 1e-12)
    close(jax.grad(end)(2.95), -1.0, 1e-12)


def test_what_flow_and_guards_close_over_has_derivatives():
    """Of a ball that falls under `g` on a floor at a height: backwards, as the closed form of one bounce."""

    def closed(x):
        g, floor = x
        first = jnp.sqrt(2 * (1 - floor) / g)
        return floor + 0.8 * g * first * (0.6 - first) - 0.5 * g * (0.6 - first) ** 2

    def end(x):
        g, floor = x
        flow = lambda s, h: (s[0] + h * s[1] - 0.5 * g * h * h, s[1] - g * h)  # noqa: E731
        jump = lambda s, _: (s[0], -0.8 * s[1])  # noqa: E731
        return run_events(flow, lambda s: s[0][None] - floor, jump, (1.0, 0.0), 0.6, 0.1, budget=12).state[0]

    x = jnp.array([G, 0.1])
    slope, value = jax.jit(jax.jacrev(lambda x: (end(x),) * 2, has_aux=True))(x)
    close(value, closed(x), 1e-12)
    close(slope, jax.grad(closed)(x), 1e-10)


def two_balls(x, dt, budget=80):
    flow = lambda s, h: (s[0] + h * s[1], s[1])  # noqa: E731

    def gap(s):
        return (s[0][1] - s[0][0] - 0.2)[None]

    return run_events(flow, gap, lambda s, _: (s[0], s[1][::-1]), (x[:2], x[2:]), 1.0, dt, budget)


@pytest.mark.spec("T04", "T05")
@pytest.mark.parametrize("dt", [0.03, 0.02])
def test_two_balls(dt):
    """Equal balls change their velocities; with the shorter step they meet where one ends, to the last digit."""
    x = jnp.array([0.0, 0.52, 1.0, 0.0])
    run = jax.jit(two_balls, static_argnums=1)(x, dt)
    close(run.state[0][1], 1.2, 1e-12)
    assert run.events == 1
    slope = jax.jit(jax.jacrev(lambda x: two_balls(x, dt).state[0][1]))
    close(slope(x), [1.0, 0.0, 1.0, 0.0], 1e-12)


@pytest.mark.spec("T05")
def test_in_touch_at_the_beginning():
    """One event, at once; what touches and parts has none."""
    run = jax.jit(two_balls, static_argnums=1)
    found = run(jnp.array([0.0, 0.2, 1.0, 0.0]), 0.02)
    assert found.events == 1
    close(found.times[found.which >= 0], 0.0, 1e-15)
    close(found.state[0], [0.0, 1.2], 1e-12)
    assert run(jnp.array([0.0, 0.2, 0.0, 1.0]), 0.02).events == 0


@pytest.mark.spec("T06")
def test_rimless_wheel():
    """The speed after an impact that repeats itself, and how fast others come to it."""
    half, slope = np.pi / 8, 0.08

    def flow(state, h):
        def rates(s):
            return jnp.stack([s[1], G * jnp.sin(s[0])])

        s = jnp.stack(state)
        a = rates(s)
        b = rates(s + 0.5 * h * a)
        c = rates(s + 0.5 * h * b)
        d = rates(s + h * c)
        return tuple(s + h / 6 * (a + 2 * b + 2 * c + d))

    def roll(speed, duration, budget):
        start = (jnp.full_like(speed, slope - half), speed)
        guard = lambda s: (slope + half - s[0])[None]  # noqa: E731
        jump = lambda s, _: (s[0] - 2 * half, jnp.cos(2 * half) * s[1])  # noqa: E731
        return run_events(flow, guard, jump, start, duration, 0.002, budget)

    @jax.jit
    def after(speed):
        run = roll(speed, 1.3, 660)
        # The energy from the impact on stays, so the speed there is known from any state that follows.
        angle, rate = run.state
        return jnp.sqrt(rate**2 - 2 * G * (jnp.cos(slope - half) - jnp.cos(angle))), run.events

    fixed = np.sqrt(4 * G * np.sin(half) * np.sin(slope)) / np.tan(2 * half)
    close(fixed, 1.09546, 1e-5)
    found, events = after(jnp.array(fixed))
    assert events == 1
    close(found, fixed, 1e-8)
    close(jax.grad(lambda s: after(s)[0])(fixed), np.cos(2 * half) ** 2, 1e-8)


def test_statuses_and_inputs():
    run = jax.jit(lambda z: run_events(fall, height, lambda s, _: s, (z, -z), 1.0, 0.1, budget=5))
    assert run(jnp.array(1e3)).status == EventStatus.BUDGET
    assert run(jnp.array(jnp.nan)).status == EventStatus.NOT_FINITE
    with pytest.raises(ValueError, match="`budget` is 0"):
        run_events(fall, height, lambda s, _: s, (1.0, 0.0), 1.0, 0.1, budget=0)


def test_float32():
    x = jnp.array([1.0, 0.8, 3.0], jnp.float32)
    assert last(x).dtype == jnp.float32
    close(last(x), 0.0687, 1e-4)
    close(jax.grad(last)(x), SLOPES, 2e-3)
