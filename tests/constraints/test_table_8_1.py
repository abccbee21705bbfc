"""The position errors of joints that close loops: to first order what their constraint forces pair with (table 8.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from constraints.facts import close
from dense import motion_transform

import dynax as dx
from dynax.spatial import Mat3, Vec3

TABLE = {
    "weld": (dx.Weld(), lambda x: (
        0.5 * (x(2, 3) - x(3, 2)), 0.5 * (x(3, 1) - x(1, 3)), 0.5 * (x(1, 2) - x(2, 1)),
        0.5 * (x(5, 3) - x(6, 2)), 0.5 * (x(6, 1) - x(4, 3)), 0.5 * (x(4, 2) - x(5, 1)),
    )),
    "revolute": (dx.Revolute(), lambda x: (
        x(2, 3), -x(1, 3), x(5, 3), -x(4, 3), x(4, 1) * x(2, 1) + x(4, 2) * x(2, 2),
    )),
    "prismatic": (dx.Prismatic(), lambda x: (
        0.5 * (x(2, 3) - x(3, 2)), 0.5 * (x(3, 1) - x(1, 3)), x(5, 3), -x(4, 3), 0.5 * (x(1, 2) - x(2, 1)),
    )),
    "cylindrical": (dx.Cylindrical(), lambda x: (x(2, 3), -x(1, 3), x(5, 3), -x(4, 3))),
    "spherical": (dx.Spherical(), lambda x: (
        sum(x(5, k) * x(3, k) for k in (1, 2, 3)),
        sum(x(6, k) * x(1, k) for k in (1, 2, 3)),
        sum(x(4, k) * x(2, k) for k in (1, 2, 3)),
    )),
}  # fmt: skip
"""The entries of `X = s_X_p` as the book counts them, in the order of our rows (the book's prismatic has z third)."""

RECIPE = {
    "helical": dx.Helical(pitch=0.2),
    "planar": dx.Planar(),
    "rack": dx.RackAndPinion(0.3),
    "slot": dx.SphereInCylinder(),
    "universal": dx.Universal(),
    "translation": dx.Translation(),
    "gimbal": dx.Gimbal("zyx"),
    "user": dx.UserJoint(trees.bent_screw, 2),
    "driven": dx.Driven(dx.Revolute(), trees.swing),
    "reversed hinge": dx.Reversed(dx.Revolute()),
    "reversed slot": dx.Reversed(dx.SphereInCylinder()),
}

COUNT = 6


def displaced(joint, rng, sizes):
    """Poses of a joint at random coordinates, displaced by `d` of the given size: `(R, p)`, `d`, and `T` there."""
    uniform = tuple(jnp.asarray(x) for x in rng.uniform(-0.9, 0.9, (joint.nq, COUNT)))
    q = joint.sample(uniform) if joint.nq else ()
    parameters = tuple(jnp.full(COUNT, p) for p in joint.parameters)
    time = jnp.full(COUNT, 0.3)
    joint = joint.canonical
    rotation, translation = joint.pose(q, parameters, time)

    def stacked(x):
        return np.stack([np.broadcast_to(part, COUNT) for part in jax.tree.leaves(x)], -1)

    r, p = stacked(rotation).reshape(COUNT, 3, 3), stacked(translation)
    t = np.stack([stacked(force) for force in joint.complement(q, parameters, time)], -1)
    d = rng.normal(size=(COUNT, 6))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    poses = []
    for size in sizes:
        turn = np.asarray(dx.Rotation.exp(size * d[:, :3]).matrix)
        poses.append((r @ turn, p + size * np.einsum("kij,kj->ki", r, d[:, 3:])))
    return poses, d, t, parameters, time, joint


def gap(joint, pose, parameters, time):
    r, p = (jnp.asarray(x) for x in pose)
    rotation = Mat3(*(r[:, i, j] for i in range(3) for j in range(3)))
    error = jax.jit(lambda *x: joint.gap(*x))(rotation, Vec3(p[:, 0], p[:, 1], p[:, 2]), parameters, time)
    return np.stack([np.broadcast_to(x, COUNT) for x in error], -1)


@pytest.mark.spec("RBDA-8.3-TABLE8.1", "RBDA-8.3-DELTA")
@pytest.mark.parametrize("name", TABLE)
def test_table(name, rng):
    joint, table = TABLE[name]
    poses, d, t, parameters, time, joint = displaced(joint, rng, (0.0, 1e-5, 1e-3))
    for size, pose in zip((0.0, 1e-5, 1e-3), poses, strict=True):
        x = motion_transform(*pose)
        printed = np.stack(table(lambda i, j, x=x: x[:, i - 1, j - 1]), -1)
        wanted = size * np.einsum("kij,ki->kj", t, d)
        # Forces whose work the rows measure, to second order in the displacement, and zero without one.
        assert np.abs(printed - wanted).max() < 5 * size**2 + 1e-15
        assert np.abs(gap(joint, pose, parameters, time) - printed).max() < 5 * size**2 + 1e-15


@pytest.mark.spec("RBDA-8.3-EX81", "RBDA-8.3-DELTA")
@pytest.mark.parametrize("name", RECIPE)
def test_recipe(name, rng):
    """`X_err = exp(d)`, `delta = T(q)^T d` for joints the table leaves out, generic ones among them."""
    poses, d, t, parameters, time, joint = displaced(RECIPE[name], rng, (0.0, 1e-5, 1e-3))
    assert t.shape[2] == 6 - joint.nv
    for size, pose in zip((0.0, 1e-5, 1e-3), poses, strict=True):
        wanted = size * np.einsum("kij,ki->kj", t, d)
        found = gap(joint, pose, parameters, time)
        if name == "user":  # which orthonormal basis of the same forces is a matter of rounding
            found, wanted = (np.linalg.norm(x, axis=1) for x in (found, wanted))
        assert np.abs(found - wanted).max() < 20 * size**2 + 1e-13


def test_rows_and_forces_pair(rng):
    """Every force the rows stand for does no work on what the joint is free to do."""
    for joint in [*(pair[0] for pair in TABLE.values()), *RECIPE.values()]:
        if not joint.nv:
            continue
        q = joint.sample(tuple(jnp.asarray(x) for x in rng.uniform(-0.9, 0.9, (joint.nq, COUNT))))
        parameters = tuple(jnp.full(COUNT, p) for p in joint.parameters)
        for column in joint.canonical.columns(q, parameters, jnp.zeros(COUNT)):
            for force in joint.canonical.complement(q, parameters, jnp.zeros(COUNT)):
                close(column.dot(force), 0.0, 1e-12)
