"""The strict URDF reader: what it refuses and how it says so, what it understands, and what real files hold."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from oracles.robots import example_robots

from dynax.errors import ModelError
from dynax.io._xml import parse
from dynax.io.urdf import read_urdf
from dynax.joints import Free, Planar, Prismatic, Revolute, Weld
from dynax.model.builder import ModelBuilder
from dynax.model.closures import GearRecord
from dynax.spatial import SpatialInertia


def read(text: str | bytes, *, file: str | None = "robot.urdf", root: str = "fixed") -> ModelBuilder:
    return read_urdf(text, file=file, root=root)


def arm(joint: str = "", *, kind: str = "revolute", link: str = "", limit: str | None = None, more: str = "") -> str:
    """Two links and joint 'elbow' between them; line 2 is 'base', 3 is 'hand', 4 the joint, 5 its inside."""
    if limit is None:
        limit = '<limit lower="-1" upper="2" velocity="3" effort="4"/>' if kind in ("revolute", "prismatic") else ""
    return f"""<robot name="arm">
<link name="base"/>
<link name="hand">{link}</link>
<joint name="elbow" type="{kind}"><parent link="base"/><child link="hand"/>
{joint}{limit}
</joint>
{more}</robot>"""


def tie(name: str, parent: str, child: str, kind: str = "fixed") -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/></joint>'


INERTIAL = '<mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
SOLID = f"<inertial>{INERTIAL}</inertial>"

# What is wrong: the file, where the error points (element, line), words of its reason, words of its hint.
# fmt: off
MALFORMED = {
    "empty": ("", None, 1, "no element found", "XML editor"),
    "not XML": ("robot:\n  links: []", None, 1, "not well-formed XML", "XML editor"),
    "mismatched tag": ("<robot>\n<link name='a'>\n</robot>", "inside link 'a'", 3, "mismatched tag", "XML editor"),
    "cut off": ("<robot>\n<link name='a'>", "inside link 'a'", 2, "no element found", "XML editor"),
    "attribute twice": ("<robot>\n<link name='a' name='b'/></robot>", "inside <robot>", 2, "duplicate attribute", ""),
    "undefined entity": ("<robot>\n&who;</robot>", "inside <robot>", 2, "undefined entity", ""),
    "lone surrogate": ("<robot>\n\ud800</robot>", "inside <robot>", 2, "not well-formed", ""),
    "doctype": ("<!DOCTYPE robot>\n<robot/>", "<!DOCTYPE>", 1, "refused", "remove the <!DOCTYPE"),
    "outside entity": (
        '\n<!DOCTYPE robot [<!ENTITY x SYSTEM "file:///etc/passwd">]><robot>&x;</robot>',
        "<!DOCTYPE>", 2, "refused", "remove the <!DOCTYPE",
    ),
    "billion laughs": (
        '<!DOCTYPE r [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><robot name="&b;"/>',
        "<!DOCTYPE>", 1, "entities are refused", "write the entities out",
    ),
    "MJCF": ("<mujoco/>", "<mujoco>", 1, "must be <robot>", "MJCF"),
    "SDF": ("<sdf version='1.9'/>", "<sdf>", 1, "must be <robot>", "convert"),
    "other root": ("<html/>", "<html>", 1, "must be <robot>", "<robot> element"),
    "xacro element": (
        arm(more='<xacro:leg prefix="L"/>'),
        "robot 'arm' <xacro:leg>", 7, "unexpanded xacro", "expand with xacro first",
    ),
    "xacro attribute": (
        arm('<origin xyz="${a} 0 0"/>'),
        "joint 'elbow' <origin>", 5, '"${a} 0 0" is unexpanded xacro', "expand",
    ),
    "xacro argument": (arm(more='<link name="$(arg x)"/>'), "link '$(arg x)'", 7, "unexpanded xacro", "expand"),
    "link without name": (
        arm(more="<link/>"),
        "robot 'arm' <link>", 7, "'name' is missing", 'write <link name="..."/>',
    ),
    "blank name": (arm(more='<link name=" "/>'), "link ' '", 7, "'name' is missing or empty", "write"),
    "joint without name": (arm(more="<joint/>"), "robot 'arm' <joint>", 7, "'name' is missing", "write <joint name="),
    "no type": (arm(more='<joint name="j"/>'), "joint 'j'", 7, "'type' is missing", 'write <joint type="..."/>'),
    "unknown type": (arm(kind="hinge"), "joint 'elbow'", 4, "unknown joint type 'hinge'", "revolute, continuous"),
    "no parent": (arm(more='<joint name="j" type="fixed"/>'), "joint 'j'", 7, "<parent> is missing", "add <parent"),
    "no child": (
        arm(more='<joint name="j" type="fixed"><parent link="base"/></joint>'),
        "joint 'j'", 7, "<child> is missing", "add <child",
    ),
    "parent without link": (
        arm(more='<joint name="j" type="fixed"><parent>base</parent><child link="base"/></joint>'),
        "joint 'j' <parent>", 7, "'link' is missing", 'write <parent link="base"/>',
    ),
    "zero axis": (arm('<axis xyz="0 0 0"/>'), "joint 'elbow' <axis>", 5, "the axis is zero", 'xyz="0 0 1"'),
    "axis twice": (
        arm('<axis xyz="1 0 0"/>\n<axis xyz="0 0 1"/>'),
        "joint 'elbow' <axis>", 6, "2 times, first in line 5", "keep one",
    ),
    "short axis": (
        arm('<axis xyz="0 1"/>'),
        "joint 'elbow' <axis>", 5, 'xyz="0 1" has 2 numbers instead of 3', "write 3",
    ),
    "trailing word": (
        arm('<origin xyz="0 1 2 m"/>'),
        "joint 'elbow' <origin>", 5, "'m' is not a number", "plain decimal",
    ),
    "two words": (
        arm(limit='<limit lower="0.1 abc" upper="1"/>'),
        "joint 'elbow' <limit>", 5, "'abc' is not a number", "decimal",
    ),
    "long number": (
        arm(limit='<limit lower="0 1" upper="1"/>'),
        "joint 'elbow' <limit>", 5, "2 numbers instead of 1", "write 1",
    ),
    "empty number": (
        arm(limit='<limit lower="" upper="1"/>'),
        "joint 'elbow' <limit>", 5, "0 numbers instead of 1", "write 1",
    ),
    "quaternion and angles": (
        arm('<origin rpy="0 0 0" quat_xyzw="0 0 0 1"/>'),
        "joint 'elbow' <origin>", 5, "both given", "keep one",
    ),
    "no unit quaternion": (
        arm('<origin quat_xyzw="1 1 1 1"/>'),
        "joint 'elbow' <origin>", 5, "not of length one", "unit quaternion",
    ),
    "limits crossed": (
        arm(limit='<limit lower="1" upper="-1" effort="1" velocity="1"/>'),
        "joint 'elbow' <limit>", 5, "lower limit 1.0 is above the upper limit -1.0", "swap",
    ),
    "negative effort": (
        arm(limit='<limit lower="0" upper="1" effort="-3" velocity="1"/>'),
        "joint 'elbow' <limit>", 5, "effort is negative: -3.0", "zero or a positive",
    ),
    "negative damping": (
        arm('<dynamics damping="-1"/>'),
        "joint 'elbow' <dynamics>", 5, "damping is negative: -1.0", "zero or a positive",
    ),
    "negative friction": (
        arm('<dynamics friction="-1"/>'),
        "joint 'elbow' <dynamics>", 5, "friction is negative: -1.0", "zero or a positive",
    ),
    "infinite limit": (
        arm(limit='<limit lower="0" upper="inf" effort="3" velocity="1"/>'),
        "joint 'elbow' <limit>", 5, "'inf' is not finite", "leave an optional attribute out",
    ),
    "mimic unknown": (
        arm('<mimic joint="elbo"/>'),
        "joint 'elbow' <mimic>", 5, "no joint 'elbo'", "did you mean 'elbow'?",
    ),
    "mimic itself": (arm('<mimic joint="elbow"/>'), "joint 'elbow' <mimic>", 5, "mimics itself", "another joint"),
    "mimic a weld": (
        arm('<mimic joint="j"/>', more='<link name="t"/>' + tie("j", "hand", "t")),
        "joint 'elbow' <mimic>", 5, "joint 'j' is fixed", "revolute, continuous, prismatic",
    ),
    "mimic by a plane": (
        arm('<mimic joint="j"/>', kind="planar", more='<link name="t"/>' + tie("j", "hand", "t", "continuous")),
        "joint 'elbow' <mimic>", 5, "joint 'elbow' is planar", "revolute, continuous, prismatic",
    ),
    "no mass": (arm(link="<inertial></inertial>"), "link 'hand' <inertial>", 3, "<mass> is missing", "add <mass .../>"),
    "no inertia": (
        arm(link='<inertial><mass value="1"/></inertial>'),
        "link 'hand' <inertial>", 3, "<inertia> is missing", "add",
    ),
    "mass as text": (
        arm(link="<inertial><mass> 1.5 </mass></inertial>"),
        "link 'hand' <mass>", 3, "'value' is missing", 'write <mass value="1.5"/>',
    ),
    "negative mass": (
        arm(link='<inertial><mass value="-1"/></inertial>'),
        "link 'hand' <mass>", 3, "mass is negative: -1.0 kg", "zero or",
    ),
    "part of an inertia": (
        arm(link='<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'),
        "link 'hand' <inertia>", 3, "'ixy' is missing", 'write <inertia ixy="..."/>',
    ),
    "inertial twice": (
        arm(link=SOLID + "\n" + SOLID),
        "link 'hand' <inertial>", 4, "2 times, first in line 3", "keep one",
    ),
}

# What is no tree, likewise.
NO_TREE = {
    "no links": ("<robot name='r'/>", "robot 'r'", 1, "no <link>", "at least one"),
    "link twice": (arm(more='<link name="base"/>'), "link 'base'", 7, "taken, in line 2", "its own name"),
    "joint twice": (arm(more='<joint name="elbow"/>'), "joint 'elbow'", 7, "taken, in line 4", "its own name"),
    "unknown parent": (
        arm(more=tie("j", "bse", "hand")),
        "joint 'j' <parent>", 7, "no link 'bse'", "did you mean 'base'?",
    ),
    "unknown child": (
        arm(more=tie("j", "base", "qqq")),
        "joint 'j' <child>", 7, "no link 'qqq'", "define the link",
    ),
    "two parents": (
        arm(more=tie("j", "base", "hand")),
        "joint 'j'", 7, "link 'hand' already hangs on joint 'elbow' (line 4)", "at most one joint",
    ),
    "self-joint": (
        arm(more=tie("j", "base", "base")),
        "joint 'j'", 7, "joins link 'base' to itself", "two different links",
    ),
    "cycle": (
        arm(more=tie("j", "hand", "base")),
        "joint 'j'", 7, "links form a cycle: hand, base", "remove one joint",
    ),
    "cycle beside a tree": (
        arm(more='<link name="a"/><link name="b"/>' + tie("j", "a", "b") + "\n" + tie("k", "b", "a")),
        "joint 'k'", 8, "links form a cycle: b, a", "remove one joint",
    ),
    "two roots": (
        arm(more='<link name="tool"/>'),
        "robot 'arm'", 1, "2 links hang on no joint: 'base' (line 2), 'tool' (line 7)", "join them",
    ),
    "world inside": (
        arm(more='<link name="world"/>' + tie("j", "hand", "world")),
        "link 'world'", 7, "can only be the root", "rename",
    ),
}
# fmt: on


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_an_error_with_place_and_remedy(case):
    expect_error(*MALFORMED[case])


@pytest.mark.spec("RBDA-4.1-GRAPH")
@pytest.mark.parametrize("case", NO_TREE)
def test_what_is_no_tree_is_an_error_with_place_and_remedy(case):
    expect_error(*NO_TREE[case])


def expect_error(text: str, element: str | None, line: int, reason: str, hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_urdf(text, file="robot.urdf")
    error = caught.value
    assert (error.file, error.line, error.element) == ("robot.urdf", line, element)
    assert reason in error.reason
    assert error.hint
    assert hint in error.hint
    message = str(error)
    assert message.startswith(f"robot.urdf:{line}: ")
    assert all(part in message for part in (element or "", error.reason, error.hint))


BAD_NUMBERS = ["nan", "NaN", "inf", "-Infinity", "1e999", "0x10", "1_000", "0,5", "1,000.0", "1e", ".", "e5", "--1"]
BAD_NUMBERS += ["1.2.3", "1f", "True", "½", "١", "1\u00a0"]


@pytest.mark.parametrize("word", BAD_NUMBERS)
def test_numbers_are_strict(word):
    with pytest.raises(ModelError) as caught:
        read_urdf(arm(f'<origin xyz="{word} 0 0"/>'), file=None)
    assert (caught.value.line, caught.value.element) == (5, "joint 'elbow' <origin>")
    assert caught.value.hint
    assert repr(word) in caught.value.reason


@pytest.mark.parametrize(
    ("word", "value"),
    [("1", 1.0), ("-.5", -0.5), ("+2.", 2.0), ("1e-3", 1e-3), ("1E+2", 100.0), ("007", 7.0), ("1e-999", 0.0)],
)
def test_numbers_in_every_plain_notation(word, value):
    builder = read(arm(f'<origin xyz=" {word}\t0\n 0 "/>'))
    np.testing.assert_array_equal(builder.bodies["hand"].placement.translation, [value, 0.0, 0.0])


def test_unknown_root_option():
    with pytest.raises(ValueError, match="'fixed' or 'free', not 'floating'"):
        read_urdf(arm(), file=None, root="floating")


# XML as files have it.


def test_a_declared_encoding_harms_neither_text_nor_bytes():
    body = '<robot name="r"><link name="Füße"/></robot>'
    for encoding in ("utf-8", "iso-8859-1", "utf-16", "cp1252"):
        text = f'<?xml version="1.0" encoding="{encoding}"?>\n{body}'
        for source in (text, text.encode(encoding)):
            assert list(read(source).bodies) == ["Füße"]
    with pytest.raises(ModelError, match="unknown encoding"):
        read(f'<?xml version="1.0" encoding="martian"?>{body}'.encode())


@pytest.mark.parametrize("lead", ["\ufeff", "\n\n  ", "\ufeff\n\n"])
def test_space_before_the_declaration_is_forgiven_and_counted(lead):
    text = lead + '<?xml version="1.0"?>\n<robot name="r">\n<link/></robot>'
    for source in (text, text.encode()):
        with pytest.raises(ModelError) as caught:
            read(source)
        assert caught.value.line == 3 + lead.count("\n")


def test_depth_costs_no_recursion():
    depth = 20 * sys.getrecursionlimit()
    root = parse("<a>" * depth + "</a>" * depth, None)
    assert root.tag == "a"
    with pytest.raises(ModelError, match="outermost"):
        read_urdf("<a>" * depth + "</a>" * depth, file=None)


def test_comments_and_namespaces_are_no_content():
    text = (
        '<robot name="r" xmlns:xacro="http://ros.org/wiki/xacro"><!-- <xacro:leg x="${a}"/> --><link name="a"/></robot>'
    )
    assert read(text).findings == []


# What is understood.


def test_defaults_of_the_format():
    builder = read(arm(kind="continuous"))
    hand = builder.bodies["hand"]
    assert isinstance(hand.joint, Revolute)
    np.testing.assert_allclose(hand.hinge.rotation[:, 2], [1.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_array_equal(hand.placement.rotation, np.eye(3))
    np.testing.assert_array_equal(hand.placement.translation, np.zeros(3))
    assert hand.inertia.mass == 0.0
    assert (hand.parent, hand.joint_name, builder.name) == ("base", "elbow", "arm")
    assert builder.findings == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("revolute", Revolute), ("continuous", Revolute), ("prismatic", Prismatic), ("planar", Planar)],
)
def test_joint_types_with_an_axis(kind, expected):
    hand = read(arm('<axis xyz="0 -3e-200 4e-200"/>', kind=kind)).bodies["hand"]
    assert type(hand.joint) is expected
    np.testing.assert_allclose(hand.hinge.rotation[:, 2], [0.0, -0.6, 0.8], atol=1e-15)


@pytest.mark.parametrize(("kind", "expected"), [("fixed", Weld), ("floating", Free)])
def test_joint_types_without_an_axis(kind, expected):
    builder = read(arm('<axis xyz="0 0 0"/>', kind=kind))
    assert type(builder.bodies["hand"].joint) is expected
    assert builder.findings == []


def turn(axis: int, angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    matrix = np.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix[i, i], matrix[i, j], matrix[j, i], matrix[j, j] = c, -s, s, c
    return matrix


def test_rpy_turns_about_the_fixed_axes_in_turn():
    placement = read(arm('<origin xyz="1 2 3" rpy="0.3 -0.5 0.9"/>')).bodies["hand"].placement
    np.testing.assert_allclose(placement.rotation, turn(2, 0.9) @ turn(1, -0.5) @ turn(0, 0.3), atol=1e-15)
    np.testing.assert_array_equal(placement.translation, [1.0, 2.0, 3.0])


def test_quaternions_of_version_1_1():
    x, w = np.sin(0.35), np.cos(0.35)
    for axis in range(3):
        quaternion = np.insert(np.eye(3)[axis] * x, 3, w)
        placement = read(arm(f'<origin quat_xyzw="{" ".join(map(str, quaternion))}"/>')).bodies["hand"].placement
        np.testing.assert_allclose(placement.rotation, turn(axis, 0.7), atol=1e-15)


def test_the_tensor_is_turned_into_the_axes_of_the_link():
    tensor = '<inertia ixx="1" ixy="0.1" ixz="0.2" iyy="1.1" iyz="0.3" izz="1.2"/>'
    link = f'<inertial><origin xyz="1 2 3" rpy="0.1 0.2 0.3"/><mass value="5"/>{tensor}</inertial>'
    builder = read(arm(link=link))
    inertia = builder.bodies["hand"].inertia
    rotation = turn(2, 0.3) @ turn(1, 0.2) @ turn(0, 0.1)
    expected = rotation @ [[1, 0.1, 0.2], [0.1, 1.1, 0.3], [0.2, 0.3, 1.2]] @ rotation.T
    np.testing.assert_allclose(inertia.inertia, expected, atol=1e-15)
    np.testing.assert_array_equal(inertia.com, [1.0, 2.0, 3.0])
    assert inertia.mass == 5.0
    assert builder.findings == []


def test_limits_and_dynamics():
    hand = read(arm('<dynamics damping="0.5" friction="0.25"/>')).bodies["hand"]
    np.testing.assert_array_equal(hand.position_limits, [[-1.0, 2.0]])
    assert (hand.velocity_limits, hand.effort_limits) == (3.0, 4.0)
    assert (hand.damping, hand.friction_loss) == (0.5, 0.25)


def test_a_continuous_joint_has_no_position_limits():
    limit = '<limit lower="1" upper="-1" velocity="3" effort="4"/>'
    builder = read(arm(kind="continuous", limit=limit))
    np.testing.assert_array_equal(builder.bodies["hand"].position_limits, [[-np.inf, np.inf]])
    assert builder.bodies["hand"].velocity_limits == 3.0
    assert builder.findings == []


def test_mimic_becomes_a_gear_even_of_a_later_joint():
    later = '<link name="t"/>' + tie("j", "hand", "t", "continuous")
    builder = read(arm('<mimic joint="j" multiplier="-2" offset="0.5"/>', more=later))
    assert builder.gears == {"elbow": GearRecord("elbow", ("j",), (-2.0,), 0.5)}
    assert builder.findings == [("joint 'elbow'", "mimics joint 'j'; a gear, which forward_dynamics leaves out", 5)]
    plain = read(arm('<mimic joint="j"/>', more=later))
    assert plain.gears == {"elbow": GearRecord("elbow", ("j",), (1.0,), 0.0)}
    assert plain.build().constrained


def test_bodies_come_depth_first_in_file_order():
    joints = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "f"), ("b", "e")]
    text = "".join(f'<link name="{name}"/>' for name in "fedcba")
    for parent, child in joints:
        text += tie(parent + child, parent, child)
    assert list(read(f'<robot name="r">{text}</robot>').bodies) == ["a", "b", "d", "e", "c", "f"]


# Root and world.


def world(kind: str = "fixed", more: str = "", inside: str = "") -> str:
    joint = f'<joint name="tie" type="{kind}"><parent link="world"/><child link="base"/>'
    return (
        f'<robot name="r"><link name="world">{inside}</link><link name="base">{SOLID}</link>\n'
        f'{joint}<origin xyz="1 2 3"/></joint>{more}</robot>'
    )


def test_the_root_is_welded_or_free():
    base = read(arm()).bodies["base"]
    assert (base.parent, type(base.joint)) == ("world", Weld)
    base = read(arm(), root="free").bodies["base"]
    assert (base.parent, type(base.joint), base.joint_name) == ("world", Free, "root_joint")


def test_a_root_called_world_is_the_ground():
    builder = read(world())
    assert list(builder.bodies) == ["base"]
    assert (builder.bodies["base"].parent, builder.bodies["base"].joint_name) == ("world", "tie")
    assert builder.findings == []


def test_freeing_a_robot_that_is_fixed_to_its_world():
    builder = read(world(), root="free")
    base = builder.bodies["base"]
    assert (base.parent, type(base.joint), base.joint_name) == ("world", Free, "root_joint")
    np.testing.assert_array_equal(base.placement.translation, np.zeros(3))
    assert builder.findings == [("joint 'tie'", "gives way to the free 'root_joint', its origin is not used", 2)]


def test_a_robot_that_floats_in_its_world_is_free_already():
    for root in ("fixed", "free"):
        base = read(world("floating"), root=root).bodies["base"]
        assert (type(base.joint), base.joint_name) == (Free, "tie")


def test_a_robot_hinged_to_its_world_cannot_be_freed():
    with pytest.raises(ModelError, match=r"1 joints \('tie': continuous\).*use root='fixed'"):
        read(world("continuous"), root="free")


def test_the_name_of_the_free_joint_is_reserved():
    text = arm().replace("elbow", "root_joint")
    assert "hand" in read(text).bodies
    with pytest.raises(ModelError, match=r"root_joint.*rename"):
        read(text, root="free")
    assert read(world().replace("tie", "root_joint"), root="free").bodies["base"].joint_name == "root_joint"


# What is odd.

# fmt: off
ODD = {
    "no limit": (arm(limit=""), "joint 'elbow'", "has no <limit>, which its type demands; unlimited", 4),
    "no effort": (arm(limit='<limit upper="1" velocity="1"/>'), "joint 'elbow'", "<limit> has no effort; unlimited", 5),
    "no room": (
        arm(limit='<limit effort="1" velocity="1"/>'),
        "joint 'elbow'", "the range is the single point 0.0; loaded as written", 5,
    ),
    "no speed": (
        arm(limit='<limit upper="1" effort="1" velocity="0"/>'),
        "joint 'elbow'", "the velocity limit is zero; loaded as written", 5,
    ),
    "limited plane": (
        arm(kind="planar", limit='<limit effort="1"/>'),
        "joint 'elbow'", "<limit> has no meaning for a planar joint; ignored", 5,
    ),
    "mimic of a weld": (
        arm('<mimic joint="nothing"/>', kind="fixed"),
        "joint 'elbow'", "<mimic> has no meaning for a fixed joint; ignored", 5,
    ),
    "point mass": (
        arm(link=SOLID.replace('"1"', '"0"')),
        "link 'hand'", "has mass but no rotational inertia; loaded as written", 3,
    ),
    "inertia without mass": (
        arm(link=SOLID.replace('"2"', '"0"')),
        "link 'hand'", "has rotational inertia but no mass; loaded as written", 3,
    ),
    "element": (
        arm(more='<loop_joint name="l"/>\n<loop_joint name="m"/>'),
        "element <loop_joint> in <robot>", "unknown, ignored (2 times)", 7,
    ),
    "attribute": (arm('<origin xzy="1 2 3"/>'), "attribute 'xzy' of <origin>", "unknown, ignored (1 times)", 5),
    "nameless robot": ('<robot><link name="a"/></robot>', "<robot>", "has no name", 1),
    "ground with mass": (world(inside=SOLID), "link 'world'", "is the ground, its inertia plays no part", 1),
}
# fmt: on


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_is_loaded_and_noted(case):
    text, *note = ODD[case]
    assert read(text).findings == [tuple(note)]


def test_what_is_odd_is_not_altered():
    link = SOLID.replace('ixy="0"', 'ixy="2"')
    builder = read(arm(limit='<limit effort="0" velocity="0"/>', link=link))
    hand = builder.bodies["hand"]
    assert hand.inertia.inertia[0, 1] == 2.0
    assert hand.effort_limits == 0.0
    np.testing.assert_array_equal(hand.position_limits, [[0.0, 0.0]])
    assert any("not all positive" in finding.message for finding in builder.findings)


def test_extensions_are_ignored_unread():
    inside = '<visual><geometry><mesh filename="package://no/such.stl"/></geometry><origin xyz="abc"/></visual>'
    more = '<gazebo reference="hand"><mu1>x</mu1></gazebo>'
    more += '<material name="m"/><ros2_control name="c"><joint name="elbow"/></ros2_control><sensor name="s"/>'
    joint = '<safety_controller k_velocity="?"/><calibration rising="?"/>'
    found = read(arm(joint, link=inside + "<collision/>" + inside, more=more)).findings
    assert found == [
        ("geometry", "not part of the model: 2 <visual> and 1 <collision>; dx.view and dx.load_scene read them", 3)
    ]
    assert read(arm(joint, more=more)).findings == []


def test_the_report_of_a_model_holds_the_notes():
    model = read_urdf(arm(limit="", link=SOLID), file="robot.urdf").build()
    assert any("elbow" in str(line) and "no <limit>" in str(line) for line in model.report)


# Size and hygiene.


def test_a_long_chain_is_read_fast():
    count = 5000
    parts = [f'<link name="l{i}">{SOLID}</link>' for i in range(count)]
    parts += [
        f'<joint name="j{i}" type="continuous"><parent link="l{i - 1}"/><child link="l{i}"/><axis xyz="0 0 1"/></joint>'
        for i in range(1, count)
    ]
    text = f'<robot name="chain">{"".join(reversed(parts))}</robot>'
    start = time.perf_counter()
    bodies = read(text).bodies
    assert time.perf_counter() - start < 10.0
    assert list(bodies) == [f"l{i}" for i in range(count)]


def test_reading_starts_no_backend():
    text = arm('<origin rpy="1 2 3"/>', link=SOLID)
    code = (
        "from jax._src import xla_bridge; from dynax.io.urdf import read_urdf; "
        f"read_urdf({text!r}, file=None); assert not xla_bridge._backends"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Real files.


ROBOTS = example_robots()

# Read by eye: each of these is right about its file.
REFUSED = {
    # The fingers' joints are called Left_index_q1, Right_index_q1, ..; the mimics leave the prefix out.
    "alex_description/urdf/alex_psyonic_hands.urdf": (
        1037,
        "there is no joint 'index_q1' (did you mean 'Left_index_q1'?)",
    ),
    # An expanded xacro that defined macros and used none.
    "ur_description/urdf/ur3.urdf": (6, "there is no <link>"),
}

# How often each kind of note occurs in all of them, and in how many files, in this version of the wheel.
ROBOTS_VERSION = "6.0.0"
NOTED = {
    "mimics joint": (70, 8),
    "<mimic> has no meaning": (42, 4),
    "the velocity limit is zero": (34, 5),
    "the effort limit is zero": (34, 5),
    "the range is the single point": (12, 4),
    "has mass but no rotational inertia": (57, 15),
    "has rotational inertia but no mass": (2, 1),
    "are not all positive": (9, 4),
    "violate the triangle inequality": (29, 12),
    "element <": (15, 12),
    "attribute '": (18, 8),
    "forward dynamics is singular": (26, 2),
    "geometry": (66, 66),
    "transmission '": (30, 11),
    "takes commands of": (3, 2),
    "its state interface '": (1, 1),
}

needs_robots = pytest.mark.skipif(not ROBOTS, reason="example-robot-data is not installed")


@needs_robots
def test_every_example_robot_loads_or_fails_for_a_reason():
    occurrences: Counter[str] = Counter()
    files: Counter[str] = Counter()
    refused = {}
    for name, path in ROBOTS.items():
        try:
            report = read(path.read_bytes(), file=name).build().report
        except ModelError as error:
            refused[name] = error
            continue
        kinds = [next(kind for kind in NOTED if kind in str(finding)) for finding in report]
        occurrences.update(kinds)
        files.update(set(kinds))
    if importlib.metadata.version("example-robot-data") != ROBOTS_VERSION:
        pytest.skip(f"all were read; the counts are those of version {ROBOTS_VERSION}")
    assert len(ROBOTS) == 69
    assert {name: error.line for name, error in refused.items()} == {name: line for name, (line, _) in REFUSED.items()}
    assert all(REFUSED[name][1] in str(error) for name, error in refused.items())
    assert {kind: (occurrences[kind], files[kind]) for kind in NOTED} == NOTED


@needs_robots
@pytest.mark.parametrize("name", sorted(set(ROBOTS) - set(REFUSED)))
def test_placements_axes_and_inertias_are_those_of_pinocchio(name):
    pin = pytest.importorskip("pinocchio")
    theirs = pin.buildModelFromUrdf(str(ROBOTS[name]))
    data = theirs.createData()
    q = pin.neutral(theirs)
    pin.framesForwardKinematics(theirs, data, q)
    columns = pin.computeJointJacobians(theirs, data, q)

    bodies = read(ROBOTS[name].read_bytes(), file=name).bodies
    poses = {"world": (np.eye(3), np.zeros(3))}
    holder = {"world": "universe"}  # the moving joint that carries each link
    totals = {joint: np.zeros((4, 4)) for joint in theirs.names}
    for link, body in bodies.items():
        rotation, translation = poses[body.parent]
        place = body.placement
        poses[link] = rotation, translation = rotation @ place.rotation, translation + rotation @ place.translation
        welded = isinstance(body.joint, Weld)
        holder[link] = holder[body.parent] if welded else body.joint_name
        frame = data.oMf[theirs.getFrameId(link, pin.BODY)]
        np.testing.assert_allclose(rotation, frame.rotation, atol=1e-12)
        np.testing.assert_allclose(translation, frame.translation, atol=1e-12)
        if not welded:
            column = columns[:, theirs.joints[theirs.getJointId(holder[link])].idx_v]
            axis = column[:3] if isinstance(body.joint, Prismatic) else column[3:]
            np.testing.assert_allclose(rotation @ body.hinge.rotation[:, 2], axis, atol=1e-12)
        totals[holder[link]] += pseudo_inertia(body.inertia, rotation, translation)
    for joint, total in totals.items():
        index = theirs.getJointId(joint)
        inertia = theirs.inertias[index]
        expected = pseudo_inertia(
            SpatialInertia(inertia.mass, inertia.lever, inertia.inertia),
            data.oMi[index].rotation,
            data.oMi[index].translation,
        )
        np.testing.assert_allclose(total, expected, rtol=1e-11, atol=1e-13)


def pseudo_inertia(inertia: SpatialInertia, rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """The 4x4 matrix of second moments, first moments and mass in the world: it adds up over bodies."""
    com = translation + rotation @ inertia.com
    tensor = rotation @ inertia.inertia @ rotation.T
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = 0.5 * np.trace(tensor) * np.eye(3) - tensor + inertia.mass * np.outer(com, com)
    matrix[:3, 3] = matrix[3, :3] = inertia.mass * com
    matrix[3, 3] = inertia.mass
    return matrix
