"""Models as files of other programs: read back, they move as before; what a format cannot say is named."""

from __future__ import annotations

import xml.etree.ElementTree as xml

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import random_inertia

import dynax as dx
from dynax.errors import ModelError


def robot(rng, root: str, ball: bool) -> dx.Model:
    builder = dx.ModelBuilder(name="r")
    at = lambda: dx.Transform(dx.Rotation.exp(rng.normal(size=3)), rng.normal(size=3))  # noqa: E731
    parent = "world"
    if root == "free":
        builder.body("base", joint=dx.Free(), inertia=random_inertia(rng))
        parent = "base"
    builder.body(
        "upper", parent=parent, joint=dx.Revolute(rng.normal(size=3)), placement=at(), anchor=rng.normal(size=3),
        inertia=random_inertia(rng), damping=0.3, friction_loss=0.1, position_limits=(-1.0, 2.0), effort_limit=7.0,
    )  # fmt: skip
    builder.body(
        "slide", parent="upper", joint=dx.Prismatic(rng.normal(size=3)), placement=at(), inertia=random_inertia(rng)
    )
    if ball:
        builder.body(
            "ball", parent="slide", joint=dx.Spherical(), placement=at(), inertia=random_inertia(rng), armature=0.2
        )
    builder.body("wheel", parent="upper", joint=dx.Revolute((1, 0, 0)), placement=at(), inertia=random_inertia(rng))
    builder.gear("wheel_joint", ["upper_joint"], ratio=-2.0, offset=0.5)
    builder.frame("tool", body="slide", placement=at())
    return builder.build()


def same_motion(rng, one: dx.Model, other: dx.Model, precision: float) -> None:
    """Inverse dynamics and the tool's pose at a few states; joints are in one order, so that one program does for both:
    the numbers of the other in the structure of the one."""
    assert (other.joint_names, other.parents, other.frame_names) == (one.joint_names, one.parents, one.frame_names)
    assert list(map(type, other.joints)) == list(map(type, one.joints))
    assert other.structure.frame_bodies == one.structure.frame_bodies
    states = rng.normal(size=(4, one.nq + 2 * one.nv))

    @jax.jit
    def of(model):
        def at(state):
            q, v, a = jnp.split(state, [model.nq, model.nq + model.nv])
            q = dx.normalize(model, q)
            return dx.inverse_dynamics(model, q, v, a), dx.frame_pose(model, q, "tool").translation

        return jax.vmap(at)(states)

    other = jax.tree.unflatten(jax.tree.structure(one), jax.tree.leaves(other))
    for mine, theirs in zip(of(one), of(other), strict=True):
        np.testing.assert_allclose(theirs, mine, atol=precision * float(jnp.abs(mine).max()))


@pytest.mark.parametrize("root", [pytest.param("fixed", marks=pytest.mark.slow), "free"])
def test_a_urdf_moves_as_the_model_does(root, rng, tmp_path):
    model = robot(rng, root, ball=False)
    written = dx.write_urdf(model, tmp_path / "r.urdf")
    again = dx.load(tmp_path / "r.urdf")
    assert written.text == (tmp_path / "r.urdf").read_text()
    same_motion(rng, model, again, 1e-11)
    assert again.couplings == model.couplings
    np.testing.assert_allclose(again.coupling_ratio, model.coupling_ratio)
    np.testing.assert_allclose(again.position_limits[model.q_slice("upper_joint")], [[-1.0, 2.0]])
    np.testing.assert_allclose(again.effort_limits[model.v_slice("upper_joint")], 7.0)
    assert [finding.element for finding in written.left_out] == ["link 'upper'"]  # whose joint is not at its origin


@pytest.mark.parametrize("root", [pytest.param("fixed", marks=pytest.mark.slow), "free"])
def test_an_mjcf_moves_as_the_model_does(root, rng):
    mujoco = pytest.importorskip("mujoco")
    model = robot(rng, root, ball=True)
    written = dx.write_mjcf(model)
    assert written.left_out == ()
    again = dx.load(written.text)
    same_motion(rng, model, again, 1e-9)
    np.testing.assert_allclose(again.coupling_offset, 0.5)
    compiled = mujoco.MjModel.from_xml_string(written.text)
    assert compiled.nv == model.nv
    np.testing.assert_allclose(compiled.body_mass[1:], model.mass, rtol=1e-12)


def test_an_sdf_says_where_links_are_and_how_joints_move(rng):
    """Links by the kinematics of the neutral configuration; Drake and JaxSim read it in `test_convert_drake.py` and
    `test_convert_jaxsim.py`."""
    builder = dx.to_builder(robot(rng, "fixed", ball=True))
    builder.body("screw", parent="ball", joint=dx.Helical((0, 1, 0), 0.1), inertia=random_inertia(rng), stiffness=3.0)
    model = builder.build()
    written = dx.write_sdf(model)
    assert [finding.element for finding in written.left_out] == ["joint 'ball_joint'"]  # its armature
    sdf = xml.fromstring(written.text).find("model")
    pose = dx.forward_kinematics(model, dx.neutral(model))
    for k, name in enumerate(model.body_names):
        numbers = np.array(sdf.find(f"link[@name='{name}']/pose").text.split(), float)
        np.testing.assert_allclose(numbers[:3], pose.translation[k], atol=1e-12)
        turned = dx.Rotation.exp([0, 0, numbers[5]]) @ dx.Rotation.exp([0, numbers[4], 0])
        turned = turned @ dx.Rotation.exp([numbers[3], 0, 0])
        np.testing.assert_allclose(turned.matrix, pose.rotation[k], atol=1e-12)
    found = {joint.get("name"): joint.get("type") for joint in sdf.iter("joint")}
    assert found == {
        "ground_joint": "fixed", "upper_joint": "revolute", "slide_joint": "prismatic", "ball_joint": "ball",
        "wheel_joint": "continuous", "screw_joint": "screw",
    }  # fmt: skip
    upper, screw = (sdf.find(f"joint[@name='{name}']") for name in ("upper_joint", "screw_joint"))
    place = np.array(upper.find("pose").text.split(), float)
    np.testing.assert_allclose(place, [*np.asarray(model.hinges.translation[0]), 0, 0, 0], atol=1e-12)
    told = {element.tag: element.text for element in upper.find("axis").iter() if element.text.strip()}
    assert {word: float(told[word]) for word in ("lower", "upper", "effort", "damping", "friction")} == {
        "lower": -1.0, "upper": 2.0, "effort": 7.0, "damping": 0.3, "friction": 0.1,
    }  # fmt: skip
    assert float(screw.find("screw_thread_pitch").text) == pytest.approx(0.2 * np.pi)
    assert screw.find("axis/dynamics/spring_stiffness").text == "3"
    assert sdf.find("joint[@name='wheel_joint']/axis/mimic").get("joint") == "upper_joint"


def test_what_cannot_be_said_is_named(rng):
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, -1.62), name="m")
    rod, screw = random_inertia(rng), dx.Helical((0, 0, 1), 0.1)
    builder.body("a", joint=dx.Revolute((0, 0, 1)), inertia=rod, armature=0.1, stiffness=2.0)
    builder.body("b", joint=dx.Revolute((0, 0, 1)), inertia=rod, velocity_limit=3.0)
    builder.loop("l", predecessor="a", successor="b", joint=dx.Spherical())
    model = builder.build()
    said = {str(finding) for finding in dx.write_urdf(model).left_out}
    for word in ("loop 'l'", "1.62", "armature", "spring"):
        assert any(word in sentence for sentence in said), word
    (loop, speed) = sorted(map(str, dx.write_mjcf(model).left_out), reverse=True)
    assert "loop 'l'" in loop
    assert "velocity" in speed
    said = {str(finding) for finding in dx.write_sdf(model).left_out}
    for word in ("loop 'l'", "1.62", "armature"):
        assert any(word in sentence for sentence in said), word
    builder.body("c", parent="b", joint=screw, inertia=rod)
    for write in (dx.write_urdf, dx.write_mjcf):
        with pytest.raises(ModelError, match="Helical"):
            write(builder.build())
    builder.body("d", parent="c", joint=dx.Planar(), inertia=rod)
    with pytest.raises(ModelError, match="Planar"):
        dx.write_sdf(builder.build())
    massless = dx.ModelBuilder()
    massless.body("a", joint=dx.Revolute((0, 0, 1)))
    light = massless.build()
    with pytest.raises(ModelError, match="no mass"):
        dx.write_mjcf(light)
    with pytest.raises(ModelError, match="batch axes"):
        dx.write_urdf(model.replace(mass=jnp.ones((3, 2))))
    with pytest.raises(ModelError, match="trees of rigid bodies"):
        dx.write_urdf(3.0)
