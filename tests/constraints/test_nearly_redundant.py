"""Conditions that repeat each other in about: tilted hinges, poses off the loops, overconstrained rings that roll."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.mechanisms import HINGE, at, bricard, four_bar, rod

import dynax as dx
from dynax.constraints.dynamics import METHODS, settled
from dynax.constraints.mobility import mobility
from dynax.constraints.sparse_system import sparse_constrained_dynamics

LENGTHS = (0.5, 1.2, 1.2, 1.0)


def tilted(angle: float) -> dx.Model:
    """A four-bar whose coupler hinge stands out of line, as in a file of few digits."""
    a, b, c, g = LENGTHS
    turned = dx.Transform(np.asarray(dx.Rotation.from_axis_angle((0.3, 1.0, 0.0), angle).matrix), np.array([a, 0, 0]))
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    builder.body("crank", joint=HINGE, inertia=rod(a))
    builder.body("coupler", parent="crank", joint=HINGE, placement=turned, inertia=rod(b, 1.5))
    builder.body("rocker", joint=HINGE, placement=at(g), inertia=rod(c, 0.7))
    builder.loop("close", predecessor="coupler", successor="rocker", joint=HINGE,
                 predecessor_placement=at(b), successor_placement=at(c))  # fmt: skip
    return builder.build()


@jax.jit
def motions(model, guess):
    q = dx.assemble(model, guess, hold=["crank_joint"]).q
    v = dx.admissible_velocity(model, q, jnp.array([2.0, 0.0, 0.0]), hold=["crank_joint"])
    tau = jnp.array([1.0, -0.5, 0.2])
    found = [dx.constrained_dynamics(model, q, v, tau, method=method) for method in METHODS]
    moved = settled(model, q + jnp.array([0.0, 1e-4, -2e-4]), v)
    ranks = jnp.stack([mobility(model, q).rank, *(x.rank for x in found)])
    return v, jnp.stack([x.a for x in found]), ranks, jnp.stack([x.gap for x in found]), jnp.concatenate(moved)


def test_a_hinge_out_of_line_by_less_than_files_tell():
    """It moves as the planar one, by every method; the gap tells how clear that is."""
    guess = four_bar(LENGTHS).q
    v, a, ranks, gap, moved = motions(tilted(0.0), guess)
    assert v[0] == pytest.approx(2.0, abs=1e-12)
    assert ranks.tolist() == [2] * 5
    assert np.abs(a).max() > 1.0
    for angle in (1e-9, 4e-6):
        near = motions(tilted(angle), guess)
        assert near[2].tolist() == [2] * 5
        np.testing.assert_allclose(near[0], v, atol=50 * angle)
        np.testing.assert_allclose(near[1], a, atol=1e3 * angle)
        np.testing.assert_allclose(near[4], moved, atol=50 * angle)
        assert 0.02 < near[3][0] * angle < 10.0
        assert dx.embed(tilted(angle), guess, independent=["crank_joint"]).independent_joints == ("crank_joint",)
    clear = motions(tilted(0.1), guess)
    assert clear[2].min() == 3  # it is a structure
    assert gap.min() > 1e6


def fall(stepper: str) -> tuple[np.ndarray, np.ndarray]:
    ring = bricard()
    model, q = ring.model, jnp.asarray(ring.q)
    energy = jax.vmap(lambda q, v: dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q))

    @jax.jit
    def run(q):
        found = dx.rollout(model, q, jnp.zeros(5), jnp.zeros((1000, 5)), 1e-3, stepper=stepper)
        return found.q, energy(found.q, found.v)

    return tuple(np.asarray(x) for x in run(q))


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("stepper", "far"), [("semi_implicit", 2e-2), ("rk4", 1e-6)])
def test_bricards_ring_rolls(stepper, far):
    """In steps of 1 ms, off its loops at every stage by the step's error: to where it stands after a second."""
    ring = bricard()
    q, energy = fall(stepper)
    place = dx.frame_pose(ring.model, q[1000], "P3").translation
    np.testing.assert_allclose(place, [0.51050146, -1.6491676, 0.14012311], atol=far)
    assert np.abs(energy - energy[0]).max() < 10 * far * 5 * 9.81


def test_the_sparse_system_says_what_it_cannot_do():
    ring = bricard()
    still = np.zeros(5)
    assert sparse_constrained_dynamics(ring.model, ring.q, still, still).redundant == 1
    loose = four_bar(LENGTHS, joint=dx.SphereInCylinder((0.0, 0.0, 1.0)))
    still = np.zeros(3)
    assert sparse_constrained_dynamics(loose.model, loose.q, still, still).redundant == 0


def test_open_loops_do_not_snap_shut():
    """What a projection would move by more than any step drifts is not a number; a held rate is kept."""
    mechanism = four_bar(LENGTHS)
    model, q = mechanism.model, jnp.asarray(mechanism.q)
    step = jax.jit(lambda q: dx.step(model, q, jnp.zeros(3), jnp.zeros(3), 1e-3))
    assert np.isfinite(step(q)[0]).all()
    assert np.isnan(step(q.at[2].add(0.5))[0]).any()
