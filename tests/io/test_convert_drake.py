"""Drake: an SDF of ours moves there as here, and states come back as they went."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import random_inertia

import dynax as dx

pytest.importorskip("pydrake", reason="NO DRAKE: NO STATE WENT THERE AND BACK (pip install drake)")
from pydrake.math import RigidTransform, RollPitchYaw, RotationMatrix
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import (
    BallRpyJoint,
    FixedOffsetFrame,
    MultibodyForces,
    PlanarJoint,
    RpyFloatingJoint,
    SpatialInertia,
    UnitInertia,
)

KINDS = {
    "turn": dx.Revolute((1, 2, 2)), "push": dx.Prismatic((0, 1, 1)), "screw": dx.Helical((0, 1, 2), 0.1),
    "cross": dx.Universal((0, 0, 1), (0, 1, 0)), "ball": dx.Spherical(),
}  # fmt: skip


def creature(rng: np.random.Generator) -> dx.Model:
    """A floating base with all joints that an SDF has, in two branches, hinges away from the origins of bodies."""
    place = lambda: dx.Transform(dx.Rotation.exp(rng.normal(size=3)), rng.normal(size=3))  # noqa: E731
    builder = dx.ModelBuilder(name="creature").body("trunk", joint=dx.Free(), inertia=random_inertia(rng))
    parent = "trunk"
    for name, joint in KINDS.items():
        builder.body(
            f"{name}_body", parent=parent, joint=joint, joint_name=name, placement=place(), inertia=random_inertia(rng),
            anchor=rng.normal(size=3),
        )  # fmt: skip
        parent = "trunk" if name == "push" else f"{name}_body"
    return builder.frame("tip", body="ball_body", placement=place()).build()


def states(model: dx.Model, rng: np.random.Generator, count: int) -> list:
    motions = jnp.asarray(rng.normal(size=(4, count, model.nv)))
    q = jax.vmap(lambda dv: dx.integrate(model, dx.neutral(model), dv))(motions[0])
    return [q, *motions[1:]]


def same(model: dx.Model, plant: MultibodyPlant, rng: np.random.Generator) -> None:
    """Forward and inverse dynamics, rates of positions, power; there and back."""
    convert = dx.DrakeConverter(model, plant)
    context = plant.CreateDefaultContext()
    assert plant.num_velocities() == model.nv
    q, v, a, tau = states(model, rng, 3)
    found = jax.jit(jax.vmap(lambda *x: dx.forward_dynamics(model, *x)))(q, v, tau)
    needed = jax.jit(jax.vmap(lambda *x: dx.inverse_dynamics(model, *x)))(q, v, a)

    def all_of(q, v, a, tau, found, needed):
        rate = jax.jvp(lambda t: convert.to(dx.integrate(model, q, t * v)).q, (0.0,), (1.0,))[1]
        return convert.to(q, v, a=a, tau=tau), convert.to(q, v, a=found, tau=needed), rate

    there, answers, rates = jax.jit(jax.vmap(all_of))(q, v, a, tau, found, needed)
    back = jax.jit(jax.vmap(lambda q, v, a, tau: convert.back(q, v, a=a, tau=tau)))(*there)
    np.testing.assert_allclose(jax.vmap(lambda x, y: dx.difference(model, x, y))(q, back.q), 0.0, atol=1e-9)
    for mine, theirs in zip((v, a, tau), back[1:], strict=True):
        np.testing.assert_allclose(theirs, mine, atol=1e-12)
    np.testing.assert_allclose(jnp.sum(there.tau * there.v, axis=1), jnp.sum(tau * v, axis=1), rtol=1e-12)
    for k in range(3):
        plant.SetPositions(context, np.asarray(there.q[k]))
        plant.SetVelocities(context, np.asarray(there.v[k]))
        plant.get_applied_generalized_force_input_port().FixValue(context, np.asarray(there.tau[k]))
        rate = plant.EvalTimeDerivatives(context).CopyToVector()
        np.testing.assert_allclose(rates[k], rate[: plant.num_positions()], atol=1e-9)
        np.testing.assert_allclose(answers.a[k], rate[plant.num_positions() :], rtol=1e-8, atol=1e-8)
        forces = MultibodyForces(plant)
        plant.CalcForceElementsContribution(context, forces)
        demanded = plant.CalcInverseDynamics(context, np.asarray(there.a[k]), forces)
        np.testing.assert_allclose(answers.tau[k], demanded, rtol=1e-9, atol=1e-9)


def plant_of(text: str, kind: str) -> MultibodyPlant:
    plant = MultibodyPlant(0.0)
    plant.mutable_gravity_field().set_gravity_vector([0.0, 0.0, -9.81])  # as here, in double precision
    Parser(plant).AddModelsFromString(text, kind)
    plant.Finalize()
    return plant


def test_an_sdf_moves_in_drake_as_the_model_does(rng):
    model = creature(rng)
    model = model.replace(gravity=jnp.array([0.0, 0.0, -9.81]))
    written = dx.write_sdf(model)
    assert written.left_out == ()
    plant = plant_of(written.text, "sdf")
    same(model, plant, rng)
    q = dx.random_configuration(model, jax.random.key(1))
    context = plant.CreateDefaultContext()
    plant.SetPositions(context, np.asarray(dx.DrakeConverter(model, plant).to(q).q))
    tip = plant.GetFrameByName("tip").CalcPoseInWorld(context)
    np.testing.assert_allclose(dx.frame_pose(model, q, "tip").translation, tip.translation(), atol=1e-12)


def test_joints_that_a_program_makes_there(rng):
    """A planar joint, a ball and a floating base by angles, whose axes in the bodies are tilted."""
    builder, plant = dx.ModelBuilder(), MultibodyPlant(0.0)
    plant.mutable_gravity_field().set_gravity_vector([0.0, 0.0, -9.81])
    turned = RotationMatrix(RollPitchYaw(0.3, -0.2, 0.5))
    at = RigidTransform(turned, [0.1, 0.2, 0.3])
    parent, above = "world", plant.world_body()
    joints = {
        "sky": (dx.Free(), RpyFloatingJoint),
        "table": (dx.Planar(), PlanarJoint),
        "eye": (dx.Spherical(), BallRpyJoint),
    }
    com, moments = np.array([0.1, -0.2, 0.3]), np.array([1.0, 1.2, 0.9])
    for name, (joint, theirs) in joints.items():
        placement = dx.Transform(at.rotation().matrix(), at.translation())
        builder.body(
            f"{name}_body", parent=parent, joint=joint, joint_name=name, placement=placement,
            inertia=dx.SpatialInertia(2.0, com, tuple(moments)),
        )  # fmt: skip
        inertia = SpatialInertia.MakeFromCentralInertia(2.0, com, UnitInertia(*(moments / 2.0)) * 2.0)
        body = plant.AddRigidBody(f"{name}_body", inertia)
        frame = plant.AddFrame(FixedOffsetFrame(f"{name}_frame", above.body_frame(), at))
        plant.AddJoint(theirs(name, frame, body.body_frame()))
        parent, above = f"{name}_body", body
    plant.Finalize()
    same(builder.build(), plant, rng)


def test_what_does_not_correspond_is_refused():
    model = dx.ModelBuilder().body("b", joint=dx.Planar((1, 0, 0)), joint_name="j").build()
    plant = MultibodyPlant(0.0)
    body = plant.AddRigidBody("b", SpatialInertia.SolidSphereWithMass(1.0, 0.1))
    plant.AddJoint(PlanarJoint("j", plant.world_frame(), body.body_frame()))
    plant.Finalize()
    with pytest.raises(ValueError, match="'j': its frame has other axes"):
        dx.DrakeConverter(model, plant)
    text = "<robot name='{}'><link name='a'/><link name='b'><inertial><mass value='1'/><inertia ixx='1' iyy='1' izz='1' ixy='0' ixz='0' iyz='0'/></inertial></link><joint name='j' type='continuous'><parent link='a'/><child link='b'/></joint></robot>"  # noqa: E501
    plant = MultibodyPlant(0.0)
    for name in ("one", "two"):
        Parser(plant).AddModelsFromString(text.format(name), "urdf")
    plant.Finalize()
    with pytest.raises(ValueError, match="one robot alone"):
        dx.DrakeConverter(dx.load(text.format("one")), plant)
