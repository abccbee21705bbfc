"""The strict URDF reader: text in, filled `ModelBuilder` out. No mesh, no ROS package and no network is touched.

What cannot be understood is an error, so that no one simulates a robot other than the one in the file. What is odd but
has one meaning is loaded as written and noted in the model's report.

| in the file | what happens |
|---|---|
| XML that is malformed, has a DOCTYPE, or still holds xacro (`<xacro:..>`, `${..}`, `$(..)`) | error |
| numbers that are malformed, non-finite or too many or few, in any attribute that is used | error |
| names missing or used twice; joints that name unknown links; a link `world` that is not the root | error |
| not one tree: several roots, two joints on one link, cycles, self-joints, no link | error |
| unknown joint type; zero axis; lower limit above upper; negative velocity or effort limit, damping, friction | error |
| `<inertial>` without complete `<mass>` and `<inertia>`; negative mass | error |
| one-per-parent element (`<origin>`, `<axis>`, `<limit>`, `<inertial>`, ..) given twice | error |
| `<mimic>` of an unknown joint, of itself, or without exactly one freedom at both ends | error |
| `<mimic>` on a fixed joint | ignored, noted |
| `<mimic>` otherwise | a gear of the model, noted: rollouts keep it, `forward_dynamics` takes the tree alone |
| revolute or prismatic without `<limit>`, or without its `velocity` or `effort` | unlimited, noted |
| `lower` or `upper` absent in `<limit>` | 0, as the format says |
| range of a single point; velocity or effort limit of zero | as written, noted |
| `lower`, `upper` of a continuous joint | ignored, as the format says |
| `<limit>` of a floating or planar joint | ignored, noted |
| `<dynamics>` of a floating or planar joint | the same value for each of its freedoms |
| rotational inertia without mass, or mass without it | as written, noted |
| inertia that is indefinite or against the triangle inequality | as written, noted by the builder |
| no `<inertial>` | a massless link |
| `<visual>`, `<collision>` | ignored, unread; one note with their numbers (`dx.view` and `dx.load_scene` read them) |
| `<transmission>`, `<ros2_control>` | `dx.load_actuators`, `dx.load_sensors`; noted where they cannot be read |
| `<material>`, `<gazebo>` | ignored, unread |
| `<sensor>`, `<calibration>`, `<safety_controller>` | ignored, unread |
| any other element or attribute of the robot, its links and joints | ignored, one note for each kind |

Elements are read only where they mean something: the axis of a fixed joint may be anything.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dynax.io._urdf_control import ONE_FREEDOM, read_control
from dynax.io._urdf_transmissions import read_transmissions
from dynax.io._urdf_tree import Joint, Tree, closest, depth_first, listed, read_tree
from dynax.io._xml import Element, parse
from dynax.joints import AbstractJoint, Free, Planar, Prismatic, Revolute, Weld
from dynax.model.builder import WORLD, ModelBuilder
from dynax.spatial import SpatialInertia, Transform

_ROOT_JOINT = "root_joint"
_DEFAULT_AXIS = (1.0, 0.0, 0.0)

# The attributes and children each element may have without a note; a child that is no key here is not looked into.
_KNOWN: dict[str, tuple[set[str], set[str]]] = {
    "robot": (
        {"name", "version"},
        {"link", "joint", "material", "gazebo", "transmission", "ros2_control", "sensor"},
    ),
    "link": ({"name"}, {"inertial", "visual", "collision"}),
    "inertial": (set(), {"origin", "mass", "inertia"}),
    "mass": ({"value"}, set()),
    "inertia": ({"ixx", "ixy", "ixz", "iyy", "iyz", "izz"}, set()),
    "joint": (
        {"name", "type"},
        {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic", "calibration", "safety_controller"},
    ),
    "origin": ({"xyz", "rpy", "quat_xyzw"}, set()),
    "parent": ({"link"}, set()),
    "child": ({"link"}, set()),
    "axis": ({"xyz"}, set()),
    "limit": ({"lower", "upper", "velocity", "effort"}, set()),
    "dynamics": ({"damping", "friction"}, set()),
    "mimic": ({"joint", "multiplier", "offset"}, set()),
}


def read_urdf(text: str | bytes, *, file: str | None, root: str = "fixed") -> ModelBuilder:
    """A `ModelBuilder` filled from a URDF; its `.build()` makes the model.

    Bodies are added depth first, children in file order, so that every subtree is contiguous.

    **Arguments:**

    - `text`: the URDF itself, as text or as the bytes of the file.
    - `file`: where it came from, for the errors; `None` for text without a file.
    - `root`: `"fixed"` welds the root link to the world; `"free"` gives it a free joint called `root_joint`.

    A root link called `world` stands for the ground: its children hang on the builder's own world. With
    `root="free"` the one fixed joint that ties the robot to that ground gives way to `root_joint`, so that the link
    behind it moves freely and `q` holds its pose in the world; a floating joint there stays what it is.
    """
    if root not in ("fixed", "free"):
        raise ValueError(f"root must be 'fixed' or 'free', not {root!r}")
    robot = parse(text, file)
    _check_root_element(robot)
    _refuse_xacro(robot)
    tree = read_tree(robot)
    builder = ModelBuilder(name=robot.attributes.get("name") or "model")
    if not robot.attributes.get("name"):
        builder.note(robot.label, "has no name", line=robot.line)
    for joint in depth_first(tree, _joints_of_the_world(builder, tree, free=root == "free")):
        _add_body(builder, tree, joint)
    _note_geometry(builder, robot)
    _note_drives(builder, robot, tree)
    _note_unknown(builder, robot)
    return builder


def _check_root_element(robot: Element) -> None:
    hints = {"mujoco": "this is an MJCF model", "sdf": "this is an SDF model: convert it to URDF"}
    if robot.tag != "robot":
        hint = hints.get(robot.tag, "a URDF is one <robot> element that holds links and joints")
        raise robot.error(f"the outermost element must be <robot>, not <{robot.tag}>", hint=hint)


def _refuse_xacro(robot: Element) -> None:
    """Macros anywhere mean that the file was never expanded, whatever else it holds."""
    stack = [robot]
    while stack:
        element = stack.pop()
        macro = element.tag if element.tag.startswith("xacro:") else None
        for name, value in element.attributes.items():
            if name.startswith("xacro:") or "${" in value or "$(" in value:
                macro = f'{name}="{value}"'
        if macro:
            raise element.error(f"{macro} is unexpanded xacro", hint="expand with xacro first: xacro FILE > robot.urdf")
        stack.extend(reversed(element.children))


def _joints_of_the_world(builder: ModelBuilder, tree: Tree, *, free: bool) -> list[Joint]:
    """The joints that hang the robot on the builder's world: from the file where its root is `world`, else our own."""
    element = tree.links[tree.root]
    if tree.root != WORLD:
        return [_our_root_joint(tree, tree.root, element, free=free)]
    if element.child("inertial"):
        builder.note(element.label, "is the ground, its inertia plays no part", line=element.line)
    joints = tree.leaving.get(WORLD, [])
    if not free or [joint.type for joint in joints] == ["floating"]:
        return joints
    if [joint.type for joint in joints] != ["fixed"]:
        raise element.error(
            f"root='free' cannot free a robot that is tied to the ground by {len(joints)} joints"
            f" ({listed(f'{joint.name!r}: {joint.type}' for joint in joints)})",
            hint="use root='fixed', or leave one fixed joint on link 'world'",
        )
    replaced = joints[0].element
    builder.note(replaced.label, f"gives way to the free '{_ROOT_JOINT}', its origin is not used", line=replaced.line)
    return [_our_root_joint(tree, joints[0].child, replaced, free=True)]


def _our_root_joint(tree: Tree, link: str, place: Element, *, free: bool) -> Joint:
    """A joint that is not in the file, at the world's origin; `place` is the element of the file it stands for."""
    namesake = tree.joints.get(_ROOT_JOINT)
    if free and namesake and namesake.type != "fixed":
        raise namesake.element.error(
            f"root='free' needs the name '{_ROOT_JOINT}' for itself", hint="rename the joint, or use root='fixed'"
        )
    element = Element("joint", {}, place.line, place.file)
    return Joint(element, _ROOT_JOINT if free else None, "floating" if free else "fixed", WORLD, link)


# One link with the joint that holds it.


def _add_body(builder: ModelBuilder, tree: Tree, joint: Joint) -> None:
    builder.body(
        joint.child,
        parent=joint.parent,
        joint=_joint_type(joint),
        placement=placement_of(joint.element),
        inertia=_inertia(builder, tree.links[joint.child]),
        joint_name=joint.name,
        **_dynamics(joint),
        **_limits(builder, joint),
    )
    _couple(builder, tree, joint)


def _joint_type(joint: Joint) -> AbstractJoint:
    if joint.type == "fixed":
        return Weld()
    if joint.type == "floating":
        return Free()
    element = joint.element.child("axis")
    axis = element.vector_or("xyz", _DEFAULT_AXIS) if element else _DEFAULT_AXIS
    scale = max(abs(component) for component in axis)
    if scale == 0.0:
        raise (element or joint.element).error("the axis is zero", hint='give a direction such as xyz="0 0 1"')
    x, y, z = (component / scale for component in axis)  # the joint type divides by the length: no square may underflow
    if joint.type == "prismatic":
        return Prismatic((x, y, z))
    return Planar((x, y, z)) if joint.type == "planar" else Revolute((x, y, z))


def placement_of(parent: Element) -> Transform:
    """The pose in `<origin>`; absent means none. `quat_xyzw` came with version 1.1 of the format."""
    origin = parent.child("origin")
    if origin is None:
        return Transform(np.eye(3), np.zeros(3))
    translation = np.array(origin.vector_or("xyz", (0.0, 0.0, 0.0)))
    if "quat_xyzw" not in origin.attributes:
        return Transform(_rpy_matrix(*origin.vector_or("rpy", (0.0, 0.0, 0.0))), translation)
    if "rpy" in origin.attributes:
        raise origin.error("rpy and quat_xyzw are both given", hint="keep one of them")
    quaternion = origin.vector_or("quat_xyzw", (0.0, 0.0, 0.0, 1.0))
    if not 0.99 < np.linalg.norm(quaternion) < 1.01:
        raise origin.error("quat_xyzw is not of length one", hint="write a unit quaternion x y z w")
    return Transform(_quaternion_matrix(*quaternion), translation)


def _rpy_matrix(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """`Rz(yaw) Ry(pitch) Rx(roll)`, in NumPy: reading a file starts no JAX backend."""
    (cr, cp, cy), (sr, sp, sy) = np.cos([roll, pitch, yaw]), np.sin([roll, pitch, yaw])
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def _quaternion_matrix(x: float, y: float, z: float, w: float) -> np.ndarray:
    """The rotation of a quaternion of any length but zero: `1 + 2 (w u x + u x u x) / |q|^2`."""
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + 2.0 * (w * cross + cross @ cross) / (x * x + y * y + z * z + w * w)


def _inertia(builder: ModelBuilder, link: Element) -> SpatialInertia | None:
    """Mass, centre and the tensor about it, turned into the link's axes: `R I R'`."""
    inertial = link.child("inertial")
    if inertial is None:
        return None
    element = inertial.required_child("mass")
    mass = element.number("value")
    if mass < 0.0:
        raise element.error(f"the mass is negative: {mass} kg", hint="a mass is zero or positive")
    given = inertial.required_child("inertia")
    xx, xy, xz, yy, yz, zz = (given.number(name) for name in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
    tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if tensor.any() != (mass > 0.0):
        oddity = "mass but no rotational inertia" if mass else "rotational inertia but no mass"
        builder.note(link.label, f"has {oddity}; loaded as written", line=inertial.line)
    origin = placement_of(inertial)
    return SpatialInertia(mass, origin.translation, origin.rotation @ tensor @ origin.rotation.T)


def _dynamics(joint: Joint) -> dict[str, float]:
    element = joint.element.child("dynamics")
    if element is None or joint.type == "fixed":
        return {}
    return {"damping": _magnitude(element, "damping"), "friction_loss": _magnitude(element, "friction")}


def _limits(builder: ModelBuilder, joint: Joint) -> dict[str, Any]:
    """Limits as the builder takes them: what is absent there is unlimited."""
    label, element = joint.element.label, joint.element.child("limit")
    if joint.type == "fixed":
        return {}
    if joint.type not in ONE_FREEDOM:
        if element:
            builder.note(label, f"<limit> has no meaning for a {joint.type} joint; ignored", line=element.line)
        return {}
    if element is None:
        if joint.type != "continuous":
            builder.note(label, "has no <limit>, which its type demands; unlimited", line=joint.element.line)
        return {}
    limits: dict[str, Any] = {}
    for name in ("velocity", "effort"):
        if name not in element.attributes:
            builder.note(label, f"<limit> has no {name}; unlimited", line=element.line)
            continue
        limits[f"{name}_limit"] = value = _magnitude(element, name)
        if value == 0.0:
            builder.note(label, f"the {name} limit is zero; loaded as written", line=element.line)
    if joint.type == "continuous":
        return limits
    lower, upper = element.number_or("lower", 0.0), element.number_or("upper", 0.0)
    if lower > upper:
        raise element.error(f"the lower limit {lower} is above the upper limit {upper}", hint="swap or mend the limits")
    if lower == upper:
        builder.note(label, f"the range is the single point {lower}; loaded as written", line=element.line)
    return limits | {"position_limits": (lower, upper)}


def _magnitude(element: Element, name: str) -> float:
    value = element.number_or(name, 0.0)
    if value < 0.0:
        raise element.error(f"{name} is negative: {value}", hint="write zero or a positive number")
    return value


def _couple(builder: ModelBuilder, tree: Tree, joint: Joint) -> None:
    """A mimic joint becomes a gear `q = multiplier q_source + offset`."""
    element, label = joint.element.child("mimic"), joint.element.label
    if element is None or joint.name is None:
        return
    if joint.type == "fixed":
        builder.note(label, "<mimic> has no meaning for a fixed joint; ignored", line=element.line)
        return
    source = element.attribute("joint")
    if source not in tree.joints:
        raise element.error(f"there is no joint '{source}'", hint=closest(source, tree.joints, "joint"))
    if source == joint.name:
        raise element.error("the joint mimics itself", hint="name another joint, or remove <mimic>")
    for name in (joint.name, source):
        if tree.joints[name].type not in ONE_FREEDOM:
            raise element.error(
                f"joint '{name}' is {tree.joints[name].type}, a mimic needs one freedom at both ends",
                hint=f"couple joints of type {', '.join(ONE_FREEDOM)}",
            )
    ratio, offset = element.number_or("multiplier", 1.0), element.number_or("offset", 0.0)
    builder.gear(joint.name, source, ratio=ratio, offset=offset)
    builder.note(label, f"mimics joint '{source}'; a gear, which forward_dynamics leaves out", line=element.line)


# What the reader does not use, and how it speaks.


def _note_geometry(builder: ModelBuilder, robot: Element) -> None:
    """One note for all shapes: who expects contact or pictures learns here that there are none."""
    found = [child for link in robot.all("link") for child in link.children if child.tag in ("visual", "collision")]
    if found:
        counts = Counter(child.tag for child in found)
        what = " and ".join(f"{counts[tag]} <{tag}>" for tag in ("visual", "collision") if counts[tag])
        message = f"not part of the model: {what}; dx.view and dx.load_scene read them"
        builder.note("geometry", message, line=found[0].line)


def _note_drives(builder: ModelBuilder, robot: Element, tree: Tree) -> None:
    """What `dx.load_actuators` and `dx.load_sensors` leave out."""
    single = {name for name, joint in tree.joints.items() if joint.type in ONE_FREEDOM}
    control, left = read_control(robot, single), {}
    for element, message in (*read_transmissions(robot, control, single)[1], *control.left):
        left.setdefault(message, []).append(element)
    for message, (first, *others) in left.items():
        more = f", as for {len(others)} others" if others else ""
        builder.note(first.label, message + more, line=first.line)


def _note_unknown(builder: ModelBuilder, robot: Element) -> None:
    """One note for each kind of element or attribute that has no rule, with its count and first line."""
    count: Counter[str] = Counter()
    first_line: dict[str, int] = {}
    stack = [robot]
    while stack:
        element = stack.pop()
        attributes, children = _KNOWN[element.tag]
        strange = [
            (f"attribute '{name}' of <{element.tag}>", element.line)
            for name in element.attributes
            if name not in attributes and not name.startswith("xmlns")
        ]
        strange += [
            (f"element <{child.tag}> in <{element.tag}>", child.line)
            for child in element.children
            if child.tag not in children
        ]
        for kind, line in strange:
            count[kind] += 1
            first_line.setdefault(kind, line)
        stack.extend(child for child in reversed(element.children) if child.tag in children and child.tag in _KNOWN)
    for kind, times in count.items():
        builder.note(kind, f"unknown, ignored ({times} times)", line=first_line[kind])
