"""Planar vector algebra against its spatial partner (section 2.16, table A.1)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import dynax as dx
from dynax.spatial import Force, Motion, RigidInertia, Sym3, Transform, Vec3, planar, plucker


def close(a, b, tolerance=1e-13):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def part(matrix):
    """Rows and columns 3, 4 and 5, counted from one."""
    return np.asarray(matrix)[2:5, 2:5]


@pytest.mark.spec("RBDA-2.16-PLANAR", "RBDA-A.1-PLANAR")
def test_matrices_are_parts_of_their_spatial_partners(rng):
    v, f = rng.normal(size=(2, 3))
    angle, p = rng.normal(), rng.normal(size=2)
    pose = planar.to_pose(angle, p)
    x = plucker.motion_matrix(pose.inverse)
    close(planar.Xpln(angle, p), part(x))
    close(planar.dual(planar.Xpln(angle, p)), part(plucker.dual(x)))
    close(planar.dual(planar.Xpln(angle, p)), np.linalg.inv(planar.Xpln(angle, p)).T)
    motion, force = planar.to_motion(v), planar.to_force(f)
    close(planar.crm(v), part(plucker.crm(motion.array)))
    close(planar.crf(v), part(plucker.crf(motion.array)))
    close(planar.crf(v), -planar.crm(v).T)
    close(v @ f, motion.dot(force))
    spatial = plucker.mcI(2.0, [*p, 0.0], np.diag([7.0, 8.0, 3.0]))
    close(planar.mcI(2.0, p, 3.0), part(spatial))
    rigid = RigidInertia.from_com(2.0, Vec3(*p, 0.0), Sym3.diagonal(7.0, 8.0, 3.0))
    close(planar.of_inertia(rigid), part(spatial))


@pytest.mark.spec("RBDA-2.16-PLANAR")
def test_conversions(rng):
    v = rng.normal(size=(4, 3))
    for to, of, kind in ((planar.to_motion, planar.of_motion, Motion), (planar.to_force, planar.of_force, Force)):
        assert isinstance(to(v), kind)
        close(of(to(v)), v)
        full = to(v).array
        close(full[:, 2:5], v)
        close(np.delete(full, [2, 3, 4], axis=1), 0.0)


@pytest.mark.spec("RBDA-2.16-PLANAR")
def test_a_planar_mechanism_moves_alike_in_both_algebras(rng):
    """Turn, slide, turn: accelerations from 3-vectors, and from the spatial engine."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    masses, inertias = rng.uniform(1, 2, size=(2, 3))
    coms, offsets = rng.normal(size=(2, 3, 2))
    joints = (dx.Revolute((0, 0, 1)), dx.Prismatic((1, 0, 0)), dx.Revolute((0, 0, 1)))
    for k, joint in enumerate(joints):
        inertia = dx.SpatialInertia(masses[k], (*coms[k], 0.0), (9.0, 9.0, inertias[k]))
        place = Transform.from_translation(np.array([*offsets[k], 0.0]))
        builder.body(f"b{k}", parent=f"b{k - 1}" if k else "world", joint=joint, placement=place, inertia=inertia)
    q, qd, tau = rng.normal(size=(3, 3))
    spatial = dx.forward_dynamics(builder.build(), q, qd, tau)

    v, a = np.zeros(3), np.array([0.0, 0.0, 9.81])
    columns = [np.array([1.0, 0, 0]), np.array([0, 1.0, 0]), np.array([1.0, 0, 0])]
    velocities, accelerations, jacobians, motions = [], [], [], []
    for k, s in enumerate(columns):
        joint = planar.Xpln(q[k], np.zeros(2)) if s[0] else planar.Xpln(0.0, np.array([q[k], 0.0]))
        x = np.asarray(joint @ planar.Xpln(0.0, offsets[k]))
        v = x @ v + s * qd[k]
        a = x @ a + np.asarray(planar.crm(v)) @ (s * qd[k])
        motions = [x @ m for m in motions] + [s]
        velocities.append(v)
        accelerations.append(a)
        jacobians.append(np.stack(motions + [np.zeros(3)] * (2 - k), axis=1))
    mass = [np.asarray(planar.mcI(*args)) for args in zip(masses, coms, inertias, strict=True)]
    h = sum(j.T @ m @ j for j, m in zip(jacobians, mass, strict=True))
    states = zip(mass, accelerations, velocities, strict=True)
    force = [m @ a + np.asarray(planar.crf(v)) @ m @ v for m, a, v in states]
    c = sum(j.T @ f for j, f in zip(jacobians, force, strict=True))
    np.testing.assert_allclose(np.linalg.solve(h, tau - c), spatial, rtol=1e-10)


@pytest.mark.spec("RBDA-A.1-XTOV")
def test_twist_of_a_displacement(rng):
    for angle in (0.0, 1e-9, 0.3, -1.2, 1.5):
        x = planar.Xpln(angle, rng.normal(size=2))
        v, u = planar.xtov(x), planar.xtov_exact(x)
        first_version = np.array([x[1, 2], x[2, 0], -x[1, 0]])
        factor = np.arcsin(x[1, 2]) / x[1, 2] if angle else 1.0
        close(x @ v, v)
        close(u, v * factor, 1e-12)
        close(scipy.linalg.expm(-planar.crm(u)), x)
        assert np.linalg.norm(first_version - v) <= abs(angle) * np.linalg.norm(x[1:, 0]) + 1e-15
    close(planar.xtov(planar.Xpln(0.0, [3.0, 4.0])), [0, 3, 4])
    far = planar.Xpln(2.9, rng.normal(size=2))  # beyond the reach of asin
    close(scipy.linalg.expm(-planar.crm(planar.xtov_exact(far))), far, 1e-12)
