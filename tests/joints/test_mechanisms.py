"""Joints at work: closed forms of small mechanisms, and one mechanism described in two ways.

Mechanisms that do not touch share a model, a forest on the world, so that each function compiles once for all of them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax.spatial import Rotation, Transform

MASS, COM, TENSOR = 2.0, np.array([0.3, -0.2, 0.5]), np.diag([0.5, 0.6, 0.7])
BODY = dx.SpatialInertia(MASS, COM, TENSOR)
ON_AXIS = dx.SpatialInertia(MASS, (0.0, 0.0, 0.4), TENSOR)
R, PITCH = 0.4, 0.3


def forest(bodies, gravity=(0.0, 0.0, 0.0)):
    builder = dx.ModelBuilder(gravity=gravity)
    for name, options in bodies.items():
        builder.body(name, **options)
    return builder.build()


def block(model, matrix, name):
    k = model.v_slice(f"{name}_joint")
    return np.asarray(matrix)[k, k]


@pytest.mark.spec("J-R", "J-P", "J-H", "J-C", "J-S", "J-PL", "J-6", "RBDA-4.4-JTYPE")
def test_mass_matrices_of_single_bodies(rng):
    """Closed forms, for axes that point anywhere."""
    axis = rng.normal(size=3)
    z = axis / np.linalg.norm(axis)
    joints = {
        "revolute": dx.Revolute(axis),
        "prismatic": dx.Prismatic(axis),
        "helical": dx.Helical(axis, PITCH),
        "coarse": dx.Helical(axis, 2 * PITCH),
        "spherical": dx.Spherical(),
        "free": dx.Free(),
        "planar": dx.Planar(),
    }
    bodies = {name: {"joint": joint, "inertia": BODY} for name, joint in joints.items()}
    bodies["cylindrical"] = {"joint": dx.Cylindrical(), "inertia": ON_AXIS}
    model = forest(bodies)
    q = dx.random_configuration(model, jax.random.key(1))
    h = dx.mass_matrix(model, q)
    about_axis = z @ TENSOR @ z + MASS * np.sum(np.cross(z, COM) ** 2)  # I + m l^2
    expected = {
        "revolute": about_axis,
        "prismatic": MASS,
        "helical": about_axis + MASS * PITCH**2,
        "coarse": about_axis + MASS * (2 * PITCH) ** 2,
        "spherical": BODY.matrix[:3, :3],
        "free": BODY.matrix,
        "planar": BODY.matrix[2:5, 2:5],
        "cylindrical": np.diag([TENSOR[2, 2], MASS]),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(block(model, h, name), np.atleast_2d(value), atol=1e-12, err_msg=name)


@pytest.mark.spec("J-ROLL", "RBDA-3.4-ROLL")
def test_rolling_on_an_incline():
    """A disc 2/3, a sphere 5/7 of `g sin a`; a wheel with its centre of mass off its axle."""
    a, g, e = 0.3, 9.81, 0.1
    disc, sphere = MASS * R**2 / 2, 0.4 * MASS * R**2
    ball = Transform(Rotation.exp(np.array([0.0, np.pi / 2, np.pi / 2])))  # any placement
    bodies = {
        "disc": {"joint": dx.Rolling(R), "inertia": dx.SpatialInertia(MASS, inertia=(1.0, 1.0, disc))},
        "sphere": {"joint": dx.Rolling(R), "inertia": dx.SpatialInertia(MASS, inertia=(sphere,) * 3)},
        "uneven": {"joint": dx.Rolling(R), "inertia": dx.SpatialInertia(MASS, (0.0, e, 0.0), (1.0, 1.0, disc))},
        "ball": {
            "joint": dx.RollingBall(R),
            "inertia": dx.SpatialInertia(MASS, inertia=(sphere,) * 3),
            "placement": ball,
        },
    }
    slope = np.array([g * np.sin(a), -g * np.cos(a), 0.0])
    model = forest(bodies, slope)
    q = dx.random_configuration(model, jax.random.key(2))
    acceleration = dx.forward_dynamics(model, q, jnp.zeros(model.nv), jnp.zeros(model.nv))
    down = R * np.asarray(acceleration)
    np.testing.assert_allclose(block(model, np.diag(down), "disc"), [[2 / 3 * g * np.sin(a)]], rtol=1e-12)
    np.testing.assert_allclose(block(model, np.diag(down), "sphere"), [[5 / 7 * g * np.sin(a)]], rtol=1e-12)
    theta = q[model.q_slice("uneven_joint")][0]
    h = dx.mass_matrix(model, q)
    np.testing.assert_allclose(block(model, h, "disc"), [[disc + MASS * R**2]], rtol=1e-12)
    np.testing.assert_allclose(
        block(model, h, "uneven"), [[disc + MASS * (R**2 + e**2 - 2 * R * e * np.cos(theta))]], rtol=1e-12
    )
    # The ball: its centre accelerates by 5/7 of what gravity has along the plane; `a = w_dot x r n` from the contact.
    own = Rotation(dx.forward_kinematics(model, q).rotation[model.body_index("ball")])
    normal = ball.rotation[:, 2]
    w_dot = own @ acceleration[model.v_slice("ball_joint")]
    along = slope - normal * (normal @ slope)
    np.testing.assert_allclose(np.cross(w_dot, R * normal), 5 / 7 * along, atol=1e-12)


@pytest.mark.spec("RBDA-2.7-RULES", "J-W", "J-U")
def test_welds_add_inertias_and_universals_are_two_hinges(rng):
    """Two welded bodies, or two held together by a joint that a schedule keeps still, move like their sum."""
    pose = Transform(Rotation.exp(rng.normal(size=3)), rng.normal(size=3))
    other = dx.SpatialInertia(1.5, rng.normal(size=3), (0.3, 0.4, 0.5))
    still = dx.Driven(dx.Revolute((0, 1, 0)), lambda t: 0.0 * t)
    place = Transform(Rotation.exp(rng.normal(size=3)), rng.normal(size=3))
    base = {"joint": dx.Revolute((1, 2, 0)), "inertia": BODY, "placement": place}
    tip = {"joint": dx.Universal((0, 0, 1), (0, 1, 0)), "inertia": other}
    bodies = {
        "one": {**base, "inertia": BODY + pose @ other},
        "two": base,
        "weld": {"parent": "two", "inertia": other, "placement": pose},
        "three": base,
        "held": {"parent": "three", "joint": still, "inertia": other, "placement": pose},
        "tip1": {**tip, "parent": "one", "placement": pose},
        "tip2": {**tip, "parent": "two", "placement": pose},
        "mid3": {"parent": "three", "joint": dx.Revolute((0, 0, 1)), "placement": pose},  # massless
        "tip3": {"parent": "mid3", "joint": dx.Revolute((0, 1, 0)), "inertia": other},
    }
    model = forest(bodies, (1.0, 2.0, -9.81))
    slots = [["one", "tip1"], ["two", "tip2"], ["three", "mid3", "tip3"]]
    index = [np.concatenate([np.arange(model.nv)[model.v_slice(f"{n}_joint")] for n in names]) for names in slots]
    q, v, tau = np.zeros((3, model.nv))
    for x in (q, v, tau):
        x[np.array(index)] = rng.normal(size=3)
    acceleration = np.asarray(dx.forward_dynamics(model, q, v, tau))
    for k in index[1:]:
        np.testing.assert_allclose(acceleration[k], acceleration[index[0]], rtol=1e-12)
    transmitted = dx.joint_forces(model, q, v, acceleration)
    rows = [model.body_index(name) for name in ("one", "two", "three")]
    np.testing.assert_allclose(transmitted[np.array(rows)], np.broadcast_to(transmitted[rows[0]], (3, 6)), rtol=1e-11)


TURNED = {
    "helical": dx.Helical((0, 1, 1), PITCH),
    "planar": dx.Planar((1, 1, 1)),
    "spherical": dx.Spherical(),
    "rack": dx.RackAndPinion(R, (0, 1, 0), (0, 0, 1)),
    "user": dx.UserJoint(
        lambda q: Transform(Rotation.from_rpy(q[0], 0.3 * q[0], 0.0), (q[0] ** 2, 0.0, jnp.sin(q[0])))
    ),
}


@pytest.mark.slow
@pytest.mark.spec("RBDA-4.4-REVERSE", "RBDA-4.1.3-POL", "RBDA-4.1-FLOAT")
def test_a_mechanism_described_from_either_end(rng):
    """A floating, B carried by a joint; or B floating, A carried by the joint reversed: the same accelerations."""
    other = dx.SpatialInertia(1.5, (0.1, 0.2, -0.3), (0.3, 0.4, 0.5))
    forwards, backwards = {}, {}
    for name, joint in TURNED.items():
        forwards[f"{name}_a"] = {"joint": dx.Free(), "inertia": BODY}
        forwards[f"{name}_b"] = {"joint": joint, "parent": f"{name}_a", "inertia": other}
        backwards[f"{name}_b"] = {"joint": dx.Free(), "inertia": other}
        backwards[f"{name}_a"] = {"joint": dx.Reversed(joint), "parent": f"{name}_b", "inertia": BODY}
    gravity = (1.0, 2.0, -9.81)
    first, second = forest(forwards, gravity), forest(backwards, gravity)
    q1 = dx.random_configuration(first, jax.random.key(3))
    v1, tau1 = rng.normal(size=(2, first.nv))
    poses, velocities = dx.forward_kinematics(first, q1), dx.body_velocities(first, q1, v1)
    q2, v2, tau2 = np.zeros(second.nq), np.zeros(second.nv), np.zeros(second.nv)
    for name in TURNED:
        tau1[first.v_slice(f"{name}_a_joint")] = 0.0
        b = first.body_index(f"{name}_b")
        q2[second.q_slice(f"{name}_b_joint")] = [*poses.translation[b], *Rotation(poses.rotation[b]).quaternion()]
        v2[second.v_slice(f"{name}_b_joint")] = velocities[b]
        q2[second.q_slice(f"{name}_a_joint")] = q1[first.q_slice(f"{name}_b_joint")]
        v2[second.v_slice(f"{name}_a_joint")] = v1[first.v_slice(f"{name}_b_joint")]
        tau2[second.v_slice(f"{name}_a_joint")] = tau1[first.v_slice(f"{name}_b_joint")]
    a1, a2 = dx.forward_dynamics(first, q1, v1, tau1), dx.forward_dynamics(second, q2, v2, tau2)
    accelerations = dx.body_accelerations(first, q1, v1, a1)
    for name in TURNED:
        joint, reverse = first.v_slice(f"{name}_b_joint"), second.v_slice(f"{name}_a_joint")
        np.testing.assert_allclose(a2[reverse], a1[joint], rtol=1e-8, atol=1e-9, err_msg=name)
        root = second.v_slice(f"{name}_b_joint")
        exact = accelerations[first.body_index(f"{name}_b")]
        np.testing.assert_allclose(a2[root], exact, rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.spec("RBDA-3.4-RHEO", "RBDA-4.4-TIME")
def test_a_driven_joint_is_hybrid_dynamics(rng):
    """A cart on a schedule, a pendulum on it: the motion and the reaction of a cart whose acceleration is given."""
    time = 0.8
    schedule = lambda t: 0.3 * jnp.sin(2.0 * t) + 0.1 * t**2  # noqa: E731
    cart, bob = dx.SpatialInertia(3.0), dx.SpatialInertia(MASS, (0.0, 0.0, -0.7), (0.1, 0.2, 0.3))
    axes = Transform(Rotation.exp(rng.normal(size=3)), rng.normal(size=3))
    slide, swing = dx.Prismatic((1, 0, 0)), {"parent": "cart", "joint": dx.Revolute((0, 1, 0)), "inertia": bob}
    driven = forest(
        {"cart": {"joint": dx.Driven(slide, schedule), "inertia": cart, "placement": axes}, "bob": swing}, (0, 0, -9.81)
    )
    given = forest({"cart": {"joint": slide, "inertia": cart, "placement": axes}, "bob": swing}, (0, 0, -9.81))
    driven = driven.at_time(time)
    s, s_dot, s_ddot = (f(time) for f in (schedule, jax.grad(schedule), jax.grad(jax.grad(schedule))))
    angle, rate, torque = rng.normal(size=3)
    alone = dx.forward_dynamics(driven, jnp.array([angle]), jnp.array([rate]), jnp.array([torque]))
    q, v = jnp.array([s, angle]), jnp.array([s_dot, rate])
    a, tau = dx.hybrid_dynamics(given, q, v, jnp.array([0.0, torque]), jnp.array([s_ddot, 0.0]), ("cart_joint",))
    np.testing.assert_allclose(alone[0], a[1], rtol=1e-12)
    forces = dx.joint_forces(driven, jnp.array([angle]), jnp.array([rate]), alone)
    np.testing.assert_allclose(forces, dx.joint_forces(given, q, v, a), rtol=1e-10, atol=1e-12)
    sigma = np.array([0, 0, 0, s_dot, 0, 0])
    np.testing.assert_allclose(forces[0] @ sigma, tau[0] * s_dot, rtol=1e-10)

    def energy(q, v):
        return dx.kinetic_energy(given, q, v) + dx.potential_energy(given, q)

    growth = jax.jvp(energy, (q, v), (v, a))[1]  # what the schedule and the torque put in
    np.testing.assert_allclose(forces[0] @ sigma + torque * rate, growth, rtol=1e-10)


@pytest.mark.spec("RBDA-4.4-FREE6", "RBDA-4.4-PLQDOT")
def test_free_fall_is_exact(rng):
    model = forest({"body": {"joint": dx.Free(), "inertia": BODY}}, (1.0, 2.0, -9.81))
    q = dx.random_configuration(model, jax.random.key(4))
    v = rng.normal(size=6)
    a = dx.forward_dynamics(model, q, v, jnp.zeros(6))
    momentum = BODY.matrix @ v
    weight = MASS * Rotation.from_quaternion(q[3:]).inverse.matrix @ np.array([1.0, 2.0, -9.81])
    gyration = np.array(
        [*np.cross(v[:3], momentum[:3]) + np.cross(v[3:], momentum[3:]), *np.cross(v[:3], momentum[3:])]
    )
    exact = np.linalg.solve(BODY.matrix, np.array([*np.cross(COM, weight), *weight]) - gyration)
    np.testing.assert_allclose(a, exact, rtol=1e-10)


@jax.jit
def runge_kutta(model, q, v, h, steps):
    """Classical, its four stages a loop, so that the dynamics compile once."""
    weights = jnp.array([[0.0, 0.5, 0.5, 1.0], [1 / 6, 1 / 3, 1 / 3, 1 / 6]]).T

    def step(_, state):
        def stage(carry, weight):
            (kq, kv), (q_end, v_end) = carry
            q, v = state[0] + weight[0] * h * kq, state[1] + weight[0] * h * kv
            kq, kv = dx.configuration_rate(model, q, v), dx.forward_dynamics(model, q, v, jnp.zeros(model.nv))
            return ((kq, kv), (q_end + weight[1] * h * kq, v_end + weight[1] * h * kv)), None

        q, v = jax.lax.scan(stage, (jax.tree.map(jnp.zeros_like, state), state), weights)[0][1]
        return dx.normalize(model, q), v

    return jax.lax.fori_loop(0, steps, step, (q, v))


@pytest.mark.spec("QV", "RBDA-4.5-YPR", "B-TOP")
def test_tops():
    """A fast heavy top against published digits, and two gentle ones: in Euler angles and in a quaternion."""
    fast = dx.SpatialInertia(15.0, (0.0, 1.0, 0.0), (0.234375, 0.46875, 0.234375))
    model = forest({"top": {"joint": dx.Spherical(), "inertia": fast}}, (0, 0, -9.81))
    start = jnp.array([1.0, 0, 0, 0]), jnp.array([0, 150.0, -4.61538])
    q, v = runge_kutta(model, *start, 1e-4, 2000)
    exact = np.array([-0.70827915, 0.43878109, 0.5457284, 0.08939975])
    np.testing.assert_allclose(q * np.sign(q[0] * exact[0]), exact, atol=2e-7)
    tip = Rotation.from_quaternion(q) @ np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(tip, [0.60555056, 0.59895768, -0.52398303], atol=2e-7)
    q, v = runge_kutta(model, q, v, 1e-4, 8000)
    tip = Rotation.from_quaternion(q) @ np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(tip, [0.17334396, 0.64008859, -0.74849079], atol=2e-6)
    both = {"ball": {"joint": dx.Spherical(), "inertia": BODY}, "euler": {"joint": dx.Gimbal("zyx"), "inertia": BODY}}
    model = forest(both, (0, 0, -9.81))
    angles, rates = jnp.array([0.3, -0.4, 0.5]), jnp.array([1.0, 0.4, -0.7])
    c = dx.Gimbal("zyx").columns(tuple(angles), (), 0.0)
    w = sum(column.angular.array * rate for column, rate in zip(c, rates, strict=True))
    turn = Rotation.from_rpy(*angles[::-1]).quaternion()
    q, v = runge_kutta(model, jnp.concatenate([turn, angles]), jnp.concatenate([w, rates]), 1e-3, 400)
    ball, euler = dx.forward_kinematics(model, q).rotation
    assert abs(float(q[5])) < 1.3  # away from where the angles break down
    np.testing.assert_allclose(euler, ball, atol=1e-9)
