"""Loops of every joint on a floating tree, all closed at one configuration."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import trees

import dynax as dx
from dynax.spatial import Transform

Z = (0.0, 0.0, 1.0)
PLAIN = {
    "weld": dx.Weld(),
    "revolute": dx.Revolute((1.0, 0.5, 0.2)),
    "prismatic": dx.Prismatic((0.0, 1.0, 1.0)),
    "helical": dx.Helical((1.0, 0.0, 0.3), pitch=0.2),
    "cylindrical": dx.Cylindrical((0.3, -1.0, 0.2)),
    "spherical": dx.Spherical(),
    "slot": dx.SphereInCylinder((0.0, 1.0, 0.5)),
    "universal": dx.Universal(),
    "planar": dx.Planar((1.0, 1.0, 0.0)),
    "rack": dx.RackAndPinion(0.3),
    "translation": dx.Translation(),
    "driven": dx.Driven(dx.Revolute((0.0, 1.0, 0.0)), trees.swing),
    "reversed": dx.Reversed(dx.Cylindrical((0.0, 1.0, 0.2))),
    "distance": dx.Distance(0.8),
}
GENERIC = {"gimbal": dx.Gimbal("zyx"), "user": dx.UserJoint(trees.bent_screw, 2)}
TREE = ((-1, dx.Free()), (0, dx.Revolute(Z)), (1, dx.Revolute((0, 1, 0))), (0, dx.Revolute((1, 0, 0))),
        (3, dx.Spherical()), (-1, dx.Revolute((1, 1, 0))))  # fmt: skip
ENDS = [(2, 4), (-1, 2), (4, 1), (5, 4), (2, -1), (0, 4), (1, 5), (5, -1), (3, 2), (-1, 4)]


@lru_cache
def closed_tree(names: tuple[str, ...], seed: int = 0):
    """A floating tree and a pendulum, tied by loops that close at `q`; many more than it has freedoms, so it stands."""
    rng = np.random.default_rng(seed)
    bare = trees.build(TREE if len(names) > 1 else TREE[:3], seed=3)
    # A configuration at which to lay the loops.
    q = np.asarray(dx.random_configuration(bare, jax.random.key(seed)))
    poses = dx.forward_kinematics(bare, q)
    builder = dx.to_builder(bare)

    def pose(body: int) -> Transform:
        return Transform.identity() if body < 0 else Transform(poses.rotation[body], poses.translation[body])

    for k, name in enumerate(names):
        below, above = ENDS[k % len(ENDS)] if len(names) > 1 else (-1, 2)
        joint = {**PLAIN, **GENERIC}[name]
        place = trees.random_pose(rng)
        across = Transform.identity()
        if isinstance(joint, dx.Distance):
            across = Transform(np.asarray(dx.Rotation.exp(rng.normal(size=3)).matrix), (0.0, 0.8, 0.0))
        else:
            own = joint.sample(tuple(jnp.asarray(rng.uniform(-0.7, 0.7, joint.nq)))) if joint.nq else ()
            parameters = tuple(jnp.asarray(p) for p in joint.parameters)
            r, p = joint.canonical.pose(own, parameters, jnp.asarray(0.3))
            turn = Transform(np.asarray(joint.frame), np.zeros(3))
            across = turn @ Transform(np.array(jax.tree.leaves(r), float).reshape(3, 3),
                                      np.array(jax.tree.leaves(p), float)) @ turn.inverse  # fmt: skip
        successor = pose(above).inverse @ pose(below) @ place @ across
        names_of = ["world" if b < 0 else f"b{b}" for b in (below, above)]
        builder.loop(name, predecessor=names_of[0], successor=names_of[1], joint=joint,
                     predecessor_placement=place, successor_placement=successor)  # fmt: skip
    model = builder.build()
    return model.replace(time=jnp.asarray(0.3)), q
