"""The reader of MJCF against MuJoCo itself: mass matrix, bias, accelerations and poses; and what it reports."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import jax
import mujoco
import numpy as np
import pytest

import dynax as dx
from dynax.io._mjcf_compile import compile_mjcf
from dynax.io.source import read_source

WHEEL = Path(mujoco.__file__).parent
TESTS = WHEEL / "mjx" / "test_data"

# Everything a joint can have, in one mechanism; gravity points nowhere special.
EVERYTHING = """<mujoco model="everything">
<compiler angle="degree" autolimits="true" eulerseq="zyx"/>
<option gravity="1 -2 -9"/>
<default>
  <joint armature="0.02" damping="0.3"/>
  <geom type="box" size=".1 .07 .05" density="900"/>
  <default class="soft"><joint stiffness="4" springref="20"/></default>
</default>
<worldbody>
  <site name="target" pos="1 2 3" euler="10 20 30"/>
  <body name="pillar" pos="0 .1 .2" euler="30 0 10">
    <geom/>
    <body name="shoulder" pos="0 0 .5" euler="10 -20 40">
      <joint name="slide" type="slide" axis="1 2 3" ref="0.15" range="-1 1" frictionloss="0.4"/>
      <joint name="yaw" axis=".3 -.1 1" pos=".1 .2 -.1" ref="35" class="soft"/>
      <joint name="pitch" axis="0 1 .2" pos="-.1 0 .3" range="-40 90" actuatorfrcrange="-3 3"/>
      <geom pos=".1 .02 .03" euler="5 10 15"/>
      <body name="plate" pos=".3 0 0" euler="0 0 45">
        <geom pos="0 0 .1"/><site name="tip" pos=".1 .1 .1" euler="9 8 7"/>
      </body>
      <body name="ball" pos=".3 .1 -.2" quat=".9 .1 -.3 .2">
        <joint name="socket" type="ball" pos=".05 .1 .15" stiffness="2" armature="0.05" damping=".1"/>
        <geom pos=".2 .1 0"/>
        <body name="end" pos=".1 .2 .3">
          <joint name="turn" axis="1 0 1" ref="-50" pos="0 .1 0"/>
          <joint name="out" type="slide" axis="0 1 1" ref="-0.2" stiffness="7" springref=".3"/>
          <inertial mass=".7" pos=".1 .2 .3" fullinertia=".02 .03 .025 .001 -.002 .003"/>
        </body>
      </body>
    </body>
  </body>
  <body name="bird" pos="1 2 3" euler="40 50 60">
    <freejoint name="sky"/>
    <geom pos=".1 .05 0" euler="20 0 0"/>
    <body name="wing" pos="0 .2 0">
      <joint name="flap" axis="1 0 0" pos="0 -.1 0" springref="20" stiffness="1"/><geom/>
    </body>
  </body>
</worldbody>
<keyframe>
  <key name="spread" qpos=".1 .2 .3 0 1 0 0 .4 .5  3 2 1 0 0 1 0 .6" qvel="1 2 3 4 5 6 7 8  9 8 7 6 5 4 3"/>
  <key time="1"/>
</keyframe>
</mujoco>"""


def oracle(source: str | Path) -> mujoco.MjModel:
    """The model as MuJoCo loads it itself, without what dynax reports that it does not use."""
    is_text = isinstance(source, str)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dynax puts them into its report
        m = mujoco.MjModel.from_xml_string(source) if is_text else mujoco.MjModel.from_xml_path(str(source))
    off = mujoco.mjtDisableBit
    m.opt.disableflags |= off.mjDSBL_CONSTRAINT | off.mjDSBL_CONTACT | off.mjDSBL_ACTUATION
    m.opt.density = m.opt.viscosity = 0.0
    for field in (m.body_gravcomp, m.tendon_stiffness, m.tendon_damping, m.tendon_armature):
        field[:] = 0.0
    return m


def states(m: mujoco.MjModel, rng: np.random.Generator, count: int):
    """MuJoCo's data at random states, after `mj_forward`."""
    data = mujoco.MjData(m)
    for _ in range(count):
        data.qpos[:] = m.qpos0
        mujoco.mj_integratePos(m, data.qpos, rng.normal(size=m.nv), 1.0)
        data.qvel[:], data.qfrc_applied[:] = rng.normal(size=(2, m.nv))
        mujoco.mj_forward(m, data)
        yield data


def mass_matrix(m: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    matrix = np.zeros((m.nv, m.nv))
    for row, unit in zip(matrix, np.eye(m.nv), strict=True):
        mujoco.mj_mulM(m, data, row, unit)
    return matrix


def assert_close(ours, theirs, what: str, tolerance: float = 1e-9):
    scale = max(1.0, float(np.max(np.abs(theirs))))
    error = float(np.max(np.abs(np.asarray(ours) - np.asarray(theirs)))) / scale
    assert error < tolerance, f"{what}: {error:.2e}"


def check_dynamics(source: str | Path, rng: np.random.Generator, count: int = 3):
    model = dx.load(source)
    model = model.replace(friction_loss=0.0 * model.friction_loss)  # a constraint in MuJoCo, smoothed in dynax
    m = oracle(source)
    convert = dx.MujocoConverter(model, m)
    assert (model.nq, model.nv) == (m.nq, m.nv)
    for data in states(m, rng, count):
        force = data.qfrc_bias - data.qfrc_passive
        s = convert.back(data.qpos, data.qvel, qacc=data.qacc, qfrc=data.qfrc_applied)
        # Our velocities in MuJoCo's coordinates, column by column; power is the same on both sides.
        turn = np.stack([convert.to(s.q, unit).v for unit in np.eye(m.nv)], axis=1)
        matrix = mass_matrix(m, data)
        at_rest = convert.to(s.q, s.v, a=np.zeros(m.nv)).a  # MuJoCo's acceleration where ours is zero
        assert_close(dx.mass_matrix(model, s.q), turn.T @ matrix @ turn, "mass matrix")
        assert_close(dx.bias_force(model, s.q, s.v), turn.T @ (force + matrix @ at_rest), "bias")
        assert_close(dx.forward_dynamics(model, s.q, s.v, s.tau), s.a, "acceleration")
    return model, data, convert


def test_every_feature_of_joints_agrees_with_mujoco(rng):
    model, data, convert = check_dynamics(EVERYTHING, rng)
    assert model.name == "everything"
    assert model.body_names == (
        "shoulder:slide", "shoulder:yaw", "shoulder", "ball", "end:turn", "end", "bird", "wing",
    )  # fmt: skip
    assert model.joint_names == ("slide", "yaw", "pitch", "socket", "turn", "out", "sky", "flap")
    assert set(model.frame_names) == {"pillar", "plate", "target", "tip"}
    assert {f.element for f in model.report} == {"contact"}
    q = convert.back(data.qpos).q
    poses = dx.forward_kinematics(model, q)
    for k, name in enumerate(model.body_names):
        if ":" not in name:
            assert_close(poses.translation[k], data.body(name).xpos, name)
            assert_close(poses.rotation[k], data.body(name).xmat.reshape(3, 3), name)
    for name in ("tip", "target"):
        pose = dx.frame_pose(model, q, name)
        assert_close(pose.translation, data.site(name).xpos, name)
        assert_close(pose.rotation, data.site(name).xmat.reshape(3, 3), name)


def test_leaves_come_from_the_compiled_model():
    model = dx.load(EVERYTHING)
    assert np.allclose(model.gravity, [1, -2, -9])
    assert np.allclose(model.armature, [0.02] * 3 + [0.05] * 3 + [0.02] * 2 + [0.0] * 6 + [0.02])
    assert np.allclose(model.damping[model.v_slice("socket")], 0.1)
    assert np.allclose(model.friction_loss, np.eye(15)[0] * 0.4)
    assert np.allclose(model.stiffness[model.v_slice("socket")], 2.0)
    assert np.allclose(model.spring_reference[model.q_slice("yaw")], np.deg2rad(20))
    assert np.allclose(model.spring_reference[model.q_slice("socket")], [1, 0, 0, 0])
    assert np.allclose(model.position_limits[model.q_slice("slide")], [-1, 1])
    assert np.allclose(model.position_limits[model.q_slice("pitch")], np.deg2rad([-40, 90]))
    assert np.all(np.isinf(model.position_limits[model.q_slice("yaw")]))
    assert np.allclose(model.effort_limits[model.v_slice("pitch")], 3.0)
    assert np.all(np.isinf(model.effort_limits[model.v_slice("yaw")]))


def test_keyframes():
    model = dx.load(EVERYTHING)
    frames = dx.keyframes(EVERYTHING, model)
    assert list(frames) == ["spread", "key_1"]
    q, v = frames["spread"]
    assert np.allclose(q, [0.1, 0.2, 0.3, 0, 1, 0, 0, 0.4, 0.5, 3, 2, 1, 0, 0, 1, 0, 0.6])
    # Half a turn about y: the velocity (9, 8, 7) in world axes is (-9, 8, -7) in the bird's.
    assert np.allclose(v, [1, 2, 3, 4, 5, 6, 7, 8, 6, 5, 4, -9, 8, -7, 3])
    assert np.allclose(frames["key_1"][0], oracle(EVERYTHING).qpos0)
    assert np.allclose(frames["key_1"][1], 0.0)


@pytest.mark.parametrize(
    "path",
    [
        TESTS / "shadow_hand" / "right_hand.xml",
        *(
            pytest.param(path, marks=pytest.mark.slow)
            for path in (
                TESTS / "pendula.xml",
                TESTS / "barkour_v0" / "assets" / "barkour_v0_mjx.xml",
                TESTS / "humanoid" / "humanoid.xml",
                TESTS / "sensor" / "model.xml",
                TESTS / "tendon" / "tendon.xml",
                WHEEL / "testdata" / "model.xml",
            )
        ),
    ],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_models_in_the_wheels_agree_with_mujoco(path, rng):
    if not path.exists():
        pytest.skip("this version of the wheel does not hold the model")
    check_dynamics(path, rng)


def test_every_file_in_the_wheels_loads_where_mujoco_loads_it(tmp_path, monkeypatch):
    """Sizes and totals; the error is ours where MuJoCo's compiler objects too."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it stands
    loaded = 0
    for path in sorted(WHEEL.rglob("*.xml")):
        try:
            m = oracle(path)
        except ValueError:
            m = None
        try:
            model = dx.load(path)
        except dx.ModelError as caught:
            error = caught
        else:
            error = None
        if m is None:
            assert error is None or error.file == str(path)
            continue
        assert error is None, error
        loaded += 1
        assert (model.nq, model.nv) == (m.nq, m.nv), path
        moving = m.body_jntnum[m.body_weldid] > 0
        assert np.isclose(np.sum(model.mass), np.sum(m.body_mass[moving]), rtol=1e-12), path
    assert loaded > 10


# Options that change what is read.


def one(body: str, extra: str = "") -> str:
    return f"<mujoco>{extra}<worldbody><body name='b'>{body}</body></worldbody></mujoco>"


HINGE = "<joint name='j' damping='2' stiffness='3' frictionloss='.5'/><geom name='g' size='.1'/>"


def test_flags_switch_effects_off():
    flags = "gravity spring damper frictionloss"
    for flag in flags.split():
        model = dx.load(one(HINGE, f"<option><flag {flag}='disable'/></option>"))
        given = {
            "gravity": np.any(model.gravity), "spring": np.any(model.stiffness),
            "damper": np.any(model.damping), "frictionloss": np.any(model.friction_loss),
        }  # fmt: skip
        assert given == {name: name != flag for name in given}


def test_the_compiler_settles_masses():
    model = dx.load(one(HINGE, "<compiler settotalmass='7' balanceinertia='true' boundinertia='.1'/>"))
    assert np.allclose(model.mass, 7.0)
    assert np.all(model.inertia[0, :3] >= 0.1)
    assert "settotalmass" not in str(model.report) or "MuJoCo's compiler" in str(model.report)  # deprecated since 4.0


def with_rotors(text):
    """Of a file whose actuators have rotors."""
    try:
        return mujoco.MjModel.from_xml_string(text)
    except ValueError:
        pytest.skip("older versions of MuJoCo know no such actuators")


def test_actuators_bring_armature_and_damping():
    text = one(HINGE).replace(
        "</mujoco>", "<actuator><motor joint='j' gear='3' armature='.25' damping='.5'/></actuator></mujoco>"
    )
    m = with_rotors(text)
    model = dx.load(text)
    data = mujoco.MjData(m)
    data.qvel[:] = 1.0
    mujoco.mj_forward(m, data)
    assert np.allclose(dx.mass_matrix(model, [0.0]), mass_matrix(m, data))
    assert np.allclose(model.damping, 2.0 + 9 * 0.5)
    assert "gear" in str(model.report[0])


@pytest.mark.parametrize(("kind", "size"), [("ball", 3), ("free", 6)])
def test_motors_of_balls_and_free_joints_bring_armature_and_damping(kind, size):
    """For all freedoms, by the first number of the gear."""
    plain = one(f"<joint name='j' type='{kind}' damping='2'/><geom size='.1'/>")
    text = plain.replace(
        "</mujoco>", "<actuator><motor joint='j' gear='3 1 2' armature='.25' damping='.5 .1'/></actuator></mujoco>"
    )
    m = with_rotors(text)
    model = dx.load(text)
    matrices = []
    for theirs in (m, mujoco.MjModel.from_xml_string(plain)):
        data = mujoco.MjData(theirs)
        mujoco.mj_forward(theirs, data)
        matrices.append(mass_matrix(theirs, data))
    assert np.allclose(np.diag(model.armature), matrices[0] - matrices[1])
    assert np.allclose(model.damping, np.full(size, 2.0 + 9 * 0.5))
    found = str(model.report)
    assert "higher powers" in found
    assert ("of world axes" in found) == (kind == "free")


def test_rotors_on_tendons_are_reported():
    text = one(HINGE).replace(
        "</mujoco>",
        "<tendon><fixed name='t'><joint joint='j' coef='2'/></fixed></tendon>"
        "<actuator><motor name='m' tendon='t' armature='.25'/></actuator></mujoco>",
    )
    with_rotors(text)
    assert "along a tendon" in {f.element: f.message for f in dx.load(text).report}["actuator 'm'"]


def test_names_are_made_up_and_stay_unique():
    model = dx.load(
        """<mujoco><worldbody><body><joint/><geom size=".1"/><body name="c"><joint axis="1 0 0"/><joint/>
        <geom size=".1"/><site name="c"/><site/></body></body><body name="c_joint_1"><joint name="body_1_joint"/>
        <geom size=".1"/></body></worldbody></mujoco>"""
    )
    assert model.body_names == ("body_1", "c:c_joint_1", "c", "c_joint_1")
    assert model.joint_names == ("body_1_joint_", "c_joint_1", "c_joint_2", "body_1_joint")
    assert model.frame_names == ("c_",)
    assert any("'c_'" in f.message for f in model.report)


def test_includes_beside_the_file(tmp_path):
    text = f"<mujocoinclude><worldbody><body name='b'>{HINGE}</body></worldbody></mujocoinclude>"
    (tmp_path / "arm.xml").write_text(text)
    (tmp_path / "scene.xml").write_text("<mujoco><include file='arm.xml'/></mujoco>")
    assert dx.load(tmp_path / "scene.xml").body_names == ("b",)
    with pytest.raises(dx.ModelError, match="load by path"):
        dx.load("<mujoco><include file='arm.xml'/></mujoco>")


ASSETS = """<asset><mesh name="m" file="gone.stl"/><texture name="t" type="2d" file="gone.png"/>
<material name="paint" texture="t"/><hfield name="h" file="gone.png" size="1 1 1 1"/></asset>"""
SOLID = "<inertial mass='1' pos='0 0 0' diaginertia='1 1 1'/>"


def test_missing_assets_do_not_matter_where_the_inertia_is_given():
    model = dx.load(
        f"""<mujoco>{ASSETS}<worldbody><geom type="hfield" hfield="h"/><geom type="mesh" mesh="m"/>
        <body name="b"><joint name="j"/>{SOLID}<geom name="g" type="mesh" mesh="m" material="paint"/>
        <geom type="box" mesh="m"/></body>
        <body name="c"><joint name="k"/><geom size=".1"/><geom type="mesh" mesh="m" mass="0"/></body></worldbody>
        <contact><pair geom1="g" geom2="g2"/></contact><worldbody><geom name="g2" size=".1"/></worldbody></mujoco>"""
    )
    assert np.allclose(model.mass, [1.0, 4 / 3 * np.pi])
    assert np.allclose(model.inertia[0], [1, 1, 1, 0, 0, 0])


def test_a_missing_mesh_that_gives_an_inertia_is_an_error():
    with pytest.raises(dx.ModelError, match=r"gone.stl.*<inertial>") as caught:
        dx.load(one("<joint/><geom type='mesh' mesh='m'/>", ASSETS))
    assert caught.value.element == "body 'b'"


# What is reported.


def reports(text: str) -> str:
    return "\n".join(map(str, dx.load(text).report))


TWO = """<worldbody><body name="a"><joint name="one" ref="20"/><geom size=".1"/></body>
<body name="b" gravcomp="1"><joint name="two" type="slide" ref=".1"/><geom size=".1"/></body>
<body name="hand" mocap="true"><geom size=".1"/></body>
<body name="c"><joint name="round" type="ball" range="0 30" limited="true"/><geom size=".1"/></body></worldbody>"""


def test_equality_constraints_that_are_left_out_are_reported():
    text = f"""<mujoco>{TWO}<tendon><fixed name="t"><joint joint="one" coef="1"/></fixed></tendon><equality>
        <joint name="gear" joint1="two" joint2="one" polycoef="0.5 3 0 0 0"/>
        <joint name="again" joint1="two" polycoef="0 0 0 0 0"/><tendon name="cord" tendon1="t"/>
        <weld name="loose" body1="a" body2="c" active="false"/><weld name="rigid" body1="hand" body2="world"/>
        </equality></mujoco>"""
    model = dx.load(text)
    # MuJoCo: two - 0.1 = 0.5 + 3 (one - 20 degrees)
    assert model.couplings == (("two", "one"),)
    assert model.loop_names == ()
    assert np.allclose(model.coupling_ratio, 3.0)
    assert np.allclose(model.coupling_offset, 0.6 - 3 * np.deg2rad(20))
    found = {f.element: f.message for f in model.report}
    for name, words in {
        "again": "follows another constraint", "loose": "switched off", "cord": "on tendons", "rigid": "do not move",
    }.items():  # fmt: skip
        assert words in found[f"equality {name!r}"]
    assert "1 constraints, soft in MuJoCo" in found["equality"]
    off = dx.load(text.replace("<tendon>", '<option><flag equality="disable"/></option><tendon>', 1))
    assert not off.constrained
    assert "switched off by a flag" in {f.element: f.message for f in off.report}["equality"]


def test_what_is_not_used_is_reported_once():
    text = f"""<mujoco><option density="1.2"/>{TWO}
    <tendon><fixed name="t"><joint joint="one" coef="1"/></fixed></tendon>
    <actuator><motor joint="one"/><motor joint="two"/></actuator></mujoco>"""
    found = [f.element for f in dx.load(text).report]
    assert found == ["joint 'round'", "tendon", "option", "mocap", "contact", "actuator", "gravcomp"]
    free = "<joint name='j' type='free' armature='1' stiffness='1' frictionloss='1'/><geom size='.1'/>"
    assert [words in reports(one(free)) for words in ("armature of", "spring of", "dry friction of")] == [True] * 3
    uneven = "<joint name='j' actuatorfrcrange='-1 3' actuatorfrclimited='true'/><geom size='.1'/>"
    assert "not symmetric" in reports(one(uneven))
    assert np.allclose(dx.load(one(uneven)).effort_limits, 3.0)


# What is refused.


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("<mujoco>\n<foo/></mujoco>", 2, "unrecognized element"),
        ("<mujoco>\n<worldbody>", 2, "XML parse error"),
        ("<mujoco><worldbody>\n<body name='b'><joint/></body></worldbody></mujoco>", 2, "mass and inertia"),
        (
            "<mujoco><worldbody><body>\n<joint name='j' axis='0 0 0'/>" + SOLID + "</body></worldbody></mujoco>",
            2,
            "axis",
        ),
    ],
)
def test_errors_of_the_compiler(text, line, words):
    with pytest.raises(dx.ModelError, match=words) as caught:
        dx.load(text)
    assert caught.value.line == line


TURNS = "<mujoco><worldbody><body name='b'>\n<joint name='j' axis='{}'/><geom size='.1'/></body></worldbody></mujoco>"


def test_an_axis_of_any_length_is_a_direction(tmp_path):
    model = dx.load(TURNS.format("3e200 0 4e200"))
    np.testing.assert_allclose(model.hinges.rotation[0, :, 2], [0.6, 0.0, 0.8], atol=1e-15)
    path = tmp_path / "robot.xml"
    for word in ("nan", "inf"):
        path.write_text(TURNS.format(f"0 0 {word}"))
        with pytest.raises(dx.ModelError, match=r"axis .* is not finite") as caught:
            dx.load(path)
        assert (caught.value.file, caught.value.line, caught.value.element) == (str(path), 2, "joint 'j'")


def test_whatever_the_compiler_raises_is_about_the_file(monkeypatch):
    def fails(text):
        raise RuntimeError("Caught an unknown exception!")

    monkeypatch.setattr(mujoco.MjSpec, "from_string", fails)
    with pytest.raises(dx.ModelError, match="MuJoCo: Caught an unknown exception!"):
        dx.load(EVERYTHING)


def test_mujoco_leaves_no_log_and_its_words_are_in_the_report(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    model = dx.load(one(HINGE + "<site name='s' pos='0 0 0' user='nan'/>", "<size nuser_site='1'/>"))
    assert any("MuJoCo's compiler" in f.element and "NaN" in f.message for f in model.report)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_the_root_of_an_mjcf_is_its_own():
    with pytest.raises(dx.ModelError, match=r"root='free' is for URDFs.*<freejoint/>"):
        dx.load(one(HINGE), root="free")


# Files of strangers.


def test_a_file_compiled_apart_is_the_same_model(tmp_path, monkeypatch):
    text = f"<mujocoinclude><worldbody><body name='b'>{HINGE}</body></worldbody></mujocoinclude>"
    (tmp_path / "arm.xml").write_text(text)
    (tmp_path / "scene.xml").write_text("<mujoco model='both'><include file='arm.xml'/></mujoco>")
    monkeypatch.chdir(tmp_path)
    model, apart = dx.load("scene.xml"), dx.load("scene.xml", isolate=True)
    assert apart.structure == model.structure
    for a, b in zip(jax.tree.leaves(apart), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_errors_of_a_file_compiled_apart(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text("<mujoco>\n<foo/></mujoco>")
    with pytest.raises(dx.ModelError, match="unrecognized element") as caught:
        dx.load(path, isolate=True)
    assert (caught.value.file, caught.value.line) == (str(path), 2)


def test_a_file_that_crashes_the_compiler_ends_a_child_only(tmp_path, monkeypatch):
    """Or never ends in it, with MuJoCos before 4."""
    monkeypatch.setattr("dynax.io._mjcf_apart.SECONDS", 20.0)
    path = tmp_path / "self.xml"
    asset = f'<asset><model name="m" file="{path.name}"/></asset>'
    path.write_text(one("<joint/><geom size='.1'/>", asset).replace("</body>", '</body><attach model="m" body="b"/>'))
    with pytest.raises(dx.ModelError, match=r"compiler was (ended by the system: SIG|stopped after)") as caught:
        dx.load(path, isolate=True)
    assert caught.value.file == str(path)


def test_a_file_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr("dynax.io._mjcf_apart.SECONDS", 0.01)
    with pytest.raises(dx.ModelError, match=r"was stopped after 0.01 s"):
        dx.load(EVERYTHING, isolate=True)


def test_without_mujoco_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(dx.ModelError, match=r'pip install "dynax\[mjcf\]"'):
        dx.load(EVERYTHING)


def test_gradients_reach_the_leaves():
    model = dx.load(one("<joint/><geom size='.1' pos='.2 0 0'/>"))
    grad = jax.grad(lambda m: dx.forward_dynamics(m, np.zeros(1), np.zeros(1), np.ones(1))[0])(model)
    assert np.all(np.isfinite(grad.mass))
    assert np.all(grad.mass < 0.0)


def test_compile_reads_paths_and_text(tmp_path):
    path = tmp_path / "m.xml"
    path.write_text(EVERYTHING)
    assert compile_mjcf(*read_source(path)).name == compile_mjcf(EVERYTHING, None).name == "everything"


# Loops and gears against MuJoCo's own constraint rows.

TIED = """<mujoco><compiler angle="degree"/><default><geom type="box" size=".1 .07 .05"/></default>
<worldbody>
  <site name="hook" pos=".1 .2 1" euler="10 20 30"/>
  <body name="pillar" pos="2 0 0" euler="0 0 30"><geom/></body>
  <body name="one" pos="0 0 1" euler="20 0 0"><freejoint/><geom/><site name="ring" pos=".1 0 .1" euler="0 40 0"/></body>
  <body name="two" pos="2 .5 0"><freejoint/><geom/></body>
  <body name="three" pos="1 0 0"><freejoint/><geom/>
    <body name="arm" pos="0 0 .3"><joint name="elbow" axis="1 1 0" ref="25"/><geom/>
      <body name="tip" pos=".3 0 0"><geom/></body></body></body>
  <body name="four" pos="1 1 0" euler="0 30 0"><freejoint/><geom/><site name="mark" pos="0 .1 0" euler="5 6 7"/></body>
  <body name="five" pos="1.3 .9 .1"><freejoint/><geom/></body>
  <body name="ten" pos="1 1.5 .3"><freejoint/><geom/><site name="spot" pos=".2 0 0" euler="0 0 50"/></body>
  <body name="six" pos="-1 0 0"><joint name="slide" type="slide" axis="1 0 1" ref=".2"/><geom/>
    <body name="seven"><joint name="turn" ref="15"/><geom/></body></body>
  <body name="eight" pos="-2 0 0"><joint name="cam" type="slide" ref="-.1"/><geom/></body>
  <body name="nine" pos="-2 1 0"><joint name="held" ref="35"/><geom/></body>
</worldbody>
<equality>
  <connect name="hang" site1="hook" site2="ring"/>
  <connect name="post" body1="pillar" body2="two" anchor=".2 .1 0"/>
  <connect body1="three" body2="world" anchor=".1 .1 .1"/>
  <weld name="hold" body1="tip" body2="four" anchor=".1 0 .2"/>
  <weld name="turned" body1="four" body2="five" relpose=".1 .2 .1 .9 .1 .3 .2" anchor="0 .1 0" torquescale="0.1"/>
  <weld name="sites" site1="mark" site2="spot"/>
  <weld name="ball" body1="one" body2="two" torquescale="0"/>
  <joint name="rack" joint1="slide" joint2="turn" polycoef=".3 .5 0 0 0"/>
  <joint name="curve" joint1="cam" joint2="turn" polycoef=".1 .2 .3 -.1 .05"/>
  <joint name="lock" joint1="held" polycoef=".4 0 0 0 0"/>
</equality></mujoco>"""


def test_loops_and_gears_are_mujocos_constraints(rng):
    """Where one is closed so is the other, and their Jacobians have the same rows, up to how a loop's are combined."""
    model, m = dx.load(TIED), mujoco.MjModel.from_xml_string(TIED)
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data, convert, names = mujoco.MjData(m), dx.MujocoConverter(model, m), dx.constraint_names(model)
    rows_of = {m.equality(e).name or f"equality_{e}": e for e in np.flatnonzero(m.eq_active0)}
    assert set(names) == {*rows_of} - {"rack", "curve", "lock"} | {"slide", "cam", "held"}
    own_name = {"rack": "slide", "curve": "cam", "lock": "held"}
    for _ in range(2):
        data.qpos[:] = m.qpos0
        mujoco.mj_integratePos(m, data.qpos, 0.3 * rng.normal(size=m.nv), 1.0)
        found = dx.assemble(model, convert.back(data.qpos).q)
        assert float(found.error) < 1e-10
        data.qpos[:] = convert.to(found.q).q
        mujoco.mj_forward(m, data)
        equality = np.flatnonzero(data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY)
        assert np.max(np.abs(data.efc_pos[equality])) < 1e-9
        turn = np.stack([convert.to(found.q, unit).v for unit in np.eye(m.nv)], axis=1)
        matrix = np.asarray(dx.constraint_jacobian(model, found.q))
        for name, e in rows_of.items():
            theirs = data.efc_J.reshape(-1, m.nv)[equality[data.efc_id[equality] == e]] @ turn
            theirs = theirs[np.abs(theirs).max(axis=1) > 1e-14]  # a weld without torque has three rows of zeros
            ours = matrix[names[own_name.get(name, name)]]
            assert ours.shape == theirs.shape
            mixed = np.linalg.lstsq(theirs.T, ours.T, rcond=None)[0].T
            np.testing.assert_allclose(mixed @ theirs, ours, atol=1e-9, err_msg=name)
            if name in own_name:
                np.testing.assert_allclose(mixed, [[1.0]], atol=1e-9)
            if len(ours) == 3:  # points in axes turned against one another
                np.testing.assert_allclose(mixed @ mixed.T, np.eye(3), atol=1e-9, err_msg=name)
            if len(ours) == 6:
                assert np.linalg.cond(mixed) < 100.0


def test_what_the_file_closes_is_closed_at_its_reference():
    """A file of MuJoCo's own, less the tendon that this version of MuJoCo refuses."""
    text = (TESTS / "constraints.xml").read_text().replace('<joint joint="joint5" coef="-.4"/>', "")
    model = dx.load(text)
    assert model.loop_names == ("c_site", "connect", "w_site", "weld")
    assert model.couplings == (("joint3", "joint4"),)
    q = dx.MujocoConverter(model, m := oracle(text)).back(m.qpos0).q
    residual, names = dx.constraint_residual(model, q), dx.constraint_names(model)
    for name in ("c_site", "connect", "w_site"):
        np.testing.assert_allclose(residual[names[name]], 0.0, atol=1e-12)
    np.testing.assert_allclose(residual[names["joint3"]], -0.5, atol=1e-12)  # its constant term
    turned = residual[names["weld"]]  # by its `relpose` alone
    assert float(np.linalg.norm(turned[:3])) > 0.3


def test_equalities_survive_saving(tmp_path):
    model = dx.load(TIED)
    dx.save(model, tmp_path / "tied.json")
    again = dx.load(tmp_path / "tied.json")
    assert again.structure == model.structure
    assert hash(again.structure) == hash(model.structure)
