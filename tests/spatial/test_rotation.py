"""Rotations, poses and their exponentials, against jaxlie and against the matrix exponential."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest

from dynax.spatial import Motion, Quaternion, Rotation, Transform, Vec3, plucker

# Both sides of every place where a series takes over from a closed form, and the ends.
ANGLES = (0.0, 1e-300, 1e-12, 1e-8, 1e-5, 1e-4, 1.01e-4, 0.099, 0.101, 0.31, 0.32, 0.49, 0.51, 0.99, 1.01, 2.5, 3.1)
NEAR_PI = (np.pi - 1e-4, np.pi - 1e-9, np.pi)


def vectors(rng, angles=ANGLES):
    axes = rng.normal(size=(len(angles), 3))
    return axes / np.linalg.norm(axes, axis=1, keepdims=True) * np.array(angles)[:, None]


def twists(rng, angles=ANGLES):
    return np.concatenate([vectors(rng, angles), rng.normal(size=(len(angles), 3))], axis=1)


def as_jaxlie(pose):
    return jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.from_matrix(pose.rotation), pose.translation)


def homogeneous_exp(twist):
    w, v = twist[:3], twist[3:]
    x = jnp.zeros((4, 4)).at[:3, :3].set(plucker.skew(w)).at[:3, 3].set(v)
    terms = jax.lax.scan(lambda term, k: 2 * (term @ x / k,), jnp.eye(4), jnp.arange(1.0, 41.0))[1]
    return jnp.eye(4) + jnp.sum(terms, 0)


def pose_exp(twist):
    return Transform.exp(Motion.from_array(twist)).homogeneous


def test_rotations_agree_with_jaxlie(rng):
    v = vectors(rng, ANGLES + NEAR_PI)
    ours, theirs = Rotation.exp(v), jaxlie.SO3.exp(jnp.asarray(v))
    np.testing.assert_allclose(ours.matrix, theirs.as_matrix(), atol=1e-14)
    sign = jnp.where(theirs.wxyz[:, :1] < 0, -1, 1)
    np.testing.assert_allclose(ours.quaternion()[:-1], (sign * theirs.wxyz)[:-1], atol=1e-12)
    np.testing.assert_allclose(Rotation.from_quaternion(theirs.wxyz).matrix, ours.matrix, atol=1e-14)
    np.testing.assert_allclose((ours @ ours.inverse).matrix, np.broadcast_to(np.eye(3), (len(v), 3, 3)), atol=1e-14)
    np.testing.assert_allclose(Rotation.from_axis_angle(v[-1] / np.pi, np.pi).matrix, ours.matrix[-1], atol=1e-14)


def test_logarithms_undo_exponentials(rng):
    v = vectors(rng)
    np.testing.assert_allclose(Rotation.exp(v).log(), v, rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(jaxlie.SO3.from_matrix(Rotation.exp(v).matrix).log(), v, atol=1e-12)
    at_pi = vectors(rng, NEAR_PI)
    back = Rotation.exp(at_pi).log()
    np.testing.assert_allclose(Rotation.exp(back).matrix, Rotation.exp(at_pi).matrix, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(back, axis=1), NEAR_PI, atol=1e-14)
    both = Quaternion.from_array(np.stack([-Rotation.exp(v).quaternion(), Rotation.exp(v).quaternion()]))
    np.testing.assert_allclose(both.log().array, np.stack([v, v]), rtol=1e-13, atol=1e-16)


def test_poses_agree_with_jaxlie(rng):
    x = twists(rng, ANGLES + NEAR_PI)
    pose = Transform.exp(Motion.from_array(x))
    theirs = jaxlie.SE3.exp(jnp.asarray(np.concatenate([x[:, 3:], x[:, :3]], axis=1)))  # linear first
    np.testing.assert_allclose(pose.homogeneous, theirs.as_matrix(), atol=1e-13)
    np.testing.assert_allclose(pose.log().array[:-1], x[:-1], rtol=1e-6, atol=1e-13)
    np.testing.assert_allclose(Transform.exp(pose.log()).homogeneous, pose.homogeneous, atol=1e-13)
    log = as_jaxlie(pose).log()[: len(ANGLES)]
    np.testing.assert_allclose(np.concatenate([log[:, 3:], log[:, :3]], axis=1), x[: len(ANGLES)], atol=1e-11)
    other = Transform(pose.rotation[::-1], pose.translation[::-1])
    product = as_jaxlie(pose) @ as_jaxlie(other)
    np.testing.assert_allclose((pose @ other).homogeneous, product.as_matrix(), atol=1e-13)
    np.testing.assert_allclose(pose.inverse.homogeneous, as_jaxlie(pose).inverse().as_matrix(), atol=1e-13)
    np.testing.assert_allclose(pose.inverse_apply(other).homogeneous, (pose.inverse @ other).homogeneous, atol=1e-13)
    np.testing.assert_allclose(pose @ x[:, :3], as_jaxlie(pose).apply(jnp.asarray(x[:, :3])), atol=1e-13)
    np.testing.assert_allclose(pose.inverse_apply(pose @ x[:, :3]), x[:, :3], atol=1e-13)


def derivatives(f, x, directions):
    """First and second derivatives of `f` at each row of `x`, along the rows of `directions` (two per row)."""

    def along(f, d):
        return lambda x: jax.jvp(f, (x,), (d,))[1]

    both = jax.jit(jax.vmap(lambda x, a, b: (along(f, a)(x), along(along(f, a), b)(x))))
    return both(x, directions[0], directions[1])


def test_first_and_second_derivatives_of_the_exponential(rng):
    """At zero and on both sides of every branch they are those of the matrix exponential."""
    x = np.repeat(twists(rng), 4, axis=0)
    directions = rng.normal(size=(2, *x.shape))
    ours, exact = (derivatives(f, x, directions) for f in (pose_exp, homogeneous_exp))
    np.testing.assert_allclose(ours[0], exact[0], atol=2e-12)
    np.testing.assert_allclose(ours[1], exact[1], atol=2e-11)


def test_derivatives_of_the_logarithm(rng):
    """`log(exp(x)) = x`: the first derivative is one and the second zero, at zero too; all finite at pi."""

    def round_trip(x):
        return Transform.exp(Motion.from_array(x)).log().array

    x = np.repeat(twists(rng, ANGLES + NEAR_PI), 4, axis=0)
    directions = rng.normal(size=(2, *x.shape))
    first, second = derivatives(round_trip, x, directions)
    assert np.all(np.isfinite(first))
    assert np.all(np.isfinite(second))
    away = slice(0, 4 * len(ANGLES))
    np.testing.assert_allclose(first[away], directions[0][away], atol=1e-9)
    np.testing.assert_allclose(second[away], 0.0, atol=1e-6)


def test_reverse_mode_is_finite(rng):
    weights = rng.normal(size=6)

    def value(x):
        pose = Transform.exp(Motion.from_array(x))
        return pose.log().array @ weights

    gradients = jax.jit(jax.vmap(jax.grad(value)))(twists(rng, ANGLES + NEAR_PI))
    assert np.all(np.isfinite(gradients))
    np.testing.assert_allclose(gradients[: len(ANGLES)], np.broadcast_to(weights, (len(ANGLES), 6)), atol=1e-9)


def test_half_turns():
    """Each of the four ways to read a quaternion off a matrix, where w vanishes."""
    axes = np.concatenate([np.eye(3), -np.eye(3), [[1, 1, 0], [0, -1, 1], [1, 1, 1]]])
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    r = Rotation.exp(np.pi * axes)
    exact = 2 * axes[:, :, None] * axes[:, None, :] - np.eye(3)
    np.testing.assert_allclose(np.abs(np.sum(r.quaternion()[:, 1:] * axes, axis=1)), 1.0, atol=1e-15)
    np.testing.assert_allclose(Rotation.from_quaternion(r.quaternion()).matrix, exact, atol=1e-15)
    assert np.all(np.isfinite(jax.vmap(jax.jacfwd(lambda m: Rotation(m).log()))(r.matrix)))


def test_roll_pitch_yaw(rng):
    roll, pitch, yaw = rng.uniform(-3, 3, size=(3, 10))
    expected = (plucker.rx(roll) @ plucker.ry(pitch) @ plucker.rz(yaw)).swapaxes(-1, -2)
    np.testing.assert_allclose(Rotation.from_rpy(roll, pitch, yaw).matrix, expected, atol=1e-15)


def test_normalising():
    q = Quaternion.from_array([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]]).normalized().array
    np.testing.assert_allclose(q[0], [1, 0, 0, 0])
    np.testing.assert_allclose(q[1], [1, 0, 0, 0])  # a zero quaternion is no rotation
    np.testing.assert_allclose(np.linalg.norm(q[2]), 1.0)
    gradient = jax.jacfwd(lambda q: Quaternion.from_array(q).normalized().array)
    assert np.all(np.isfinite(gradient(jnp.zeros(4))))
    np.testing.assert_allclose(gradient(q[2]), np.eye(4) - np.outer(q[2], q[2]), atol=1e-15)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_type_of_numbers_is_kept(rng, dtype):
    x = twists(rng)
    pose = jax.jit(lambda x: Transform.exp(Motion.from_array(x)))(x.astype(dtype))
    back = pose.log().array
    assert pose.rotation.dtype == pose.translation.dtype == back.dtype == pose.homogeneous.dtype == dtype
    near = 100 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(back, x, atol=near)
    np.testing.assert_allclose(pose.homogeneous, pose_exp(x), atol=near)


def test_poses_take_lists_and_tracers():
    def translation(x):
        return Transform(Rotation.identity(), (x, 0.0, 2 * x)).translation

    np.testing.assert_allclose(translation(1.0), [1, 0, 2])
    np.testing.assert_allclose(jax.jit(translation)(1.0), [1, 0, 2])
    np.testing.assert_allclose(jax.jacfwd(translation)(1.0), [1, 0, 2])
    batched = jax.vmap(Transform.from_translation)(jnp.ones((5, 3)))
    assert batched.translation.shape == (5, 3)


def test_poses_refuse_what_has_no_frame():
    for wrong in (Vec3(1.0, 2.0, 3.0), None, "x", Rotation.identity()):
        with pytest.raises(TypeError, match="cannot move"):
            Transform.identity() @ wrong
    with pytest.raises(TypeError, match="cannot turn"):
        Rotation.identity() @ Transform.identity()
