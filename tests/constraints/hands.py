"""Two arms, things they take in their hands, and the equations of both from the textbook."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import dense
import numpy as np
import trees
from operators.frames import textbook

import dynax as dx

NODES = ("left", "right", "elbow", "mark")


def close(actual, expected, tolerance=1e-10):
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(np.asarray(actual) / scale, np.asarray(expected) / scale, rtol=0, atol=tolerance)


@lru_cache
def arms(name="arms"):
    """Two arms of six hinges on the ground, a frame in each hand and one in between."""
    axes = np.random.default_rng(7).normal(size=(12, 3))
    tree = trees.build([(k - 1 if k % 6 else -1, dx.Revolute(axis)) for k, axis in enumerate(axes)], passive=False)
    builder = dx.to_builder(tree)
    builder.name = name
    for frame, body in (("left", "b5"), ("right", "b11"), ("elbow", "b2")):
        builder.frame(frame, body=body, placement=trees.random_pose(np.random.default_rng(len(frame)), 0.1))
    return builder.build()


@lru_cache
def thing(bodies=1):
    """A free body, with others on hinges; a frame where each hand may take it."""
    builder = dx.ModelBuilder(gravity=arms().gravity, name=f"thing{bodies}")
    for k in range(bodies):
        rng = np.random.default_rng([8, k])
        joint, parent = (dx.Revolute(rng.normal(size=3)), f"part{k - 1}") if k else (dx.Free(), "world")
        builder.body(f"part{k}", parent=parent, joint=joint, placement=None if not k else trees.random_pose(rng),
                     inertia=trees.random_inertia(rng))  # fmt: skip
    pose = trees.random_pose(np.random.default_rng(9))
    return builder.frame("other", body=f"part{bodies - 1}", placement=pose).build()


class Known(NamedTuple):
    """The equations of one system from the textbook."""

    mass: np.ndarray
    force: np.ndarray
    """`tau - C`"""
    jacobian: np.ndarray
    rate: np.ndarray
    """`Jdot v`"""
    v: np.ndarray


def known(model, q, v, tau, external, nodes):
    d = dense.Dense(model, q[None], v[None])
    j, rate = textbook(d, nodes, "body")
    force = tau - d.tau(np.zeros((1, model.nv)), np.asarray(external)[None])[0]
    return Known(d.mass_matrix[0], force, j[0], rate[0], np.asarray(v))


def equations(facts, matrices, gap):
    """The whole system: accelerations of all, and the least constraint forces; `gap` is `A a + gap = 0`."""
    mass = np.zeros((sum(len(k.v) for k in facts),) * 2)
    at = 0
    for k in facts:
        mass[at : at + len(k.v), at : at + len(k.v)] = k.mass
        at += len(k.v)
    aj = np.concatenate([a @ k.jacobian for a, k in zip(matrices, facts, strict=True)], 1)
    whole = np.block([[mass, aj.T], [aj, np.zeros((len(aj), len(aj)))]])
    right = np.concatenate([*(k.force for k in facts), -gap])
    found = np.linalg.lstsq(whole, right, rcond=1e-12)[0]
    return np.split(found, np.cumsum([len(k.v) for k in facts]))
