"""What couples two systems, or parts of one: conditions on the velocities of their nodes (Jain, CC-CON, CC-SPECIAL).

    A_P V_P + A_S V_S = U(t)        A_P = [Qhat_P; Q_P; 0]      A_S = [Qhat_S; 0; Q_S]

`V` are the stacked velocities of the nodes of the primary and of the secondary system. A rigid grasp says that two
nodes do not move against one another: its blocks have opposite signs, `Qhat_P = -Qhat_S = -1` where the nodes are one
frame. A hinge leaves some motions free: `Qhat_S = T^T`, with `T` the forces that it bears.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from dynax.constraints.ends import Ends
from dynax.constraints.open_system import OpenSystem
from dynax.constraints.rows import _closed
from dynax.joints import AbstractClosure, AbstractJoint, JointClosure, Weld
from dynax.spatial import Mat3, Motion, Transform, Vec3

RIGID = Weld()
End = tuple[Literal["primary", "secondary"], str]


class Coupling(NamedTuple):
    """`e` conditions `A_P V_P + A_S V_S = U` at one state, from `joint_coupling` or by hand; what is `None` is zero."""

    primary: jax.Array | None = None
    """`A_P`, shape `(e, 6 m)` for the `m` nodes of the primary system, six-vectors as its `frame` says."""
    secondary: jax.Array | None = None
    """`A_S`."""
    rate: jax.Array | None = None
    """`dA_P/dt V_P + dA_S/dt V_S`, shape `(e,)`."""
    velocity: jax.Array | None = None
    """`U`, shape `(e,)`."""
    acceleration: jax.Array | None = None
    """`dU/dt`, shape `(e,)`."""
    residual: jax.Array | None = None
    """The error of position, whose rate is `A_P V_P + A_S V_S - U`, shape `(e,)`."""


def join_couplings(*couplings: Coupling) -> Coupling:
    """The conditions of several couplings of the same two systems in one."""
    sizes = [next(part.shape[0] for part in coupling if part is not None) for coupling in couplings]

    def stacked(*parts: jax.Array | None) -> jax.Array | None:
        like = next((part for part in parts if part is not None), None)
        if like is None:
            return None
        filled = [
            jnp.zeros((n, *like.shape[1:]), like.dtype) if p is None else p for p, n in zip(parts, sizes, strict=True)
        ]
        return jnp.concatenate(filled)

    return Coupling(*map(stacked, *couplings))


def joint_coupling(
    primary: OpenSystem | None,
    secondary: OpenSystem | None,
    predecessor: End,
    successor: End,
    joint: AbstractJoint | AbstractClosure = RIGID,
) -> Coupling:
    """Two nodes held together by a joint, or if none is given by a rigid grasp.

    **Arguments:**

    - `primary`, `secondary`: from `open_system` with `frame="body"`; `None` for a system there is not.
    - `predecessor`, `successor`: `("primary", name)` or `("secondary", name)` of a node, in the same system or not; the
      two coincide at the joint's identity, and its axes are theirs.
    - `joint`: the motions that stay free, such as `dx.Revolute(axis)`, or any other closure.
    """
    systems = {"primary": primary, "secondary": secondary}
    ends = [(name, *_end(systems, name, node)) for name, node in (predecessor, successor)]
    closure = JointClosure(joint) if isinstance(joint, AbstractJoint) else joint
    (_, first, i), (_, second, j) = ends
    poses = [Transform(x.free.poses.rotation[k], x.free.poses.translation[k]) for _, x, k in ends]
    velocities = first.free.node_velocities[i], second.free.node_velocities[j]
    held = _held(*poses, *velocities, first.model.time.astype(first.v.dtype), closure=closure)
    matrices: dict[str, jax.Array | None] = {"primary": None, "secondary": None}
    for name, system in systems.items():
        if system is not None:
            matrix = jnp.zeros((closure.rows, *system.free.node_velocities.shape), system.v.dtype)
            for (other, _, k), block in zip(ends, held.blocks, strict=True):
                if other == name:
                    matrix = matrix.at[:, k].add(block)
            matrices[name] = matrix.reshape(closure.rows, -1)
    return Coupling(matrices["primary"], matrices["secondary"], held.rate, held.velocity, None, held.residual)


class _Held(NamedTuple):
    blocks: tuple[jax.Array, jax.Array]
    """What the velocities of predecessor and successor are multiplied by."""
    rate: jax.Array
    velocity: jax.Array
    residual: jax.Array


@partial(jax.jit, static_argnames="closure")
def _held(below: Transform, above: Transform, velocity, to_velocity, time, *, closure: AbstractClosure) -> _Held:
    """The conditions of a closure between two nodes, from their poses and their velocities in their own axes."""
    dtype = velocity.dtype
    turn = Mat3.from_array(jnp.asarray(closure.frame, dtype))
    axes, to_axes = (Mat3.from_array(pose.rotation) @ turn for pose in (below, above))
    rotation = axes.T @ to_axes
    translation = axes.transpose_apply(Vec3.from_array(above.translation - below.translation))

    def before(motion: Motion) -> Motion:
        """A motion of the predecessor as the successor would make it, were it fixed to it."""
        return motion.rotate_back(turn).shift(translation).rotate_back(rotation)

    units = Motion.from_array(jnp.eye(6, dtype=dtype))
    columns = jax.tree.map(lambda a, b: jnp.concatenate([-a, b]), before(units), units.rotate_back(turn))
    own = Motion.from_array(to_velocity).rotate_back(turn)
    relative = own - before(Motion.from_array(velocity))
    # Its entries change even when those of both velocities do not, because they turn with the successor.
    turning = relative.cross(own)
    assert isinstance(turning, Motion)
    one = jax.tree.map(lambda a: a[None], Ends(rotation, translation, columns, relative, turning))
    parameters = tuple(jnp.asarray([p], dtype) for p in closure.parameters)
    residual, entries, rate, bias, *_ = _closed(closure, one, parameters, time, None)
    assert rate is not None
    assert bias is not None
    first, second = jnp.split(jnp.asarray(entries)[:, 0], 2, axis=1)
    drive = rate[:, 0] - (first @ velocity + second @ to_velocity)
    return _Held((first, second), -bias[:, 0], -drive, residual[:, 0])


def _end(systems: dict[str, OpenSystem | None], name: str, node: str) -> tuple[OpenSystem, int]:
    system = systems.get(name)
    if system is None:
        given = " or ".join(repr(key) for key, value in systems.items() if value is not None)
        raise ValueError(f"the end {(name, node)} is on no system that is given: write {given or 'one'}")
    if system.frame != "body":
        raise ValueError(f"the nodes of the {name} system stand in {system.frame!r} frames: open it with frame='body'")
    if node not in system.nodes:
        raise ValueError(f"{node!r} is no node of the {name} system: open it with nodes={(*system.nodes, node)}")
    return system, system.nodes.index(node)
