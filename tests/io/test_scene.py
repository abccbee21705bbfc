"""Scenes from files: robots with their collision elements."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.robots import example_robots

import dynax as dx
from dynax import contact as c
from dynax.io._mesh import corners
from dynax.simulate import TouchStatus

mujoco = pytest.importorskip("mujoco")


ROBOTS = example_robots()
needs_robots = pytest.mark.skipif(not ROBOTS, reason="example-robot-data is not installed")

ARM = """
<robot name="arm">
  <link name="world"><collision><geometry><box size="4 4 0.2"/></geometry><origin xyz="0 0 -0.1"/></collision></link>
  <link name="base"><collision name="foot"><geometry><cylinder radius="0.1" length="0.4"/></geometry></collision></link>
  <link name="upper">
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0 0 0.3" rpy="0 1.5707963267948966 0"/><geometry><capsule radius="0.05" length="0.6"/>
    </geometry></collision>
    <collision><geometry><sphere radius="0"/></geometry></collision>
    <collision><geometry><mesh filename="package://nowhere/arm.stl"/></geometry></collision>
    <collision/>
  </link>
  <link name="hand">
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><cylinder radius="0.05" length="0.2"/></geometry></collision>
  </link>
  <joint name="stand" type="fixed"><parent link="world"/><child link="base"/></joint>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="hand"/><origin xyz="0 0 0.6"/></joint>
</robot>"""


def pairs_of(scene):
    return {tuple(sorted((scene.names[a], scene.names[b]))) for a, b in scene.pairs}


def test_urdf():
    """The robot touches the world and, where asked, itself; what cannot be had is named."""
    scene = dx.load_scene(ARM)
    assert scene.names == ("world/0", "foot", "upper/0", "hand/0")
    # Where a box and a cylinder touch is not known.
    assert pairs_of(scene) == {("upper/0", "world/0")}
    np.testing.assert_allclose(scene.placements.rotation[2][:, 2], [1, 0, 0], atol=1e-12)
    np.testing.assert_allclose((scene.shapes[2].radius, scene.shapes[2].half_length), (0.05, 0.3))
    found = [(finding.element, finding.message, finding.line) for finding in scene.report]
    assert found == [
        ("collision 'upper/1'", "left out: its size is 0.0", 9),
        (
            "collision 'upper/2'",
            "left out: the mesh 'package://nowhere/arm.stl' is not found; `packages` says where packages are",
            10,
        ),
        ("collision 'upper/3'", "left out: it has 0 shapes instead of one", 11),
        (
            "contact",
            "left out, since it is not known where a Box and a Cylinder touch: 'world/0' and 'hand/0'",
            None,
        ),
    ]
    both = dx.load_scene(ARM, self_contact=True, ground=c.Plane())
    # The hand against the base it does not hang on: two cylinders, left out. A link and its parent never touch.
    assert pairs_of(both) == pairs_of(scene) | {("ground", "upper/0"), ("ground", "hand/0")}
    assert "'foot' and 'hand/0'" in str(both.report[-1])


def test_what_a_scene_of_a_file_refuses(tmp_path):
    with pytest.raises(dx.ModelError, match="'x' is not a number"):
        dx.load_scene(ARM.replace("4 4 0.2", "4 x 0.2"))
    dx.save(dx.load(ARM), tmp_path / "arm.json")
    with pytest.raises(dx.ModelError, match="no collision elements"):
        dx.load_scene(tmp_path / "arm.json")
    other = dx.ModelBuilder().body("arm", joint=dx.Revolute((0, 0, 1))).build()
    with pytest.raises(dx.ModelError, match="collider 'foot': "):
        dx.load_scene(ARM, model=other)


def test_model_in_place_of_the_files():
    """With other masses, and the shapes of the file."""
    model = dx.load(ARM)
    scene = dx.load_scene(ARM, model=model.replace(mass=2 * model.mass))
    np.testing.assert_array_equal(scene.mass, 2 * model.mass)
    assert len(scene.pairs) == 1


def test_meshes(tmp_path):
    """In the package that the file is in, with their scale; of a cube with points all over it the corners."""
    trimesh = pytest.importorskip("trimesh")
    (tmp_path / "robot" / "meshes").mkdir(parents=True)
    trimesh.creation.box((1, 1, 1)).subdivide().subdivide().export(tmp_path / "robot" / "meshes" / "cube.stl")
    file = tmp_path / "robot" / "cube.urdf"
    mesh = '<mesh filename="package://robot/meshes/cube.stl" scale="0.2 0.4 0.6"/>'
    file.write_text(f'<robot name="r"><link name="a"><collision><geometry>{mesh}</geometry></collision></link></robot>')
    scene = dx.load_scene(file, root="free", ground=c.Plane())
    assert scene.report == ()
    points = np.asarray(scene.shapes[0].points)
    assert points.shape == (8, 3)
    expected = [[x, y, z] for x in (-0.1, 0.1) for y in (-0.2, 0.2) for z in (-0.3, 0.3)]
    np.testing.assert_allclose(sorted(points.tolist()), expected, atol=1e-7)
    file.with_name("broken.urdf").write_text(file.read_text().replace("cube.stl", "../cube.urdf"))
    broken = dx.load_scene(file.with_name("broken.urdf"), root="free")
    assert "left out: the mesh 'package://robot/meshes/../cube.urdf' cannot be read: " in str(broken.report[0])


def test_corners_of_what_is_round(rng):
    """The more points, the less is missing, and that is told: by every direction."""
    x = rng.normal(size=(4000, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    missing = [corners(x, most).missing for most in (8, 16, 64)]
    assert missing[0] > missing[1] > missing[2] > 0
    found = corners(x, 16)
    assert np.max(x @ x[:200].T - np.max(found.points @ x[:200].T, axis=0)) < found.missing + 0.05
    flat = corners(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0.0]]), 16)
    assert flat.points.shape == (4, 3)
    assert flat.missing < 1e-9


SCENE = """
<mujoco><option gravity="0 0 -9.81"/>
<default><geom friction="0.7 0.1 0.1"/><default class="smooth"><geom friction="0.2" priority="1"/></default></default>
<asset><mesh name="wedge" vertex="0 0 0  0.2 0 0  0 0.3 0  0 0 0.1"/>
<hfield name="hills" nrow="3" ncol="5" size="2 1 .5 .1"/><mesh name="lost" file="lost.stl"/></asset>
<worldbody>
  <geom name="floor" type="plane" size="1 1 .1" pos="0 0 -0.2"/>
  <geom name="hills" type="hfield" hfield="hills" contype="2"/>
  <body name="a" pos="0 0 0.1"><freejoint/>
    <geom name="ball" type="sphere" size="0.1" pos="0.1 0 0"/>
    <geom name="rod" type="capsule" fromto="0 0 0 0.3 0.1 0" size="0.02"/>
    <geom name="seen" type="box" size="1 1 1" contype="0" conaffinity="0"/>
    <body name="b" pos="0.3 0.1 0" euler="20 30 40"><joint axis="0 1 0"/>
      <geom type="box" size="0.1 0.2 0.05" class="smooth"/>
      <body name="c" pos="0 0 0.2"><joint axis="1 0 0"/>
        <geom name="egg" type="ellipsoid" size="0.1 0.05 0.04" condim="1"/>
        <geom name="pin" type="cylinder" size="0.02 0.1" euler="0 90 0" mass="1"/>
        <geom name="none" type="mesh" mesh="lost" mass="0"/></body></body></body>
  <body name="d" pos="1 0 0.2" euler="10 20 30"><freejoint/><geom name="wedge" type="mesh" mesh="wedge"/></body>
</worldbody>
<contact><exclude body1="d" body2="world"/><pair geom1="ball" geom2="egg" friction="0.33 0.33 0.1 0.1 0.1"/></contact>
</mujoco>"""


def test_mjcf_beside_mujoco(rng):
    """Shapes stand where MuJoCo's do, and what touches there may touch here, with its friction."""
    scene = dx.load_scene(SCENE, self_contact=True)
    m = mujoco.MjModel.from_xml_string(
        SCENE.replace('<mesh name="lost" file="lost.stl"/>', "").replace(
            '<geom name="none" type="mesh" mesh="lost" mass="0"/>', ""
        )
    )
    data = mujoco.MjData(m)
    data.qpos[:] = np.array([0.1, 0.2, 0.3, 0.5, 0.5, -0.5, 0.5, 0.4, -0.3, 1, 0.2, 0.3, 0.1, 0.7, 0.5, -0.5])
    data.qpos[3:7] /= np.linalg.norm(data.qpos[3:7])
    data.qpos[12:16] /= np.linalg.norm(data.qpos[12:16])
    mujoco.mj_forward(m, data)
    poses = dx.forward_kinematics(scene.model, jnp.asarray(data.qpos))
    rotation = np.concatenate([poses.rotation, np.eye(3)[None]])
    origin = np.concatenate([poses.translation, np.zeros((1, 3))])
    names = [m.geom(g).name or "b/0" for g in range(m.ngeom)]
    for k, name in enumerate(scene.names):
        g, body = names.index(name), scene.bodies[k]
        own = scene.placements.rotation[k], scene.placements.translation[k]
        np.testing.assert_allclose(rotation[body] @ own[0], data.geom_xmat[g].reshape(3, 3), atol=1e-9)
        np.testing.assert_allclose(rotation[body] @ own[1] + origin[body], data.geom_xpos[g], atol=1e-9)
    assert set(names) - set(scene.names) == {"seen"}
    assert np.shape(scene.shapes[scene.names.index("wedge")].points) == (4, 3)
    assert np.shape(scene.shapes[scene.names.index("hills")].heights) == (5, 3)

    rough = {
        tuple(sorted((scene.names[a], scene.names[b]))): float(scene.between[k].friction)
        for k, (a, b) in enumerate(scene.pairs)
    }
    unknown = {("egg", "hills"), ("hills", "pin"), ("ball", "wedge")}
    reported = " ".join(map(str, scene.report))
    assert all(f"{a!r}" in reported and f"{b!r}" in reported for a, b in unknown)
    assert "geom 'none': left out: its file 'lost.stl' is not found" in reported
    seen = set()
    for _ in range(2000):
        data.qpos[:] = rng.normal(size=m.nq) * np.where(np.isin(np.arange(m.nq), (7, 8)), 3.0, 0.2)
        mujoco.mj_forward(m, data)
        for contact in data.contact:
            pair = tuple(sorted(names[g] for g in contact.geom))
            if pair not in unknown:
                np.testing.assert_allclose(rough[pair], contact.friction[0], rtol=1e-6)
            seen.add(pair)
    # The pin and the rod are too short to meet.
    assert seen == (rough.keys() | unknown) - {("pin", "rod")}
    alone = dx.load_scene(SCENE)
    assert pairs_of(alone) == {
        pair for pair in rough if {"floor", "hills", "wedge"} & {*pair} or pair == ("ball", "egg")
    }
    assert "3 pairs within a robot" in " ".join(map(str, alone.report))


FALLING = """<mujoco><option o_friction=".1 .1 .1 .1 .1" o_solref=".03 1"><flag {flag}/></option>
  <worldbody><geom name="a" type="plane" size="1 1 1"/>
    <body name="b"><joint name="j" type="slide" range="-1 1"/><geom name="b" size=".1" friction=".7"/></body>
    <body name="c"><joint name="k" type="ball" range="0 .5"/><geom name="c" size=".1" pos=".3 0 0"/></body></worldbody>
  <contact><pair geom1="a" geom2="c" friction=".6" solref=".5 1"/></contact></mujoco>"""


def test_flags_of_an_mjcf():
    """`contact`, `limit` and `constraint` switch off, `override` gives all contacts one material."""
    plain = dx.load_scene(FALLING.format(flag=""))
    assert len(plain.pairs) == 3
    assert len(plain.limited) == 1
    assert len(plain.stops) == 1
    for flag, pairs, limits in (("contact", 0, 1), ("limit", 3, 0), ("constraint", 0, 0)):
        found = dx.load_scene(FALLING.format(flag=f"{flag}='disable'"))
        assert (len(found.pairs), len(found.limited), len(found.stops)) == (pairs, limits, limits)
        assert ["switches" in f.message for f in found.report] == [True] * ((not pairs) + (not limits))
        assert dx.load_scene(FALLING.format(flag=f"{flag}='disable'"), ground=c.Plane()).pairs  # the user's own
    one = dx.load_scene(FALLING.format(flag="override='enable'"))
    assert [float(m.friction) for m in one.between] == [0.1] * 3
    assert np.allclose([m.damping / m.stiffness for m in one.between], 2 * 0.03)


POSES = {
    "go2_description/urdf/go2.urdf": ([0.0, 0.8, -1.6] * 4, 60.0),
    "anymal_b_simple_description/robots/anymal.urdf": ([0, 0.5, -0.9] * 2 + [0, -0.5, 0.9] * 2, 150.0),
    "solo_description/robots/solo12.urdf": ([0, 0.8, -1.6] * 2 + [0, -0.8, 1.6] * 2, 6.0),
}


@needs_robots
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    "name",
    [
        "anymal_b_simple_description/robots/anymal.urdf",
        pytest.param("solo_description/robots/solo12.urdf", marks=pytest.mark.slow),
        pytest.param("go2_description/urdf/go2.urdf", marks=pytest.mark.slow),
    ],
)
def test_quadruped_stands(name):
    """Dropped on a plane, held by springs in its joints: on its feet, at rest, upright, hardly in the ground."""
    if "anymal" not in name:
        pytest.importorskip("trimesh")
    scene = dx.load_scene(ROBOTS[name], root="free", ground=c.Plane())
    pose, gain = jnp.array(POSES[name][0]), POSES[name][1]
    q = dx.neutral(scene.model).at[7:].set(pose)
    q = q.at[2].add(0.02 - jnp.min(c.contacts(scene, q).gap))

    def hold(t, q, v):
        return jnp.concatenate([jnp.zeros(6), gain * (pose - q[7:]) - gain / 30 * v[6:]])

    run = jax.jit(lambda q: dx.rollout(scene, q, jnp.zeros(18), hold, 0.002, steps=1000, every=10))(q)
    assert np.all(np.isfinite(run.q))
    assert np.all(run.touch.status == TouchStatus.SOLVED)
    assert np.max(run.touch.penetration) < 1e-6
    assert np.all(run.touch.energy < 1e-9)
    assert run.touch.contacts[0] == 0
    assert run.touch.contacts[-1] >= 3
    assert np.max(np.abs(run.v[-1])) < 0.02
    up = dx.Rotation.from_quaternion(run.q[-1, 3:7]).matrix[2, 2]
    assert up > 0.999
    assert np.max(np.abs(run.q[-1, 7:] - pose)) < 0.2


@needs_robots
def test_light_legs_are_solved_in_float32():
    """Bolt, 1.25 kg on shanks of 31 g: contacts are so hard beside its legs that a velocity rounded to float32 has
    other impulses: one step in 250 was told not to be solved, with all velocities right to 1e-6."""
    model = dx.load(ROBOTS["bolt_description/robots/bolt.urdf"], root="free")
    feet = [c.Collider(name, c.Sphere(0.02)) for name in ("FL_FOOT", "FR_FOOT")]
    scene = c.scene(model, [c.Collider("world", c.Plane(), material=c.Material(friction=0.8)), *feet])
    lowest = jnp.min(c.contacts(scene, dx.neutral(model)).gap[:2])
    rng = np.random.default_rng(1)
    angles = 10.0 ** rng.uniform(-4, -1, (64, 1)) * rng.normal(size=(64, 6))
    q = jnp.tile(dx.neutral(model).at[2].add(0.01 - lowest), (64, 1)).at[:, 7:].set(angles)
    scene, q, zero = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (scene, q, jnp.zeros((250, 12))))
    run = jax.jit(jax.vmap(lambda q: dx.rollout(scene, q, zero[0], zero, jnp.float32(1e-3))))(q)
    assert np.max(run.touch.contacts) == 2
    assert np.all(run.touch.status == TouchStatus.SOLVED)
    assert np.max(run.touch.unbalanced) < 1e-3


def test_a_world_of_which_nothing_moves(tmp_path):
    """It is read, and steps to where it is."""
    file = tmp_path / "world.xml"
    file.write_text('<mujoco><worldbody><geom type="plane" size="1 1 1"/><geom size=".5"/></worldbody></mujoco>')
    scene, nothing = dx.load_scene(file), jnp.zeros(0)
    assert len(scene.shapes) == 2
    for gradient in (dx.simulate.Exact(), dx.simulate.Smoothed(1e-3)):
        stepper = dx.simulate.Touching(gradient=gradient)
        run = lambda q: dx.rollout(scene, q, q, jnp.zeros((3, 0)), 0.01, stepper=stepper)  # noqa: B023, E731
        assert jax.jit(run)(nothing).touch.status.tolist() == [0, 0, 0, 0]
        assert jax.jit(jax.grad(lambda q: jnp.sum(run(q).q)))(nothing).shape == (0,)  # noqa: B023


@needs_robots
@pytest.mark.slow
def test_every_example_robot_has_a_scene():
    """All but those that `dx.load` refuses too; each collision element is a shape, or the report says why not."""
    for path in ROBOTS.values():
        try:
            scene = dx.load_scene(path, root="free", ground=c.Plane())
        except dx.ModelError:
            with pytest.raises(dx.ModelError):
                dx.load(path)
            continue
        left_out = [finding for finding in scene.report if finding.element.startswith("collision ")]
        assert all(finding.message.startswith("left out: ") for finding in left_out)
        elements = len(ET.parse(path).getroot().findall("link/collision"))
        assert len(scene.shapes) - 1 + len(left_out) == elements, path
