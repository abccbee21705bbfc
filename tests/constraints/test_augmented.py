"""The augmented form, step by step, against the whole system of equations."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import trees
from constraints.hands import NODES, Known, arms, close, equations, known, thing

import dynax as dx
from dynax.algorithms.factor import factorize
from dynax.operators.compliance import inward


class Pair(NamedTuple):
    primary: dx.OpenSystem
    secondary: dx.OpenSystem
    known: tuple[Known, Known]


@lru_cache
def pair():
    """Arms and a thing of two bodies, anywhere."""
    systems, facts = [], []
    for model, nodes in ((arms(), NODES), (thing(2), ("part0", "other"))):
        s = trees.states(model, 1)
        state = [np.asarray(x[0]) for x in (s.q, s.v, s.tau, s.external)]
        systems.append(dx.open_system(model, *state, nodes=nodes))
        facts.append(known(model, *(jnp.asarray(x) for x in state), nodes))
    return Pair(*systems, tuple(facts))


@lru_cache
def by_hand():
    """Three conditions between the systems, two within the first, one within the second, all moving in time."""
    rng = np.random.default_rng(3)
    p, s = rng.normal(size=(6, 24)), rng.normal(size=(6, 12))
    s[3:5], p[5] = 0.0, 0.0
    rest = [jnp.asarray(x) for x in rng.normal(size=(4, 6))]
    return dx.Coupling(jnp.asarray(p), jnp.asarray(s), *rest)


def gap_of(coupling, facts):
    sums = [np.asarray(a) @ k.rate for a, k in zip(coupling[:2], facts, strict=True)]
    return sum(sums) + coupling.rate - coupling.acceleration


@pytest.mark.spec("CC-CON", "CC-FORCE", "CC-KKT", "CC-SCHUR", "CC-6STEP", "ERR-4", "ERR-6")
def test_six_steps_solve_the_whole_system():
    p, s, facts = pair()
    c = by_hand()
    found = dx.coupled_dynamics(p, s, c)
    *accelerations, force = equations(facts, c[:2], gap_of(c, facts))
    for a, expected in zip(found[:2], accelerations, strict=True):
        close(a, expected)
    close(found.force, force)
    assert found.rank == 6
    # Steps A to C, and the free motion among them.
    for system, k in zip((p, s), facts, strict=True):
        close(system.free.acceleration, np.linalg.solve(k.mass, k.force))
        close(system.free.node_accelerations.reshape(-1), k.jacobian @ np.linalg.solve(k.mass, k.force))
        close(system.free.node_biases.reshape(-1), k.rate)
        close(system.free.node_velocities.reshape(-1), k.jacobian @ k.v)
        close(system.free.compliance, k.jacobian @ np.linalg.inv(k.mass) @ k.jacobian.T)
    # What the constraints do to the joints is -J^T A^T f, in each system.
    for a, matrix, k in zip(found[:2], c[:2], facts, strict=True):
        close(k.mass @ a - k.force, -k.jacobian.T @ matrix.T @ found.force)


@pytest.mark.spec("CC-FORCE", "CC-CON")
def test_power_of_constraints():
    """Forces of conditions that stand still do no work, others `-f . U`."""
    p, s, _ = pair()
    for c in (by_hand(), by_hand()._replace(velocity=None)):
        start = dx.coupled_impulse(p, s, c)
        f = dx.coupled_dynamics(p, s, c).force  # whatever it is at
        power = 0.0
        for v, a, k in zip(start[:2], c[:2], pair().known, strict=True):
            power += np.asarray(v) @ k.jacobian.T @ np.asarray(-a.T @ f)
        close(power, 0.0 if c.velocity is None else -f @ c.velocity)


@pytest.mark.spec("CC-STEPD-ALT", "ERR-8")
def test_by_the_secondary_system():
    p, s, _ = pair()
    c = dx.Coupling(*(None if part is None else part[:5] for part in by_hand()))  # all on the primary system
    plain, other = dx.coupled_dynamics(p, s, c), dx.coupled_dynamics(p, s, c, method="primary")
    for a, b in zip(plain[:3], other[:3], strict=True):
        close(b, a)
    assert other.rank == 5
    # Conditions without the primary system make its matrix singular, which is said.
    assert dx.coupled_dynamics(p, s, by_hand(), method="primary").rank == 5
    with pytest.raises(ValueError, match="needs a primary and a secondary"):
        dx.coupled_dynamics(p, None, dx.Coupling(c.primary), method="primary")


@pytest.mark.spec("CC-NOSEC", "CC-OPFORM")
def test_one_system_and_the_operator_form(rng):
    """At rest: `a = W^T [1 - b (A Lambda A^T)^-1 b^T] W tau`, with `W = D^-1/2 (1 - H psi K)` and `b = W J^T A^T`."""
    model = arms()
    s = trees.states(model, 1)
    q, tau = s.q[0], s.tau[0]
    rest = model.replace(gravity=0 * model.gravity)
    p = dx.open_system(rest, q, jnp.zeros(12), tau, nodes=NODES)
    a = jnp.asarray(rng.normal(size=(4, 24)))
    found = dx.coupled_dynamics(p, None, dx.Coupling(a))
    w = np.asarray(inward(factorize(rest, q), None, jnp.eye(12))[1])
    k = known(rest, q, jnp.zeros(12), np.asarray(tau), np.zeros((12, 6)), NODES)
    close(w.T @ w, np.linalg.inv(k.mass), 1e-11)
    b = w @ k.jacobian.T @ np.asarray(a).T
    close(b.T @ b, np.asarray(a) @ np.asarray(p.free.compliance) @ np.asarray(a).T, 1e-11)
    projector = np.eye(len(w)) - b @ np.linalg.solve(b.T @ b, b.T)
    close(projector @ projector, projector, 1e-12)
    close(projector, projector.T, 1e-12)
    close(np.trace(projector), len(w) - 4, 1e-12)
    close(w.T @ projector @ w @ np.asarray(tau), found.primary)
    assert found.secondary is None
    close(found.primary, equations((k,), (a,), np.asarray(a) @ k.rate)[0])
    # Without conditions it is the forward dynamics.
    free = dx.coupled_dynamics(p, None, dx.Coupling())
    close(free.primary, w.T @ w @ np.asarray(tau), 1e-11)
    close(free.primary, dx.coupled_dynamics(None, p, dx.Coupling()).secondary, 0.0)
    assert free.force.shape == (0,)


@pytest.mark.spec("CC-SING")
def test_conditions_that_repeat_others():
    p, s, facts = pair()
    c = by_hand()
    plain = dx.coupled_dynamics(p, s, c)
    mixed = np.concatenate([np.eye(6), [[0, 0, 2.0, 0, 0, 0], [1, -1, 0, 0, 1, 3], [0] * 6]])
    many = dx.Coupling(*(jnp.asarray(mixed @ part) for part in c))
    found = dx.coupled_dynamics(p, s, many)
    assert found.rank == plain.rank == 6
    assert found.singular_values.shape == (9,)
    for a, b in zip(found[:2], plain[:2], strict=True):
        close(a, b, 1e-9)
    close(mixed.T @ found.force, plain.force, 1e-9)
    close(found.force, np.linalg.pinv(mixed.T) @ plain.force, 1e-9)  # the least of all
    close(found.force, equations(facts, many[:2], gap_of(many, facts))[-1], 1e-9)
