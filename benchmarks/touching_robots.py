"""Robots that touch, as MuJoCo and dynax both read them, and states of them: a quadruped and a humanoid on the ground,
an arm that holds a cube."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import dynax as dx

DT = 0.002
States = tuple[np.ndarray, np.ndarray, np.ndarray]
"""`q`, `v` and `tau` as dynax has them, rows of a batch."""


class Robot(NamedTuple):
    what: str
    xml: Callable[[int], str]
    """The MJCF, with so many iterations of MuJoCo's solver."""
    iterations: int
    """Of MJX forwards, as its authors have them for such robots. With more than one its gradient cannot be had
    backwards."""
    states: Callable[[int], States]

    def scene(self) -> dx.contact.Scene:
        return dx.load_scene(self.xml(self.iterations))

    def mujoco(self, iterations: int) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_string(self.xml(iterations))


LEG = """<body name="{n}_hip" pos="{x} {y} 0"><joint name="{n}_1" axis="1 0 0" range="-1 1"/>
  <inertial pos="0 0 0" mass="0.68" diaginertia="0.0005 0.0006 0.0005"/>
  <body name="{n}_thigh" pos="0 {side} 0"><joint name="{n}_2" axis="0 1 0" range="-1.5 3.4"/>
    <inertial pos="0 0 -0.03" mass="1.15" diaginertia="0.006 0.006 0.001"/>
    <body name="{n}_calf" pos="0 0 -0.213"><joint name="{n}_3" axis="0 1 0" range="-2.7 -0.8"/>
      <inertial pos="0 0 -0.1" mass="0.24" diaginertia="0.002 0.002 0.00004"/>
      <geom name="{n}" type="sphere" size="0.022" pos="0 0 -0.213" friction="0.8"/>
    </body></body></body>"""
QUADRUPED = """<mujoco><compiler angle="radian"/>
<option timestep="{dt}" iterations="{iterations}" ls_iterations="8" cone="pyramidal"/>
<default><joint type="hinge" limited="true" damping="0.1" armature="0.01"/><geom condim="3"/></default><worldbody>
<geom name="floor" type="plane" size="10 10 1" friction="0.8"/><body name="trunk" pos="0 0 0.32"><freejoint/>
<inertial pos="0.02 0 0" mass="6.9" diaginertia="0.025 0.1 0.11"/>{legs}</body></worldbody></mujoco>"""
STAND = np.array([0.0, 0.9, -1.8] * 4)


def quadruped(iterations: int) -> str:
    legs = [
        LEG.format(n=n, x=x, y=y, side=side)
        for n, x, y, side in (
            ("FL", 0.19, 0.047, 0.0955),
            ("FR", 0.19, -0.047, -0.0955),
            ("RL", -0.19, 0.047, 0.0955),
            ("RR", -0.19, -0.047, -0.0955),
        )
    ]
    return QUADRUPED.format(dt=DT, iterations=iterations, legs="".join(legs))


def of_quadruped(batch: int) -> States:
    """Standing, some a little above the ground, some a little lower, moving a little; and torques."""
    rng = np.random.default_rng(0)
    q = np.tile(np.concatenate([[0, 0, 0.287, 1, 0, 0, 0], STAND]), (batch, 1))
    q[:, 2] += rng.uniform(-0.002, 0.01, size=batch)
    q[:, 7:] += 0.05 * rng.normal(size=(batch, 12))
    tau = np.concatenate([np.zeros((batch, 6)), rng.normal(size=(batch, 12))], axis=1)
    return q, 0.1 * rng.normal(size=(batch, 18)), tau


def humanoid(iterations: int) -> str:
    """The one of MJX's own tests."""
    from mujoco import mjx

    path = Path(str(mjx.__file__)).parent / "test_data" / "humanoid" / "humanoid.xml"
    spec = mujoco.MjSpec.from_string(path.read_text())
    spec.option.timestep, spec.option.iterations = DT, iterations
    return spec.to_xml()


def of_humanoid(batch: int) -> States:
    """Upright, knees and all else a little bent, the lowest end of a foot a little above the ground or a little lower,
    moving a little; and torques."""
    rng = np.random.default_rng(0)
    scene = ROBOTS["humanoid"].scene()
    q = np.tile(np.array(dx.neutral(scene.model)), (batch, 1))
    q[:, 7:] += 0.05 * rng.normal(size=(batch, scene.nq - 7))
    lowest = jax.jit(jax.vmap(lambda q: dx.contact.contacts(scene, q).gap.min()))(q)
    q[:, 2] += rng.uniform(-0.002, 0.01, size=batch) - np.array(lowest)
    tau = np.concatenate([np.zeros((batch, 6)), rng.normal(size=(batch, scene.nv - 6))], axis=1)
    return q, 0.1 * rng.normal(size=(batch, scene.nv)), tau


HALF, PAD, CORNER = 0.02, 0.004, 0.002
"""Of the cube half an edge; the radii of the balls on a finger and of those at the corners of the cube [m]."""
REACH = np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785])
GRIP = 10.0
"""Of each finger [N]."""


@lru_cache(maxsize=1)
def _arm() -> tuple[str, np.ndarray]:
    """The Panda of `example-robot-data` without its meshes, each finger by itself; where it reaches to, between its
    fingers."""
    own = importlib.metadata.distribution("example-robot-data")
    (path,) = (f for f in own.files or () if str(f).endswith("/panda_description/urdf/panda.urdf"))
    robot = ElementTree.parse(str(own.locate_file(path))).getroot()
    for joint in robot.iter("joint"):
        for coupled in joint.findall("mimic"):
            joint.remove(coupled)
    for link in robot.iter("link"):
        for drawn in (*link.findall("visual"), *link.findall("collision")):
            link.remove(drawn)
    model = dx.load(ElementTree.tostring(robot, encoding="unicode"))
    pose = dx.frame_pose(model, np.concatenate([REACH, [HALF, HALF]]), "panda_hand_tcp")
    return ElementTree.tostring(robot, encoding="unicode"), np.array(pose.translation)


def panda(iterations: int) -> str:
    """A Panda that holds a cube which stands on a table: four balls on each finger, on the sides of the cube; balls at
    the corners of the cube, on the table."""
    text, at = _arm()
    spec = mujoco.MjSpec.from_string(text)
    spec.compiler.fusestatic = False
    spec.option.timestep, spec.option.iterations, spec.option.ls_iterations = DT, iterations, 8
    spec.option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    for joint in spec.joints:
        joint.armature = 0.01
    kinds, friction = mujoco.mjtGeom, [0.8, 0.005, 0.0001]
    table = [0.0, 0.0, at[2] - HALF]
    spec.worldbody.add_geom(
        type=kinds.mjGEOM_PLANE, size=[2, 2, 1], pos=table, friction=friction, contype=1, conaffinity=0
    )
    for side, finger in ((1, "panda_leftfinger"), (-1, "panda_rightfinger")):
        for x in (-0.008, 0.008):
            for z in (0.037, 0.053):
                spec.body(finger).add_geom(
                    type=kinds.mjGEOM_SPHERE, size=[PAD, 0, 0], pos=[x, side * PAD, z], mass=0, friction=friction,
                    contype=2, conaffinity=0,
                )  # fmt: skip
    cube = spec.worldbody.add_body(name="cube", pos=at)
    cube.add_freejoint()
    cube.add_geom(type=kinds.mjGEOM_BOX, size=[HALF] * 3, mass=0.1, friction=friction, contype=0, conaffinity=2)
    inside = HALF - CORNER
    for corner in np.ndindex(2, 2, 2):
        cube.add_geom(
            type=kinds.mjGEOM_SPHERE, size=[CORNER, 0, 0], pos=inside * (2 * np.array(corner) - 1), mass=0,
            friction=friction, contype=0, conaffinity=1,
        )  # fmt: skip
    spec.compile()
    return spec.to_xml()


def of_panda(batch: int) -> States:
    """The cube between the fingers, wherever the arm has it, turned as the hand is, so that some corners are a little
    above the table and some a little lower; what carries the arm and presses the fingers together, and torques."""
    rng = np.random.default_rng(0)
    scene = ROBOTS["panda"].scene()
    q = np.tile(np.array(dx.neutral(scene.model)), (batch, 1))
    q[:, :7] = REACH + 0.005 * rng.normal(size=(batch, 7))
    q[:, 7:9] = HALF

    @jax.jit
    @jax.vmap
    def begun(q: jax.Array) -> tuple[jax.Array, jax.Array]:
        hand = dx.frame_pose(scene.model, q, "panda_hand_tcp")
        pose = jnp.concatenate([hand.translation, dx.Rotation(hand.rotation).quaternion()])
        q = q.at[scene.model.q_slice("cube_joint")].set(pose)
        return q, dx.gravity_force(scene.model, q)

    q, weight = map(np.array, begun(q))
    tau = np.zeros((batch, scene.nv))
    tau[:, :9] = weight[:, :9]
    tau[:, :7] += rng.normal(size=(batch, 7))
    tau[:, 7:9] -= GRIP
    v = np.zeros((batch, scene.nv))
    v[:, :7] = 0.02 * rng.normal(size=(batch, 7))
    return q, v, tau


ROBOTS = {
    "quadruped": Robot("18 freedoms, 4 feet that are balls, 12 limits", quadruped, 4, of_quadruped),
    "humanoid": Robot(
        "27 freedoms, 2 capsules as each foot, 8 places that may touch, 21 limits", humanoid, 1, of_humanoid
    ),
    "panda": Robot("15 freedoms, 8 balls at a cube, 8 on a table, 9 limits", panda, 4, of_panda),
}
