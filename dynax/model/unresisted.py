"""Joints against which nothing has inertia, wherever the mechanism stands: forward dynamics is singular there.

The elimination of forward dynamics (RBDA section 7.3) at one configuration that nobody would choose, in NumPy, since a
file is read once: tips first, each body hands its parent what is left of its inertia when its joint gives way. A joint
whose `D = S^T I_A S + armature` has no full rank there has none anywhere but at special points.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dynax.errors import ModelError
from dynax.joints import AbstractJoint
from dynax.model.structure import Finding, Structure
from dynax.topology import Topology

ROUNDING = 1e-13
"""Of what the joint carries, in float64. Honest ratios are larger: the base of a chain of 20000 links has 1e-12."""
_VARIANTS = 4


def unresisted(structure: Structure, numbers: Mapping[str, np.ndarray]) -> list[Finding]:
    """A finding for each joint with a freedom that nothing resists.

    **Arguments:** `numbers`: float64 and not batched, by the names of `dynax.model.numbers.number_shapes`.
    """
    topology, findings = structure.topology, []
    rotations, translations, columns = _motions(topology, numbers["joint_parameters"])
    inertias = _inertias(numbers)
    left = inertias.copy()  # what each body hands on, less what its joint gives way to
    carried = inertias  # and all of it, the scale of rounding
    hinges, placements = ((numbers[f"{p}.rotation"], numbers[f"{p}.translation"]) for p in ("hinges", "placements"))
    for body in reversed(range(topology.num_bodies)):
        armature = numbers["armature"][topology.v_start[body] : topology.v_start[body + 1]]
        dead, gone = _give_way(left[body], carried[body], columns[body], armature)
        if dead:
            findings.append(_finding(structure, body, dead))
        parent = topology.parents[body]
        if parent < 0:
            continue
        # The pose of the body's joint frame in its parent's.
        turn = hinges[0][parent].T @ placements[0][body] @ hinges[0][body]
        shift = hinges[0][parent].T @ (placements[1][body] + placements[0][body] @ hinges[1][body] - hinges[1][parent])
        x = _force_transform(turn @ rotations[body], shift + turn @ translations[body])
        left[parent] += x @ (left[body] - gone) @ x.T
        carried[parent] += x @ carried[body] @ x.T
    return findings[::-1]


def _give_way(left: np.ndarray, carried: np.ndarray, s: np.ndarray, armature: np.ndarray) -> tuple[int, np.ndarray]:
    """How many freedoms of a joint nothing resists, and what the others take from the inertia."""
    if not s.shape[1]:
        return 0, np.zeros((6, 6))
    image = left @ s
    hinge = s.T @ image + np.diag(armature)
    scale = s[:3] ** 2 * np.trace(carried[:3, :3]) + s[3:] ** 2 * np.trace(carried[3:, 3:])
    scale = np.maximum(np.abs(scale.sum(axis=0)) + armature, np.abs(np.diag(hinge)))
    unit = 1.0 / np.sqrt(np.where(scale > 0.0, scale, 1.0))
    moments, axes = np.linalg.eigh(unit[:, None] * hinge * unit)
    alive = np.abs(moments) > ROUNDING  # parameters from a fit may make it negative
    gain = image @ (unit[:, None] * axes[:, alive])
    return int(np.sum(~alive)), gain / moments[alive] @ gain.T


def _finding(structure: Structure, body: int, dead: int) -> Finding:
    topology = structure.topology
    freedoms, joint = topology.joints[body].nv, f"joint {structure.joint_names[body]!r}"
    against = joint if dead == freedoms else f"{dead} of the {freedoms} freedoms of {joint}"
    whole = ", with all it carries," if topology.children[body] else ""
    return Finding(
        f"body {structure.body_names[body]!r}",
        f"{whole} has no inertia beyond rounding against {against}: forward dynamics is singular; "
        "give it mass or rotational inertia, or the joint an armature, or fix the joint".lstrip(", "),
    )


def _inertias(numbers: Mapping[str, np.ndarray]) -> np.ndarray:
    """6x6 inertias in the joints' frames about their origins, shape `(n, 6, 6)` (eq. 2.63)."""
    axes, mass = numbers["hinges.rotation"], numbers["mass"][:, None, None]
    com, left = (
        _cross(np.einsum("nji,nj->ni", axes, v))
        for v in (numbers["com"] - numbers["hinges.translation"], numbers["first_moment"])
    )
    six = numbers["inertia"][:, [0, 3, 5, 3, 1, 4, 5, 4, 2]].reshape(-1, 3, 3)
    coupling = mass * com + left
    about_joint = axes.swapaxes(1, 2) @ six @ axes - coupling @ com - com @ left
    return np.concatenate(
        [
            np.concatenate([about_joint, coupling], axis=2),
            np.concatenate([coupling.swapaxes(1, 2), mass * np.eye(3)], axis=2),
        ],
        axis=1,
    )


def _cross(v: np.ndarray) -> np.ndarray:
    """The matrices of the cross products with `v`, shape `(..., 3, 3)`."""
    x, y, z = np.moveaxis(v, -1, 0)
    zero = np.zeros_like(x)
    return np.stack([np.stack(row, -1) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))], -2)


def _force_transform(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """Takes forces of a frame at this pose to the frame the pose is in."""
    return np.block([[rotation, _cross(translation) @ rotation], [np.zeros((3, 3)), rotation]])


def _motions(topology: Topology, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The joints at one configuration: rotations, translations, and the columns `(6, nv)` of each."""
    n = topology.num_bodies
    angles = np.random.default_rng(20080101).uniform(0.5, 2.5, n)
    rotations, translations = np.tile(np.eye(3), (n, 1, 1)), np.zeros((n, 3))
    columns: list[np.ndarray] = []
    for body, joint in enumerate(topology.joints):
        own = tuple(parameters[topology.parameter_start[body] : topology.parameter_start[body + 1]].tolist())
        if joint.screw is None:
            rotations[body], translations[body], s = _general_motion(joint, own, body % _VARIANTS)
        else:
            turn, slide = joint.screw
            slide = turn * own[0] if own else slide
            c, sine = np.cos(turn * angles[body]), np.sin(turn * angles[body])
            rotations[body, :2, :2] = (c, -sine), (sine, c)
            translations[body, 2] = slide * angles[body]
            s = np.array([[0.0, 0.0, turn, 0.0, 0.0, slide]]).T
        columns.append(s)
    return rotations, translations, columns


@lru_cache(maxsize=512)
def _general_motion(
    joint: AbstractJoint, parameters: tuple[float, ...], variant: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rotation, translation and columns of a joint that is no screw, at one of a few configurations."""
    uniform = np.random.default_rng(variant).uniform(0.1, 0.9, joint.nq)
    with jax.ensure_compile_time_eval():
        columns = _constant_columns(joint, parameters)
        if columns is not None:  # where a constant velocity leads; nothing is compiled for most robots
            return (*_exponential(columns @ uniform[: joint.nv]), columns)
        for q in (_sampled(joint, jnp.asarray(uniform, float)), jnp.asarray(joint.neutral(), float)):
            found = _motion(joint, q, jnp.asarray(parameters, float))
            if any(isinstance(part, Tracer) for part in found):
                raise ModelError(
                    f"the function of {joint!r} takes a value of an outer jax.jit, jax.grad or jax.vmap",
                    hint="make the model outside, and give what is traced as a leaf, by `model.replace`",
                )
            rotation, translation, rows = (np.asarray(part, np.float64) for part in found)
            if all(np.all(np.isfinite(part)) for part in (rotation, translation, rows)):
                return rotation, translation, rows.T
    return np.eye(3), np.zeros(3), np.zeros((6, 0))  # a user's joint that stands in neither: taken as one that holds


def _constant_columns(joint: AbstractJoint, parameters: tuple[float, ...]) -> np.ndarray | None:
    """The columns of a joint, shape `(6, nv)`, where they are plain numbers whatever its configuration."""
    found = []

    def columns(q, own, time):
        for column in joint.columns(q, own, time):
            found.append([*vars(column.angular).values(), *vars(column.linear).values()])

    if joint.nv:
        jax.eval_shape(columns, joint.neutral(), parameters, 0.0)
    constant = bool(found) and all(isinstance(x, float) for column in found for x in column)
    return np.array(found).T if constant else None


def _exponential(twist: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pose after one second of a constant velocity, by its power series."""
    velocity = np.zeros((4, 4))
    velocity[:3, :3], velocity[:3, 3] = _cross(twist[:3]), twist[3:]
    pose = term = np.eye(4)
    for k in range(1, 40):
        term = term @ velocity / k
        pose = pose + term
    return pose[:3, :3], pose[:3, 3]


@partial(jax.jit, static_argnums=0)
def _sampled(joint: AbstractJoint, uniform):
    return jnp.stack([*joint.normalize(joint.sample(tuple(uniform)))]) if joint.nq else uniform


@partial(jax.jit, static_argnums=0)
def _motion(joint: AbstractJoint, q, parameters):
    coordinates, own, time = tuple(q), tuple(parameters), jnp.asarray(0.3, q.dtype)
    rotation, translation = joint.pose(coordinates, own, time)
    columns = joint.columns(coordinates, own, time) if joint.nv else ()
    return rotation.array, translation.array, jnp.stack([c.array for c in columns]) if columns else jnp.zeros((0, 6))
