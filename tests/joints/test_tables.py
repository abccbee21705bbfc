"""Joint types against the entries of the books: table 4.1, example 4.6, section 4.5, Jain's hinge table."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax.spatial import Quaternion, Transform, Vec3, plucker
from dynax.spatial.plucker import rx, ry, rz

Q1, Q2, Q3, H = 0.7, -0.4, 1.1, 0.3
C, S = np.cos(Q1), np.sin(Q1)
E = np.eye(6)
UNIT = np.array([0.5, -0.5, 0.1, np.sqrt(0.49)])


def quaternion_e(p):
    """Eq. 4.12, predecessor to successor."""
    p0, p1, p2, p3 = p
    return 2 * np.array(
        [
            [p0**2 + p1**2 - 0.5, p1 * p2 + p0 * p3, p1 * p3 - p0 * p2],
            [p1 * p2 - p0 * p3, p0**2 + p2**2 - 0.5, p2 * p3 + p0 * p1],
            [p1 * p3 + p0 * p2, p2 * p3 - p0 * p1, p0**2 + p3**2 - 0.5],
        ]
    )


# Joint, q, E, r in predecessor axes, columns of S and of T.
TABLE = [
    ("revolute", dx.Revolute(), [Q1], rz(Q1), [0, 0, 0], E[[2]], E[[0, 1, 3, 4, 5]]),
    ("prismatic", dx.Prismatic(), [Q1], np.eye(3), [0, 0, Q1], E[[5]], E[:5]),
    (
        "HELICAL",
        dx.Helical(pitch=H),
        [Q1],
        rz(Q1),
        [0, 0, H * Q1],
        [E[2] + H * E[5]],
        [*E[[0, 1, 3, 4]], -H * E[2] + E[5]],
    ),
    ("cylindrical", dx.Cylindrical(), [Q1, Q2], rz(Q1), [0, 0, Q2], E[[2, 5]], E[[0, 1, 3, 4]]),
    ("planar", dx.Planar(), [Q1, Q2, Q3], rz(Q1), [Q2, Q3, 0], E[2:5], E[[0, 1, 5]]),
    ("spherical", dx.Spherical(), UNIT, quaternion_e(UNIT), [0, 0, 0], E[:3], E[3:]),
    ("free6", dx.Free(), [Q1, Q2, Q3, *UNIT], quaternion_e(UNIT), [Q1, Q2, Q3], E, E[:0]),
]


def book_transform(joint, q):
    rotation, translation = joint.pose(tuple(jnp.asarray(q, float)), joint.parameters, 0.0)
    return plucker.motion_matrix(Transform(rotation.array, translation.array).inverse)


def columns(joint, q):
    return np.stack([c.array for c in joint.columns(tuple(jnp.asarray(q, float)), joint.parameters, 0.0)])


@pytest.mark.parametrize(("joint", "q", "e", "r", "s", "t"), [pytest.param(*row, id=name) for name, *row in TABLE])
@pytest.mark.spec("RBDA-4.4-REVOLUTE", "RBDA-4.4-PRISMATIC", "RBDA-4.4-HELICAL", "RBDA-4.4-CYLINDRICAL")
@pytest.mark.spec("RBDA-4.4-PLANAR", "RBDA-4.4-SPHERICAL", "RBDA-4.4-FREE6")
def test_table_4_1(joint, q, e, r, s, t):
    np.testing.assert_allclose(book_transform(joint, q), plucker.rot(e) @ plucker.xlt(np.array(r, float)), atol=1e-14)
    np.testing.assert_allclose(columns(joint, q), s, atol=1e-15)
    np.testing.assert_allclose(np.asarray(t) @ np.asarray(s).T, 0.0, atol=1e-15)
    assert np.linalg.matrix_rank(np.concatenate([s, t])) == 6
    np.testing.assert_allclose(book_transform(joint, joint.neutral()), np.eye(6), atol=1e-15)
    if isinstance(joint, dx.Planar):  # the book writes the translation in successor axes
        np.testing.assert_allclose(rz(Q1).T @ np.array([C * Q2 + S * Q3, -S * Q2 + C * Q3, 0]), r, atol=1e-15)


@pytest.mark.spec("RBDA-4.4-PLQDOT")
def test_positions_in_predecessor_axes_have_bounded_rates():
    """A body that spins about its own origin, a thousand metres off: `q_dot = [1 0 0; 0 c -s; 0 s c] alpha`."""
    alpha = tuple(jnp.array([5.0, 0.0, 0.0]))
    q = tuple(jnp.array([Q1, 1000.0, -500.0]))
    np.testing.assert_allclose(dx.Planar().rate(q, alpha, ()), [5.0, 0, 0], atol=1e-12)
    moving = tuple(jnp.array([0.2, 3.0, -2.0]))
    np.testing.assert_allclose(dx.Planar().rate(q, moving, ()), np.array([[1, 0, 0], [0, C, -S], [0, S, C]]) @ moving)
    far = tuple(jnp.array([1000.0, -500.0, 3.0, *UNIT]))
    spin = tuple(jnp.array([0, 0, 5.0, 1.0, 2.0, 3.0]))
    rate = dx.Free().rate(far, spin, ())
    np.testing.assert_allclose(rate[:3], quaternion_e(UNIT).T @ np.array([1.0, 2.0, 3.0]), atol=1e-12)


@pytest.mark.parametrize("turns", [0.0, 0.3, -2.5, 4.0, 7.0, -20.5, 63.0])
def test_planar_difference_counts_turns(turns, rng):
    joint, q = dx.Planar(), tuple(jnp.asarray(rng.normal(size=3)))
    d = (jnp.asarray(turns), *jnp.asarray(rng.normal(size=2)))
    np.testing.assert_allclose(joint.difference(q, joint.integrate(q, d, ())), d, rtol=1e-10, atol=1e-12)
    other = (q[0] + turns, *jnp.asarray(rng.normal(size=2)))
    np.testing.assert_allclose(joint.integrate(q, joint.difference(q, other), ()), other, rtol=1e-10, atol=1e-12)


def test_planar_is_a_free_joint_in_the_plane(rng):
    q, d = rng.normal(size=3), rng.normal(size=3)
    free = (q[1], q[2], 0.0, np.cos(q[0] / 2), 0.0, 0.0, np.sin(q[0] / 2))
    moved = dx.Planar().integrate(tuple(jnp.asarray(q)), tuple(jnp.asarray(d)), ())
    also = dx.Free().integrate(tuple(map(jnp.asarray, free)), tuple(jnp.asarray([0, 0, *d, 0])), ())
    np.testing.assert_allclose(moved[1:], also[:2], atol=1e-14)
    np.testing.assert_allclose([jnp.cos(moved[0] / 2), jnp.sin(moved[0] / 2)], [also[3], also[6]], atol=1e-14)


@pytest.mark.spec("RBDA-4.4-RACK")
def test_rack_and_pinion():
    r, rate = 0.4, 1.7
    joint = dx.RackAndPinion(r)
    q, v = (jnp.asarray(Q1),), (jnp.asarray(rate),)
    np.testing.assert_allclose(columns(joint, q), [[0, 0, 1, r * C, -r * S, 0]])
    np.testing.assert_allclose(joint.bias(q, v, (r,), 0.0).array, np.array([0, 0, 0, -r * S, -r * C, 0]) * rate**2)
    np.testing.assert_allclose(
        book_transform(joint, q), plucker.rot(rz(Q1)) @ plucker.xlt(np.array([r * Q1, 0, 0])), atol=1e-14
    )
    flat = dx.RackAndPinion(0.0)
    np.testing.assert_allclose(columns(flat, q), columns(dx.Revolute(), q))
    np.testing.assert_allclose(book_transform(flat, q), book_transform(dx.Revolute(), q))
    # The pinion's point on the pitch line, `radius` from its centre towards +y of the rack, is at rest.
    velocity = joint.motion(q, v, (r,), 0.0).velocity
    contact = rz(Q1) @ np.array([0, r, 0])
    np.testing.assert_allclose(velocity.shift(Vec3(*contact)).linear.array, 0.0, atol=1e-14)


@pytest.mark.spec("J-ROLL", "ERR-14", "RBDA-3.4-ROLL")
def test_the_contact_point_of_a_rolling_body_is_at_rest(rng):
    wheel = dx.Rolling(0.4)
    q, v = (jnp.asarray(Q1),), (jnp.asarray(1.7),)
    motion = wheel.motion(q, v, (0.4,), 0.0)
    np.testing.assert_allclose(motion.translation.array, [0.4 * Q1, -0.4, 0])
    np.testing.assert_allclose(motion.columns[0].array, [0, 0, 1, 0.4 * C, -0.4 * S, 0])
    contact = rz(Q1) @ np.array([0, 0.4, 0])
    np.testing.assert_allclose(motion.velocity.shift(Vec3(*contact)).linear.array, 0.0, atol=1e-14)
    ball = dx.RollingBall(0.4)
    q = ball.normalize(tuple(jnp.asarray(rng.normal(size=6))))
    motion = ball.motion(q, tuple(jnp.asarray(rng.normal(size=3))), (0.4,), 0.0)
    contact = motion.rotation.T @ Vec3(0.0, 0.0, -0.4)
    np.testing.assert_allclose(motion.velocity.shift(contact).linear.array, 0.0, atol=1e-14)


@pytest.mark.spec("RBDA-3.4-ROLL")
def test_a_rolling_ball_has_holonomy():
    """Rolled around a square it comes back to its place turned: five freedoms of position from three of velocity."""
    joint, q = dx.RollingBall(1.0), tuple(map(jnp.asarray, dx.RollingBall().neutral()))
    for w in ([0, 1.0, 0], [-1.0, 0, 0], [0, -1.0, 0], [1.0, 0, 0]):  # world axes
        body = Quaternion(*q[2:]).matrix().transpose_apply(Vec3(*w))
        q = joint.integrate(q, (body.x, body.y, body.z), (1.0,))
    np.testing.assert_allclose(q[:2], 0.0, atol=1e-14)
    assert np.linalg.norm(Quaternion(*q[2:]).log().array) > 0.1


@pytest.mark.spec("RBDA-4.5-YPR")
def test_yaw_pitch_roll(rng):
    joint, q = dx.Gimbal("zyx"), rng.uniform(-1, 1, size=3)
    (_, c2, c3), (_, s2, s3) = np.cos(q), np.sin(q)
    np.testing.assert_allclose(book_transform(joint, q), plucker.rot(rx(q[2]) @ ry(q[1]) @ rz(q[0])), atol=1e-14)
    s = columns(joint, q).T  # eq. 4.8
    np.testing.assert_allclose(s[:3], [[-s2, 0, 1], [c2 * s3, c3, 0], [c2 * c3, -s3, 0]], atol=1e-14)
    np.testing.assert_allclose(s[3:], 0.0)  # so that T does not move
    y, p, r = v = rng.normal(size=3)
    bias = joint.bias(tuple(jnp.asarray(q)), tuple(jnp.asarray(v)), (), 0.0).array  # eq. 4.9
    exact = [
        -c2 * y * p,
        -s2 * s3 * y * p + c2 * c3 * y * r - s3 * p * r,
        -s2 * c3 * y * p - c2 * s3 * y * r - c3 * p * r,
    ]
    np.testing.assert_allclose(bias, [*exact, 0, 0, 0], atol=1e-14)


SEQUENCES = [a + b + c for a in "xyz" for b in "xyz" for c in "xyz" if a != b and b != c]


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.spec("RBDA-4.5-EULER", "J-GIMBAL")
def test_gimbals(sequence, rng):
    """Rank is lost exactly where the first and third axes align, and `determinant` reports it."""
    joint, turn = dx.Gimbal(sequence), {"x": rx, "y": ry, "z": rz}
    q = rng.uniform(-3, 3, size=3)
    exact = turn[sequence[2]](q[2]) @ turn[sequence[1]](q[1]) @ turn[sequence[0]](q[0])
    np.testing.assert_allclose(book_transform(joint, q)[:3, :3], exact, atol=1e-14)
    singular = (0.0, np.pi, -np.pi) if sequence[0] == sequence[2] else (np.pi / 2, -np.pi / 2)
    for second in (*singular, *(x + 0.01 for x in singular), 0.8, q[1]):
        s = columns(joint, [q[0], second, q[2]])[:, :3]
        assert np.linalg.matrix_rank(s, tol=1e-6) == (2 if second in singular else 3)
        np.testing.assert_allclose(joint.determinant((q[0], second, q[2])), np.linalg.det(s.T), atol=1e-14)


@pytest.mark.spec("RBDA-4.5-QUAT")
def test_quaternions(rng):
    joint = dx.Spherical()
    p = np.array(joint.normalize(tuple(jnp.asarray(rng.normal(size=4)))))
    w = rng.normal(size=3)
    e = quaternion_e(p)
    np.testing.assert_allclose(book_transform(joint, p)[:3, :3], e, atol=1e-14)
    np.testing.assert_allclose(e @ e.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(book_transform(joint, -p), book_transform(joint, p))
    rate = np.array(joint.rate(tuple(jnp.asarray(p)), tuple(jnp.asarray(w)), ()))
    half = 0.5 * np.array([[-p[1], -p[2], -p[3]], [p[0], -p[3], p[2]], [p[3], p[0], -p[1]], [-p[2], p[1], p[0]]])
    np.testing.assert_allclose(rate, half @ w, atol=1e-14)  # eq. 4.13
    np.testing.assert_allclose(rate @ p, 0.0, atol=1e-14)
    e_dot = jax.jvp(lambda p: book_transform(joint, p)[:3, :3], (p,), (rate,))[1]
    np.testing.assert_allclose(e_dot, -plucker.skew(w) @ e, atol=1e-13)


@pytest.mark.parametrize("joint", [dx.Spherical(), dx.Free(), dx.RollingBall()], ids=repr)
@pytest.mark.spec("RBDA-4.5-RENORM")
def test_quaternions_stay_unit_over_many_steps(joint):
    """In float32, where 1e5 products without renormalising, beside, lose the norm visibly."""
    start = tuple(jnp.float32(x) for x in joint.neutral())
    dv = tuple(jnp.float32(x) for x in (0.011, -0.007, 0.013, 0.0, 0.0, 0.0)[: joint.nv])
    parameters = tuple(jnp.float32(p) for p in joint.parameters)
    step = Quaternion.exp(Vec3(*dv[:3]))

    def advance(carry, _):
        q, bare = carry
        return (joint.integrate(q, dv, parameters), bare @ step), None

    one = Quaternion(*(jnp.float32(x) for x in (1, 0, 0, 0)))
    (q, bare), _ = jax.jit(lambda c: jax.lax.scan(advance, c, None, 100_000))((start, one))
    p = np.array(q[-4:], np.float64)
    drift = np.max(np.abs(np.asarray(bare.matrix().array, np.float64) @ np.asarray(bare.matrix().array).T - np.eye(3)))
    assert abs(np.linalg.norm(p) - 1) < 3e-7
    assert drift > 1e-5
    gradient = jax.jacfwd(lambda q: jnp.stack(joint.normalize(tuple(q))))(jnp.stack(q))
    assert np.all(np.isfinite(gradient))


@pytest.mark.spec("RBDA-4.4-USER")
@pytest.mark.parametrize(
    ("own", "built_in"),
    [
        (lambda q: Transform(rz(q[0]).T, (0.0, 0.0, 0.3 * q[0])), dx.Helical(pitch=0.3)),
        (lambda q: Transform(rz(q[0]).T, (0.3 * q[0], 0.0, 0.0)), dx.RackAndPinion(0.3)),
    ],
)
def test_a_joint_of_ones_own_equals_the_built_in(own, built_in, rng):
    q, v = ((jnp.asarray(rng.normal(size=5)),) for _ in range(2))
    joint = dx.UserJoint(own)
    ours, theirs = joint.motion(q, v, (), 0.0), built_in.motion(q, v, built_in.parameters, 0.0)
    for name in ("rotation", "translation", "velocity"):
        np.testing.assert_allclose(getattr(ours, name).array, getattr(theirs, name).array, atol=1e-14)
    bias = np.zeros((5, 6)) if theirs.bias is None else theirs.bias.array
    np.testing.assert_allclose(ours.bias.array, bias, atol=1e-14)


@pytest.mark.spec("J-U")
def test_universal_columns_and_hooke_ratio():
    """Two shafts at an angle: `w_out / w_in = cos g / (1 - sin^2 g cos^2 a)`."""
    a, b = 0.8, -0.6
    np.testing.assert_allclose(
        columns(dx.Universal(), [a, b])[:, :3], [[-np.sin(b), 0, np.cos(b)], [0, 1, 0]], atol=1e-15
    )
    bias = dx.Universal().bias((a, b), (2.0, 3.0), (), 0.0).array
    np.testing.assert_allclose(bias[:3], np.array([-np.cos(b), 0, -np.sin(b)]) * 6.0, atol=1e-15)
    angle, out = 0.5, np.array([np.sin(0.5), 0.0, np.cos(0.5)])  # direction of the output shaft
    joint = dx.Universal((0, 1, 0), (1, 0, 0))  # pins of the input yoke, then of the output yoke
    for turn in np.linspace(0, 6, 7):
        m = rz(turn) @ out  # the output shaft seen from the input shaft
        q = np.array([np.arctan2(m[0], m[2]), -np.arcsin(m[1])])
        pose = joint.frame @ np.asarray(joint.pose(tuple(q), (), 0.0)[0].array) @ joint.frame.T
        np.testing.assert_allclose(pose[:, 2], m, atol=1e-14)
        pins = rz(turn).T @ pose @ joint.frame @ columns(joint, q)[:, :3].T  # world axes
        # e_z w_in + pins q_dot = out w_out, with w_in = 1
        *_, ratio = np.linalg.solve(np.column_stack([-pins, out]), [0, 0, 1])
        a = turn + np.pi / 2  # of the input pins, from the plane of the shafts
        np.testing.assert_allclose(ratio, np.cos(angle) / (1 - (np.sin(angle) * np.cos(a)) ** 2), rtol=1e-12)


@pytest.mark.parametrize("joint", [dx.Spherical(), dx.RackAndPinion(0.4)], ids=repr)
@pytest.mark.spec("RBDA-4.1.3-POL")
def test_polarity(joint, rng):
    """A ball joint does not mind being turned round, with its variables mapped; a rack and pinion does."""
    q = joint.normalize(tuple(jnp.asarray(rng.normal(size=joint.nq))))
    mirrored = (q[0], *(-x for x in q[1:])) if joint.nq == 4 else (-q[0],)
    reversed_pose = book_transform(dx.Reversed(joint), q)
    np.testing.assert_allclose(reversed_pose, np.linalg.inv(book_transform(joint, q)), atol=1e-14)
    alike = np.max(np.abs(reversed_pose - book_transform(joint, mirrored))) < 1e-12
    assert alike == isinstance(joint, dx.Spherical)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: dx.Revolute((0, 0, 0)), ValueError, "Revolute: `axis` is zero"),
        (lambda: dx.Prismatic((1, 0)), ValueError, "three finite numbers"),
        (lambda: dx.Helical((np.nan, 0, 1)), ValueError, "three finite numbers"),
        (lambda: dx.Revolute("x"), ValueError, "three finite numbers, for example .* got 'x'"),
        (lambda: dx.Helical(pitch=np.inf), ValueError, "`pitch` must be one finite number"),
        (lambda: dx.Planar((0, 0, 0)), ValueError, "`normal` is zero"),
        (lambda: dx.Universal((1, 0, 0), (1, 1, 0)), ValueError, "must be perpendicular"),
        (lambda: dx.Rolling(1.0, (1, 0, 0), (1, 0, 0)), ValueError, "must be perpendicular"),
        (lambda: dx.RackAndPinion((1.0, 2.0)), ValueError, "`radius` must be one finite number"),
        (lambda: dx.RollingBall(np.nan), ValueError, "`radius` must be one finite number"),
        (lambda: dx.Gimbal("xxy"), ValueError, "no axis twice in a row"),
        (lambda: dx.Gimbal("abc"), ValueError, "three of x, y, z"),
        (lambda: dx.Reversed(dx.Revolute), TypeError, "must be a joint"),
        (lambda: dx.Driven(dx.Weld(), jnp.sin), TypeError, "with a freedom to drive"),
        (lambda: dx.Driven(dx.Revolute(), 3.0), TypeError, "function of time"),
        (lambda: dx.UserJoint(3.0), TypeError, "must be callable"),
        (lambda: dx.UserJoint(jnp.sin, 0), ValueError, "positive integer"),
        (lambda: dx.UserJoint(lambda q: q).pose((1.0,), (), 0.0), TypeError, "must return a Transform"),
    ],
)
def test_what_is_no_joint_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_axes_are_scaled():
    assert dx.Revolute((0, 0, 5)) == dx.Revolute()
    np.testing.assert_allclose(dx.Prismatic((3e-200, 0, 4e-200)).axis, [0.6, 0, 0.8])
    near = dx.Universal((0, 0, 1), (1, 0, 1e-8)).frame  # nearly perpendicular, and yet a rotation
    np.testing.assert_allclose(near @ near.T, np.eye(3), atol=1e-15)
