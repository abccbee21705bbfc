"""Semi-implicit Euler beside MuJoCo's, which takes Coriolis and gyroscopic forces at the beginning of the step."""

from __future__ import annotations

import numpy as np
import pytest
from simulate.systems import at, solid

import dynax as dx

mujoco = pytest.importorskip("mujoco")

MJCF = """
<mujoco>
  <option timestep="0.005" integrator="Euler" gravity="0 0 -9.81">
    <flag contact="disable" constraint="disable"/>
  </option>
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint type="hinge" axis="0 1 0" damping="0.7" armature="0.03" stiffness="2" springref="0"/>
      <inertial pos="0.1 0 -0.5" mass="1.2" diaginertia="0.1 0.12 0.03"/>
      <body name="middle" pos="0 0.1 -1">
        <joint type="ball" damping="0.2" armature="0.01"/>
        <inertial pos="0 0.05 -0.3" mass="0.8" diaginertia="0.05 0.04 0.02"/>
        <body name="lower" pos="0 0 -0.6">
          <joint type="slide" axis="1 0 1" damping="3" armature="0.1"/>
          <inertial pos="0 0 -0.1" mass="0.5" diaginertia="0.01 0.01 0.01"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def built() -> dx.Model:
    b = dx.ModelBuilder()
    b.body(
        "upper", joint=dx.Revolute((0, 1, 0)), placement=at(0, 0, 1), damping=0.7, armature=0.03, stiffness=2.0,
        inertia=solid(1.2, [0.1, 0, -0.5], [0.1, 0.12, 0.03]),
    )  # fmt: skip
    b.body(
        "middle", parent="upper", joint=dx.Spherical(), placement=at(0, 0.1, -1), damping=0.2, armature=0.01,
        inertia=solid(0.8, [0, 0.05, -0.3], [0.05, 0.04, 0.02]),
    )  # fmt: skip
    b.body(
        "lower", parent="middle", joint=dx.Prismatic((1, 0, 1)), placement=at(0, 0, -0.6), damping=3.0, armature=0.1,
        inertia=solid(0.5, [0, 0, -0.1], [0.01, 0.01, 0.01]),
    )  # fmt: skip
    return b.build()


def theirs(other, q, v, controls) -> tuple[np.ndarray, np.ndarray]:
    """MuJoCo's motion."""
    data = mujoco.MjData(other)
    data.qpos, data.qvel = q, v
    qs, vs = [], []
    for tau in controls:
        data.qfrc_applied = tau
        mujoco.mj_step(other, data)
        qs.append(data.qpos.copy())
        vs.append(data.qvel.copy())
    return np.array(qs), np.array(vs)


def start(model, rng) -> tuple[np.ndarray, np.ndarray]:
    q = np.concatenate([rng.normal(size=1), rng.normal(size=4), 0.1 * rng.normal(size=1)])
    q[1:5] /= np.linalg.norm(q[1:5])
    return q, rng.normal(size=model.nv)


def test_one_evaluation_is_the_motion_of_mujoco(rng):
    model, other = built(), mujoco.MjModel.from_xml_string(MJCF)
    (q, v), controls = start(model, rng), 0.5 * rng.normal(size=(100, model.nv))
    qs, vs = theirs(other, q, v, controls)
    ours = dx.rollout(model, q, v, controls, 0.005, stepper=dx.SemiImplicitEuler(evaluations=1))
    np.testing.assert_allclose(ours.q[1], qs[0], atol=1e-12)
    np.testing.assert_allclose(ours.v[1], vs[0], atol=1e-12)
    np.testing.assert_allclose(ours.q[1:], qs, atol=1e-9)
    np.testing.assert_allclose(ours.v[1:], vs, atol=1e-9)
    assert np.abs(ours.v[-1] - v).max() > 0.1


def test_the_default_goes_to_the_same_motion(rng):
    """Half a second, whose exact motion a method of order four has found: both are of first order."""
    model = built()
    q, v = start(model, rng)
    exact = dx.rollout(model, q, v, np.zeros((1000, model.nv)), 0.0005, stepper="rk4")
    off = {}
    for steps in (100, 200):
        other = mujoco.MjModel.from_xml_string(MJCF)
        other.opt.timestep = 0.5 / steps
        still = np.zeros((steps, model.nv))
        ours = dx.rollout(model, q, v, still, 0.5 / steps)
        ends = ("ours", ours.v[-1]), ("theirs", theirs(other, q, v, still)[1][-1])
        off |= {(name, steps): np.abs(end - exact.v[-1]).max() for name, end in ends}
    for name in ("ours", "theirs"):
        assert off[name, 100] / off[name, 200] == pytest.approx(2.0, abs=0.3)


def test_where_nothing_turns_the_default_is_mujocos(rng):
    """A hinge with weight, spring, damper and rotor: no Coriolis forces, every step is the same."""
    model = mujoco.MjModel.from_xml_string("""
        <mujoco><option timestep="0.005" integrator="Euler"/><worldbody><body>
          <joint type="hinge" axis="0 1 0" damping="0.7" armature="0.03" stiffness="2"/>
          <inertial pos="0.1 0 -0.5" mass="1.2" diaginertia="0.1 0.12 0.03"/>
        </body></worldbody></mujoco>""")
    b = dx.ModelBuilder()
    b.body(
        "rod", joint=dx.Revolute((0, 1, 0)), damping=0.7, armature=0.03, stiffness=2.0,
        inertia=solid(1.2, [0.1, 0, -0.5], [0.1, 0.12, 0.03]),
    )  # fmt: skip
    controls = rng.normal(size=(100, 1))
    qs, vs = theirs(model, [0.7], [1.5], controls)
    ours = dx.rollout(b.build(), [0.7], [1.5], controls, 0.005)
    np.testing.assert_allclose(ours.q[1:], qs, atol=1e-12)
    np.testing.assert_allclose(ours.v[1:], vs, atol=1e-12)
