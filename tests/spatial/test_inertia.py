"""Rigid and articulated inertias (sections 2.12 to 2.15, appendix A.3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.spatial import (
    ArticulatedInertia,
    Force,
    Motion,
    Quaternion,
    RigidInertia,
    Rotation,
    SpatialInertia,
    Sym3,
    Transform,
    Vec3,
)
from dynax.spatial.plucker import crf, crm, force_matrix, inverse_mcI, mcI, motion_matrix, skew


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def random_pose(rng, *batch):
    return Transform(Rotation.exp(rng.normal(size=(*batch, 3))), rng.normal(size=(*batch, 3)))


def physical(rng):
    """Mass, centre of mass and a tensor that some body could have."""
    principal = rng.uniform(1.0, 2.0, size=3)
    r = np.asarray(Rotation.exp(rng.normal(size=3)).matrix)
    return rng.uniform(1.0, 3.0), rng.normal(size=3), r @ np.diag(principal.sum() / 2 - principal / 2) @ r.T


def rigid(m, c, tensor):
    return RigidInertia.from_com(m, Vec3.from_array(c), Sym3.from_array(tensor))


def articulated(rng):
    a = rng.normal(size=(6, 9))
    return a @ a.T


@pytest.mark.spec("RBDA-2.13-RBI", "SOA-INERTIA")
def test_ten_parameters(rng):
    m, c, tensor = physical(rng)
    body = rigid(m, c, tensor)
    exact = np.block([[tensor - m * skew(c) @ skew(c), m * skew(c)], [-m * skew(c), m * np.eye(3)]])
    close(body.matrix, exact)
    close(mcI(m, c, tensor), exact)
    close(SpatialInertia(m, c, tensor).matrix, exact)
    close(RigidInertia.from_parameters(body.parameters).matrix, body.matrix, 1e-14)
    record = SpatialInertia.from_parameters(body.parameters)
    close([record.mass, *record.com, *record.inertia.ravel()], [m, *c, *tensor.ravel()], 1e-13)
    close(record.parameters, body.parameters, 1e-14 * np.max(np.abs(body.parameters)))
    other = rigid(*physical(rng))
    close((body + other).matrix, body.matrix + other.matrix)
    close((SpatialInertia(m, c, tensor) + record).matrix, 2 * exact)
    assert np.linalg.eigvalsh(exact)[0] > 0
    assert np.linalg.eigvalsh(rigid(-m, c, tensor).matrix)[0] < 0  # definite only if mass and tensor are
    assert np.linalg.eigvalsh(rigid(m, c, tensor - 3 * np.eye(3)).matrix)[0] < 0


@pytest.mark.spec("RBDA-2.13-RBI")
def test_inertia_is_the_integral_of_density(rng):
    """A box of uneven density, by Gauss' rule, which is exact here; then the parallel-axis theorem falls out."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    half, centre = rng.uniform(0.2, 1.0, size=3), rng.normal(size=3)
    points = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3) * half + centre
    volume = np.einsum("i,j,k->ijk", weights, weights, weights).ravel() * half.prod()
    mass = volume * (5.0 + points[:, 0] - 0.5 * points[:, 2])
    m = mass.sum()
    c = mass @ points / m

    def second_moment(about):
        return sum(
            w * -np.asarray(skew(p - about)) @ np.asarray(skew(p - about)) for w, p in zip(mass, points, strict=True)
        )

    box = rigid(m, c, second_moment(c))
    close(box.inertia.array, second_moment(np.zeros(3)))
    parts = sum(w * np.asarray(mcI(1.0, p, np.zeros((3, 3)))) for w, p in zip(mass, points, strict=True))
    close(box.matrix, parts)


@pytest.mark.spec("SOA-INERTIA", "RBDA-2.12-MOM", "RBDA-2.13-KE")
def test_momentum_and_energy_in_every_frame(rng):
    m, c, tensor = physical(rng)
    body, pose = rigid(m, c, tensor), random_pose(rng, 7)
    v = Motion.from_array(rng.normal(size=6))
    w, at_com = v.angular.array, v.shift(Vec3(*c)).linear.array
    h = body @ v
    exact = Force(Vec3(*(tensor @ w)), Vec3(*(m * at_com))).shift_to_parent(Vec3(*c))  # eqs. 2.58 to 2.60
    close(h.array, exact.array)
    energy = 0.5 * w @ tensor @ w + 0.5 * m * at_com @ at_com
    close(body.kinetic_energy(v), energy)
    close(0.5 * h.dot(v), energy)
    close((pose @ body).kinetic_energy(pose @ v), np.full(7, energy))
    close(((pose @ body) @ (pose @ v)).array, (pose @ h).array)
    phi = force_matrix(Transform.from_translation(pose.translation))  # M(x) = phi(x, y) M(y) phi*(x, y)
    close(body.shift_to_parent(pose._p).matrix, phi @ body.matrix @ phi.swapaxes(-1, -2))


@pytest.mark.spec("RBDA-2.13-DYADIC")
def test_inertia_as_a_sum_of_dyads(rng):
    body, pose = rigid(*physical(rng)), random_pose(rng)
    g = Force.from_array(np.linalg.cholesky(body.matrix).T)  # six forces, fixed in the body
    moved = (pose @ g).array
    close(sum(np.outer(x, x) for x in g.array), body.matrix)
    close(sum(np.outer(x, x) for x in moved), (pose @ body).matrix)


@pytest.mark.spec("RBDA-2.13-IDOT")
def test_rate_of_an_inertia(rng):
    """dI/dt = v x* I - I v x."""
    body, pose, v = rigid(*physical(rng)), random_pose(rng), Motion.from_array(rng.normal(size=6))
    now, rate = jax.jvp(lambda t: ((Transform.exp(v * t) @ pose) @ body).matrix, (0.0,), (1.0,))
    close(rate, crf(v.array) @ now - now @ crm(v.array))


@pytest.mark.spec("RBDA-2.13-IXFORM")
def test_transform_rules_of_mappings(rng):
    """Table 2.5: similarity keeps eigenvalues and not symmetry, congruence keeps symmetry and not eigenvalues."""
    pose = random_pose(rng)
    x, dual = np.asarray(motion_matrix(pose)), np.asarray(force_matrix(pose))
    a = rng.normal(size=(6, 4))
    symmetric = a @ a.T  # rank 4, semi-definite
    m_to_m, f_to_f = x @ symmetric @ np.linalg.inv(x), dual @ symmetric @ np.linalg.inv(dual)
    m_to_f, f_to_m = dual @ symmetric @ np.linalg.inv(x), x @ symmetric @ np.linalg.inv(dual)
    spectrum = np.linalg.eigvalsh(symmetric)
    for similar in (m_to_m, f_to_f):
        close(np.sort(np.linalg.eigvals(similar).real), spectrum, 1e-8)
        assert np.linalg.matrix_rank(similar, tol=1e-9) == 4
        assert np.max(np.abs(similar - similar.T)) > 0.1
    for congruent in (m_to_f, f_to_m):
        close(congruent, congruent.T)
        assert np.linalg.matrix_rank(congruent, tol=1e-9) == 4
        values = np.linalg.eigvalsh(congruent)
        assert np.sum(values > 1e-9) == 4
        assert values[0] > -1e-9
        assert np.max(np.abs(values - spectrum)) > 0.1
    v = rng.normal(size=6)
    close(m_to_f @ (x @ v), dual @ (symmetric @ v))  # and they commute with the mapping


@pytest.mark.spec("RBDA-2.15-INVI")
def test_inverse_inertia(rng):
    m, c, tensor = physical(rng)
    body = mcI(m, c, tensor)
    close(inverse_mcI(m, c, tensor) @ body, np.eye(6))
    close(
        inverse_mcI(m, np.zeros(3), tensor),
        np.block([[np.linalg.inv(tensor), np.zeros((3, 3))], [np.zeros((3, 3)), np.eye(3) / m]]),
    )
    for freedoms in range(1, 6):  # a constrained body: what it can do, and no more
        s = rng.normal(size=(6, freedoms))
        phi = s @ np.linalg.inv(s.T @ body @ s) @ s.T
        assert np.linalg.matrix_rank(phi, tol=1e-9) == freedoms
        assert np.linalg.matrix_rank(np.hstack([phi, s]), tol=1e-9) == freedoms


@pytest.mark.spec("RBDA-2.14-EOM")
def test_equation_of_motion_about_the_centre_of_mass(rng):
    """Example 2.6: `f = m c_dd` and `n_C = I w_dot + w x I w`, whatever the origin."""
    m, c, tensor = physical(rng)
    v, a = (Motion.from_array(x) for x in rng.normal(size=(2, 6)))
    body, com = rigid(m, c, tensor), Vec3(*c)
    force = (body @ a) + v.cross(body @ v)
    w, alpha = v.angular.array, a.angular.array
    r_dot, spatial = v.shift(com).linear.array, a.shift(com).linear.array
    close(force.linear.array, m * (spatial + np.cross(w, r_dot)))
    close(force.shift(com).angular.array, tensor @ alpha + np.cross(w, tensor @ w))


@pytest.mark.spec("RBDA-2.14-EOM")
def test_torque_free_flips():
    """An asymmetric top about its middle axis, origin off its centre, against Euler's equations integrated apart."""
    principal, com, mass, h, steps = np.array([1.0, 2.0, 3.0]), np.array([0.3, -0.2, 0.5]), 2.0, 0.005, 4000
    body = rigid(mass, com, np.diag(principal))
    solve = inverse_mcI(mass, com, np.diag(principal))
    w0 = np.array([0.01, 2.0, 0.0])
    v0 = Motion(Vec3(*w0), Vec3.zero()).shift(Vec3(*(-com)))  # the centre of mass is at rest

    def runge_kutta(f, state):
        def along(slope, by):
            return jax.tree.map(lambda a, b: a + by * b, state, slope)

        k1 = f(state)
        k2 = f(along(k1, h / 2))
        k3 = f(along(k2, h / 2))
        k4 = f(along(k3, h))
        return jax.tree.map(lambda a, p, q, r, s: a + h / 6 * (p + 2 * q + 2 * r + s), state, k1, k2, k3, k4)

    def spatial(state):
        rotation, _, v = state
        motion = Motion.from_array(v)
        return rotation @ skew(v[:3]), rotation @ v[3:], -solve @ motion.cross(body @ motion).array

    def euler(state):
        q, w = state
        rate = (Quaternion.from_array(q) @ Quaternion(0.0, *(0.5 * w))).array
        return rate, -jnp.cross(w, principal * w) / principal

    def run(f, state):
        return jax.jit(lambda s: jax.lax.scan(lambda s, _: (runge_kutta(f, s), s), s, None, steps)[1])(state)

    rotation, position, v = run(spatial, (jnp.eye(3), jnp.zeros(3), v0.array))
    q, w = run(euler, (jnp.array([1.0, 0, 0, 0]), jnp.asarray(w0)))
    reference = Quaternion.from_array(q).matrix().array
    flips = np.flatnonzero(np.diff(np.sign(w[:, 1])))
    assert len(flips) >= 2
    np.testing.assert_array_equal(np.flatnonzero(np.diff(np.sign(v[:, 1]))), flips)
    close(v[:, :3], w, 1e-6)
    close(rotation, reference, 1e-5)
    motion = Motion.from_array(v)
    energy = body.kinetic_energy(motion)
    close(energy, np.full(steps, energy[0]), 1e-8)
    momentum = (Transform(rotation, position) @ (body @ motion)).array
    close(momentum, np.broadcast_to(momentum[0], momentum.shape), 1e-7)


@pytest.mark.spec("RBDA-A.3-STRUCT")
def test_compact_types_have_the_sizes_of_table_a3(rng):
    body = rigid(*physical(rng))
    full = ArticulatedInertia.from_matrix(articulated(rng))
    pose = random_pose(rng)
    cases = ((Motion.zero(), 6), (Force.zero(), 6), (pose, 12), (body, 10), (full, 21))
    for value, size in cases:
        assert sum(np.size(leaf) for leaf in jax.tree.leaves(value)) == size
    for kind in (Motion, Force):
        x = rng.normal(size=6)
        close(kind.from_array(x).array, x, 0)
    close(ArticulatedInertia.from_matrix(full.matrix).matrix, full.matrix, 0)
    close(RigidInertia.from_parameters(body.parameters).matrix, body.matrix, 0)
    close(body.articulated().matrix, body.matrix, 0)
    close(Transform.from_homogeneous(pose.homogeneous).homogeneous, pose.homogeneous, 0)


@pytest.mark.spec("RBDA-A.3-APPLY", "RBDA-A.3-OPS")
def test_apply_and_inverse_apply(rng):
    """Each compact formula against the dense product, and each the inverse of the other."""
    pose, body, square = random_pose(rng, 5), rigid(*physical(rng)), articulated(rng)
    x, dual = motion_matrix(pose), force_matrix(pose)
    t = lambda a: a.swapaxes(-1, -2)  # noqa: E731
    v, f = Motion.from_array(rng.normal(size=6)), Force.from_array(rng.normal(size=6))
    full = ArticulatedInertia.from_matrix(square)
    close((pose @ v).array, x @ v.array)
    close((pose @ f).array, dual @ f.array)
    close(pose.inverse_apply(v).array, np.linalg.inv(x) @ v.array)
    close(pose.inverse_apply(f).array, t(x) @ f.array)
    for compact in (body, full):
        dense = compact.matrix
        close((pose @ compact).matrix, dual @ dense @ t(dual), 1e-11)
        close(pose.inverse_apply(compact).matrix, t(x) @ dense @ x, 1e-11)
    record = SpatialInertia.from_parameters(body.parameters)
    one = Transform(pose.rotation[0], pose.translation[0])
    close((one @ record).matrix, (one @ body).matrix)
    close(one.inverse_apply(record).matrix, one.inverse_apply(body).matrix)
    for thing in (v, f, body, full):
        back = pose.inverse_apply(pose @ thing)
        for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(thing), strict=True):
            close(a, np.broadcast_to(b, np.shape(a)), 1e-11)


@pytest.mark.spec("RBDA-A.3-OPS")
def test_compact_formulas(rng):
    """Table A.4 against dense matrices."""
    body, other = rigid(*physical(rng)), rigid(*physical(rng))
    full, more = (ArticulatedInertia.from_matrix(articulated(rng)) for _ in range(2))
    u, v = (Motion.from_array(x) for x in rng.normal(size=(2, 6)))
    f, g = (Force.from_array(x) for x in rng.normal(size=(2, 6)))
    close((3.0 * v).array, 3 * v.array)
    close((f * 3.0).array, 3 * f.array)
    close((3.0 * body).matrix, 3 * body.matrix)
    close((3.0 * full).matrix, 3 * full.matrix)
    close((u + v).array, u.array + v.array)
    close((f - g).array, f.array - g.array)
    close((body + other).matrix, body.matrix + other.matrix)
    close((full + more).matrix, full.matrix + more.matrix)
    close((full + body).matrix, full.matrix + body.matrix)
    close((body + full).matrix, full.matrix + body.matrix)
    close(v.dot(f), v.array @ f.array)
    close(u.cross(v).array, crm(u.array) @ v.array)
    close(u.cross(f).array, crf(u.array) @ f.array)
    close((body @ v).array, body.matrix @ v.array)
    close((full @ v).array, full.matrix @ v.array)
    close(full.downdate(f).matrix, full.matrix - np.outer(f.array, f.array))
    a, b = random_pose(rng), random_pose(rng)
    close(motion_matrix(a @ b), motion_matrix(a) @ motion_matrix(b))
    close(motion_matrix(a.inverse), np.linalg.inv(motion_matrix(a)))
    close(a.inverse.rotation, a.rotation.T)
    close(a.inverse.translation, -a.rotation.T @ a.translation)


def test_records_of_inertia_check_their_shapes():
    with pytest.raises(ValueError, match="`com` must have shape"):
        SpatialInertia(1.0, (0.0, 0.0))
    with pytest.raises(ValueError, match="`inertia` must have shape"):
        SpatialInertia(1.0, (0.0, 0.0, 0.0), np.zeros((2, 2)))
    assert SpatialInertia.from_parameters(np.zeros(10)).com.tolist() == [0, 0, 0]
    assert SpatialInertia(2.0, (0, 0, 1), (1, 2, 3)).inertia.tolist() == np.diag([1, 2, 3]).tolist()


@pytest.mark.parametrize("far", [0.0, 1e5, 1e7])
def test_two_bodies_together_keep_their_digits_far_away(far):
    """A dumbbell of two small spheres: what it is does not depend on where it is."""
    place, half = far * np.array([1.0, 0.3, -0.7]), np.array([0.25, 0.0, 0.0])
    spheres = [SpatialInertia(mass, place + sign * half, np.full(3, 2e-4)) for mass, sign in ((1.0, 1.0), (3.0, -1.0))]
    whole = spheres[0] + spheres[1]
    assert whole.mass == 4.0
    np.testing.assert_allclose(whole.com, place - 0.5 * half, rtol=1e-15)
    # About the common centre: the reduced mass, 3/4 kg, at the distance of the two.
    np.testing.assert_allclose(np.diag(whole.inertia), 4e-4 + 0.75 * 0.25 * np.array([0, 1, 1]), rtol=1e-7)


def test_first_moments_beside_the_centre_of_mass(rng):
    """Moved, added and taken away, bodies are what their 6x6 matrices say, whatever their mass."""
    pose = random_pose(rng)
    for masses in ((1.3, 0.7), (1.0, 1e-17), (0.0, 2.0), (0.0, 0.0), (2.0, -2.0), (1.0, -3.0)):
        pair = [SpatialInertia(mass, *rng.normal(size=(2, 3)), rng.normal(size=3)) for mass in masses]
        one, other = pair
        close((one + other).matrix, one.matrix + other.matrix)
        close((pose @ one).matrix, (pose @ RigidInertia.from_parameters(one.parameters)).matrix)
        close(pose.inverse_apply(pose @ one).matrix, one.matrix)
        close(SpatialInertia.from_parameters(one.parameters).matrix, one.matrix, 1e-14)
        close(one.centered.matrix, one.matrix)
    heavy = SpatialInertia(2.0, (1, 0, 0), (3, 9, 9), (0, 2, 4)).centered
    assert (heavy.com.tolist(), heavy.first_moment.tolist()) == ([1, 1, 2], [0, 0, 0])
    light = SpatialInertia(1e-17, (1, 0, 0), (3, 9, 9), (0, 2, 4))
    assert light.centered is light
    assert "first_moment=[0.0, 2.0, 4.0]" in repr(light)
    assert "first_moment" not in repr(heavy)


def test_massless_bodies_add_their_rotational_inertia_alone():
    rotor, nothing = SpatialInertia(0.0, (1e9, 0, 0), (1, 2, 3)), SpatialInertia.zero()
    for whole in (rotor + SpatialInertia(2.0, (0, 0, 1)), SpatialInertia(2.0, (0, 0, 1)) + rotor):
        assert (whole.mass, whole.com.tolist()) == (2.0, [0, 0, 1])
        assert whole.inertia.tolist() == np.diag([1, 2, 3]).tolist()
    assert (rotor + nothing).inertia.tolist() == rotor.inertia.tolist()
    body = SpatialInertia(2.0, (0.1, 0.2, 0.3), (1, 2, 3))
    rest = body + SpatialInertia(-2.0, (0.1, 0.2, 0.3), (-1, -2, -3))
    np.testing.assert_allclose(rest.matrix, 0.0, atol=1e-15)


@pytest.mark.parametrize(
    ("solid", "radii_of", "volume"),
    [
        # Points of the solid from points of the cube (-1, 1)^3: inside or not, and the half edges of the cube.
        (SpatialInertia.box((0.4, 0.6, 1.0), density=3.0), (0.2, 0.3, 0.5), 0.24),
        (SpatialInertia.ellipsoid((0.2, 0.3, 0.5), density=3.0), (0.2, 0.3, 0.5), 4 / 3 * np.pi * 0.03),
        (SpatialInertia.sphere(0.3, density=3.0), (0.3, 0.3, 0.3), 4 / 3 * np.pi * 0.027),
        (SpatialInertia.cylinder(0.3, 1.0, density=3.0), (0.3, 0.3, 0.5), 0.09 * np.pi),
        (SpatialInertia.capsule(0.3, 0.4, density=3.0), (0.3, 0.3, 0.5), 0.09 * np.pi * 0.4 + 4 / 3 * np.pi * 0.027),
    ],
    ids=["box", "ellipsoid", "sphere", "cylinder", "capsule"],
)
def test_solids_are_the_integrals_of_their_density(solid, radii_of, volume, request):
    """Against a sum over a fine grid of points, half a cell off the faces."""
    cells = (np.arange(120) + 0.5) / 60.0 - 1.0
    half = np.array(radii_of)
    x, y, z = (h * g for h, g in zip(half, np.meshgrid(cells, cells, cells, indexing="ij"), strict=True))
    name = request.node.callspec.id
    if name == "box":
        inside = np.ones_like(x, dtype=bool)
    elif name == "cylinder":
        inside = np.hypot(x, y) < 0.3
    elif name == "capsule":
        inside = np.hypot(np.hypot(x, y), np.maximum(np.abs(z) - 0.2, 0.0)) < 0.3
    else:
        inside = (x / half[0]) ** 2 + (y / half[1]) ** 2 + (z / half[2]) ** 2 < 1.0
    cell = 3.0 * np.prod(half / 60.0)
    moments = [np.sum(cell * (a * a + b * b)[inside]) for a, b in ((y, z), (x, z), (x, y))]
    np.testing.assert_allclose(solid.mass, 3.0 * volume, rtol=1e-14)
    np.testing.assert_allclose(np.diag(solid.inertia), moments, rtol=2e-3)
    assert np.count_nonzero(solid.inertia - np.diag(np.diag(solid.inertia))) == 0


def test_solids_by_mass_and_what_they_refuse():
    ball = SpatialInertia.sphere(0.5, mass=2.0, com=(1, 2, 3))
    assert (ball.mass, ball.com.tolist()) == (2.0, [1, 2, 3])
    np.testing.assert_allclose(np.diag(ball.inertia), 0.2, rtol=1e-15)
    np.testing.assert_allclose(
        SpatialInertia.ellipsoid([0.5] * 3, mass=2.0).matrix, SpatialInertia.sphere(0.5, mass=2.0).matrix
    )
    for call, words in (
        (lambda: SpatialInertia.box((1, 1, 1)), "either `mass`"),
        (lambda: SpatialInertia.sphere(1.0, mass=1.0, density=1.0), "either `mass`"),
        (lambda: SpatialInertia.box((1, 1), mass=1.0), "`size` must be 3 lengths"),
        (lambda: SpatialInertia.cylinder((1, 2), 1, mass=1.0), "`radius` must be one length"),
        (lambda: SpatialInertia.capsule(1.0, 0.0, mass=1.0), "`length` must be positive"),
        (lambda: SpatialInertia.sphere(1.0, mass=-1.0), "`mass` must be zero or positive"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
