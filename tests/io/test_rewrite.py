"""Files with the numbers of a model: read by engines that are not ours, and unchanged where nothing changed."""

from __future__ import annotations

import difflib
from importlib import resources

import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin
import pytest

import dynax as dx

ARM = resources.files("dynax").joinpath("models/arm7.urdf").read_text()

MJCF = """<!-- kept --><mujoco model="two"><default><joint damping="0.3" armature="0.01"/></default>
<worldbody>
  <body name="a"><!-- a's > own --> <joint name="j" axis="0 1 0" stiffness='2'/>
    <geom size="0.1" mass="1.5"/>
    <body name="welded" pos="0.1 0 0"><geom type="box" size="0.1 0.2 0.3" mass="0.5"/></body>
    <body name="b" pos="0 0 0.4"><joint name="k" axis="1 0 0"/>
      <inertial pos="0 0 0.1" mass="1" diaginertia="1 1 1"/></body>
  </body>
</worldbody></mujoco>
"""


def other(model: dx.Model, rng) -> dx.Model:
    """Other bodies that can exist, and drives."""
    names = "inertias", "damping", "armature", "stiffness"
    changes = {name: 0.2 * rng.normal(size=dx.parameters(model)[name].shape) for name in names}
    return dx.with_parameters(model, changes)


def lines_changed(before: str, after: str) -> list[str]:
    return [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "-+"]


def test_a_urdf_says_what_the_model_is(rng):
    model = other(dx.load(ARM), rng)
    model = model.replace(armature=0.0 * model.armature, stiffness=0.0 * model.stiffness)
    model = model.replace(friction_loss=jnp.asarray(rng.uniform(0.1, 0.3, 7)))
    text = dx.rewrite(ARM, model)
    theirs = pin.buildModelFromXML(text)
    q, v, a = rng.normal(size=(3, 7))
    theirs.damping[:] = theirs.friction[:] = 0.0
    ours = dx.inverse_dynamics(model.replace(damping=0 * model.damping, friction_loss=0 * model.friction_loss), q, v, a)
    np.testing.assert_allclose(pin.rnea(theirs, theirs.createData(), q, v, a), ours, atol=1e-10)
    again = dx.load(text)
    np.testing.assert_allclose(again.damping, model.damping, rtol=1e-12)
    np.testing.assert_allclose(again.friction_loss, model.friction_loss, rtol=1e-12)
    told = "inertial", "origin", "mass", "inertia", "dynamics"
    assert all(any(f"<{tag}" in line or f"</{tag}" in line for tag in told) for line in lines_changed(ARM, text))


def test_a_file_that_says_it_already_stays_as_it_is():
    for text in (ARM, MJCF):
        assert dx.rewrite(text, dx.load(text)) == text


def test_one_number_changes_one_line():
    model = dx.load(ARM)
    text = dx.rewrite(ARM, model.replace(damping=model.damping.at[2].set(0.25)))
    assert lines_changed(ARM, text) == ['-     <dynamics damping="0.1"/>', '+     <dynamics damping="0.25"/>']


def test_an_mjcf_with_defaults_geoms_and_welded_bodies(rng):
    model = other(dx.load(MJCF), rng)
    text = dx.rewrite(MJCF, model)
    theirs = mujoco.MjModel.from_xml_string(text)
    np.testing.assert_allclose(theirs.dof_damping, model.damping, rtol=1e-12)
    np.testing.assert_allclose(theirs.dof_armature, model.armature, rtol=1e-12)
    np.testing.assert_allclose(theirs.jnt_stiffness, model.stiffness, rtol=1e-12)
    data = mujoco.MjData(theirs)
    q, v = rng.normal(size=(2, 2))
    data.qpos[:], data.qvel[:] = q, v
    mujoco.mj_forward(theirs, data)
    mass = np.zeros((2, 2))
    mujoco.mj_fullM(theirs, data, mass)
    np.testing.assert_allclose(mass, dx.mass_matrix(model, q), atol=1e-10)
    assert "<!-- kept -->" in text
    assert "<!-- a's > own -->" in text


def test_what_a_file_cannot_say_is_refused():
    model = dx.load(ARM)
    with pytest.raises(dx.ModelError, match="armature of the model cannot be said by the file"):
        dx.rewrite(ARM, model.replace(armature=model.armature + 0.1))
    with pytest.raises(dx.ModelError, match="gravity of the model cannot be said"):
        dx.rewrite(ARM, model.replace(gravity=0.0 * model.gravity))
    with pytest.raises(dx.ModelError, match=r"body 'link3'.* has mass 0"):
        dx.rewrite(ARM, model.replace(mass=model.mass.at[2].set(0.0)))
    with pytest.raises(dx.ModelError, match="other bodies or joints"):
        dx.rewrite(MJCF, model)
    # MuJoCo's compiler refuses an inertia that no body has.
    arm = dx.load(MJCF)
    with pytest.raises(dx.ModelError, match="inertia"):
        dx.rewrite(MJCF, arm.replace(inertia=arm.inertia.at[1].set(jnp.array([1.0, 1.0, 3.0, 0.0, 0.0, 0.0]))))
