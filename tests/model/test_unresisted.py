"""Mass matrices that are singular wherever the mechanism stands are reported, by the joint that nothing resists."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import trees

import dynax as dx

POINT, ROD, BALL = (0.0, 0.0, 0.0), (0.1, 0.1, 0.0), (0.1, 0.2, 0.25)


def body(inertia, com=(0.0, 0.0, 0.0)) -> dx.SpatialInertia:
    return dx.SpatialInertia(1.0, com, inertia)


def found(model: dx.Model) -> list[str]:
    return [str(finding) for finding in model.report if "singular" in finding.message]


def null_directions(model: dx.Model) -> int:
    q = dx.random_configuration(model, jax.random.key(3))
    moments = np.linalg.eigvalsh(dx.mass_matrix(model, q))
    # Of 1 kg some 0.1 m away: that of a hinge alone may be all rounding, which is not small beside itself.
    return int(np.sum(moments < 1e-12 * max(moments[-1], 1e-2)))


@pytest.mark.parametrize(
    ("joint", "inertia", "against"),
    [
        (dx.Free(), body(POINT), "3 of the 6 freedoms of joint 'a_joint'"),
        (dx.Free(), body(POINT, (0.1, 0.2, 0.3)), "3 of the 6 freedoms of joint 'a_joint'"),
        (dx.Free(), body(ROD), "1 of the 6 freedoms of joint 'a_joint'"),
        (dx.Spherical(), body(POINT, (0.3, 0.1, 0.0)), "1 of the 3 freedoms of joint 'a_joint'"),
        (dx.Gimbal("zyx"), body(POINT, (0.3, 0.1, 0.2)), "1 of the 3 freedoms of joint 'a_joint'"),
        (dx.Cylindrical((1, 2, 2)), body(POINT, (0.1, 0.2, 0.2)), "1 of the 2 freedoms of joint 'a_joint'"),
        (dx.Revolute((1, 2, 2)), body(POINT, (0.1, 0.2, 0.2)), "against joint 'a_joint'"),
        (dx.Free(), None, "against joint 'a_joint'"),
    ],
)
def test_a_body_that_its_joint_does_not_feel(joint, inertia, against):
    model = dx.ModelBuilder().body("a", joint=joint, inertia=inertia).build()
    (text,) = found(model)
    assert text.startswith("body 'a': ")
    assert against in text
    wanted = joint.nv if "of the" not in against else int(against[0])
    assert null_directions(model) == wanted
    # What would mend it does.
    assert not found(dx.ModelBuilder().body("a", joint=joint, inertia=inertia, armature=1e-6).build())
    assert not found(dx.ModelBuilder().body("a", joint=joint, inertia=body(BALL)).build())


def test_what_a_chain_gives_way_to():
    """Between two hinges of one axis a body without inertia turns by itself; across it, nothing is singular."""

    def chain(second):
        builder = dx.ModelBuilder().body("between", joint=dx.Revolute((0, 0, 1)))
        return builder.body("end", parent="between", joint=dx.Revolute(second), inertia=body(BALL, (0.1, 0, 0))).build()

    (text,) = found(chain((0, 0, 1)))
    assert text.startswith("body 'between': with all it carries, ")
    assert "joint 'between_joint'" in text
    assert null_directions(chain((0, 0, 1))) == 1
    assert not found(chain((0, 1, 0)))
    # A floating base without mass, that one hinge cannot hold.
    base = dx.ModelBuilder().body("base", joint=dx.Free()).body("arm", parent="base", joint=dx.Revolute())
    assert len(found(base.build())) == 2
    loose = dx.ModelBuilder().body("base", joint=dx.Free())
    loose.body("arm", parent="base", joint=dx.Revolute(), inertia=body(BALL, (0.1, 0.2, 0)))
    (text,) = found(loose.build())
    assert "1 of the 6 freedoms of joint 'base_joint'" in text


@pytest.mark.parametrize("name", list(trees.TREES))
def test_trees_of_every_joint_are_not_reported(name):
    assert found(trees.tree(name, passive=False)) == []


def test_a_long_chain_is_not_reported():
    builder = dx.ModelBuilder()
    for k in range(500):
        place = dx.Transform.from_translation((0.0, 0.0, 1.0))
        inertia = body(BALL, (0.0, 0.0, 0.5))
        axis = (0, 1, 0) if k % 2 else (1, 0, 0)
        parent = f"b{k - 1}" if k else "world"
        builder.body(f"b{k}", parent=parent, joint=dx.Revolute(axis), placement=place, inertia=inertia)
    assert builder.build().report == ()


def test_findings_are_not_repeated_by_editing():
    model = dx.ModelBuilder().body("a", joint=dx.Free(), inertia=body(ROD)).build()
    assert dx.to_builder(model).build().report == model.report
    assert len(model.report) == 1
