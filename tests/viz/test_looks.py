"""What a robot looks like: the files' shapes, and bodies by their inertia."""

from __future__ import annotations

import numpy as np
import pytest

import dynax as dx
from dynax.contact import Box, Capsule, Cylinder, Ellipsoid, HeightField, Plane, Points, Sphere
from dynax.io.visuals import load_visuals
from dynax.viz.actors import home
from dynax.viz.meshes import mesh, rod
from dynax.viz.parts import parts_of

TETRAHEDRON = """solid t
facet normal 0 0 0
 outer loop
  vertex 0 0 0
  vertex 0 1 0
  vertex 1 0 0
 endloop
endfacet
facet normal 0 0 0
 outer loop
  vertex 0 0 0
  vertex 1 0 0
  vertex 0 0 1
 endloop
endfacet
facet normal 0 0 0
 outer loop
  vertex 0 0 0
  vertex 0 0 1
  vertex 0 1 0
 endloop
endfacet
facet normal 0 0 0
 outer loop
  vertex 1 0 0
  vertex 0 1 0
  vertex 0 0 1
 endloop
endfacet
endsolid t
"""


def volume(surface) -> float:
    """Positive where triangles are anticlockwise from outside, by the divergence theorem."""
    a, b, c = np.moveaxis(surface.vertices[surface.faces], 1, 0)
    return float(np.sum(a * np.cross(b, c)) / 6.0)


def centre(surface) -> np.ndarray:
    a, b, c = np.moveaxis(surface.vertices[surface.faces], 1, 0)
    weight = np.sum(a * np.cross(b, c), axis=1) / 6.0
    return (weight @ (a + b + c)) / (4.0 * np.sum(weight))


@pytest.mark.parametrize(
    ("shape", "full"),
    [
        (Sphere(0.5), np.pi / 6),
        (Ellipsoid(np.array([1.0, 2.0, 3.0])), 8 * np.pi),
        (Capsule(0.5, 1.0), np.pi / 6 + np.pi / 2),
        (Cylinder(0.5, 1.0), np.pi / 2),
        (Box(np.array([1.0, 2.0, 3.0])), 48.0),
        (Points(np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])), 8.0),
    ],
    ids=lambda x: type(x).__name__,
)
def test_surfaces_are_closed_and_outside_out(shape, full):
    """Round ones are inscribed: 32 corners miss some 2 percent of a ball's volume."""
    assert volume(mesh(shape)) == pytest.approx(full, rel=0.02)
    assert volume(mesh(shape)) <= full * (1 + 1e-12)
    np.testing.assert_allclose(centre(mesh(shape)), 0.0, atol=1e-12)


def test_rods_ground_and_what_has_no_end():
    found = rod((1.0, 0.0, 2.0), (1.0, 3.0, -2.0), 0.1)
    assert volume(found) == pytest.approx(np.pi * 0.01 * 5.0, rel=0.01)
    np.testing.assert_allclose(centre(found), (1.0, 1.5, 0.0), atol=1e-9)
    assert mesh(Plane()) is None
    ground = mesh(HeightField(np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), 0.5))
    assert [0.5, 0.25, 5.0] in ground.vertices.tolist()


@pytest.fixture
def urdf(tmp_path):
    (tmp_path / "t.stl").write_text(TETRAHEDRON)
    path = tmp_path / "robot.urdf"
    path.write_text("""<robot name="r">
      <material name="red"><color rgba="1 0 0 1"/></material>
      <link name="base"><visual><geometry><box size="1 1 1"/></geometry></visual></link>
      <link name="arm">
        <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
        <visual>
          <origin xyz="0 0 1" rpy="0 1.5707963267948966 0"/>
          <geometry><cylinder radius="0.1" length="2"/></geometry><material name="red"/>
        </visual>
        <visual><geometry><mesh filename="t.stl" scale="2 1 -1"/></geometry></visual>
        <visual name="lost"><geometry><mesh filename="none.stl"/></geometry></visual>
      </link>
      <joint name="j" type="revolute">
        <parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
        <limit lower="-1" upper="2" effort="1" velocity="1"/>
      </joint>
    </robot>""")
    return path


def test_visuals_of_a_urdf(urdf):
    pytest.importorskip("trimesh")
    found = load_visuals(urdf)
    box, cylinder, solid = found.visuals
    assert [visual.on for visual in found.visuals] == ["base", "arm", "arm"]
    assert isinstance(box.shape, Box)
    assert cylinder.color == (1, 0, 0, 1)
    assert volume(solid.shape) == pytest.approx(2.0 / 6.0)  # mirrored, and outside out all the same
    np.testing.assert_allclose(solid.shape.vertices.min(0), (0, 0, -1))
    (finding,) = found.report
    assert "none.stl" in finding.message
    with pytest.warns(UserWarning, match=r"not all of 'r' is shown: visual 'lost'.*none\.stl"):
        parts = parts_of(dx.load(urdf), urdf)
    assert [part.body for part in parts] == [-1, 0, 0]  # the base is a frame of the world
    lying = parts[1].surface.vertices
    np.testing.assert_allclose([lying.min(0), lying.max(0)], [(-1, -0.1, 0.9), (1, 0.1, 1.1)], atol=1e-9)


def test_visuals_of_an_mjcf(tmp_path):
    pytest.importorskip("mujoco")
    (tmp_path / "t.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    path = tmp_path / "robot.xml"
    path.write_text("""<mujoco>
      <asset>
        <mesh name="t" file="t.obj"/><mesh name="lost" file="none.obj"/>
        <material name="green" rgba="0 1 0 1"/>
      </asset>
      <worldbody>
        <geom type="plane" size="1 1 1"/>
        <body name="arm">
          <joint axis="0 1 0"/>
          <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
          <geom type="mesh" mesh="t" material="green"/>
          <geom type="box" size="1 1 1" group="3"/>
          <geom name="gone" type="mesh" mesh="lost"/>
        </body>
      </worldbody>
    </mujoco>""")
    found = load_visuals(path)
    plane, solid = found.visuals
    assert (plane.on, solid.on, solid.color) == ("world", "arm", (0, 1, 0, 1))
    assert "gone" in str(found.report)
    with pytest.warns(UserWarning, match="gone"):
        (part,) = parts_of(dx.load(path), path)
    assert volume(part.surface) == pytest.approx(1.0 / 6.0, rel=1e-5)
    np.testing.assert_allclose(centre(part.surface), 0.25, atol=1e-5)  # where the file has it, not MuJoCo's mesh frame


def test_an_mjcf_begins_as_it_is_drawn(tmp_path):
    """Joints at their reference, free bodies where they stand; and what is between two joints of a body is not seen."""
    pytest.importorskip("mujoco")
    path = tmp_path / "two.xml"
    path.write_text("""<mujoco>
      <compiler autolimits="true"/>
      <worldbody>
        <body name="hopper" pos="0 0 1.25">
          <joint name="up" type="slide" axis="0 0 1" ref="1.25"/><joint name="turn" axis="0 1 0" range="10 20"/>
          <geom size="0.1"/>
        </body>
        <body name="ball" pos="0.5 0 2"><freejoint/><geom size="0.1"/></body>
      </worldbody>
    </mujoco>""")
    model = dx.load(path)
    q = home(model, path)
    assert q[model.q_slice("up")] == pytest.approx([1.25])
    assert q[model.q_slice("turn")] == pytest.approx([np.deg2rad(10.0)])  # its limit
    assert q[model.q_slice(model.joint_names[-1])] == pytest.approx([0.5, 0, 2, 1, 0, 0, 0])
    np.testing.assert_array_equal(home(model)[:1], 0.0)
    assert {model.body_names[part.body] for part in parts_of(model, path)} == {"hopper", "ball"}


def test_a_body_without_a_look_is_the_box_of_its_inertia(rng):
    """Whose own moments, as trimesh integrates them, are the body's."""
    trimesh = pytest.importorskip("trimesh")
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    tensor = turn @ np.diag([0.5, 0.7, 1.1]) @ turn.T
    builder = dx.ModelBuilder()
    builder.body("b", joint=dx.Revolute((0, 0, 1)), inertia=dx.SpatialInertia(3.0, (0.0, 0.0, 0.0), tensor))
    (part,) = parts_of(builder.build())
    solid = trimesh.Trimesh(part.surface.vertices, part.surface.faces)
    solid.density = 3.0 / solid.volume
    np.testing.assert_allclose(solid.moment_inertia, tensor, rtol=1e-9, atol=1e-9)


def test_a_scene_looks_as_what_touches_and_a_point_mass_has_a_size():
    builder = dx.ModelBuilder()
    builder.body("bob", joint=dx.Spherical(), inertia=dx.SpatialInertia(1000.0 * np.pi / 6, (0, 0, -2), np.zeros(3)))
    model = builder.build()
    (part,) = parts_of(model)
    assert np.ptp(part.surface.vertices[:, 1]) == pytest.approx(1.0, rel=1e-6)  # of water, half a metre round
    pose = dx.Transform.from_translation((0.0, 0.0, -2.0))
    scene = dx.contact.scene(
        model, [dx.contact.Collider("bob", Sphere(0.25), pose), dx.contact.Collider("world", Plane())]
    )
    (part,) = parts_of(scene)
    np.testing.assert_allclose(part.surface.vertices.mean(0)[2], -2.0, atol=0.01)
    assert np.ptp(part.surface.vertices[:, 2]) == pytest.approx(0.5)
