"""Forces of some joints that move a closed mechanism: the worked linkage with its actuators (section 8.12)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.crane import RATE, Y, crane, hand
from constraints.facts import close, facts, null_space, solution

import dynax as dx
from dynax.constraints.actuation import actuated_inverse_dynamics


@pytest.fixture(scope="module")
def state():
    q, g, offset = hand(Y, RATE)
    return q, g @ RATE, g, offset, facts(crane(), q, g @ RATE)


@pytest.mark.spec("RBDA-8.12-ID", "RBDA-8.12-ACT", "RBDA-8.12-EX82")
def test_piston_and_elbow(state, rng):
    """Joints 3 and 4 actuated: `u = [1/u2, u1/u2, 1, 0; 0 0 0 1] tau_ID`, which are not the forces of `y'`."""
    model = crane()
    q, v, g, offset, f = state
    a = g @ rng.normal(size=2) + offset
    needed = np.asarray(dx.inverse_dynamics(model, q, v, a))
    found = actuated_inverse_dynamics(model, q, v, a, actuated=("3", "4"))
    u1, u2 = g[1, 0], g[2, 0]
    u = np.array([[1 / u2, u1 / u2, 1, 0], [0, 0, 0, 1]]) @ needed
    close(found.tau, [0, 0, *u])
    assert bool(found.properly_actuated)
    assert not bool(found.underactuated)
    close(found.residual, 0.0)
    close(solution(f, np.asarray(found.tau))[0], a)
    close(found.tau @ v, needed @ v)
    assert abs(u @ RATE - needed @ v) > 1.0


@pytest.mark.spec("RBDA-8.12-ACT", "RBDA-8.12-ID")
def test_classes_of_actuation(state, rng):
    """Proper with joint 4 and one of 1 to 3; redundant with more; short without 4, and then redundant all the same."""
    model = crane()
    q, v, g, offset, f = state
    a = g @ rng.normal(size=2) + offset
    needed = g.T @ np.asarray(dx.inverse_dynamics(model, q, v, a))
    for names in (("1", "4"), ("2", "4"), ("3", "4"), None, ("1", "3", "4"), ("1", "2"), ("4",), ()):
        found = actuated_inverse_dynamics(model, q, v, a, actuated=names)
        columns = [int(n) - 1 for n in (names if names is not None else "1234")]
        rank = np.linalg.matrix_rank(g.T[:, columns]) if columns else 0
        assert (int(found.rank), int(found.mobility), int(found.actuators)) == (rank, 2, len(columns))
        assert bool(found.underactuated) == (rank < 2)
        assert bool(found.redundant) == (len(columns) > rank)
        assert bool(found.properly_actuated) == (rank == 2 == len(columns))
        tau = np.asarray(found.tau)
        if rank == 2:  # the motion itself
            close(solution(f, tau)[0], a)
            close(found.residual, 0.0)
            # Of all forces that make it, the smallest.
            least = np.linalg.pinv(g.T[:, columns]) @ needed
            close(tau[columns], least)
        else:  # as near as it goes, in the joints' own units
            basis = null_space(f.k)
            wanted = basis.T @ np.asarray(dx.inverse_dynamics(model, q, v, a))
            close(np.linalg.norm(found.residual), np.linalg.norm(wanted - basis.T @ tau))
            near = np.linalg.pinv(basis.T[:, columns]) @ wanted if columns else np.zeros(0)
            close(tau[columns], near)
    with pytest.raises(ValueError, match="twice"):
        actuated_inverse_dynamics(model, q, v, a, actuated=("1", "1"))


@pytest.mark.spec("RBDA-8.12-EX82")
def test_dead_point_of_the_piston():
    """At `sin y1 = 0` the piston does not move the arm: a freedom is lost to the actuators, nothing blows up."""
    model, y = crane(), np.array([np.pi, 0.3])
    q, g, offset = hand(y, RATE)
    found = actuated_inverse_dynamics(model, q, g @ RATE, offset, actuated=("3", "4"))
    assert bool(found.underactuated)
    assert bool(found.redundant)
    assert np.all(np.isfinite(found.tau))
    assert np.abs(found.tau).max() < 1e3
    near = hand(np.array([np.pi - 1e-3, 0.3]), RATE)
    found = actuated_inverse_dynamics(model, near[0], near[1] @ RATE, near[2], actuated=("3", "4"))
    assert bool(found.properly_actuated)
    assert found.singular_values[1] < 3e-3  # told in advance


def test_gradients(state):
    """By the motion, and by a mass."""
    model = crane()
    q, v, _, offset, _ = state

    def force(scale, a):
        return actuated_inverse_dynamics(model.replace(mass=model.mass * scale), q, v, a, actuated=("3", "4")).tau[2]

    slopes = jax.jit(jax.grad(force, argnums=(0, 1)))(1.0, jnp.asarray(offset))
    values = [float(force(scale, offset)) for scale in (1 - 1e-4, 1 + 1e-4)]
    close(slopes[0], (values[1] - values[0]) / 2e-4, 1e-7)
    assert np.all(np.isfinite(slopes[1]))
