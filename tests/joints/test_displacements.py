"""Derivatives of the steps of `Free` and `Spherical`, which are closed forms, against those of matrix exponentials."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax.joints.base import AbstractJoint
from dynax.spatial import Quaternion, plucker

ANGLES = (0.0, 1e-9, 1e-4, 0.3, 1.0, 2.0, 3.1, 3.2, 6.5, 9.0)
SHORT = 7
"""How many of them a logarithm gives back."""
FREE, BALL = dx.Free(), dx.Spherical()
JOINTS = (FREE, slice(0, 7), slice(0, 6)), (BALL, slice(3, 7), slice(0, 3))
"""With their parts of the free one's coordinates and velocities."""


def exponential(x):
    """Of a twist, as a series."""
    matrix = jnp.zeros((4, 4)).at[:3, :3].set(plucker.skew(x[:3])).at[:3, 3].set(x[3:])
    terms = jax.lax.scan(lambda term, k: 2 * (term @ matrix / k,), jnp.eye(4), jnp.arange(1.0, 81.0))[1]
    return jnp.eye(4) + jnp.sum(terms, 0)


def pose(q):
    corner = jnp.eye(4).at[:3, :3].set(Quaternion(*q[3:]).matrix().array)
    return corner.at[:3, 3].set(q[:3])


def free(q, dv):
    return jnp.stack(FREE.integrate(tuple(q), tuple(dv), ()))


def apart(q0, q1):
    return jnp.stack(FREE.difference(tuple(q0), tuple(q1)))


def on_a_curve(q, bend, t):
    """A configuration that moves, its quaternion of unit length."""
    moved = q + t * bend[0] + t**2 * bend[1]
    return moved.at[3:].divide(jnp.linalg.norm(moved[3:]))


def cases(rng):
    axes = rng.normal(size=(len(ANGLES), 3))
    turns = axes / np.linalg.norm(axes, axis=1, keepdims=True) * np.array(ANGLES)[:, None]
    dv = np.concatenate([turns, rng.normal(size=turns.shape)], axis=1)
    q = rng.normal(size=(len(ANGLES), 7))
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1, keepdims=True)
    return q, dv, rng.normal(size=(len(ANGLES), 2, 7)), rng.normal(size=(len(ANGLES), 6))


def two_rates(function):
    """The first and second derivative at zero, for each case."""

    def rates(*case):
        def first(t):
            return jax.jvp(lambda t: function(*case, t), (t,), (1.0,))[1]

        return jax.jvp(first, (0.0,), (1.0,))

    return jax.jit(jax.vmap(rates))


@pytest.mark.spec("J-ALL")
def test_integrate_moves_as_the_matrix_exponential(rng):
    def ours(q, dv, bend, change, t):
        return pose(free(on_a_curve(q, bend, t), dv + t * change))

    def exact(q, dv, bend, change, t):
        return pose(on_a_curve(q, bend, t)) @ exponential(dv + t * change)

    given = cases(rng)
    found, expected = two_rates(ours)(*given), two_rates(exact)(*given)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-9)


@pytest.mark.spec("J-ALL")
def test_difference_undoes_it_while_both_ends_move(rng):
    def there_and_back(q, dv, bend, change, t):
        start = on_a_curve(q, bend, t)
        return apart(start, free(start, dv + t * change))

    given = cases(rng)
    first, second = two_rates(there_and_back)(*given)
    assert np.all(np.isfinite(first))
    assert np.all(np.isfinite(second))
    np.testing.assert_allclose(first[:SHORT], given[-1][:SHORT], atol=1e-11)
    np.testing.assert_allclose(second[:SHORT], 0.0, atol=1e-9)


@pytest.mark.spec("J-ALL")
def test_a_ball_turns_as_what_is_free(rng):
    """Rates of both ends, reverse mode, and the rate along a velocity."""
    q, dv, bend, change = map(jnp.asarray, cases(rng))

    def turn(q, v):
        return jnp.stack(BALL.integrate(tuple(q), tuple(v), ()))

    def between(q0, q1):
        return jnp.stack(BALL.difference(tuple(q0), tuple(q1)))

    @jax.jit
    @jax.vmap
    def both(q, dv, rate, change):
        reached, moved = jax.jvp(free, (q, dv), (rate, change))
        ball = jax.jvp(turn, (q[3:], dv[:3]), (rate[3:], change[:3]))
        seen = jax.jvp(apart, (q, reached), (rate, moved))
        ball_seen = jax.jvp(between, (q[3:], reached[3:]), (rate[3:], moved[3:]))
        weights = jnp.sin(jnp.arange(7.0))
        bars = jax.vjp(free, q, dv)[1](weights)
        power = bars[0] @ rate + bars[1] @ change - weights @ moved
        along = [j.difference_rate(tuple(q[s]), tuple(reached[s]), tuple(change[t]), ()) for j, s, t in JOINTS]
        velocity = jnp.stack(FREE.rate(tuple(reached), tuple(change), ()))
        slopes = jax.jvp(lambda x: apart(q, x), (reached,), (velocity,))[1]
        return (reached[3:], moved[3:]), ball, (seen[0][:3], seen[1][:3]), ball_seen, power, along, slopes

    moved, ball, seen, ball_seen, power, along, slopes = both(q, dv, bend[:, 0], change)
    np.testing.assert_allclose(ball, moved, atol=1e-13)
    np.testing.assert_allclose(ball_seen, seen, atol=1e-12)
    np.testing.assert_allclose(power, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.stack(along[0]).T, slopes, atol=1e-12)
    np.testing.assert_allclose(np.stack(along[1]).T, slopes[:, :3], atol=1e-12)


@pytest.mark.spec("J-ALL")
def test_velocities_are_carried_along(rng):
    """What a velocity before a displacement, and a change of it, are behind it: as by the rates of coordinates."""
    q, dv, bend, change = map(jnp.asarray, cases(rng))
    before = bend[:, 0, :6]

    @jax.jit
    @jax.vmap
    def both(q, dv, before, change):
        q, dv, before, change = map(tuple, (q, dv, before, change))
        found, expected = [], []
        for j, s, t in JOINTS:
            at = q[s], dv[t]
            found += [j.carried(*at, before[t], ()), j.integrate_rate(*at, change[t], ())]
            expected += [
                AbstractJoint.carried(j, *at, before[t], ()),
                AbstractJoint.integrate_rate(j, *at, change[t], ()),
            ]
        return found, expected

    found, expected = both(q, dv, before, change)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_one_coordinate_alone_may_move(rng):
    start, end = cases(rng)[0][:2]

    @jax.jit
    def slopes(x):
        alone = jax.jvp(lambda x: FREE.difference((x, *start[1:]), tuple(end)), (x,), (1.0,))[1]
        return jnp.stack(alone), jax.jacfwd(apart)(start.at[0].set(x), end)[:, 0]

    start, end = jnp.asarray(start), jnp.asarray(end)
    np.testing.assert_allclose(*slopes(start[0]), atol=1e-14)
