"""Inertias that are different and move alike (Featherstone 2008, section 9.7).

An inertia `D` may pass from a body to the one that carries it, and no joint force and no acceleration changes, if for
every position and velocity of the joint between them (eq. 9.30)

    D S = 0        D = X_J^T D X_J        S^T (v x* D v) = 0

with `D` in the joint's canonical frame, hinge along z. Of a particle on the axis a hinge cannot tell which of its two
bodies holds it; a ball joint not of one at its centre, a slide not of any body's moments of inertia (table 9.7). Handed
on from the tips to the base, these inertias make some parameters of each body zero, as many as there can be: what is
left are combinations that forces depend on, and that measurements can find.

The bodies that result exist nowhere. Momenta, energies, the centre of mass and what bearings feel are not those of the
robot, and methods that invert the inertia of a single body must refuse them.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from dynax.joints import AbstractJoint
from dynax.model.inertias import body_inertias, inertial_parameters, with_inertial_parameters
from dynax.model.model import Model
from dynax.model.structure import Finding
from dynax.spatial import RigidInertia, Sym3, Transform, Vec3
from dynax.spatial.plucker import crf
from dynax.sweep import walk

MASS, MOMENTS = 0, 4
"""Of the parameters `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]`."""
SIMPLIFIED = "inertia simplified: it moves like the robot's, but no body has it"


def _units() -> np.ndarray:
    """What might pass on: each parameter alone, and equal moments about x and y."""
    return np.concatenate([np.eye(10), [[0, 0, 0, 0, 1, 1, 0, 0, 0, 0]]])


@lru_cache(maxsize=512)
def transferable_inertias(joint: AbstractJoint) -> np.ndarray:
    """The inertias that can pass through a joint without consequence (table 9.7), a basis of shape `(r, 10)`.

    Parameters `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the joint's origin in its canonical frame, hinge along z:
    for `Revolute` a mass at the origin, a first moment along z and equal moments about x and y. Found by trying the
    conditions at random positions, whatever pitch or radius the joint has; a joint driven in time passes nothing.
    """
    if joint.rheonomic:
        return np.zeros((0, 10))
    with jax.ensure_compile_time_eval():
        passes = _meets_conditions(joint, _units())
    passes[-1] &= not (passes[MOMENTS] and passes[MOMENTS + 1])  # equal moments are no news then
    return _units()[passes]


def _meets_conditions(joint: AbstractJoint, units: np.ndarray) -> np.ndarray:
    """Which of some inertias meet the conditions at random positions and velocities."""
    count, rng = 6, np.random.default_rng(7)
    q = joint.normalize(joint.sample(tuple(jnp.asarray(rng.uniform(-1.0, 1.0, (joint.nq, count))))))
    parameters = tuple(jnp.asarray(rng.uniform(0.3, 1.0, (len(joint.parameters), count))))
    time, v = jnp.zeros(count), rng.normal(size=6)
    rotation, translation = joint.pose(q, parameters, time)
    moved = Transform(rotation.array, translation.array) @ RigidInertia.from_parameters(units[:, None])
    errors = np.abs(np.asarray(moved.parameters) - units[:, None]).max((1, 2))
    matrices = np.asarray(RigidInertia.from_parameters(units).matrix)
    for column in joint.columns(q, parameters, time) if joint.nv else ():
        s = np.asarray(column.array).reshape(-1, 6).T
        errors = np.maximum(errors, np.abs(matrices @ s).max((1, 2)))
        gyroscopic = np.einsum("ij,njk,k->ni", np.asarray(crf(v)), matrices, v)
        errors = np.maximum(errors, np.abs(gyroscopic @ s).max(1))
    return errors < 1e-4


def _passing(units: np.ndarray) -> np.ndarray:
    """The matrix that takes a body's parameters to what it hands on: all of the first that each unit has."""
    matrix = np.zeros((10, 10))
    for unit in units:
        matrix[:, np.argmax(unit)] = unit
    return matrix


def _pass(model: Model) -> RigidInertia:
    """One walk from the tips to the base: the inertias left, in the joints' frames at identity."""
    rows, parents = walk(model.parents), np.asarray(model.parents, dtype=int)
    dtype = model.mass.dtype
    own = model.hinges.inverse_apply(body_inertias(model))
    # What bodies on the ground hand on is lost, whatever frame it stands in.
    above = jax.tree.map(lambda leaf: leaf[parents], model.hinges)
    pose = above.inverse_apply(model.placements @ model.hinges)
    matrices = [_passing(transferable_inertias(joint)) for joint in model.joints]
    handing = jnp.asarray(np.array(matrices).reshape(-1, 10, 10), dtype)

    def step(handed: RigidInertia, row) -> tuple[RigidInertia, RigidInertia]:
        own, pose, handing = row
        total = (handed + own).parameters
        passed = jnp.einsum("...ij,...j->...i", handing, total, precision="highest")
        return pose @ RigidInertia.from_parameters(passed), RigidInertia.from_parameters(total - passed)

    nothing = RigidInertia.from_parameters(jnp.zeros(10, dtype))
    return rows.restore(rows.gather(step, nothing, rows.arrange((own, pose, handing)))[1])


def minimal_inertial_parameters(model: Model, *, frame: Literal["body", "joint"]) -> jax.Array:
    """Inertial parameters with the same dynamics and as many zeros as the joints allow, shape `(n, 10)`.

    `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]`; which are zero in the frames of the joints, `vanishing_parameters` says. A
    body may be without mass and still have a first moment. Joint forces and accelerations are those of the robot;
    momenta, energies, the centre of mass and bearing loads are not.

    **Arguments:** `frame`: `"body"` for the body's axes and origin, as in `inverse_dynamics_regressor`; `"joint"` for
    the joint's canonical frame at its identity, hinge along z.
    """
    if frame not in ("body", "joint"):
        raise ValueError(f"`frame` must be 'body' or 'joint', got {frame!r}")
    left = _pass(model)
    return left.parameters if frame == "joint" else (model.hinges @ left).parameters


def vanishing_parameters(model: Model) -> np.ndarray:
    """Which of `minimal_inertial_parameters(model, frame="joint")` are zero whatever the robot weighs, `(n, 10)`."""
    zero = np.zeros((model.num_bodies, 10), dtype=bool)
    for body, joint in enumerate(model.joints):
        zero[body, np.argmax(transferable_inertias(joint), axis=1)] = True
    return zero


def simplify_inertias(model: Model) -> Model:
    """A model with the same dynamics and simpler inertias: same `tau` for the same motion, and the other way round.

    The model with `minimal_inertial_parameters`. Behind a revolute joint a body has no mass, its first moment lies
    across the axis, and the moment about one direction there is zero; behind a prismatic one all moments of inertia
    about the joint's origin are. Armature, damping and springs stay. `report` names the bodies; they are not physical,
    see `minimal_inertial_parameters` for what else changes.
    """
    simple = with_inertial_parameters(model, minimal_inertial_parameters(model, frame="body"))
    changed = {body for body, joint in enumerate(model.joints) if len(transferable_inertias(joint))}
    changed |= {model.parents[body] for body in changed} - {-1}
    findings = tuple(Finding(f"body {model.body_names[body]!r}", SIMPLIFIED) for body in sorted(changed))
    known = tuple(finding for finding in model.report if finding not in findings)
    structure = dataclasses.replace(model.structure, report=known + findings)
    return dataclasses.replace(simple, structure=structure)


def refuse_simplified(model: Model, what: str) -> None:
    """Raise `ValueError` if inertias of the model have been simplified."""
    for finding in model.report:
        if finding.message == SIMPLIFIED:
            raise ValueError(f"{finding.element}: {SIMPLIFIED}; {what} inverts it: use the model before simplification")


def augmented_bodies(model: Model) -> jax.Array:
    """The bodies with all that hangs on their joints concentrated there, as inertial parameters `(n, 10)`.

    In a tree that floats each body has a particle at every joint, with the mass of all that lies behind it, so that
    all bodies have the mass of the whole; in one on the ground only at the joints it carries others by. With these
    constants the mass matrix has a closed form (the method of barycentres). Parameters `[m, m c (3), Ixx Iyy Izz Ixy
    Iyz Ixz]` about the body's origin in its axes.

    Raises `ValueError` for a joint that has no fixed point in both bodies, as a slide.
    """
    topology = model.topology
    for body, joint in enumerate(model.joints):
        if model.parents[body] >= 0 and not np.any(transferable_inertias(joint)[:, MASS]):
            raise ValueError(
                f"joint {model.joint_names[body]!r}: {joint!r} has no point that is fixed in both its bodies, so what "
                "it carries cannot be concentrated there"
            )
    dtype, parents = model.mass.dtype, np.asarray(model.parents, dtype=int)
    support = jnp.asarray(topology.support, dtype)
    behind = jnp.matmul(support.T, model.mass, precision="highest")
    carried = np.flatnonzero(parents >= 0)
    at_parent = (model.placements @ model.hinges).translation[carried]
    particles = jnp.zeros((model.num_bodies, 10), dtype)
    particles = particles.at[parents[carried]].add(_particle(behind[carried], at_parent))
    root = topology.support[:, topology.free_roots]
    floating = carried[root[carried].any(axis=1)]
    whole = jnp.matmul(jnp.asarray(root[floating], dtype), behind[topology.free_roots], precision="highest")
    particles = particles.at[floating].add(_particle(whole - behind[floating], model.hinges.translation[floating]))
    return inertial_parameters(model) + particles


def _particle(mass: jax.Array, place: jax.Array) -> jax.Array:
    return RigidInertia.from_com(mass, Vec3.from_array(place), Sym3.zero(mass)).parameters
