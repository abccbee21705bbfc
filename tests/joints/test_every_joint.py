"""What every joint type must satisfy, in either polarity.

Joints work on components, arrays of any shape, so all states of a joint are evaluated at once.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax.joints.base import body_velocity
from dynax.spatial import Mat3, Motion, Transform, Vec3, plucker

SEQUENCES = [a + b + c for a, b, c in itertools.product("xyz", repeat=3) if a != b and b != c]


def twisted_slide(q):
    """Two freedoms, a pose of which every column moves."""
    rotation = (plucker.rx(0.3 * q[1]) @ plucker.rz(q[0])).T
    return Transform(rotation, (jnp.sin(q[1]), q[0] * q[1], q[1]))


@dataclass(frozen=True, repr=False)
class Crank(dx.AbstractJoint):
    """A turn about z upon an arm that a motor turns about x: it has a freedom, and it depends on time."""

    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    rheonomic: ClassVar[bool] = True

    def pose(self, q, parameters, time):
        one, zero = jnp.ones_like(time), jnp.zeros_like(time)
        c, s = jnp.cos(time**2), jnp.sin(time**2)
        arm = Mat3(one, zero, zero, zero, c, -s, zero, s, c)
        return arm.rotate_z(jnp.cos(q[0]), jnp.sin(q[0])), Vec3(time, c, s)


def wave(time):
    return jnp.stack([jnp.sin(time), 0.5 * time**2])


FORWARD = [
    dx.Revolute((1, 2, 3)),
    dx.Prismatic((0, -1, 2)),
    dx.Helical((1, 0, 0), pitch=0.3),
    dx.Helical(pitch=0.0),
    dx.Cylindrical((1, 1, 0)),
    dx.Planar((1, 0, 2)),
    dx.Universal((0, 1, 0), (1, 0, 0)),
    dx.Spherical(),
    dx.Gimbal("zyx"),
    dx.Gimbal("zxz"),
    dx.Free(),
    dx.Translation(),
    dx.RackAndPinion(0.4, (0, 1, 0), (1, 0, 0)),
    dx.Rolling(0.4, (0, 0, 1), (1, 1, 0)),
    dx.RollingBall(0.4),
    dx.UserJoint(twisted_slide, 2),
    dx.Driven(dx.Universal(), wave),
    dx.Weld(),
    Crank(),
]
JOINTS = [*FORWARD, *(dx.Reversed(joint) for joint in FORWARD)]
GIMBALS = [dx.Gimbal(sequence) for sequence in SEQUENCES if sequence not in ("zyx", "zxz")]


def label(joint):
    return (
        f"Reversed-{label(joint.joint)}" if isinstance(joint, dx.Reversed) else getattr(joint, "sequence", repr(joint))
    )


every_joint = pytest.mark.parametrize("joint", JOINTS, ids=label)
moving_joint = pytest.mark.parametrize("joint", [j for j in JOINTS if j.nv], ids=label)


def parameters(joint):
    return tuple(np.float64(p) for p in joint.parameters)


def states(joint, rng, n=8):
    """Random configurations, velocities and times as components."""
    q = joint.normalize(tuple(jnp.asarray(x) for x in joint.sample(tuple(rng.uniform(-1, 1, size=(joint.nq, n))))))
    return q, tuple(jnp.asarray(rng.normal(size=(joint.nv, n)))), jnp.asarray(rng.uniform(0.5, 1.5, size=n))


def special_configurations(joint):
    """Neutral, and every coordinate at zero and at both ends of a turn (normalised where that means something)."""
    rows = [joint.neutral(), *([x] * joint.nq for x in (0.0, np.pi, -np.pi, np.pi / 2))]
    return joint.normalize(tuple(jnp.asarray(rows, float).T))


def dense(motion, n):
    return np.broadcast_to(motion.array, (n, 6))


def dense_columns(columns, n):
    return np.stack([dense(c, n) for c in columns], axis=-1) if columns else np.zeros((n, 6, 0))


def true_velocity(joint, q, v, t):
    """From the pose alone: its rate while the coordinates follow `v` and time runs."""
    p = parameters(joint)
    rate = joint.rate(q, v, p) if joint.nv else ()
    pose, rates = jax.jvp(lambda q, t: joint.pose(q, p, t), (q, t), (rate, jnp.ones_like(t)))
    return body_velocity(pose[0], *rates), rate


def null_space(s):
    """The constraint columns `T`, a basis of what is orthogonal to the columns."""
    return np.linalg.svd(s.swapaxes(-1, -2), full_matrices=True)[2].swapaxes(-1, -2)[..., s.shape[-1] :]


@pytest.mark.parametrize("joint", [*JOINTS, *GIMBALS], ids=label)
@pytest.mark.spec("J-ALL", "SOA-HINGE", "RBDA-4.4-JCALC", "RBDA-3.1-ALPHA", "RBDA-4.4-TIME", "ERR-13", "ERR-14")
def test_columns_and_bias_are_derivatives_of_the_pose(joint, rng):
    q, v, t = states(joint, rng)
    p, n = parameters(joint), len(t)
    motion = joint.motion(q, v, p, t)
    exact, rate = true_velocity(joint, q, v, t)
    velocity = dense(motion.velocity, n)
    np.testing.assert_allclose(velocity, exact.array, atol=1e-13)
    rotation, translation = joint.pose(q, p, t)
    pose = Transform(np.broadcast_to(rotation.array, (n, 3, 3)), np.broadcast_to(translation.array, (n, 3)))
    np.testing.assert_allclose(np.broadcast_to(motion.rotation.array, (n, 3, 3)), pose.rotation, atol=1e-14)
    np.testing.assert_allclose(np.broadcast_to(motion.translation.array, (n, 3)), pose.translation, atol=1e-14)
    assert len(motion.columns) == joint.nv
    for k, column in enumerate(motion.columns):  # S = d v_J / d alpha
        unit = tuple(v[j] + (j == k) for j in range(joint.nv))
        faster = joint.motion(q, unit, p, t).velocity
        np.testing.assert_allclose(dense(column, n), dense(faster, n) - velocity, atol=1e-13)
    if joint.nv:
        doubled = joint.rate(q, tuple(2 * x for x in v), p)  # q_dot is linear in alpha
        np.testing.assert_allclose(doubled, 2 * np.asarray(rate), atol=1e-13)
        own = joint.columns(q, p, t)
        np.testing.assert_allclose(dense_columns(own, n), dense_columns(motion.columns, n), atol=1e-14)

    def moving(q, t):
        return jnp.broadcast_to(joint.motion(q, v, p, t).velocity.array, (n, 6)) + 0.0 * t[:, None]

    rate_of_velocity = jax.jvp(moving, (q, t), (rate, jnp.ones(n)))[1]
    bias = 0.0 if motion.bias is None else dense(motion.bias, n)
    np.testing.assert_allclose(np.broadcast_to(bias, (n, 6)), rate_of_velocity, atol=1e-12)
    if joint.nv and not joint.rheonomic:
        alone = joint.bias(q, v, p, t)
        np.testing.assert_allclose(0.0 if alone is None else dense(alone, n), bias, atol=1e-13)
        total = sum(
            dense(c, n) * np.asarray(x)[:, None] for c, x in zip(joint.column_rates(q, v, p, t), v, strict=True)
        )
        np.testing.assert_allclose(total, np.broadcast_to(bias, (n, 6)), atol=1e-12)

    def transform(q, t):
        rotation, translation = joint.pose(q, p, t)
        shape = jnp.zeros(n)
        pose = jax.tree.map(lambda a: a + shape, (rotation, translation))
        return plucker.motion_matrix(Transform(pose[0].array, pose[1].array).inverse)

    x, x_dot = jax.jvp(transform, (q, t), (rate, jnp.ones(n)))
    np.testing.assert_allclose(x_dot, -plucker.crm(velocity) @ x, atol=1e-12)


@moving_joint
@pytest.mark.spec("RBDA-3.5-JOINT", "CONV-H", "RBDA-4.4-REVERSE")
def test_motion_and_force_subspaces(joint, rng):
    q, v, t = states(joint, rng)
    n, motion = len(t), joint.motion(q, v, parameters(joint), t)
    s, v_j, alpha = dense_columns(motion.columns, n), dense(motion.velocity, n), np.stack(v, -1)
    assert np.all(np.linalg.matrix_rank(s) == joint.nv)
    constraint, active = null_space(s), np.linalg.pinv(s).swapaxes(-1, -2)
    sigma = v_j - np.einsum("nij,nj->ni", s, alpha)
    tau, multipliers = rng.normal(size=(n, joint.nv)), rng.normal(size=(n, 6 - joint.nv))
    force = np.einsum("nij,nj->ni", active, tau) + np.einsum("nij,nj->ni", constraint, multipliers)
    np.testing.assert_allclose(
        active.swapaxes(-1, -2) @ s, np.broadcast_to(np.eye(joint.nv), (n, *[joint.nv] * 2)), atol=1e-12
    )
    np.testing.assert_allclose(constraint.swapaxes(-1, -2) @ s, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.einsum("nij,ni->nj", s, force), tau, atol=1e-11)
    np.testing.assert_allclose(np.einsum("nij,ni->nj", constraint, v_j - sigma), 0.0, atol=1e-12)
    power = np.sum(force * v_j, axis=1)
    np.testing.assert_allclose(power, np.sum(tau * alpha, axis=1) + np.sum(force * sigma, axis=1), atol=1e-11)
    if not joint.rheonomic:
        np.testing.assert_allclose(sigma, 0.0, atol=1e-13)


@every_joint
@pytest.mark.spec("RBDA-3.5-JACC")
def test_joint_acceleration(joint, rng):
    """`a_J = S qdd + c_J + v_s x v_J`, the true derivative of the joint velocity on a body that moves at `v_s`."""
    q, v, t = states(joint, rng)
    p, n = parameters(joint), len(t)
    a = tuple(jnp.asarray(rng.normal(size=(joint.nv, n))))
    v_s = Motion.from_array(rng.normal(size=(n, 6)))
    motion = joint.motion(q, v, p, t)
    rate = joint.rate(q, v, p) if joint.nv else ()

    def in_fixed_axes(q, v, t, clock):
        v_j = joint.motion(q, v, p, t).velocity
        v_j = Motion.from_array(jnp.broadcast_to(v_j.array, (n, 6)))
        return (Transform.exp(v_s * clock) @ v_j).array

    one = jnp.ones(n)
    a_j = jax.jvp(in_fixed_axes, (q, v, t, 0 * one), (rate, a, one, one))[1]
    c_j = np.zeros((n, 6)) if motion.bias is None else dense(motion.bias, n)
    cross = np.asarray(v_s.cross(Motion.from_array(dense(motion.velocity, n))).array)
    s = dense_columns(motion.columns, n)
    np.testing.assert_allclose(a_j, np.einsum("nij,jn->ni", s, np.reshape(a, (joint.nv, n))) + c_j + cross, atol=1e-12)
    if joint.nv:
        implicit = null_space(s).swapaxes(-1, -2)
        np.testing.assert_allclose(
            implicit @ np.asarray(a_j)[..., None], implicit @ (c_j + cross)[..., None], atol=1e-11
        )


@moving_joint
@pytest.mark.spec("SOA-HINGE")
def test_integrate_and_difference_are_inverse(joint, rng):
    q, v, _ = states(joint, rng, 12)
    p = parameters(joint)
    for scale in (1e-9, 0.5, 1.2):
        d = tuple(scale * x / np.maximum(1.0, np.max(np.abs(v), axis=0)) for x in v)
        reached = joint.integrate(q, d, p)
        np.testing.assert_allclose(joint.difference(q, reached), d, atol=1e-13)
        again = joint.integrate(q, joint.difference(q, reached), p)
        np.testing.assert_allclose(again, reached, atol=1e-13)
        np.testing.assert_allclose(joint.normalize(reached), reached, atol=1e-15)
    zero = tuple(0 * x for x in v)
    np.testing.assert_allclose(joint.integrate(q, zero, p), q, atol=1e-15)
    np.testing.assert_allclose(joint.difference(q, q), zero, atol=1e-15)


@pytest.mark.parametrize("joint", [*JOINTS, *GIMBALS, dx.SphereInCylinder((1, 0, 2))], ids=label)
@pytest.mark.spec("J-ALL")
def test_two_displacements_are_one_by_their_sum_where_they_add(joint, rng):
    """And only there: steppers make one of two by it."""
    p = parameters(joint)
    q, a, _ = states(joint, rng, 4)
    b = states(joint, rng, 4)[1]
    one = joint.integrate(q, tuple(x + y for x, y in zip(a, b, strict=True)), p)
    two = joint.integrate(joint.integrate(q, a, p), b, p)
    assert joint.adds == np.allclose(one, two, rtol=0, atol=1e-13)


@pytest.mark.parametrize("joint", [j for j in (*JOINTS, dx.SphereInCylinder((1, 0, 2))) if j.nv], ids=label)
@pytest.mark.spec("J-ALL")
def test_rates_and_tangents_are_the_derivatives_of_integrate_and_difference(joint, rng):
    p, special = parameters(joint), special_configurations(joint)
    q, v, _ = states(joint, rng, 5)
    still = tuple(0 * x for x in v)
    for at in (q, special):
        rate = joint.rate(at, v, p)
        np.testing.assert_allclose(
            rate, jax.jvp(lambda d, at=at: joint.integrate(at, d, p), (still,), (v,))[1], atol=1e-13
        )
        np.testing.assert_allclose(joint.tangent(at, rate), v, atol=1e-13)
        any_rate = tuple(jnp.asarray(rng.normal(size=(joint.nq, 5))))  # of the lengths of quaternions too
        slope = jax.jvp(lambda x, at=at: joint.difference(at, x), (at,), (any_rate,))[1]
        np.testing.assert_allclose(joint.tangent(at, any_rate), slope, atol=1e-13)
        single = jax.tree.map(lambda a: a.astype(jnp.float32), (at, v, rate, p))
        for found in (joint.rate(single[0], single[1], single[3]), joint.tangent(single[0], single[2])):
            assert jnp.result_type(*found, jnp.float32) == jnp.float32


@every_joint
@pytest.mark.spec("J-ALL")
def test_all_is_finite_at_zero_and_at_pi(joint, rng):
    half = special_configurations(joint)
    q, n = tuple(jnp.tile(x, 2) for x in half), 10
    v, t = jnp.asarray(rng.normal(size=(joint.nv, n))), jnp.zeros(n)
    rates = tuple(v.at[:, n // 2 :].set(0.0))  # moving, and at rest
    p = parameters(joint)

    def value(q, v, t):
        motion = joint.motion(q, v, p, t)
        moved = joint.integrate(q, v, p) if joint.nv else ()
        outputs = (motion, moved, joint.difference(q, moved) if joint.nv else ())
        return sum(jnp.sum(jnp.sin((k + 1.0) * leaf)) for k, leaf in enumerate(jax.tree.leaves(outputs)))

    first, second = jax.jvp(jax.grad(value, (0, 1, 2)), (q, rates, t), jax.tree.map(jnp.ones_like, (q, rates, t)))
    for leaf in jax.tree.leaves((value(q, rates, t), first, second)):
        assert np.all(np.isfinite(leaf))


@every_joint
def test_type_of_numbers_is_kept(joint, rng):
    exact_state = states(joint, rng)
    single = jax.tree.map(lambda a: a.astype(jnp.float32), (*exact_state, parameters(joint)))
    q, v, t, p = single
    outputs = joint.motion(q, v, p, t), joint.integrate(q, v, p) if joint.nv else (), joint.normalize(q)
    for leaf in jax.tree.leaves(outputs):
        assert jnp.result_type(leaf, jnp.float32) == jnp.float32, "a float64 constant has crept in"
    exact = joint.motion(exact_state[0], exact_state[1], parameters(joint), exact_state[2])
    for a, b in zip(jax.tree.leaves(outputs[0]), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.spec("J-ALL")
def test_one_program_for_all_joints(rng):
    """Compiled and mapped over states, every joint gives what it gives step by step."""
    inputs = [states(joint, rng, 3) for joint in FORWARD]

    def all_motions(inputs):
        motions = [j.motion(q, v, parameters(j), t) for j, (q, v, t) in zip(FORWARD, inputs, strict=True)]
        return [(m.rotation, m.translation, m.velocity) for m in motions]

    mapped = jax.jit(jax.vmap(all_motions))(inputs)
    for a, b in zip(jax.tree.leaves(mapped), jax.tree.leaves(all_motions(inputs)), strict=True):
        np.testing.assert_allclose(a, np.broadcast_to(b, np.shape(a)), atol=1e-13)


@moving_joint
def test_neutral_and_samples_are_valid(joint, rng):
    q, _, t = states(joint, rng, 50)
    np.testing.assert_allclose(joint.normalize(q), q, atol=1e-15)
    assert np.all(np.isfinite(q))
    rotation = joint.pose(q, parameters(joint), t)[0].array
    np.testing.assert_allclose(
        rotation @ rotation.swapaxes(-1, -2), np.broadcast_to(np.eye(3), rotation.shape), atol=1e-13
    )
    assert len(joint.neutral()) == joint.nq
    assert hash(joint) == hash(joint)
    assert joint.canonical == joint.canonical.canonical


@pytest.mark.parametrize("joint", FORWARD, ids=label)
def test_frames_are_rotations(joint):
    frame = joint.frame
    np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-15)
    assert np.linalg.det(frame) > 0
    axis = next((getattr(joint, name) for name in ("axis", "normal", "first") if hasattr(joint, name)), None)
    if axis is not None:
        np.testing.assert_allclose(frame[:, 2], axis, atol=1e-15)
    np.testing.assert_array_equal(dx.Reversed(joint).frame, frame)
