"""Actuators and sensors of MJCF files beside MuJoCo itself."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.robots import forest, prefix

import dynax as dx
from dynax import actuate

mujoco = pytest.importorskip("mujoco")

MJX, GYM, DM = "mujoco/mjx/test_data", "gymnasium/envs/mujoco/assets", "dm_control/suite"
MODELS = [
    *(f"{MJX}: {name}" for name in ("actuator/general_dyntype.xml", "actuator/tendon_force_clamp.xml")),
    *(
        pytest.param(f"{wheel}: {name}", marks=pytest.mark.slow)
        for wheel, names in {
            MJX: "pendula actuator/arm21 barkour_v0/assets/barkour_v0_mjx humanoid/humanoid sensor/sensor sensor/model "
            "shadow_hand/right_hand tendon/fixed",
            GYM: "ant half_cheetah hopper humanoid humanoidstandup inverted_double_pendulum inverted_pendulum point "
            "pusher_v5 reacher swimmer walker2d_v5",
            DM: "acrobot ball_in_cup cartpole cheetah dog finger fish hopper humanoid humanoid_CMU manipulator "
            "pendulum point_mass quadruped reacher stacker swimmer walker",
        }.items()
        for name in (f"{stem}.xml" for stem in names.split())
    ),
]  # fmt: skip
SOLID = '<inertial pos=".02 .01 -.2" mass="1.1" diaginertia=".02 .03 .01"/>'
ALL_TYPES = f"""<mujoco>
  <worldbody><body name="one" gravcomp=".4"><joint name="a" axis="0 1 0" actuatorfrcrange="-6 9"/>{SOLID}
    <body name="two" pos="0 .1 -.4"><joint name="b" axis="1 0 .2"/>{SOLID}
      <site name="push" pos=".1 0 0" euler="20 40 9"/>
      <body name="three" pos="0 .1 -.4"><joint name="c" type="slide" axis="0 1 1"/>{SOLID}</body>
    </body></body>
    <body name="free"><freejoint name="base"/>{SOLID}<site name="hull" pos="0 .2 0"/></body></worldbody>
  <tendon><fixed name="cord"><joint joint="a" coef=".3"/><joint joint="b" coef="-.8"/></fixed>
    <fixed name="short" actuatorfrclimited="true" actuatorfrcrange="-1 .5"><joint joint="c" coef="2"/></fixed></tendon>
  <actuator>
    <motor name="motor" joint="a" gear="3" ctrllimited="true" ctrlrange="-.5 1" forcelimited="true" forcerange="-.4 9"/>
    <position name="position" joint="b" kp="20" kv="3" gear="2"/>
    <position name="lagging" joint="c" kp="20" kv="3" timeconst=".1"/>
    <velocity name="velocity" joint="c" kv="7"/>
    <intvelocity name="intvelocity" joint="a" kp="11" kv="2" actrange="-.3 .4"/>
    <damper name="damper" joint="b" kv="5" ctrlrange="0 1"/>
    <cylinder name="cylinder" joint="c" timeconst=".2" area="1.3" bias="1 2 3"/>
    <general name="general" joint="a" dyntype="filter" dynprm=".3" gaintype="affine" gainprm="1 2 3" biastype="affine"
      biasprm="4 5 6" actlimited="true" actrange="-.1 .6"/>
    <general name="exact" jointinparent="b" dyntype="filterexact" dynprm=".05" gainprm="4"/>
    <muscle name="muscle" joint="a" lengthrange="-1.5 1.5" timeconst=".02 .06"/>
    <muscle name="smooth" tendon="cord" lengthrange="-1 2" force="30" tausmooth=".4" range=".6 1.2" vmax="2"/>
    <motor name="cord" tendon="cord" gear="1.7"/>
    <motor name="short" tendon="short"/>
    <motor name="thruster" site="push" gear="1 2 3 .4 .5 .6"/>
    <motor name="jet" site="hull" gear="0 0 2 0 0 .1"/>
  </actuator></mujoco>"""


class Beside:
    """The same random states here and in MuJoCo, whose contacts and constraints are off: a sensor of force counts the
    tree alone here."""

    def __init__(self, source: str | Path, rng: np.random.Generator, size: int):
        by_path = isinstance(source, Path)
        m = self.m = (mujoco.MjModel.from_xml_path if by_path else mujoco.MjModel.from_xml_string)(str(source))
        off = mujoco.mjtDisableBit
        m.opt.disableflags |= int(off.mjDSBL_CONTACT) | int(off.mjDSBL_CONSTRAINT)
        self.model = dx.load(source)
        self.actuators, sensors = dx.load_actuators(source, self.model), dx.load_sensors(source)
        # Those of touch are tested with what they feel, in `test_touch`.
        self.sensors = {name: sensor for name, sensor in sensors.items() if self.kind(name) != "touch"}
        self.rows = np.array([self.row(m.actuator, m.nu, name) for name in self.actuators.names], int)
        # What is left out here must not move the joints there.
        m.actuator_gear[np.setdiff1d(np.arange(m.nu), self.rows)] = 0.0
        convert, data, rows = dx.MujocoConverter(self.model, m), mujoco.MjData(m), []
        for _ in range(size):
            mujoco.mj_resetData(m, data)
            mujoco.mj_integratePos(m, data.qpos, 0.7 * rng.normal(size=m.nv), 1.0)
            data.qvel[:], data.act[:] = rng.normal(size=m.nv), rng.uniform(-0.2, 1.2, size=m.na)
            data.ctrl[self.rows] = rng.normal(size=len(self.rows))
            mujoco.mj_forward(m, data)
            fields = (
                "qpos",
                "qvel",
                "qacc",
                "qfrc_actuator",
                "qfrc_gravcomp",
                "ctrl",
                "act",
                "act_dot",
                "actuator_force",
            )
            rows.append([getattr(data, name).copy() for name in (*fields, "sensordata")])
        qpos, qvel, qacc, *forces = map(jnp.asarray, map(np.stack, zip(*rows, strict=True)))
        self.applied, gravity, self.ctrl, self.act, self.act_dot, self.force, self.said = forces
        back = jax.vmap(lambda q, v, a, tau: convert.back(q, v, qacc=a, qfrc=tau))
        # Where a joint's motor is said to bear it, the compensation is in its force there.
        beside = np.where(m.jnt_actgravcomp[m.dof_jntid], 0.0, gravity)
        self.q, self.v, self.a, self.tau = back(qpos, qvel, qacc, self.applied + beside)

    @staticmethod
    def row(of: Callable, count: int, name: str) -> int:
        """Of an actuator or a sensor, which without a name are counted."""
        named = {of(k).name: k for k in range(count) if of(k).name}
        return named[name] if name in named else int(name.rpartition("_")[2])

    def kind(self, name: str) -> str:
        kind = self.m.sensor_type[self.row(self.m.sensor, self.m.nsensor, name)]
        return str(mujoco.mjtSensor(int(kind))).rsplit("_", 1)[-1].lower()

    def states(self, act: jax.Array) -> tuple:
        """MuJoCo's activations as states."""
        laid = []
        for state, rows in zip(self.actuators.initial(), self.actuators.rows, strict=True):
            places = self.m.actuator_actadr[self.rows[list(rows)]]
            laid.append(jax.tree.map(lambda x, places=places: act[places], state))
        return tuple(laid)

    def rates(self, rate: tuple) -> jax.Array:
        """Rates of states as MuJoCo's of activations."""
        found = jnp.zeros(self.m.na)
        for state, rows in zip(rate, self.actuators.rows, strict=True):
            for x in jax.tree.leaves(state):
                found = found.at[self.m.actuator_actadr[self.rows[list(rows)]]].set(x)
        return found

    def actuation(self, q, v, ctrl, act):
        found = actuate.actuation(self.actuators, self.model, q, v, self.states(act), ctrl[self.rows])
        return found._replace(rate=self.rates(found.rate))

    def measured(self, q, v, a, ctrl, act):
        found = self.actuation(q, v, ctrl, act)
        return actuate.measure(self.sensors, self.model, q, v, a, actuation=found, names=self.actuators.names)

    def check_actuators(self, tolerance: float = 1e-10) -> None:
        found = jax.jit(jax.vmap(self.actuation))(self.q, self.v, self.ctrl, self.act)
        for ours, theirs in (
            (found.force, self.force[:, self.rows]),
            (found.rate, np.where(np.isin(np.arange(self.m.na), self.m.actuator_actadr[self.rows]), self.act_dot, 0.0)),
            (found.tau, self.tau),
        ):
            scale = 1.0 + np.abs(theirs).max(initial=0.0)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)

    def check_sensors(self, tolerance: float = 1e-9) -> set[str]:
        """And the kinds there were."""
        found, kinds = jax.jit(jax.vmap(self.measured))(self.q, self.v, self.a, self.ctrl, self.act), set()
        for name, ours in found.items():
            k = self.row(self.m.sensor, self.m.nsensor, name)
            start, size = self.m.sensor_adr[k], self.m.sensor_dim[k]
            theirs = np.asarray(self.said[:, start : start + size])
            ours = np.asarray(ours).reshape(theirs.shape)
            if size == 4:  # a quaternion and its negative are the same rotation
                ours = ours * np.sign(np.sum(ours * theirs, axis=1, keepdims=True))
            np.testing.assert_allclose(
                ours, theirs, rtol=0, atol=tolerance * (1.0 + np.abs(theirs).max()), err_msg=name
            )
            kinds.add(self.kind(name))
        return kinds


@pytest.mark.spec("AC-01")
def test_all_types_of_actuators(rng):
    beside = Beside(ALL_TYPES, rng, 1000)
    assert beside.actuators.size == beside.m.nu
    beside.check_actuators()
    limited = beside.applied[:, 0]
    assert np.any(limited == -6.0)
    assert np.any(limited == 9.0)


def test_activations_step_as_mujocos(rng):
    """The states after steps: filters, integrators and muscles, and what limits them."""
    beside = Beside(ALL_TYPES, rng, 1)
    data, m = mujoco.MjData(beside.m), beside.m
    m.opt.timestep = 0.01
    data.act[:], data.ctrl[beside.rows] = beside.act[0], beside.ctrl[0]
    state, nothing = beside.states(beside.act[0]), jnp.zeros(beside.actuators.size)
    for _ in range(20):
        following = []
        for law, own, rows in zip(beside.actuators.laws, state, beside.actuators.rows, strict=True):
            mine = np.array(rows)
            still = nothing[mine]
            following.append(law.advance(own, beside.ctrl[0][beside.rows[mine]], still, still, 0.01))
        state = tuple(following)
        mujoco.mj_step(m, data)
    np.testing.assert_allclose(beside.rates(state), data.act, rtol=0, atol=1e-12)


@pytest.mark.spec("AC-01")
@pytest.mark.spec("AC-05")
@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_wheels(name, rng):
    """Forces, activations and sensors, and the report of what is left out."""
    wheel, _, path = name.partition(": ")
    found = importlib.util.find_spec(wheel.partition("/")[0])
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{wheel} is not installed")
    path = Path(found.submodule_search_locations[0]).parent / wheel / path
    if not path.exists():
        pytest.skip("this version of the wheel does not hold the model")
    beside = Beside(path, rng, 20)
    beside.check_actuators()
    beside.check_sensors()
    told = " ".join(f"{f.element} {f.message}" for f in beside.model.report)
    read = dx.load_sensors(path)
    for k in range(beside.m.nsensor):
        sensor = beside.m.sensor(k).name or f"sensor_{k}"
        kind = str(mujoco.mjtSensor(int(beside.m.sensor_type[k]))).rsplit("_", 1)[-1].lower()
        assert sensor in read or f"sensor {kind!r} is left out" in told
    for k in range(beside.m.nu):
        actuator = beside.m.actuator(k).name or f"actuator_{k}"
        assert actuator in beside.actuators.names or f"actuator {actuator!r}" in told


FLANGE = f"""<mujoco><worldbody><site name="ground" pos=".1 .2 0" euler="0 0 30"/>
  <body name="base"><freejoint/>{SOLID}<site name="imu" pos=".1 .05 .2" euler="10 20 30"/>
    <body name="arm" pos="0 0 -.3"><joint name="turn" axis="0 1 0"/><joint name="tilt" axis="1 0 0"/>{SOLID}
      <site name="joint" pos=".01 .02 0" euler="40 0 0"/>
      <body name="flange" pos="0 .1 -.4" euler="0 30 0">{SOLID}<site name="cut" pos="0 0 .1" euler="5 6 7"/>
        <body name="plate" pos=".1 0 0" euler="0 0 30">{SOLID}
          <body name="finger" pos="0 0 -.1"><joint name="grip" type="slide" axis="1 0 0"/>{SOLID}</body></body></body>
      <body name="other" pos="0 -.1 -.4"><joint name="ball" type="ball"/>{SOLID}</body></body></body></worldbody>
  <sensor><gyro site="imu"/><accelerometer site="imu" cutoff="11"/><velocimeter site="imu"/>
    <force site="joint"/><torque site="joint"/><force site="cut" name="f"/><torque site="cut" name="t"/>
    <force site="imu"/><torque site="imu"/><jointpos joint="turn"/><jointvel joint="grip"/>
    <ballquat joint="ball"/><ballangvel joint="ball"/><clock/>
    <framepos objtype="site" objname="cut" reftype="site" refname="ground"/>
    <framequat objtype="xbody" objname="finger" reftype="site" refname="imu"/>
    <framelinvel objtype="site" objname="cut" reftype="xbody" refname="other"/>
    <frameangvel objtype="site" objname="cut" reftype="xbody" refname="other"/>
    <framelinacc objtype="site" objname="cut"/><frameangacc objtype="xbody" objname="finger"/>
    <frameyaxis objtype="xbody" objname="plate" reftype="site" refname="joint"/>
    <subtreecom body="base"/><subtreelinvel body="arm"/><subtreeangmom body="arm"/>
    <rangefinder site="imu"/><framepos objtype="body" objname="arm"/></sensor></mujoco>"""


@pytest.mark.spec("AC-05")
def test_sensors_at_joints_and_flanges(rng):
    beside = Beside(FLANGE, rng, 20)
    assert len(beside.sensors) == beside.m.nsensor - 2
    kinds = beside.check_sensors()
    assert len(kinds) == 20
    left = {f.element: f.message for f in beside.model.report}
    assert "left out" in left["sensor 'rangefinder'"]
    assert "left out" in left["sensor 'framepos'"]


ARMS = ("panda_description/urdf/panda", "ur_description/urdf/ur5_robot", "kinova_description/robots/kinova",
        "xarm_description/urdf/xarm7", "z1_description/urdf/z1", "talos_data/robots/talos_left_arm")  # fmt: skip
LEGS = ("solo_description/robots/solo12", "anymal_b_simple_description/robots/anymal",
        "hyq_description/robots/hyq_no_sensors", "go2_description/urdf/go2")  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("AC-05")
def test_sensors_on_ten_robots(rng):
    """Side by side in one model: on three bodies of each, somewhere and turned, what an IMU and a flange feel."""
    roots = [(f"{name}.urdf", root) for names, root in ((ARMS, "fixed"), (LEGS, "free")) for name in names]
    # MuJoCo has floating bases at the origin alone.
    text = re.sub(r'(type="floating">(?:(?!</joint>).)*)<origin[^>]*/>', r"\1", forest(roots))
    spec = mujoco.MjSpec.from_string(dx.write_mjcf(dx.load(text)).text)
    kinds = ("GYRO", "ACCELEROMETER", "VELOCIMETER", "FORCE", "TORQUE")
    for start in (prefix(number, name) for number, (name, _) in enumerate(roots)):
        own = [body for body in spec.bodies if body.name.startswith(start) and body.joints]
        for k, body in enumerate(own[k] for k in {0, len(own) // 2, len(own) - 1}):
            site = body.add_site(name=f"{start}{k}", pos=0.2 * rng.normal(size=3), quat=rng.normal(size=4))
            for kind in kinds:
                of = {"type": getattr(mujoco.mjtSensor, f"mjSENS_{kind}"), "objtype": mujoco.mjtObj.mjOBJ_SITE}
                spec.add_sensor(name=f"{site.name} {kind}", objname=site.name, **of)
    spec.compile()
    beside = Beside(spec.to_xml(), rng, 20)
    assert len(beside.sensors) == beside.m.nsensor == 10 * 3 * len(kinds)
    assert beside.check_sensors() == {kind.lower() for kind in kinds}


def test_what_cannot_be_read_is_named():
    text = f"""<mujoco><worldbody><body name="b"><joint name="j"/>{SOLID}<site name="s"/><site/>
        <body name="k"><joint name="ball" type="ball"/>{SOLID}<site name="end" pos=".1 0 0"/></body></body></worldbody>
      <tendon><spatial name="rope"><site site="s"/><site site="end"/></spatial></tendon>
      <actuator><motor name="good" joint="j"/><motor name="rope" tendon="rope"/><motor name="ball" joint="ball"/>
        <motor name="against" site="end" refsite="s"/><adhesion name="glue" body="b" ctrlrange="0 1"/>
        <general name="own" joint="j" dyntype="user" actdim="1"/>
        <general name="early" joint="j" dyntype="filter" dynprm="1" actearly="true"/></actuator></mujoco>"""
    model = dx.load(text)
    found = {f.element: f.message for f in model.report}
    assert dx.load_actuators(text, model).names == ("good",)
    for name, words in {
        "rope": "spatial", "ball": "ball or a free", "against": "reference site", "glue": "body is another",
        "own": "user is another", "early": "actearly",
    }.items():  # fmt: skip
        assert words in found[f"actuator {name!r}"]
    off = text.replace("<worldbody>", '<option><flag actuation="disable"/></option><worldbody>', 1)
    assert dx.load_actuators(off, dx.load(off)).size == 0
    assert "switches all" in {f.element: f.message for f in dx.load(off).report}["actuator 'good'"]


def test_groups_that_are_switched_off():
    """As MuJoCo has them: without force."""
    text = f"""<mujoco><option actuatorgroupdisable="1 3"/><worldbody><body><joint name="j"/>{SOLID}</body></worldbody>
      <actuator><motor name="off" joint="j" group="1"/><motor name="on" joint="j" group="2" gear="5"/></actuator>
      <sensor><actuatorfrc name="none" actuator="off"/><actuatorfrc name="some" actuator="on"/></sensor></mujoco>"""
    m = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(m)
    data.ctrl[:] = [7.0, 1.0]
    mujoco.mj_forward(m, data)
    model = dx.load(text)
    actuators = dx.load_actuators(text, model)
    assert actuators.names == ("on",)
    assert list(dx.load_sensors(text)) == ["some"]
    found = actuate.actuation(actuators, model, jnp.zeros(1), jnp.zeros(1), actuators.initial(), jnp.ones(1))
    np.testing.assert_allclose(found.tau, data.qfrc_actuator)
    assert "actuatorgroupdisable" in {f.element: f.message for f in model.report}["actuator 'off'"]


def test_compensation_of_bodies_and_keyframes():
    text = f"""<mujoco><worldbody><body name="b" gravcomp="1">
        <joint name="j" axis="0 1 0" actuatorgravcomp="true" actuatorfrcrange="-3 3"/>{SOLID}
        <body name="fixed" pos="0 0 .1">{SOLID}</body></body></worldbody>
      <actuator><position joint="j" kp="5" timeconst=".1"/></actuator>
      <keyframe><key name="home" qpos=".3" act=".2" ctrl=".4"/></keyframe></mujoco>"""
    model = dx.load(text)
    np.testing.assert_allclose(dx.load_actuators(text, model).compensation, 0.5)
    assert any("gets the mean" in f.message for f in model.report)
    assert any("is not within actuatorfrcrange here" in f.message for f in model.report)
    assert dx.keyframes(text, model)["home"][0] == 0.3
    ((x, _),) = dx.load_actuators(text, model, keyframe="home").initial()
    np.testing.assert_array_equal(x, [0.2])
    with pytest.raises(KeyError, match="did you mean one of: 'home'"):
        dx.load_actuators(text, model, keyframe="homes")
