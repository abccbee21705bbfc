"""Loops closed by a function of the independent coordinates (sections 3.2, 8.10 and 8.11)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.crane import L1, L2, RATE, TAU, Y, crane, gamma, hand
from constraints.facts import close, facts, solution
from constraints.mechanisms import four_bar, four_bar_angles

import dynax as dx
from dynax.constraints.closure_function import closed_motion, loop_closure_dynamics


@pytest.mark.spec("RBDA-8.11-FIG83", "RBDA-8.11-LCF", "RBDA-3.2-CONSTR")
def test_worked_linkage():
    """`G` and `g` of the function by differentiation are those by hand, its digits, and the motion that of `K`, `k`."""
    assert (L1, L2) == (1.0, 0.7)
    model = crane()
    motion = closed_motion(model, gamma, Y, RATE)
    q, g, offset = hand(Y, RATE)
    close(motion.q, q, 1e-14)
    close(motion.matrix, g, 1e-13)
    close(motion.bias, offset, 1e-13)
    close(motion.v, g @ RATE, 1e-14)
    digits = [2.3710551980, 0.7872395089, 0.0885411415, 0.6965209832, 0.7280877685, -0.0635314941]
    found = [*motion.q[1:3], *motion.matrix[1:3, 0], *(motion.bias[1:3] / RATE[0] ** 2)]
    np.testing.assert_allclose(found, digits, rtol=0, atol=6e-11)
    f = facts(model, motion.q, motion.v)
    # phi(gamma(y)) = 0, K G = 0, K g = k (eq. 3.12)
    close(f.phi, 0.0, 1e-14)
    close(f.k @ g, 0.0, 1e-13)
    close(f.k @ offset, f.bias, 1e-12)
    a = np.asarray(loop_closure_dynamics(model, gamma, Y, RATE, TAU))
    close(g @ a + offset, solution(f, TAU)[0])
    external = np.random.default_rng(0).normal(size=(4, 6))
    pushed = loop_closure_dynamics(model, gamma, Y, RATE, TAU, external)
    c = np.asarray(dx.bias_force(model, motion.q, motion.v, external))
    close(g @ np.asarray(pushed) + offset, solution(f._replace(c=c), TAU)[0])


@pytest.mark.slow
@pytest.mark.spec("RBDA-8.11-LCF")
def test_no_drift():
    """After ten seconds of falling about the loop is closed to rounding, and energy is kept as the step allows."""
    model, dt = crane(), 4e-3

    @jax.jit
    def run(state):
        def step(state, _):
            def stages(k, h):
                y, v = jax.tree.map(lambda a, b: a + h * b, state, k)
                new = v, loop_closure_dynamics(model, gamma, y, v, jnp.zeros(4))
                return new, new

            _, k = jax.lax.scan(stages, jax.tree.map(jnp.zeros_like, state), jnp.array([0.0, dt / 2, dt / 2, dt]))
            state = jax.tree.map(lambda x, k: x + dt / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3]), state, k)
            return state, state

        return jax.lax.scan(step, state, length=2500)[1]

    y, v = run((jnp.array([2.0, 0.4]), jnp.zeros(2)))
    found = jax.vmap(lambda y, v: closed_motion(model, gamma, y, v))(y[::25], v[::25])
    assert np.abs(facts(model, found.q, found.v).phi).max() < 1e-14
    assert np.abs(facts(model, found.q, found.v).rate).max() < 1e-12
    energy = jax.vmap(lambda q, v: dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q))(found.q, found.v)
    assert np.ptp(energy) < 1e-4
    assert np.ptp(np.asarray(y[:, 0])) > 1.0


LENGTHS = (1.0, 2.0, 1.8, 1.5)


def branch(side):
    """The rocker above the diagonal or below it, for every crank angle."""

    def gamma(model, y):
        a, b, c, g = LENGTHS
        tip = jnp.stack([a * jnp.cos(y[0]), a * jnp.sin(y[0])])
        across = jnp.array([g, 0.0]) - tip
        length = jnp.sqrt(across @ across)
        lift = jnp.arccos((length**2 + b**2 - c**2) / (2 * length * b))
        coupler = jnp.arctan2(across[1], across[0]) + side * lift
        end = tip + b * jnp.stack([jnp.cos(coupler), jnp.sin(coupler)]) - jnp.array([g, 0.0])
        return jnp.stack([y[0], coupler - y[0], jnp.arctan2(end[1], end[0])])

    return gamma


@pytest.mark.slow
@pytest.mark.spec("RBDA-8.10-AMBIG")
def test_two_ways_to_assemble():
    """One crank angle, two rockers: the function chooses, stays on its branch, and both close."""
    model = four_bar(LENGTHS).model
    angles, one = np.linspace(-1.5, 1.5, 61), np.ones(1)
    ends = []
    for side in (1.0, -1.0):
        found = jax.jit(jax.vmap(lambda y, side=side: closed_motion(model, branch(side), y, one)))(angles[:, None])
        q, v = np.asarray(found.q), np.asarray(found.v)
        close(facts(model, q, v).phi, 0.0, 1e-13)
        wrapped = np.unwrap(q, axis=0)
        assert np.abs(np.diff(wrapped, axis=0)).max() < 0.5  # continuous
        close(np.gradient(wrapped, angles, axis=0, edge_order=2)[5:-5], v[5:-5], 0.02)
        expected = four_bar_angles(LENGTHS, angles[40], side > 0)
        close(np.exp(1j * (q[40, 0] + q[40, 1])), np.exp(1j * expected[0]), 1e-13)
        close(np.exp(1j * q[40, 2]), np.exp(1j * expected[1]), 1e-13)
        ends.append(np.exp(1j * q[:, 2]))
    assert np.abs(ends[0] - ends[1]).min() > 0.3


@pytest.mark.slow
def test_quaternions_and_leaves():
    """`gamma` may fill quaternions and read leaves: a ball that turns about a line its frame gives, and its mass."""
    model = dx.ModelBuilder(gravity=(0, 0, 0)).body("ball", joint=dx.Spherical(), inertia=dx.SpatialInertia(
        2.0, (0, 0, 0), (0.1, 0.2, 0.3))).build()  # fmt: skip
    axis = np.array([1.0, 2.0, 2.0]) / 3

    def turn(model, y):
        half = 0.5 * y[0] * model.mass[0]
        return jnp.concatenate([jnp.cos(half)[None], jnp.sin(half) * axis])

    motion = closed_motion(model, turn, [0.4], [0.7])
    close(motion.matrix[:, 0], 2.0 * axis, 1e-13)
    close(motion.bias, 0.0, 1e-13)
    torque = np.array([0.3, -0.2, 0.5])
    found = loop_closure_dynamics(model, turn, [0.4], [0.7], torque)
    close(found, [2 * axis @ torque / (4 * axis @ np.diag([0.1, 0.2, 0.3]) @ axis)])
    with pytest.raises(ValueError, match="`gamma` gave shape"):
        closed_motion(model, lambda model, y: y, [0.4], [0.7])
    with pytest.raises(ValueError, match="one and the same"):
        closed_motion(model, turn, [0.4], [0.7, 0.1])
