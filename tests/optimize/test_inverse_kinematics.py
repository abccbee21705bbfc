"""Where joints must be for frames to be where they should: closed forms of arms, residuals of a robot, and refusals."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms
from optimize.standard import near
from optimize.test_equilibrium import two_links
from oracles.robots import example_robots

import dynax as dx
from dynax import optimize as o

TIP = {"point": (1.0, 0.0, 0.0)}


def elbow(x: float, y: float, side: float = 1.0) -> np.ndarray:
    """Two links of length one."""
    bend = side * np.arccos((x * x + y * y - 2.0) / 2.0)
    return np.array([np.arctan2(y, x) - np.arctan2(np.sin(bend), 1.0 + np.cos(bend)), bend])


def test_what_a_function_is_not_given_has_no_gradient():
    """It was zero under `jit`."""

    def found(x):
        goal = jnp.stack([x, 0.7 + 0.0 * x])
        above = o.Target(lambda pose, data: (pose @ jnp.array([1.0, 0.0, 0.0]))[:2] - goal, "lower", ())
        return jnp.sum(dx.inverse_kinematics(two_links(), above, jnp.array([0.1, 1.0])).q)

    near(jax.jit(found)(1.2), np.sum(elbow(1.2, 0.7)), 1e-11)
    for slope in (jax.grad(found), jax.jit(jax.grad(found)), jax.grad(jax.jit(found))):
        with pytest.raises(ValueError, match=r"by what the function of `targets\[0\]` takes from elsewhere.*`data`"):
            slope(1.2)


def test_an_arm_of_two_links():
    """Both elbows, a slope in closed form, a batch of targets with some out of reach, and one stretched out."""
    model = two_links()
    find = jax.jit(lambda goal, q: dx.inverse_kinematics(model, o.position_target("lower", goal, **TIP), q))
    goals = jnp.array([[1.2, 0.7, 0.0], [0.3, -0.9, 0.0], [3.0, 4.0, 0.0], [-1.0, 0.1, 0.0]])
    for side in (1.0, -1.0):
        found = jax.vmap(find)(goals, jnp.broadcast_to(jnp.array([0.1, side]), (4, 2)))
        assert found.status.tolist() == [0, 0, int(o.Status.INFEASIBLE), 0]
        for k in (0, 1):
            near(
                np.exp(1j * np.asarray(found.q[k])),
                np.exp(1j * elbow(float(goals[k, 0]), float(goals[k, 1]), side)),
                1e-11,
            )
        near(np.exp(1j * np.asarray(found.q[2])), [0.6 + 0.8j, 1.0], 1e-6)  # it points there
        assert found.error[2] == pytest.approx(2.4)
    straight = find(goals[0].at[1].set(0.0), jnp.zeros(2))  # a saddle: pulled back along its own line
    assert straight.status == o.Status.CONVERGED

    @jax.vmap
    def angles(goal):
        return find(goal, jnp.array([0.1, 1.0])).q

    aside = 1e-5 * np.eye(3)[:2]
    slope = jax.jacrev(lambda goal: find(goal, jnp.array([0.1, 1.0])).q)(goals[0])
    near(slope[:, :2], ((angles(goals[0] + aside) - angles(goals[0] - aside)) / 2e-5).T, 1e-8)
    near(slope, jax.jacfwd(lambda goal: find(goal, jnp.array([0.1, 1.0])).q)(goals[0]), 1e-12)


def test_limits_and_what_is_held():
    model = two_links(position_limits=(-0.5, 0.5))
    aim = o.position_target("lower", (1.2, 0.7, 0.0), **TIP)
    found = dx.inverse_kinematics(model, aim, [0.0, 2.0])
    assert found.status == o.Status.INFEASIBLE
    assert np.max(np.abs(found.q)) == 0.5
    assert dx.inverse_kinematics(model, aim, [0.0, 2.0], limits=False).status == o.Status.CONVERGED
    held = dx.inverse_kinematics(model, aim, [0.2, 0.1], hold=["upper_joint"])
    assert held.q[0] == 0.2
    # The lower link points at its goal as far as it may.
    assert held.q[1] == 0.5


def test_a_wrist():
    """Three axes through a point: the turns of the middle one by the closed form of its angles, and any orientation on
    a ball joint, half a turn away too."""
    builder = dx.ModelBuilder()
    inertia = dx.SpatialInertia(1.0, np.zeros(3), np.eye(3))
    for name, parent, axis in (("a", "world", (0, 0, 1)), ("b", "a", (0, 1, 0)), ("c", "b", (0, 0, 1))):
        builder.body(name, parent=parent, joint=dx.Revolute(axis), inertia=inertia)
    builder.body("ball", parent="world", joint=dx.Spherical(), inertia=inertia)
    model = builder.build()
    goal = dx.Rotation.from_axis_angle((0, 0, 1), 0.4) @ dx.Rotation.from_axis_angle((0, 1, 0), 0.9)
    goal = goal @ dx.Rotation.from_axis_angle((0, 0, 1), -1.3)
    half = dx.Rotation.from_axis_angle((0.6, 0.8, 0.0), 3.1)
    guess = dx.neutral(model).at[1].set(0.2)
    found = dx.inverse_kinematics(model, [o.orientation_target("c", goal), o.orientation_target("ball", half)], guess)
    assert found.status == o.Status.CONVERGED
    near(found.q[:3], [0.4, 0.9, -1.3], 1e-11)
    near(dx.frame_pose(model, found.q, "ball").rotation, half.matrix, 1e-11)


def test_a_loop_stays_closed():
    """The joint at a crank's tip, which a four-bar carries on its coupler, is put elsewhere on its circle."""
    bars = mechanisms.four_bar()
    tip = 5.0 * np.array([np.cos(1.3), np.sin(1.3), 0.0])
    found = dx.inverse_kinematics(bars.model, o.position_target(bars.model.body_names[1], tip), bars.q)
    assert found.status == o.Status.CONVERGED
    near(found.q[0], 1.3, 1e-11)
    near(found.q[1] + found.q[0], mechanisms.four_bar_angles((5.0, 12.0, 12.0, 10.0), 1.3)[0], 1e-11)


@pytest.fixture(scope="module")
def panda() -> dx.Model:
    return dx.load(example_robots()["panda_description/urdf/panda.urdf"])


def test_a_robot(panda, key):
    """Poses that it can take, from other poses: most are met, all within the limits, and those said to be met are."""
    low, high = np.asarray(panda.position_limits).T
    goals, guesses = (jax.vmap(partial(dx.random_configuration, panda))(k) for k in jax.random.split(key, (2, 32)))

    @jax.jit
    @jax.vmap
    def find(goal, guess):
        aim = dx.frame_pose(panda, goal, "panda_hand")
        found = dx.inverse_kinematics(panda, o.pose_target("panda_hand", aim), guess)
        return found, aim, dx.frame_pose(panda, found.q, "panda_hand")

    found, aim, pose = find(goals, guesses)
    met = found.status == o.Status.CONVERGED
    assert np.mean(met) > 0.5
    assert np.all((found.q >= low - 1e-15) & (found.q <= high + 1e-15))
    near(pose.translation[met], aim.translation[met], 1e-11)
    near(pose.rotation[met], aim.rotation[met], 1e-11)


def test_several_targets(panda):
    """A hand on a line, with its axis down, and the elbow in a plane: all at once; by the one guess, all conditions."""
    start = jnp.array([0.0, -np.pi / 4, 0.0, -3 * np.pi / 4, 0.0, np.pi / 2, np.pi / 4, 0.01, 0.01])
    through, along = np.array([0.5, 0.1, 0.4]), np.array([0.0, 3.0, 0.0])
    found = dx.inverse_kinematics(
        panda,
        [
            o.line_target("panda_hand", through, along, point=(0.0, 0.0, 0.1)),
            o.direction_target("panda_hand", (0, 0, 2), (0, 0, -1)),
            o.plane_target("panda_link4", (0.0, 0.1, 0.0), (0, 1, 0)),
        ],
        start,
        hold=[name for name in panda.joint_names if "finger" in name],
    )
    assert found.status == o.Status.CONVERGED
    hand, link = (dx.frame_pose(panda, found.q, name) for name in ("panda_hand", "panda_link4"))
    near(hand.rotation[:, 2], [0.0, 0.0, -1.0], 1e-11)
    near((hand @ jnp.array([0.0, 0.0, 0.1]))[::2], through[::2], 1e-11)
    near(link.translation[1], 0.1, 1e-11)
    near(found.q[7:], 0.01, 0.0)


def test_the_centre_of_mass():
    """Two links as a triangle whose corner it is, in closed form; its slope, and what weighs nothing."""
    model = two_links()
    find = jax.jit(lambda goal, q: dx.inverse_kinematics(model, o.center_of_mass_target(goal), q))
    start = jnp.array([0.1, 1.0])
    goal = dx.center_of_mass(model, jnp.array([0.4, 0.8]))
    found = find(goal, start)
    assert found.status == o.Status.CONVERGED
    near(found.q, [0.4, 0.8], 1e-11)
    slope = jax.jacrev(lambda goal: find(goal, start).q)(goal)[:, :2]
    near(slope @ jax.jacfwd(lambda q: dx.center_of_mass(model, q))(found.q)[:2], np.eye(2), 1e-9)
    over = dx.inverse_kinematics(model, o.center_of_mass_target(goal, along=(0, 2, 0)), start)
    assert over.status == o.Status.CONVERGED
    near(dx.center_of_mass(model, over.q)[0], goal[0], 1e-11)
    with pytest.raises(ValueError, match=r"`targets\[0\]` is of the centre of mass, and .* weighs nothing"):
        dx.inverse_kinematics(model.replace(mass=0.0 * model.mass), o.center_of_mass_target(goal), start)
    with pytest.raises(ValueError, match="`along` is zero"):
        o.center_of_mass_target(goal, along=(0, 0, 0))


@pytest.mark.slow
def test_a_legged_robot_stands_over_one_foot():
    """Four feet stay where they are, and the centre of mass comes over one of them, for eight trunks at once."""
    model = dx.load(example_robots()["solo_description/robots/solo12.urdf"], root="free")
    feet = [name for name in model.frame_names if name.endswith("FOOT")]
    bent = jnp.array([0.0, 0.7, -1.4, 0.0, 0.7, -1.4, 0.0, -0.7, 1.4, 0.0, -0.7, 1.4])
    q = dx.neutral(model).at[-12:].set(bent)
    stand = [dx.frame_pose(model, q, foot).translation for foot in feet]

    @jax.jit
    @jax.vmap
    def lean(share):
        over = (1.0 - share) * dx.center_of_mass(model, q) + share * stand[0]
        aims = [*map(o.position_target, feet, stand), o.center_of_mass_target(over, along=(0, 0, 1))]
        found = dx.inverse_kinematics(model, aims, q)
        places = jnp.array([dx.frame_pose(model, found.q, foot).translation for foot in feet])
        return found.status, places - jnp.array(stand), dx.center_of_mass(model, found.q) - over

    status, slips, misses = lean(jnp.linspace(0.0, 0.4, 8))
    assert np.all(status == o.Status.CONVERGED)
    near(slips, 0.0, 1e-10)
    near(misses[:, :2], 0.0, 1e-10)


def test_what_does_not_fit_is_named(panda):
    q, aim = dx.neutral(panda), o.position_target("panda_hand", (0.3, 0.0, 0.5))
    with pytest.raises(ValueError, match="`targets` is empty"):
        dx.inverse_kinematics(panda, [], q)
    with pytest.raises(ValueError, match=r"`targets\[1\]` is 'panda_hand'"):
        dx.inverse_kinematics(panda, [aim, "panda_hand"], q)  # type: ignore[list-item]
    with pytest.raises(KeyError, match="panda_hand"):
        dx.inverse_kinematics(panda, o.position_target("pandahand", (0.3, 0.0, 0.5)), q)
    with pytest.raises(KeyError, match="panda_joint1"):
        dx.inverse_kinematics(panda, aim, q, hold=["panda_joint_1"])
    with pytest.raises(ValueError, match="`q` is not finite"):
        dx.inverse_kinematics(panda, aim, q * np.nan)
    with pytest.raises(ValueError, match="`q` has shape"):
        dx.inverse_kinematics(panda, aim, q[:3])
    with pytest.raises(ValueError, match="position is not finite"):
        o.position_target("panda_hand", (0.3, np.nan, 0.5))
    with pytest.raises(ValueError, match=r"position has shape \(2,\), expected \(3,\)"):
        o.position_target("panda_hand", (0.3, 0.5))
    with pytest.raises(ValueError, match="`direction` is zero"):
        o.line_target("panda_hand", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="no rotation matrix"):
        o.pose_target("panda_hand", dx.Transform(2.0 * np.eye(3), np.zeros(3)))
    body = dx.ModelBuilder().body("sled", joint=dx.Planar((0, 0, 1)), position_limits=(-1.0, 1.0),
                                  inertia=dx.SpatialInertia(1.0, np.zeros(3), np.eye(3))).build()  # fmt: skip
    with pytest.raises(ValueError, match="'sled_joint' of model"):
        dx.inverse_kinematics(body, o.position_target("sled", (0.3, 0.0, 0.5)), np.zeros(3))
    with pytest.raises(ValueError, match="model 'welded' has no joint that moves"):
        dx.inverse_kinematics(dx.ModelBuilder(name="welded").build(), o.position_target("world", np.zeros(3)), [])
    bars = mechanisms.four_bar()
    with pytest.raises(TypeError, match=r"pass `model.tree`"):
        dx.inverse_kinematics(dx.embed(bars.model, bars.q), aim, bars.q)  # type: ignore[arg-type]
