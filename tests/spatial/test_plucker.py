"""Dense spatial algebra: cross products, transforms and the identities of tables 2.1, 2.2, 2.3 and A.2."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from dynax.spatial import Force, Motion, Rotation, Transform
from dynax.spatial.plucker import (
    crf,
    crm,
    dual,
    dyad,
    force_matrix,
    mcI,
    motion_matrix,
    pose_of,
    rot,
    rotx,
    roty,
    rotz,
    rx,
    ry,
    rz,
    skew,
    swap_blocks,
    swap_halves,
    xlt,
    xtov,
)


def close(a, b, tolerance=1e-13):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def random_pose(rng, *batch):
    return Transform(Rotation.exp(rng.normal(size=(*batch, 3))), rng.normal(size=(*batch, 3)))


@pytest.mark.spec("RBDA-2.8-SKEW")
def test_cross_matrix(rng):
    """Table 2.1."""
    a, b, s = rng.normal(size=3), rng.normal(size=3), rng.normal()
    e = np.asarray(Rotation.exp(rng.normal(size=3)).matrix)
    x = skew(a)
    close(x @ b, np.cross(a, b))
    close(x.T, -x)
    close(skew(a + b), x + skew(b))
    close(skew(s * a), s * x)
    close(x @ b, -skew(b) @ a)
    close(skew(e @ a), e @ x @ e.T)
    close(b @ x, np.cross(b, a))  # b' (a x) = (b x a)'
    close(skew(np.cross(a, b)), x @ skew(b) - skew(b) @ x)
    close(skew(np.cross(a, b)), np.outer(b, a) - np.outer(a, b))
    close(x @ skew(b), np.outer(b, a) - (a @ b) * np.eye(3))


@pytest.mark.spec("RBDA-2.8-FUNCS")
def test_coordinate_rotations(rng):
    a, b = rng.uniform(-3, 3, size=2)
    c, s = np.cos(a), np.sin(a)
    close(rx(a), [[1, 0, 0], [0, c, s], [0, -s, c]])
    close(ry(a), [[c, 0, -s], [0, 1, 0], [s, 0, c]])
    close(rz(a), [[c, s, 0], [-s, c, 0], [0, 0, 1]])
    close(rz(np.pi / 2) @ np.array([1, 0, 0]), [0, -1, 0])  # seen from a frame turned a quarter about z
    for three, six in ((rx, rotx), (ry, roty), (rz, rotz)):
        close(three(a) @ three(b), three(a + b))
        close(six(a), np.kron(np.eye(2), three(a)))
        close(dual(six(a)), six(a))  # X* = X for pure rotation
    r = rng.normal(size=3)
    close(xlt(r), np.block([[np.eye(3), np.zeros((3, 3))], [-skew(r), np.eye(3)]]))


@pytest.mark.spec("RBDA-2.8-XFORM", "RBDA-2.1-DUAL")
def test_transforms(rng):
    """The book's `B_X_A`, with `pose` that of B in A: eqs. 2.19 to 2.27."""
    pose, then = random_pose(rng), random_pose(rng)
    e, r = np.asarray(pose.rotation).T, pose.translation
    x = motion_matrix(pose.inverse)
    zero = np.zeros((3, 3))
    close(x, np.block([[e, zero], [-e @ skew(r), e]]))
    close(x, rot(e) @ xlt(r))  # the translation comes first
    close(dual(x), np.block([[e, -e @ skew(r)], [zero, e]]))
    close(motion_matrix(pose), np.block([[e.T, zero], [skew(r) @ e.T, e.T]]))
    close(force_matrix(pose), np.block([[e.T, skew(r) @ e.T], [zero, e.T]]))
    close(x @ motion_matrix(pose), np.eye(6))
    close(dual(x), np.linalg.inv(x).T)
    close(dual(x) @ x.T, np.eye(6))
    close(dual(dual(x)), x)
    close(motion_matrix(pose @ then), motion_matrix(pose) @ motion_matrix(then))
    m, f = Motion.from_array(rng.normal(size=6)), Force.from_array(rng.normal(size=6))
    close((pose @ m).array, motion_matrix(pose) @ m.array)
    close((pose @ f).array, force_matrix(pose) @ f.array)
    close(pose.inverse_apply(m).array, x @ m.array)
    close(pose.inverse_apply(f).array, dual(x) @ f.array)
    close((x @ m.array) @ (dual(x) @ f.array), m.dot(f))


@pytest.mark.spec("RBDA-2.8-HOM")
def test_homogeneous_counterpart(rng):
    pose = random_pose(rng, 4)
    e, r = pose.rotation.swapaxes(-1, -2), pose.translation
    close(pose.inverse.homogeneous[:, :3], np.concatenate([e, -e @ r[..., None]], axis=-1))
    point = rng.normal(size=(4, 3))
    moved = pose.inverse.homogeneous @ np.concatenate([point, np.ones((4, 1))], axis=1)[..., None]
    close(moved[:, :3, 0], pose.inverse_apply(point))
    close(moved[:, 3, 0], 1.0)
    for back in (Transform.from_homogeneous(pose.homogeneous), pose_of(motion_matrix(pose))):
        close(back.rotation, pose.rotation)
        close(back.translation, pose.translation)


@pytest.mark.spec("RBDA-2.9-CRM", "CONV-6")
def test_spatial_cross_operators(rng):
    """Table 2.3, eqs. 2.29 to 2.34, and the table of products of the basis vectors."""
    u, v, f = rng.normal(size=(3, 6))
    w, o, zero = v[:3], v[3:], np.zeros((3, 3))
    x = motion_matrix(random_pose(rng))
    close(crm(v), np.block([[skew(w), zero], [skew(o), skew(w)]]))
    close(crf(v), np.block([[skew(w), skew(o)], [zero, skew(w)]]))
    close(crf(v), -crm(v).T)
    close(crm(v) @ v, 0)
    close(v @ crf(v), 0)
    close(crm(u) @ v, -crm(v) @ u)
    close(crm(2 * u), 2 * crm(u))
    close(crm(u + v), crm(u) + crm(v))
    close(crm(crm(u) @ v), crm(u) @ crm(v) - crm(v) @ crm(u))
    close(crf(crm(u) @ v), crf(u) @ crf(v) - crf(v) @ crf(u))
    close(crm(x @ v), x @ crm(v) @ np.linalg.inv(x))
    close(crf(x @ v), dual(x) @ crf(v) @ np.linalg.inv(dual(x)))
    close((crm(u) @ v) @ f, -v @ (crf(u) @ f))
    d = np.eye(6)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        close(crm(d[i]) @ d[j], d[k])  # d_Ox x d_Oy = d_Oz
        close(crm(d[3 + i]) @ d[j], d[3 + k])  # d_x x d_Oy = d_z
        close(crm(d[3 + i]) @ d[3 + j], 0)
        close(crf(d[i]) @ d[j], d[k])
        close(crf(d[3 + i]) @ d[3 + j], d[k])  # a force moved along a direction gains a couple
        close(crf(d[3 + i]) @ d[j], 0)
    m, g = Motion.from_array(u), Force.from_array(f)
    close(Motion.from_array(v).cross(m).array, crm(v) @ u)
    close(Motion.from_array(v).cross(g).array, crf(v) @ f)


@pytest.mark.spec("RBDA-2.9-CRM")
def test_transform_of_a_steady_motion_is_an_exponential(rng):
    v = rng.normal(size=6)
    close(scipy.linalg.expm(-0.7 * crm(v)), motion_matrix(Transform.exp(Motion.from_array(0.7 * v)).inverse))


@pytest.mark.spec("CONV-PHI")
def test_rigid_shift_operator(rng):
    """`phi(x, y)` moves forces from y to x, its transpose velocities from x to y; `l(x, y)` leads from x to y."""
    x, y, z = rng.normal(size=(3, 3))

    def phi(a, b):
        return force_matrix(Transform.from_translation(b - a))

    close(phi(x, y), np.block([[np.eye(3), skew(y - x)], [np.zeros((3, 3)), np.eye(3)]]), 1e-14)
    close(phi(x, x), np.eye(6), 1e-14)
    close(phi(x, z), phi(x, y) @ phi(y, z), 1e-14)
    close(phi(x, y) @ phi(y, x), np.eye(6), 1e-14)
    m, f = Motion.from_array(rng.normal(size=6)), Force.from_array(rng.normal(size=6))
    offset = Transform.from_translation(y - x)._p
    close(f.shift_to_parent(offset).array, phi(x, y) @ f.array, 1e-14)
    close(m.shift(offset).array, phi(x, y).T @ m.array, 1e-14)
    # Components in axes of their own: multiplied by diag(R, R), the rotation from y's axes to x's.
    pose = Transform(Rotation.exp(x), y)
    close(force_matrix(pose), phi(np.zeros(3), y) @ rot(pose.rotation), 1e-14)


@pytest.mark.spec("RBDA-2.1-DYAD")
def test_dyads(rng):
    """A sum of r dyads has rank r, and each takes c to a (b . c)."""
    a = Motion.from_array(rng.normal(size=(4, 6)))
    b = Force.from_array(rng.normal(size=(4, 6)))
    c = rng.normal(size=6)
    dyads = dyad(a, b)
    close(dyads @ c, a.array * (b.array @ c)[:, None])
    for rank in range(1, 5):
        assert np.linalg.matrix_rank(dyads[:rank].sum(axis=0)) == rank


@pytest.mark.spec("RBDA-2.4-ORDER")
def test_the_other_order(rng):
    """Converting to linear-first is an involution that commutes with every map."""
    v, f = rng.normal(size=(2, 6))
    maps = [motion_matrix(random_pose(rng)), crm(v), mcI(2.0, rng.normal(size=3), np.diag([1.0, 2.0, 2.5]))]
    close(swap_halves(v), [*v[3:], *v[:3]])
    close(swap_halves(swap_halves(v)), v)
    for a in maps:
        close(swap_blocks(swap_blocks(a)), a)
        close(swap_blocks(a) @ swap_halves(v), swap_halves(a @ v))
    close(swap_halves(v) @ swap_halves(f), v @ f)


@pytest.mark.spec("RBDA-2.10-DIFF")
def test_differentiation_in_moving_coordinates(rng):
    """Of vectors fixed in a frame that moves at `v`, and of vectors that change in it: eqs. 2.35 to 2.44."""
    pose, v, a, rate = random_pose(rng), *(Motion.from_array(x) for x in rng.normal(size=(3, 6)))
    b, force_rate = (Force.from_array(x) for x in rng.normal(size=(2, 6)))

    def moved(t):
        now = Transform.exp(v * t) @ pose
        u = Rotation(now.rotation) @ (a.angular + rate.angular * t).array
        return (now @ (a + rate * t)).array, (now @ (b + force_rate * t)).array, u

    motion, force, vector = jax.jvp(moved, (0.0,), (1.0,))[1]
    close(motion, ((pose @ rate) + v.cross(pose @ a)).array)
    close(force, ((pose @ force_rate) + v.cross(pose @ b)).array)
    e = pose.rotation
    close(vector, e @ rate.angular.array + np.cross(v.angular.array, e @ a.angular.array))


@pytest.mark.spec("RBDA-2.10-XDOT")
def test_rate_of_a_transform(rng):
    """d/dt B_X_A = B(v_A - v_B) x B_X_A, both frames moving."""
    a, b = random_pose(rng), random_pose(rng)
    va, vb = (Motion.from_array(x) for x in rng.normal(size=(2, 6)))

    def transform(t):
        now_a, now_b = Transform.exp(va * t) @ a, Transform.exp(vb * t) @ b
        return motion_matrix(now_b.inverse_apply(now_a))

    x, rate = jax.jvp(transform, (0.0,), (1.0,))
    close(rate, crm(b.inverse_apply(va - vb).array) @ x, 1e-12)


@pytest.mark.spec("RBDA-A.2-SPATIAL")
def test_dense_inertia(rng):
    m, c, i = 3.0, rng.normal(size=3), np.diag([1.0, 2.0, 2.5])
    x = skew(c)
    close(mcI(m, c, i), np.block([[i - m * x @ x, m * x], [-m * x, m * np.eye(3)]]))
    close(mcI(m, c, i), dual(xlt(-c)) @ mcI(m, np.zeros(3), i) @ xlt(c))


@pytest.mark.spec("RBDA-A.2-XTOV")
def test_twist_of_a_small_displacement(rng):
    direction = rng.normal(size=6)
    x = motion_matrix(Transform.exp(Motion.from_array(direction)).inverse)
    v = xtov(x)
    # Table A.2 entry by entry, which is also the position error of a weld (table 8.1).
    indices = (
        ((2, 3), (3, 2)),
        ((3, 1), (1, 3)),
        ((1, 2), (2, 1)),
        ((5, 3), (6, 2)),
        ((6, 1), (4, 3)),
        ((4, 2), (5, 1)),
    )
    close(v, [0.5 * (x[i - 1, j - 1] - x[k - 1, l - 1]) for (i, j), (k, l) in indices])
    close(x @ v, v)
    close(np.linalg.solve(x, v), v)
    shift = rng.normal(size=3)
    close(xtov(xlt(shift)), [0, 0, 0, *shift])  # exact for translations
    steps = np.array([0.1, 0.05, 0.025])
    error = [
        np.linalg.norm(xtov(motion_matrix(Transform.exp(Motion.from_array(h * direction)).inverse)) / h - direction)
        for h in steps
    ]
    orders = np.log2(np.array(error[:-1]) / np.array(error[1:]))
    close(orders, 2.0, 0.02)  # relative to the displacement
    assert np.linalg.matrix_rank(np.stack([v, direction]), tol=1e-3) == 2  # and not a multiple of the exact twist


def test_batches_and_types_of_numbers(rng):
    pose = random_pose(rng, 5)
    v = rng.normal(size=(5, 6))
    for f in (crm, crf):
        close(f(v), np.stack([f(row) for row in v]))
        assert f(v.astype(np.float32)).dtype == jnp.float32
    close(motion_matrix(pose)[2], motion_matrix(Transform(pose.rotation[2], pose.translation[2])))
    close(rz(v), np.stack([rz(row) for row in v]))
