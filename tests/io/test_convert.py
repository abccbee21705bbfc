"""States to and from MuJoCo and Pinocchio: the same motion, the same power, in either tool's own words."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin
import pytest

import dynax as dx

# Bodies and joints in another order than the one dynax's model below has them in.
MJCF = """<mujoco><option gravity="0 0 -9.81"/><worldbody>
<body name="arm" pos="0 0 1"><joint name="lift" type="slide" axis="0 0 1"/><geom size=".1"/>
  <body name="hand" pos=".3 0 0"><joint name="wrist" type="ball"/><geom size=".1" pos=".2 0 .1"/></body></body>
<body name="bird"><joint name="sky" type="free"/><geom size=".1" pos=".1 .2 .3"/><geom size=".2"/></body>
<body name="fish"><freejoint name="sea"/><geom size=".3 .2 .1" type="box" pos="0 .1 0"/>
  <body name="tail"><joint name="swish" axis="0 0 1"/><geom size=".1" pos=".2 0 0"/></body></body>
</worldbody></mujoco>"""


def mixed() -> tuple[dx.Model, mujoco.MjModel]:
    """The same mechanism with the trees exchanged."""
    head, rest = MJCF.split("<worldbody>")
    arm, bird = rest.index('<body name="bird">'), rest.index('<body name="fish">')
    end = rest.index("</worldbody>")
    shuffled = rest[bird:end] + rest[:arm] + rest[arm:bird] + rest[end:]
    return dx.load(f"{head}<worldbody>{shuffled}"), mujoco.MjModel.from_xml_string(MJCF)


def random_state(model: dx.Model, rng: np.random.Generator) -> list:
    q = dx.integrate(model, dx.neutral(model), rng.normal(size=model.nv))
    return [q, *jnp.asarray(rng.normal(size=(3, model.nv)))]


def test_mujoco_there_and_back(rng):
    model, m = mixed()
    assert model.joint_names == ("sea", "swish", "lift", "wrist", "sky")
    convert = dx.MujocoConverter(model, m)
    q, v, a, tau = random_state(model, rng)
    there = convert.to(q, v, a=a, tau=tau)
    assert np.allclose(there.q[m.joint("sea").qposadr[0] :][:7], q[model.q_slice("sea")])
    assert np.isclose(there.tau @ there.v, tau @ v)
    assert not np.allclose(there.v[-7:], v[-7:])
    back = convert.back(there.q, there.v, qacc=there.a, qfrc=there.tau)
    for ours, given in zip(back, (q, v, a, tau), strict=True):
        assert np.allclose(ours, given, atol=1e-14)


def test_mujoco_moves_the_same_way(rng):
    """Along `v` for a short time in either tool; and the acceleration is the derivative of MuJoCo's velocity."""
    model, m = mixed()
    convert = dx.MujocoConverter(model, m)
    q, v, a, _ = random_state(model, rng)
    there, step = convert.to(q, v, a=a), 1e-6
    theirs = np.array(there.q)
    mujoco.mj_integratePos(m, theirs, np.array(there.v), step)
    ours = convert.to(dx.integrate(model, q, step * v)).q
    assert np.allclose(ours, theirs, atol=1e-10)

    def velocity(t):
        return convert.to(dx.integrate(model, q, t * v), v + t * a).v

    assert np.allclose(jax.jvp(velocity, (0.0,), (1.0,))[1], there.a, atol=1e-12)


def test_mujoco_converts_in_batches_and_under_transformations(rng):
    model, m = mixed()
    convert = dx.MujocoConverter(model, m)
    states = [random_state(model, rng) for _ in range(3)]
    q, v, a, tau = (jnp.stack(x) for x in zip(*states, strict=True))
    batch = jax.jit(jax.vmap(lambda q, v, a, tau: convert.to(q, v, a=a, tau=tau)))(q, v, a, tau)
    single = [convert.to(s[0], s[1], a=s[2], tau=s[3]) for s in states]
    for k in range(4):
        assert np.allclose(batch[k], np.stack([s[k] for s in single]), atol=1e-14)
    jacobian = jax.jacfwd(lambda v: convert.to(q[0], v).v)(v[0])
    assert np.allclose(jacobian @ jacobian.T, np.eye(model.nv))
    assert convert.to(q[0].astype(jnp.float32)).q.dtype == jnp.float32
    assert convert.to(q[0])[1:] == (None, None, None)


def test_the_unnamed_base_of_a_urdf_is_matched():
    urdf = """<robot name="r"><link name="base"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1"
    iyz="0" izz="1"/></inertial></link></robot>"""
    model = dx.load(urdf, root="free")
    m = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    q = jnp.arange(7.0)
    assert np.allclose(dx.MujocoConverter(model, m).to(q).q, q)
    p = pin.buildModelFromXML(urdf, pin.JointModelFreeFlyer(), "floating")
    assert np.allclose(dx.PinocchioConverter(model, p).to(q).q, [0, 1, 2, 4, 5, 6, 3])


def test_what_does_not_fit_is_refused():
    model, m = mixed()
    convert = dx.MujocoConverter(model, m)
    q, v = dx.neutral(model), np.zeros(model.nv)
    with pytest.raises(ValueError, match=r"velocity has shape \(3,\).*vmap"):
        convert.to(q, np.zeros(3))
    with pytest.raises(ValueError, match=r"configuration has shape \(2, .*vmap"):
        convert.back(np.zeros((2, model.nq)))
    with pytest.raises(ValueError, match="needs the velocity"):
        convert.to(q, a=v)
    other = mujoco.MjModel.from_xml_string(MJCF.replace('"swish"', '"wave"').replace('"lift"', '"raise"'))
    with pytest.raises(ValueError, match=r"'swish', 'lift'.*'raise', 'wave'"):
        dx.MujocoConverter(model, other)
    other = mujoco.MjModel.from_xml_string(MJCF.replace('name="swish"', 'name="swish" type="slide"'))
    with pytest.raises(ValueError, match=r"joint 'swish' is Revolute.*MuJoCo's is Prismatic"):
        dx.MujocoConverter(model, other)


# Pinocchio, with every type of joint it has a counterpart for.

JOINTS = {
    "fly": (dx.Free(), lambda: pin.JointModelFreeFlyer()),
    "x": (dx.Revolute((1, 0, 0)), lambda: pin.JointModelRX()),
    "turns": (dx.Revolute((0, 1, 0)), lambda: pin.JointModelRUBY()),
    "tilted": (dx.Revolute((1, 2, 2)), lambda: pin.JointModelRevoluteUnaligned(np.array([1, 2, 2]) / 3)),
    "wheel": (dx.Revolute((0, 0, 1)), lambda: pin.JointModelRUBZ()),
    "rail": (dx.Prismatic((0, 0, 1)), lambda: pin.JointModelPZ()),
    "drawer": (dx.Prismatic((1, 2, 2)), lambda: pin.JointModelPrismaticUnaligned(np.array([1, 2, 2]) / 3)),
    "socket": (dx.Spherical(), lambda: pin.JointModelSpherical()),
    "eye": (dx.Gimbal("zyx"), lambda: pin.JointModelSphericalZYX()),
    "table": (dx.Planar(), lambda: pin.JointModelPlanar()),
    "float": (dx.Translation(), lambda: pin.JointModelTranslation()),
    "screw": (dx.Helical((0, 0, 1), 0.1), lambda: pin.JointModelHZ(0.1)),
    "cross": (dx.Universal(), lambda: pin.JointModelUniversal(np.array([0.0, 0, 1]), np.array([0.0, 1, 0]))),
}


def chains() -> tuple[dx.Model, pin.Model]:
    """A chain with all joints; in Pinocchio the last one hangs on the first, so that the orders differ."""
    builder, p = dx.ModelBuilder(), pin.Model()
    tensor = np.array([[0.5, 0.02, 0.01], [0.02, 0.6, -0.03], [0.01, -0.03, 0.7]])
    com, offset = np.array([0.1, 0.2, -0.1]), np.array([0.2, -0.1, 0.3])
    rotation = pin.rpy.rpyToMatrix(0.1, 0.2, 0.3)
    parent = "world"
    for name, (joint, _) in JOINTS.items():
        builder.body(
            f"{name}_body", parent=parent, joint=joint, joint_name=name, placement=dx.Transform(rotation, offset),
            inertia=dx.SpatialInertia(1.5, com, tensor),
        )  # fmt: skip
        parent = "fly_body" if name == "wheel" else f"{name}_body"
    # The same tree, its second branch before its first.
    names = list(JOINTS)
    at = {"": 0}
    for name in ["fly", *names[5:], *names[1:5]]:
        before = {"fly": "", "rail": "fly", "x": "fly"}.get(name, names[names.index(name) - 1])
        k = p.addJoint(at[before], JOINTS[name][1](), pin.SE3(rotation, offset), name)
        p.appendBodyToJoint(k, pin.Inertia(1.5, com, tensor), pin.SE3.Identity())
        at[name] = k
    return builder.build(), p


def test_pinocchio_moves_and_weighs_the_same(rng):
    model, p = chains()
    convert = dx.PinocchioConverter(model, p)
    data = p.createData()
    for _ in range(3):
        q, v, a, _ = random_state(model, rng)
        tau = dx.inverse_dynamics(model, q, v, a)
        there = convert.to(q, v, a=a, tau=tau)
        assert np.allclose(there.tau, pin.rnea(p, data, *(np.array(x) for x in there[:3])), rtol=0, atol=1e-9)
        poses = dx.forward_kinematics(model, q)
        pin.forwardKinematics(p, data, np.array(there.q))
        for k, name in enumerate(model.joint_names):
            pose = data.oMi[p.getJointId(name)]
            assert np.allclose(poses.translation[k], pose.translation, atol=1e-10)
            assert np.allclose(poses.rotation[k], pose.rotation, atol=1e-10)
        back = convert.back(there.q, there.v, a=there.a, tau=there.tau)
        assert np.allclose(back.q, q, atol=1e-14)  # angles within half a turn
        assert all(np.array_equal(x, y) for x, y in zip(back[1:], (v, a, tau), strict=True))
        assert np.isclose(there.tau @ there.v, tau @ v)


def test_pinocchio_converts_in_batches(rng):
    model, p = chains()
    convert = dx.PinocchioConverter(model, p)
    q, v, *_ = (jnp.stack(x) for x in zip(*(random_state(model, rng) for _ in range(3)), strict=True))
    batch = jax.jit(jax.vmap(convert.to))(q, v)
    assert batch.q.shape == (3, p.nq)
    back = jax.vmap(convert.back)(batch.q, batch.v)
    assert np.allclose(back.q, q, atol=1e-14)
    # A turn more is the same place, and the derivative through the circle is that of the angle.
    assert np.allclose(jax.jacfwd(lambda q: convert.back(convert.to(q).q).q)(q[0]), np.eye(model.nq), atol=1e-12)


def test_a_continuous_joint_about_any_axis():
    urdf = """<robot name="r"><link name="a"/><link name="b"/><joint name="j" type="continuous"><parent link="a"/>
    <child link="b"/><axis xyz="1 2 2"/></joint></robot>"""
    p = pin.buildModelFromXML(urdf)
    assert p.joints[1].shortname() == "JointModelRevoluteUnboundedUnaligned"
    there = dx.PinocchioConverter(dx.load(urdf), p).to([2.0], [1])
    assert np.allclose(there.q, [np.cos(2.0), np.sin(2.0)])
    assert np.allclose(there.v, 1.0)


def test_pinocchio_refuses_what_it_does_not_know():
    model = dx.ModelBuilder().body("b", joint=dx.Planar((1, 0, 0)), joint_name="j").build()
    p = pin.Model()
    p.addJoint(0, pin.JointModelPlanar(), pin.SE3.Identity(), "j")
    with pytest.raises(ValueError, match=r"normal \(0, 0, 1\)"):
        dx.PinocchioConverter(model, p)
    p = pin.Model()
    composite = pin.JointModelComposite()
    composite.addJoint(pin.JointModelRX())
    p.addJoint(0, composite, pin.SE3.Identity(), "j")
    with pytest.raises(ValueError, match="not supported"):
        dx.PinocchioConverter(model, p)
