"""Rows of loops, for every joint that can close one: derivatives of the residual, wherever the mechanism is."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.closed_tree import GENERIC, PLAIN, closed_tree
from constraints.facts import admissible, close, facts, solution
from constraints.mechanisms import HINGE, at, rod

import dynax as dx
from dynax.constraints.residual import rows_at
from dynax.spatial import Transform

pytestmark = pytest.mark.slow

# Sixth-order central differences; at this step their error and rounding are balanced for second derivatives.
STEP = 5e-3
POINTS = np.arange(-3.0, 4.0)
FIRST = np.array([-1.0, 9.0, -45.0, 0.0, 45.0, -9.0, 1.0]) / 60
SECOND = np.array([2.0, -27.0, 270.0, -490.0, 270.0, -27.0, 2.0]) / 180


@jax.jit
@partial(jax.vmap, in_axes=(None, None, 0))
def along(model, q, v):
    """The residual on a path with constant `v` as time goes on, and what is said about it at its middle."""

    def at(t):
        return rows_at(model.replace(time=model.time + t), dx.integrate(model, q, t * v)).residual

    rows = rows_at(model, q, v)
    return jax.vmap(at)(jnp.asarray(POINTS * STEP)), rows.matrix, rows.rate, rows.bias


@pytest.mark.spec("RBDA-8.2-K", "RBDA-8.7-KALG", "RBDA-8.3-DELTA", "RBDA-8.3-EX81", "RBDA-8.6-CTAU")
@pytest.mark.parametrize("names", [tuple(PLAIN), *((name,) for name in GENERIC)], ids=lambda names: names[0])
def test_rows_are_derivatives_of_the_residual(names, rng):
    """`K v = dphi/dt` and `k = -d2phi/dt2`, with and without columns that move (`T_ring`), to the world or not."""
    model, q = closed_tree(names)
    v = rng.normal(size=(3, model.nv))
    v[2] = 0.0
    if len(names) == 1:
        # The basis of a generic joint's forces may turn with it: `k` is that of velocities that keep the loop closed.
        matrix = np.asarray(along(model, q, v)[1][0])
        v = np.array([admissible(matrix, one) for one in v])
    phi, matrix, rate, bias = (np.asarray(x) for x in along(model, q, v))
    close(phi[:, 3], 0.0, 1e-13)
    close(np.einsum("p,kpr->kr", FIRST, phi) / STEP, rate, 1e-10)
    # Without acceleration of the joints.
    close(np.einsum("p,kpr->kr", SECOND, phi) / STEP**2, -bias, 1e-8)
    # Time alone is not `K v`.
    close(rate - rate[2], v @ matrix[0].T, 1e-12)
    rows = dx.constraint_names(model)
    driven = rows.get("driven", slice(0, 0))
    assert np.any(rate[2][driven]) == ("driven" in names)
    # Both ends of a loop to the ground fall alike: `k` knows nothing of gravity, and at rest it vanishes.
    heavy = model.replace(gravity=jnp.asarray([30.0, -20.0, 50.0]))
    there = np.array(along(heavy, q, v)[3])
    close(there, bias, 1e-12)
    there[:, driven] = 0.0
    close(there[2], 0.0, 1e-12)


def test_welded_frames_carry_loops():
    """A loop that ends on a welded link is the one on the body that carries it, and a frame serves as well."""
    turn = Transform(np.asarray(dx.Rotation.exp((0.3, -0.2, 0.5)).matrix), (0.1, 0.2, 0.3))

    def model(end: str, place: Transform | None):
        builder = dx.ModelBuilder()
        builder.body("one", joint=HINGE, inertia=rod(1.0))
        builder.body("welded", parent="one", placement=turn, inertia=rod(0.1))
        builder.frame("mark", body="one", placement=turn)
        builder.body("two", joint=dx.Universal(), placement=at(0.3), inertia=rod(1.0))
        hinge = dx.Revolute((0, 1, 0))
        builder.loop("close", predecessor=end, successor="two", joint=hinge, predecessor_placement=place)
        return builder.build()

    q, v = np.array([0.3, 0.2, -0.4]), np.array([1.0, -0.5, 0.7])
    straight = facts(model("one", turn), q, v)
    for end in ("welded", "mark"):
        other = model(end, None)
        close(other.loop_predecessors.translation, model("one", turn).loop_predecessors.translation, 1e-15)
        found = facts(other, q, v) if end == "mark" else straight
        for one, two in zip(found, straight, strict=True):
            close(one, two, 1e-14)


@pytest.mark.spec("RBDA-8.7-ROUND")
def test_far_from_the_origin(rng):
    """A four-bar on a spacecraft: nothing it computes knows where it is; in the world's coordinates digits are lost."""
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    builder.body("hull", joint=dx.Free(), inertia=dx.SpatialInertia(100.0, (0, 0, 0), (40, 50, 60)))
    for name, parent, place in (("crank", "hull", at(0.5)), ("coupler", "crank", at(0.5)), ("rocker", "hull", at(1.5))):
        builder.body(name, parent=parent, joint=HINGE, placement=place, inertia=rod(0.5))
    builder.loop("close", predecessor="coupler", successor="rocker", joint=HINGE,
                 predecessor_placement=at(1.2), successor_placement=at(1.2))  # fmt: skip
    model = builder.build()
    q = np.asarray(dx.assemble(model, [0, 0, 0, 0.9, 0.1, -0.3, 0.2, 1.0, -0.4, 1.4]).q)
    far = q.copy()
    far[:3] += 1e6 * np.array([1.0, -2.0, 0.5])
    v = rng.normal(size=model.nv)
    near_facts, far_facts = (Facts for Facts in (facts(model, q, v), facts(model, far, v)))
    for one, two in zip(near_facts, far_facts, strict=True):
        close(two, one, 1e-13)
    tau = rng.normal(size=model.nv)
    close(solution(far_facts, tau)[0], solution(near_facts, tau)[0], 1e-10)

    def naive(q):
        """Where the two ends stand in the world, subtracted."""
        poses = dx.forward_kinematics(model, q)
        ends = [np.asarray(poses.translation[b] + poses.rotation[b] @ np.array([1.2, 0, 0])) for b in (2, 3)]
        return np.abs(ends[0] - ends[1]).max()

    assert np.abs(far_facts.phi).max() < 1e-13
    assert naive(q) < 1e-13
    # And so it grows with the distance; in any one place the two ends may be rounded alike.
    shifts = np.pad(1e6 * rng.normal(size=(8, 3)), ((0, 0), (0, len(q) - 3)))
    assert max(naive(q + shift) for shift in shifts) > 1e-11
