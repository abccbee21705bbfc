"""The robots, for dynax, and as what the peers build theirs from; and random states of them."""

from __future__ import annotations

import importlib.metadata
import re
import zlib
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import jax
import numpy as np

import dynax as dx
from benchmarks import generate
from benchmarks.bodies import FREE, PRISMATIC, REVOLUTE, SPHERICAL, Bodies, urdf
from benchmarks.case import Case

EXAMPLES = {
    "panda": ("panda_description/urdf/panda.urdf", "fixed", ("panda_finger_joint1", "panda_finger_joint2")),
    "ur5": ("ur_description/urdf/ur5_robot.urdf", "fixed", ()),
    "solo12": ("solo_description/robots/solo12.urdf", "free", ()),
    "talos": ("talos_data/robots/talos_reduced.urdf", "free", ()),
}
"""Files of the `example-robot-data` wheel, their root, and the joints that are welded."""
KINDS: dict[type[dx.AbstractJoint], str] = {
    dx.Free: FREE, dx.Spherical: SPHERICAL, dx.Revolute: REVOLUTE, dx.Prismatic: PRISMATIC
}  # fmt: skip
LONG = 100  # bodies from which on a random chain is kept near straight: curled up, its numbers span too many decades


@dataclass(frozen=True, eq=False)
class Robot:
    model: dx.Model
    bodies: Bodies
    """In the model's order."""
    source: str | None
    """What another engine reads as well: a URDF's path or its text; `None` where a URDF cannot say it."""
    welded: tuple[str, ...] = ()
    """Joints of the source that are not in the model."""


@dataclass(frozen=True)
class States:
    """A batch in our conventions, float64 with no more digits than the case's own type has."""

    q: np.ndarray
    v: np.ndarray
    tau: np.ndarray
    """Also the acceleration that inverse dynamics is asked about."""

    def head(self, count: int) -> States:
        return States(self.q[:count], self.v[:count], self.tau[:count])


@lru_cache(maxsize=1)
def robot(name: str) -> Robot:
    """A robot, in float64. One is kept: cases of a robot come together."""
    jax.config.update("jax_enable_x64", True)
    if name in EXAMPLES:
        file, root, welded = EXAMPLES[name]
        path = _example(file)
        model = dx.load(path, root=root)
        model = _frictionless(dx.fix_joints(model, welded) if welded else model)
        return Robot(model, _bodies(name, model), path, welded)
    if name == "mixed":
        bodies = generate.mixed()
        return Robot(_built(bodies), bodies, None)
    match = re.fullmatch(r"(chain|tree)(\d+)", name)
    if match is None:
        raise ValueError(f"there is no robot {name!r}")
    text = urdf({"chain": generate.chain, "tree": generate.tree}[match[1]](int(match[2])))
    model = dx.load(text)
    return Robot(model, _bodies(name, model), text)


def states(robot: Robot, case: Case) -> States:
    """Random configurations, quaternions over all orientations, velocities and joint forces."""
    rng = np.random.default_rng(zlib.crc32(case.robot.encode()))
    model, dtype = robot.model, np.dtype(case.dtype)
    spread = 1.0 if model.num_bodies < LONG else 0.2
    q = spread * rng.normal(size=(case.batch, model.nq))
    for name, kind in zip(robot.bodies.joints, robot.bodies.kinds, strict=True):
        if kind in (FREE, SPHERICAL):
            own = q[:, model.q_slice(name)][:, -4:]
            own /= np.linalg.norm(own, axis=1, keepdims=True)
    v, tau = rng.normal(size=(2, case.batch, model.nv)) * spread
    q, v, tau = (x.astype(dtype).astype(np.float64) for x in (q, v, tau))
    return States(q, v, tau)


def _example(file: str) -> str:
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeError("the wheel `example-robot-data` is not installed") from None
    return next(str(Path(str(f.locate()))) for f in files if str(f).endswith(file))


def _frictionless(model: dx.Model) -> dx.Model:
    """Without damping and dry friction, which Pinocchio leaves out of its dynamics."""
    return model.replace(damping=0 * model.damping, friction_loss=0 * model.friction_loss)


def _bodies(name: str, model: dx.Model) -> Bodies:
    kinds = [KINDS[type(joint)] for joint in model.joints]
    hinge = np.array(model.hinges.rotation)[:, :, 2]
    hinge[[kind in (FREE, SPHERICAL) for kind in kinds]] = 0.0
    xx, yy, zz, xy, yz, xz = np.array(model.inertia).T
    return Bodies(
        name=name,
        names=list(model.body_names),
        joints=list(model.joint_names),
        kinds=kinds,
        parents=list(model.parents),
        axes=hinge,
        rotation=np.array(model.placements.rotation),
        translation=np.array(model.placements.translation),
        mass=np.array(model.mass),
        com=np.array(model.com),
        inertia=np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]).transpose(2, 0, 1),
    )


def _built(bodies: Bodies) -> dx.Model:
    builder = dx.ModelBuilder(name=bodies.name)
    for k, kind in enumerate(bodies.kinds):
        axis = tuple(bodies.axes[k])
        joints = {
            FREE: dx.Free,
            SPHERICAL: dx.Spherical,
            REVOLUTE: partial(dx.Revolute, axis),
            PRISMATIC: partial(dx.Prismatic, axis),
        }
        builder.body(
            bodies.names[k],
            parent=bodies.names[bodies.parents[k]] if bodies.parents[k] >= 0 else "world",
            joint=joints[kind](),
            joint_name=bodies.joints[k],
            placement=dx.Transform(bodies.rotation[k], bodies.translation[k]),
            inertia=dx.SpatialInertia(bodies.mass[k], bodies.com[k], bodies.inertia[k]),
        )
    return builder.build()
