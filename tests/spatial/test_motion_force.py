"""Motions and forces as types: fields, power, chains, accelerations (sections 2.2, 2.3, 2.6, 2.7, 2.11, A.3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.spatial import (
    Force,
    Motion,
    RigidInertia,
    Rotation,
    Screw,
    Sym3,
    Transform,
    Vec3,
    classical_acceleration,
    plucker,
    screw_decomposition,
    spatial_acceleration,
)
from dynax.spatial.column import ScrewColumn


def close(a, b, tolerance=1e-13):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def random_pose(rng, *batch):
    return Transform(Rotation.exp(rng.normal(size=(*batch, 3))), rng.normal(size=(*batch, 3)))


@pytest.mark.spec("RBDA-2.2-VEL")
def test_velocity_field(rng):
    v, u = (Motion.from_array(x) for x in rng.normal(size=(2, 6)))
    (x, y, z), (ox, oy, oz) = v.angular.array, v.linear.array
    r = rng.normal()
    at_p = v.shift(Vec3(r, 0.0, 0.0))
    close(at_p.linear.array, [ox, oy + z * r, oz - y * r])  # example 2.2
    close(at_p.angular.array, [x, y, z])
    point = Vec3(*rng.normal(size=3))
    close(v.shift(point).linear.array, v.linear.array + np.cross(v.angular.array, point.array))
    close(at_p.shift(point - Vec3(r, 0.0, 0.0)).array, v.shift(point).array)  # whatever the origin
    close((v + u).shift(point).array, (v.shift(point) + u.shift(point)).array)
    # The same as a change of basis: the coordinates shift so that d_Py = d_Oy + r d_z and d_Pz = d_Oz - r d_y.
    to_p = plucker.xlt(np.array([r, 0.0, 0.0]))
    basis = np.linalg.inv(to_p)  # columns: P's basis vectors in O's
    d = np.eye(6)
    close(basis[:, 1], d[1] + r * d[5])
    close(basis[:, 2], d[2] - r * d[4])


@pytest.mark.spec("RBDA-2.3-FORCE")
def test_moment_field(rng):
    f = Force.from_array(rng.normal(size=6))
    p, q = Vec3(*rng.normal(size=3)), Vec3(*rng.normal(size=3))
    close(f.shift(p).angular.array, f.angular.array + np.cross(f.linear.array, p.array))
    close(f.shift(p).shift(q).array, f.shift(p + q).array)
    close(f.shift(p).shift_to_parent(p).array, f.array)
    v = Motion.from_array(rng.normal(size=6))
    close(v.shift(p).dot(f.shift(p)), v.dot(f))


@pytest.mark.spec("RBDA-2.6-POWER", "RBDA-2.1-DUAL")
def test_power(rng):
    m, f = Motion.from_array(rng.normal(size=(9, 6))), Force.from_array(rng.normal(size=(9, 6)))
    pose = random_pose(rng, 9)
    power = np.sum(m.angular.array * f.angular.array + m.linear.array * f.linear.array, axis=1)
    close(m.dot(f), power)
    close(f.dot(m), power)
    close((pose @ m).dot(pose @ f), power)
    close((m * 2.0).dot(3.0 * f), 6.0 * power)
    close(-(m / 2.0).dot(-f) + m.dot(f - f), power / 2)


@pytest.mark.spec("RBDA-A.3-TYPES", "RBDA-2.1-DUAL")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda m, f, i: m + f,
        lambda m, f, i: f + m,
        lambda m, f, i: m - f,
        lambda m, f, i: m + m.array,
        lambda m, f, i: f.array + f,
        lambda m, f, i: m.dot(m),
        lambda m, f, i: f.dot(f),
        lambda m, f, i: m * m,
        lambda m, f, i: m * f,
        lambda m, f, i: f.cross(f),
        lambda m, f, i: f.cross(m),
        lambda m, f, i: m.cross(i),
        lambda m, f, i: i @ f,
        lambda m, f, i: i.articulated() @ f,
        lambda m, f, i: i @ m.array,
        lambda m, f, i: i + m,
        lambda m, f, i: i.articulated() + f,
        lambda m, f, i: jax.lax.cond(True, lambda: m, lambda: f),  # a motion where a force is due
        lambda m, f, i: jax.lax.fori_loop(0, 2, lambda _, x: m, f),
    ],
)
def test_what_has_no_meaning_is_refused_while_tracing(wrong):
    """Not when it runs: `eval_shape` traces and never computes."""
    m, f = Motion.from_array(jnp.ones(6)), Force.from_array(jnp.ones(6))
    inertia = RigidInertia.from_parameters(jnp.ones(10))
    with pytest.raises(TypeError):
        jax.eval_shape(jax.jit(wrong), m, f, inertia)


@pytest.mark.spec("RBDA-A.3-TYPES")
def test_the_transform_of_a_force_is_not_offered_to_motions():
    """`X* m` cannot be written: a pose picks the rule by type, and only forces know the dual shift."""
    m = Motion.from_array(jnp.ones(6))
    assert isinstance(Transform.identity() @ m, Motion)
    assert not hasattr(m, "shift_to_parent")


def test_arrays_scale_from_either_side(rng):
    m, scale = Motion.from_array(rng.normal(size=(4, 6))), rng.normal(size=4)
    for product in (m * scale, scale * m, jnp.asarray(scale) * m):
        assert isinstance(product, Motion)
        close(product.array, scale[:, None] * m.array)
    assert isinstance(scale * m.angular, Vec3)
    with pytest.raises(ValueError, match="6 entries"):
        Motion.from_array(np.zeros(3))


@pytest.mark.spec("RBDA-2.11-ACC")
def test_spatial_and_classical_acceleration(rng):
    a, v = (Motion.from_array(x) for x in rng.normal(size=(2, 6)))
    close(spatial_acceleration(classical_acceleration(a, v), v).array, a.array)
    r_dot = v.linear
    correction = Motion(Vec3.zero(), r_dot).cross(v)  # a = a' + [0; r_dot] x v, eq. 2.50
    close((classical_acceleration(a, v) + correction).array, a.array)
    # The motion of a point of the body: a' is the derivative of its velocity.
    point = rng.normal(size=3)

    def velocity(t):
        pose = Transform.exp(v * t)
        now = v + a * t  # in fixed axes at the fixed origin
        here = pose @ point
        return now.angular.array, now.linear.array + jnp.cross(now.angular.array, here)

    angular, linear = jax.jvp(velocity, (0.0,), (1.0,))[1]
    at = Vec3(*point)
    close(classical_acceleration(a.shift(at), v.shift(at)).array, [*angular, *linear])


@pytest.mark.spec("RBDA-2.11-ACC")
def test_an_even_wheel_does_not_accelerate(rng):
    """Its spatial acceleration is zero, while an accelerometer on its rim reads `-omega^2 r`."""
    omega, radius = 3.0, 0.5
    v = Motion.from_array([0, 0, omega, 0, 0, 0])

    def velocity(t):  # seen from fixed axes through a frame that turns with the wheel
        turning = Transform.exp(v * t)
        return (turning @ v).array

    close(jax.jvp(velocity, (0.7,), (1.0,))[1], 0.0)
    rim = Vec3(radius, 0.0, 0.0)
    still = Motion.from_array(np.zeros(6))
    close(classical_acceleration(still.shift(rim), v.shift(rim)).array, [0, 0, 0, -(omega**2) * radius, 0, 0])


@pytest.mark.spec("RBDA-2.7-CHAINJ", "RBDA-2.11-ACCADD", "ERR-11")
def test_velocity_and_acceleration_of_a_chain(rng):
    """Recursion, sum and Jacobian agree with the derivative of the pose (examples 2.3 and 2.5)."""
    n = 3
    home = Motion.from_array(rng.normal(size=(n, 6)))  # the joint screws of the chain at zero, in base axes
    q, qd, qdd = rng.normal(size=(3, n))

    def poses(q):
        pose, out = Transform.identity(), []
        for k in range(n):
            pose = pose @ Transform.exp(jax.tree.map(lambda a, k=k: a[k] * q[k], home))
            out.append(pose)
        return out

    def jacobians(q):
        """`J_i = [s_1 .. s_i 0 ..]`, all in base coordinates."""
        before = [Transform.identity(), *poses(q)[:-1]]
        s = [(pose @ jax.tree.map(lambda a, k=k: a[k], home)).array for k, pose in enumerate(before)]
        return jnp.stack([jnp.stack(s[: i + 1] + [jnp.zeros(6)] * (n - 1 - i), axis=1) for i in range(n)])

    def all_poses(q):
        return jnp.stack([p.homogeneous for p in poses(q)])

    @jax.jit
    def everything(q):
        return all_poses(q), jax.jacfwd(all_poses)(q), jacobians(q), jax.jvp(jacobians, (q,), (qd,))[1]

    pose, slope, j, j_dot = everything(q)
    s = [np.asarray(j[-1, :, k]) for k in range(n)]
    v, a = np.zeros(6), np.zeros(6)
    for i in range(n):
        v = v + s[i] * qd[i]
        a = a + s[i] * qdd[i] + plucker.crm(v) @ s[i] * qd[i]
        close(v, sum(s[k] * qd[k] for k in range(i + 1)))
        close(v, j[i] @ qd)
        double_sum = sum(plucker.crm(s[k]) @ s[m] * qd[k] * qd[m] for m in range(i + 1) for k in range(m))
        close(a, j[i] @ qdd + double_sum, 1e-11)  # eq. 2.56
        close(a, j[i] @ qdd + j_dot[i] @ qd, 1e-11)
        pose_rate = np.einsum("abk,k->ab", slope[i], qd)
        close(pose_rate[:3, :3], plucker.skew(v[:3]) @ pose[i, :3, :3], 1e-11)
        close(pose_rate[:3, 3], v[3:] + np.cross(v[:3], pose[i, :3, 3]), 1e-11)  # the velocity of the frame's origin
        rate = pose_rate @ np.linalg.inv(pose[i])  # v's field as a 4x4 matrix
        close(rate[:3, :3], plucker.skew(v[:3]), 1e-11)
        close(rate[:3, 3], v[3:], 1e-11)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_type_of_numbers_is_kept(rng, dtype):
    m, f = (kind.from_array(rng.normal(size=6).astype(dtype)) for kind in (Motion, Force))
    inertia = RigidInertia.from_com(jnp.asarray(2, dtype), Vec3.from_array(m.array[:3]), Sym3.diagonal(*m.array[:3]))
    pose = Transform.exp(m)
    for x in (pose @ m, pose @ f, inertia @ m, m.cross(f), (pose @ inertia), pose.inverse_apply(inertia.articulated())):
        assert {leaf.dtype for leaf in jax.tree.leaves(x)} == {jnp.dtype(dtype)}


def test_no_two_types_pass_for_each_other_in_loops_and_caches(rng):
    values = [Motion.zero(), Force.zero(), screw_decomposition(Motion.zero()), Transform.identity()]
    values += [RigidInertia.from_parameters(np.ones(10)), RigidInertia.from_parameters(np.ones(10)).articulated()]
    values += [ScrewColumn(Vec3.zero(), 1.0, 0.0), Screw(*range(3), *range(3))]
    structures = [jax.tree.structure(value) for value in values]
    for i, a in enumerate(structures):
        assert [a == b for b in structures] == [i == j for j in range(len(structures))]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(Motion.zero())]
    assert paths[0] == ".angular.x"
