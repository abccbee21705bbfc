"""The operational-space compliance by the recursion, against `J M^-1 J^T` and the textbook in dense matrices."""

from __future__ import annotations

from functools import lru_cache

import dense
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from dense import Dense, motion_transform
from operators.frames import textbook

import dynax as dx

pytestmark = pytest.mark.slow

KINDS = {"mixed": "body", "screws": "world_aligned", "arm": "world"}
"""The frames' axes and points on each tree."""


def close(actual, expected, tolerance=1e-12):
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(np.asarray(actual) / scale, np.asarray(expected) / scale, rtol=0, atol=tolerance)


def names_of(model):
    return (*model.body_names, "tool", "mark")


@lru_cache
def case(name):
    """The compliance of all bodies, of a frame on the last, and of one at rest; two states."""
    model, q = trees.tree(name), trees.states(trees.tree(name), 2).q
    names, m = names_of(model), model.num_bodies + 2
    compliance = jax.jit(jax.vmap(lambda q: dx.operational_compliance(model, q, names, frame=KINDS[name])))
    blocks = np.asarray(compliance(q)).reshape(2, m, 6, m, 6).transpose(0, 1, 3, 2, 4)
    return model, q, Dense(model, q, jnp.zeros((2, model.nv))), compliance, blocks


@pytest.mark.spec("LAMBDA", "OMEGA", "ERR-2")
@pytest.mark.parametrize("name", KINDS)
def test_compliance_of_frames_anywhere(name):
    model, _, d, _, found = case(name)
    j, m = textbook(d, names_of(model), KINDS[name])[0], found.shape[1]
    inverse = np.linalg.inv(d.mass_matrix + np.diag(np.asarray(model.armature)))
    flat = found.transpose(0, 1, 3, 2, 4).reshape(2, 6 * m, 6 * m)
    close(flat, j @ inverse @ np.swapaxes(j, 1, 2))
    close(flat, np.swapaxes(flat, 1, 2), 1e-14)
    assert np.linalg.eigvalsh(flat).min() > -1e-13 * np.abs(flat).max()
    # Frames of different trees do not feel each other, those of different branches of one tree do.
    trees_of = np.append(np.argmax(model.topology.support, 1), [np.argmax(model.topology.support[-1]), -1])
    driven = np.array([not np.any(j.reshape(2, m, 6, -1)[:, k]) for k in range(m)])
    same = (trees_of[:, None] == trees_of) & ~driven & ~driven[:, None]
    sizes = np.abs(found).max((0, 3, 4))
    assert not np.any(sizes[~same])
    assert sizes[same].min() > 1e-4


def articulated(d):
    """`psi*` from each parent, `S D^-1 S^T`, of every body, in their own axes about their own origins."""
    p, _ = d.articulated(d.model.armature)
    step, give = np.zeros_like(d.transform), np.zeros_like(p)
    for i, s in enumerate(d.columns):
        start, st = d.model.topology.v_start[i], np.swapaxes(s, 1, 2)
        pivot = st @ p[:, i] @ s + np.diag(np.asarray(d.model.armature)[start : start + s.shape[2]])
        half = s @ np.linalg.inv(pivot) if s.shape[2] else s
        give[:, i] = half @ st
        step[:, i] = (np.eye(6) - half @ st @ p[:, i]) @ d.transform[:, i]
    return step, give


@pytest.mark.spec("UPS", "OMEGA", "ERR-2", "ERR-3", "RBDA-7.2.1-PROJ")
def test_recursions_of_omega_and_upsilon():
    """Diagonal blocks outwards, the others along the path from the closest common ancestor."""
    model, q, d, _, omega = case("mixed")
    n, support = model.num_bodies, model.topology.support
    upsilon = np.asarray(jax.jit(jax.vmap(lambda q: dx.body_compliances(model, q)))(q))
    (step, give), handle = articulated(d), model.body_index("b12")
    # What floats freely answers with its articulated inertia.
    close(np.linalg.inv(upsilon[:, handle]), d.articulated(model.armature)[0][:, handle])
    for i, above in enumerate(model.parents):
        outer = upsilon[:, above] if above >= 0 else 0.0 * upsilon[:, 0]
        close(upsilon[:, i], step[:, i] @ outer @ np.swapaxes(step[:, i], 1, 2) + give[:, i])
        close(omega[:, i, i], upsilon[:, i])
        if above >= 0:
            for j in np.flatnonzero(~support[:, i]):
                # Into each body from its parent, whatever stands at the other end, unless it is carried.
                close(omega[:, i, j], step[:, i] @ omega[:, above, j])
    path = np.zeros((2, n, n, 6, 6))  # psi* from an ancestor
    path[:, np.arange(n), np.arange(n)] = np.eye(6)
    for i, above in enumerate(model.parents):
        for c in np.flatnonzero(support[i][:i]):
            path[:, c, i] = step[:, i] @ path[:, c, above]
    siblings = 0.0
    for i in range(n):
        for j in range(i):
            common = np.flatnonzero(support[i] & support[j])
            if not len(common):
                assert not np.any(omega[:, i, j])
                continue
            c = common[-1]
            close(omega[:, i, j], path[:, c, i] @ upsilon[:, c] @ np.swapaxes(path[:, c, j], 1, 2))
            if model.parents[i] == model.parents[j]:
                siblings = max(siblings, np.abs(omega[:, i, j]).max())
    assert siblings > 0.05


@pytest.mark.spec("LAMBDA")
def test_a_free_body(rng):
    """`phi* M^-1 phi`, with `phi` from the body to the frame."""
    pose, inertia = trees.random_pose(rng), trees.random_inertia(rng)
    builder = dx.ModelBuilder().body("box", joint=dx.Free(), inertia=inertia).frame("grip", body="box", placement=pose)
    model = builder.build()
    q = dx.random_configuration(model, jax.random.key(1))
    x = motion_transform(np.asarray(pose.rotation), np.asarray(pose.translation))
    own = np.linalg.inv(dense.inertia_matrix(*(np.asarray(x[0]) for x in (model.mass, model.com, model.inertia))))
    found = dx.operational_compliance(model, q, ["grip", "box"], frame="body")
    both = np.concatenate([x, np.eye(6)])
    close(found, both @ own @ both.T)
    close(dx.body_compliances(model, q)[0], own)


def test_welded_frames_and_names():
    model = trees.build([(-1, dx.Revolute()), (0, dx.Prismatic())])
    pose = trees.random_pose(np.random.default_rng(0))
    builder = dx.to_builder(model).body("hand", parent="b1", joint=dx.Weld(), placement=pose)
    model, q = builder.body("post", joint=dx.Weld()).build(), jnp.array([0.3, -0.2])
    found = np.asarray(dx.operational_compliance(model, q, ("post", "hand", "hand"), frame="body"))
    d = Dense(model, q[None], q[None])
    j = motion_transform(np.asarray(pose.rotation), np.asarray(pose.translation)) @ d.jacobians[0, 6:]
    assert not np.any(found[:6])
    close(found[6:, 6:], np.tile(j @ np.linalg.inv(d.mass_matrix[0] + np.diag(model.armature)) @ j.T, (2, 2)))
    for names, size in (((), 0), ("post", 6)):
        shape = jax.eval_shape(lambda q, names=names: dx.operational_compliance(model, q, names, frame="body"), q)
        assert shape.shape == (size, size)
    with pytest.raises(KeyError, match="did you mean"):
        dx.operational_compliance(model, q, ["hnd"], frame="body")
    with pytest.raises(ValueError, match="`frame` must be"):
        dx.operational_compliance(model, q, "hand", frame="local")


def test_digits():
    """A robot that has flown far keeps them, and float32 keeps its own."""
    _, q, _, here, _ = case("screws")
    lam = np.asarray(here(q))
    close(here(q.at[:, :3].add(1e6)), lam, 1e-14)
    single = np.asarray(here(q.astype(jnp.float32)))
    assert single.dtype == np.float32
    close(single, lam, 2e-6)
    assert np.linalg.eigvalsh(single.astype(float)).min() > -2e-6


def test_derivatives(rng):
    """With respect to the configuration and to masses, also where all coordinates vanish."""
    model = trees.tree("arm")
    weight = jnp.asarray(rng.normal(size=(12, 12)))

    def value(q, mass):
        lam = dx.operational_compliance(model.replace(mass=mass), q, ("tool", "b3"), frame="world_aligned")
        return jnp.sum(weight * lam)

    slope, value = jax.jit(jax.grad(value, (0, 1))), jax.jit(jax.vmap(value, (0, 0)))
    for q in (trees.states(model, 1).q[0], dx.neutral(model)):
        dq, dm = (jnp.asarray(rng.normal(size=size)) for size in (model.nq, model.num_bodies))
        found = slope(q, model.mass)
        h = 1e-3 * jnp.array([-2.0, -1.0, 1.0, 2.0])[:, None]
        at = value(q + h * dq, model.mass + h * dm)
        close(found[0] @ dq + found[1] @ dm, (8 * (at[2] - at[1]) - (at[3] - at[0])) / 12e-3, 1e-9)
