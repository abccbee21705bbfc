"""The robots of the `example-robot-data` wheel, and the same state for us and for Pinocchio, joint by joint."""

from __future__ import annotations

import importlib.metadata
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dynax as dx
from dynax.joints import Free, Spherical


def example_robots() -> dict[str, Path]:
    """The URDFs of the wheel by their path under `robots/`; it is data, without a module."""
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    return {str(file).split("robots/", 1)[1]: Path(str(file.locate())) for file in files if file.suffix == ".urdf"}


def prefix(number: int, name: str) -> str:
    """What the names of robot `number` of a forest start with."""
    return f"{number}:{Path(name).stem}/"


def forest(robots: Iterable[tuple[str, str]]) -> str:
    """One URDF of many robots `(file, "fixed" or "free")`, side by side on link `world`, names prefixed by the file's.

    What a walk costs to compile does not depend on the tree: a forest compiles as fast as a single robot.
    """
    files, world = example_robots(), ET.Element("robot", name="forest")
    ET.SubElement(world, "link", name="world")
    for number, (name, root) in enumerate(robots):
        robot, start = ET.parse(files[name]).getroot(), prefix(number, name)
        links, joints = robot.findall("link"), [j for j in robot.findall("joint") if j.get("type")]
        children = {joint.find("child").get("link") for joint in joints}  # type: ignore[union-attr]
        (base,) = (link.get("name") for link in links if link.get("name") not in children)
        for element in links:
            for child in [c for c in element if c.tag != "inertial"]:
                element.remove(child)
        for element in (*links, *joints):
            element.set("name", start + element.get("name", ""))
        for joint in joints:
            for child in joint:
                for key in {"parent": ["link"], "child": ["link"], "mimic": ["joint"]}.get(child.tag, []):
                    child.set(key, start + child.get(key, ""))
        tie = ET.SubElement(world, "joint", name=f"{start}root_joint", type="floating" if root == "free" else "fixed")
        ET.SubElement(tie, "parent", link="world")
        ET.SubElement(tie, "child", link=f"{start}{base}")
        ET.SubElement(tie, "origin", xyz=f"{0.3 * number} {-0.2 * number} 0.1", rpy=f"{number} 0.5 {0.7 * number}")
        world.extend((*links, *joints))
    return ET.tostring(world, encoding="unicode")


AXES = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))


def chain(links: int, axes: Sequence[Sequence[float]] = AXES) -> dx.Model:
    """A fixed `add_chain` of its own."""
    return add_chain(dx.ModelBuilder(name=f"chain of {links}"), links, axes=axes).build()


def add_chain(
    builder: dx.ModelBuilder, links: int, *, axes: Sequence[Sequence[float]] = AXES, start: str = ""
) -> dx.ModelBuilder:
    """Equal rods, half a metre and a kilogram each, end to end along x; their hinges take the `axes` in turn."""
    rod = dx.SpatialInertia(1.0, (0.25, 0.0, 0.0), np.diag([1e-3, 0.021, 0.021]))
    reach = dx.Transform(np.eye(3), np.array([0.5, 0.0, 0.0]))
    for k in range(links):
        builder.body(
            f"{start}{k}",
            parent=f"{start}{k - 1}" if k else "world",
            joint=dx.Revolute(axes[k % len(axes)]),
            placement=reach if k else None,
            inertia=rod,
        )
    return builder


def frictionless(model: dx.Model) -> dx.Model:
    """Without damping and dry friction, which other engines leave out of their dynamics."""
    return model.replace(damping=0 * model.damping, friction_loss=0 * model.friction_loss)


def generator(name: str) -> np.random.Generator:
    """Numbers that depend on `name` alone."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def random_states(model: dx.Model, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`q (count, nq)` without regard to limits, quaternions over all orientations, and `v (count, nv)`."""
    q = rng.uniform(-np.pi, np.pi, (count, model.nq))
    for name, joint in zip(model.joint_names, model.joints, strict=True):
        own = q[:, model.q_slice(name)]
        if isinstance(joint, Free | Spherical):
            quaternion = rng.normal(size=(count, 4))
            own[:, -4:] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
        elif joint.screw == (0.0, 1.0):  # prismatic
            own /= np.pi
    return q, rng.normal(size=(count, model.nv))


class PinocchioState:
    """Our states as Pinocchio's, joint by joint and by name; arrays have any leading axes.

    A free joint is `x y z, qx qy qz qw` there and moves with `[linear; angular]`; a `continuous` joint is `cos, sin`.
    """

    def __init__(self, model: dx.Model, theirs: Any):
        if set(theirs.names[1:]) != set(model.joint_names):
            raise ValueError(f"joints differ: {sorted(set(theirs.names[1:]) ^ set(model.joint_names))}")
        self.nq = theirs.nq
        self.joints = []
        self.rows = np.zeros(model.nv, dtype=int)  # our entry of each of their velocities
        for name in theirs.names[1:]:
            joint = theirs.joints[theirs.getJointId(name)]
            ours = model.v_slice(name)
            order = [3, 4, 5, 0, 1, 2] if joint.nv == 6 else list(range(joint.nv))
            self.rows[joint.idx_v : joint.idx_v + joint.nv] = ours.start + np.array(order)
            self.joints.append((joint.idx_q, joint.nq, model.q_slice(name)))
        self.back = np.argsort(self.rows)  # their entry of each of our velocities
        self.bodies = [theirs.getJointId(name) for name in model.joint_names]  # their joint of each of our bodies

    def q(self, ours: np.ndarray) -> np.ndarray:
        theirs = np.zeros((*ours.shape[:-1], self.nq))
        for start, nq, where in self.joints:
            x = ours[..., where]
            match nq, x.shape[-1]:
                case 7, 7:
                    x = x[..., [0, 1, 2, 4, 5, 6, 3]]
                case 2, 1:
                    x = np.concatenate([np.cos(x), np.sin(x)], axis=-1)
                case one, same if one == same == 1:
                    pass
                case sizes:
                    raise NotImplementedError(f"{sizes[0]} coordinates there, {sizes[1]} here")
            theirs[..., start : start + nq] = x
        return theirs

    def v(self, ours: np.ndarray) -> np.ndarray:
        """Velocities, accelerations and joint forces."""
        return ours[..., self.rows]

    def back_v(self, theirs: np.ndarray) -> np.ndarray:
        return theirs[..., self.back]

    def back_matrix(self, theirs: np.ndarray) -> np.ndarray:
        return theirs[..., self.back, :][..., self.back]
