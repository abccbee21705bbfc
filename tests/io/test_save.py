"""Saved models come back in every bit, and files that are none are refused with the reason."""

from __future__ import annotations

import json
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax.io._polynomial import Polynomial


def everything() -> dx.Model:
    """Every joint that a file can hold, frames, welds, couplings, limits, and a report."""
    builder = dx.ModelBuilder(gravity=(0.1, -0.2, -9.81), name='a "name" — with everything')
    joints = [
        dx.Free(), dx.Revolute((1, 2, 3)), dx.Prismatic((0, 1, 0)), dx.Helical((1, 0, 0), 0.1),
        dx.Cylindrical((0, 1, 1)), dx.Universal((1, 0, 0), (0, 0, 1)), dx.Planar((0, 1, 0)), dx.Spherical(),
        dx.Gimbal("xyx"), dx.Translation(), dx.RackAndPinion(0.3), dx.Rolling(0.2), dx.RollingBall(0.7),
        dx.Reversed(dx.RackAndPinion(1 / 3)), dx.Reversed(dx.Gimbal("zxz")), dx.Weld(),
    ]  # fmt: skip
    parent = "world"
    for k, joint in enumerate(joints):
        builder.body(
            f"body{k}", parent=parent, joint=joint, joint_name=f"joint{k}", anchor=(0.1, 0.2, 1 / 3),
            placement=dx.Transform.from_translation((0.1, 0.7, k / 7)), damping=0.1 * k, stiffness=k,
            inertia=dx.SpatialInertia(1 + k / 3, (0.1, 0.2, 0.3), (1.0, 1.1, 1.2), (0.0, k / 9, 0.1)),
        )  # fmt: skip
        parent = f"body{k}"
    builder.body("arm", joint=dx.Revolute(), position_limits=(-np.inf, 2.5), effort_limit=7.0, joint_name="arm")
    builder.frame("tool", body="body3", placement=dx.Transform.from_translation((1e-300, -0.0, 5e-324)))
    ends = {"predecessor_placement": dx.Transform.from_translation((1 / 3, 0, 0.1))}
    builder.loop("ball", predecessor="world", successor="body9", joint=dx.Spherical(), **ends)
    builder.loop("screw", predecessor="tool", successor="arm", joint=dx.Helical((1, 0, 2), 0.3))
    builder.loop("rod", predecessor="body7", successor="arm", joint=dx.Distance(0.7))
    builder.gear("joint2", "joint1", ratio=1 / 3, offset=-2.0)
    builder.gear("joint3", ("joint1", "joint10"), ratio=(0.1, 0.7))
    builder.gear("joint10", "arm", function=Polynomial((0.0, 1 / 3, 2.0), center=0.1)).gear("joint11", (), offset=0.3)
    return builder.note("link 'x'", "was < odd", line=3).build()


def assert_same(ours: dx.Model, other: dx.Model):
    assert ours.structure == other.structure
    assert hash(ours.structure) == hash(other.structure)
    assert jax.tree.structure(ours) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(other), strict=True):
        assert isinstance(b, jax.Array)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.spec("RBDA-4.6-MODEL")
def test_there_and_back_in_every_bit(tmp_path):
    model = everything()
    dx.save(model, tmp_path / "robot.json")
    assert_same(model, dx.load(tmp_path / "robot.json"))
    text = (tmp_path / "robot.json").read_text()
    assert_same(model, dx.load(text))  # as text too
    json.loads(text, parse_constant=pytest.fail)  # strict JSON: infinities are texts
    assert max(map(len, text.splitlines()[:20])) < 200  # and for people: a line for each body


def test_other_types_and_batches(tmp_path, rng):
    model = everything()
    single = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    scale = rng.uniform(0.5, 2.0, (2, 3))
    turn = jax.vmap(jax.vmap(lambda v: dx.Rotation.exp(v).matrix))(jnp.asarray(rng.normal(size=(2, 3, 3))))

    def varied(path, a):
        if path[-1].name == "rotation":
            return a @ turn[:, :, None]
        return a * scale.reshape(2, 3, *(1,) * a.ndim)

    batch = jax.tree_util.tree_map_with_path(varied, model)
    some = model.replace(mass=batch.mass)  # the others are the same for all
    half = model.replace(mass=model.mass.astype(jnp.bfloat16))
    for k, changed in enumerate((single, batch, some, half)):
        dx.save(changed, tmp_path / f"{k}.json")
        assert_same(changed, dx.load(tmp_path / f"{k}.json"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.replace(damping=m.damping.at[6].set(jnp.nan)), "joint 'joint1': `damping` is not finite"),
        (lambda m: m.replace(mass=-m.mass), "body 'body0': `mass` is negative"),
        (lambda m: dx.embed(m), "EmbeddedModel.*save `.tree`"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(change, words, tmp_path):
    model = dx.ModelBuilder().body("body0", joint=dx.Free(), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1)))
    model.body("body1", parent="body0", joint=dx.Revolute(), joint_name="joint1", armature=1.0)
    model.body("body2", joint=dx.Revolute(), joint_name="joint2", armature=1.0).gear("joint2", "joint1")
    changed = change(model.build())
    with pytest.raises(dx.ModelError, match=words):
        dx.save(changed, tmp_path / "robot.json")
    assert not (tmp_path / "robot.json").exists()


def test_paths_that_no_file_can_have(tmp_path):
    with pytest.raises(dx.ModelError, match="cannot be written: embedded null"):
        dx.save(dx.ModelBuilder().build(), f"{tmp_path}/a\0b.json")
    with pytest.raises(dx.ModelError, match="cannot be read: embedded null"):
        dx.load(f"{tmp_path}/a\0b.json")


def test_the_root_of_a_saved_model_is_its_own(tmp_path):
    dx.save(everything(), tmp_path / "robot.json")
    with pytest.raises(dx.ModelError, match="root='free' is for URDFs"):
        dx.load(tmp_path / "robot.json", root="free")


def test_a_model_without_bodies(tmp_path):
    model = dx.ModelBuilder().build()
    dx.save(model, tmp_path / "empty.json")
    assert_same(model, dx.load(tmp_path / "empty.json"))


def test_a_file_of_version_1_is_still_read(tmp_path):
    """It had no loops, and its gears one source each."""
    model = everything()
    model = dx.to_builder(model.replace(first_moment=jnp.zeros_like(model.first_moment)))
    model.loops.clear()
    for joint in ("joint3", "joint10", "joint11"):
        del model.gears[joint]
    dx.save(model.build(), tmp_path / "new.json")
    document = json.loads((tmp_path / "new.json").read_text())
    document["version"] = 1
    del document["flexible"], document["integrals"]
    document["couplings"] = [{"joint": "joint2", "source": "joint1"}]
    del document["loops"]
    leaves = document["leaves"]
    document["leaves"] = {k: leaf for k, leaf in leaves.items() if not k.startswith(("loop_", "first_moment"))}
    assert_same(model.build(), dx.load(json.dumps(document)))


def test_a_file_of_version_2_is_still_read(tmp_path):
    """It had no first moments but those of the centres of mass."""
    model = everything()
    model = model.replace(first_moment=jnp.zeros_like(model.first_moment))
    dx.save(model, tmp_path / "new.json")
    document = json.loads((tmp_path / "new.json").read_text())
    document["version"] = 2
    del document["leaves"]["first_moment"], document["flexible"], document["integrals"]
    assert_same(model, dx.load(json.dumps(document)))


@pytest.mark.parametrize("kind", ["gear", "condition", "closure"])
def test_functions_that_a_file_cannot_hold(kind, tmp_path):
    builder = dx.ModelBuilder()
    builder.body("a", joint=dx.Revolute()).body("b", parent="a", joint=dx.Revolute())
    if kind == "gear":
        builder.gear("b_joint", "a_joint", function=jnp.sin)
    elif kind == "condition":
        builder.condition("own", lambda model, q: q[0])
    else:
        builder.loop("own", successor="b", joint=dx.UserJoint(lambda q: dx.Transform.identity()))
    with pytest.raises(dx.ModelError, match=r"(b_joint|own).*function"):
        dx.save(builder.build(), tmp_path / "robot.json")


class Own(dx.AbstractJoint):
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def pose(self, q, parameters, time):
        return dx.Revolute().pose(q, parameters, time)


@pytest.mark.parametrize(
    ("joint", "words"),
    [
        (dx.Driven(dx.Revolute(), jnp.sin), "holds a function"),
        (dx.UserJoint(lambda q: dx.Transform.identity()), "holds a function"),
        (dx.Reversed(dx.UserJoint(lambda q: dx.Transform.identity())), "holds a function"),
        (Own(), "not one of dynax's"),
    ],
)
def test_joints_that_a_file_cannot_hold(joint, words, tmp_path):
    model = dx.ModelBuilder().body("b", joint=joint, joint_name="j").build()
    with pytest.raises(dx.ModelError, match=words) as caught:
        dx.save(model, tmp_path / "robot.json")
    assert caught.value.element == "joint 'j'"
    assert not (tmp_path / "robot.json").exists()


def _edit(path: str, value):
    """A change of one entry of the document."""

    def change(document):
        *way, last = path.split("/")
        for step in way:
            document = document[int(step) if step.isdigit() else step]
        if value is ...:
            del document[last]
        else:
            document[int(last) if last.isdigit() else last] = value

    return change


@pytest.mark.spec("RBDA-4.6-MODEL")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_edit("format", "other"), 'has no "format"'),
        (_edit("version", 6), "has version 6"),
        (_edit("version", ...), "'version' is missing"),
        (_edit("bodies/1/parent", 1), "parents must come before"),
        (_edit("bodies/1/parent", 0.5), "not a whole number"),
        (_edit("bodies/1/name", "body0"), "two bodies or frames"),
        (_edit("bodies/1/name", 3), "3 is not a text"),
        (_edit("bodies/1/joint/type", "Hinge"), "joint 'joint1': there is no type of joint 'Hinge'"),
        (_edit("bodies/1/joint/type", "Driven"), "joint 'joint1': .*schedule"),
        (_edit("bodies/1/joint/speed", 3), "joint 'joint1': .*speed"),
        (_edit("bodies/8/joint/sequence", "xxy"), "joint 'joint8': .*sequence"),
        (_edit("frames/1/body", 99), "is fixed to body 99"),
        (_edit("frames/1/name", "body0"), "two bodies or frames"),
        (_edit("couplings/0/joint", "nobody"), "gear of joint 'nobody': no joint named 'nobody'"),
        (_edit("couplings/2/polynomial/1", "x"), "joint 'joint10': .*polynomial"),
        (_edit("loops/0/successor", 99), "loop 'ball': joins bodies"),
        (_edit("loops/1/joint/type", "Hinge"), "joint 'screw': there is no type of joint 'Hinge'"),
        (_edit("report/0", {"element": []}), "is not a saved model"),
        (_edit("report/0", {"element": [], "message": "odd"}), "is not a text"),
        # What a builder would refuse.
        (_edit("leaves/mass/values/3", -5.0), "body 'body3': `mass` is negative: -5"),
        (_edit("leaves/mass/values/3", "nan"), "body 'body3': `mass` is not finite: nan"),
        (_edit("leaves/com/values/4", "inf"), "body 'body1': `com` is not finite"),
        (_edit("leaves/damping/values/6", -1.0), "joint 'joint1': `damping` is negative"),
        (_edit("leaves/friction_velocity/values/0", 0.0), "`friction_velocity` is 0"),
        (_edit("leaves/position_limits/values/0", "nan"), "joint 'joint0': `position_limits` is not a number"),
        (_edit("leaves/position_limits/values/78", 3.0), "joint 'arm': `position_limits` are the wrong way"),
        (_edit("leaves/placements.rotation/values/9", 7.0), "body 'body1': `placements.rotation` is not a rotation"),
        (_edit("leaves/hinges.rotation/values/0", -1.0), "body 'body0': `hinges.rotation` is not a rotation"),
        (_edit("leaves/coupling_ratio/values/1", "inf"), "gear of joint 'joint3': `coupling_ratio` is not finite"),
        (_edit("bodies/1/joint_name", "joint0"), "joint 'joint0': there are two joints"),
        (_edit("bodies/1/name", "world"), "'world': this name stands for"),
        (_edit("bodies/1/name", ""), "a name must be a non-empty string"),
        (_edit("bodies/1/joint/axis", [1.0, 0.0, 0.0]), "joint 'joint1': names an axis"),
        (_edit("couplings/0/joint", "joint7"), "joint 'joint7' has not one freedom but 3"),
        (_edit("couplings/0/sources", ["joint2"]), "gear of joint 'joint2': the joint follows itself"),
        (_edit("couplings/0/joint", "joint3"), "gear of joint 'joint3': the joint follows two gears"),
        (_edit("loops/0/successor", -1), "loop 'ball': both ends are on the same body"),
        (_edit("loops/0/name", "screw"), "loop 'screw': there are two loops"),
        (_edit("loops/0/joint/type", "Free"), "loop 'ball': Free leaves all six freedoms"),
        (_edit("loops/0/joint/type", "RollingBall"), "loop 'ball': RollingBall.* rolls and cannot close"),
        (_edit("leaves/mass", ...), "'mass' is missing"),
        (_edit("leaves/extra", {}), "leaf 'extra': is unknown"),
        (_edit("leaves/mass/dtype", "int32"), "leaf 'mass': .*int32"),
        (_edit("leaves/mass/shape", [3]), r"leaf 'mass': has shape \(3,\), expected \(16,\)"),
        (_edit("leaves/mass/values", [1.0]), "has 1 values"),
        (_edit("leaves/mass/values/0", None), "not a number"),
        (_edit("leaves/mass/values/0", "many"), "'many'"),
        (_edit("leaves/gravity/values/0", 10**400), "is not a saved model"),
        (_edit("leaves", []), "is not a saved model"),
        (_edit("bodies", 7), "is not a saved model"),
    ],
)
def test_files_that_do_not_fit_are_refused(change, words, tmp_path):
    path = tmp_path / "robot.json"
    dx.save(everything(), path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(dx.ModelError, match=words) as caught:
        dx.load(path)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1: is not JSON"),
        ('{"format":\n}', "line 2: is not JSON"),
        ("{}", 'has no "format"'),
        ('{"format": NaN}', "NaN is not JSON"),
        ('{"format": ' + "[" * 100_000, "is not"),
    ],
)
def test_text_that_is_no_model_is_refused(text, words):
    with pytest.raises(dx.ModelError, match=words):
        dx.load(text)


def test_leaves_of_different_batches_are_refused(tmp_path):
    model = everything()
    changed = model.replace(mass=jnp.tile(model.mass, (3, 1)), com=jnp.tile(model.com, (2, 1, 1)))
    with pytest.raises(dx.ModelError, match=r"has the batch axes \(2,\), and leaf 'mass' has \(3,\)"):
        dx.save(changed, tmp_path / "robot.json")
