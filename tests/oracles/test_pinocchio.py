"""Every algorithm against Pinocchio on real robots, 20 random states each, float64.

Robots stand side by side in a few forests, one URDF that both engines read: what dynax compiles for a walk does not
depend on the tree, so a forest of a dozen robots costs what one robot costs. Some are compared alone as well (`slow`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.robots import PinocchioState, example_robots, forest, frictionless, generator, prefix, random_states

import dynax as dx

pin = pytest.importorskip("pinocchio")
pytestmark = pytest.mark.skipif(not example_robots(), reason="example-robot-data is not installed")

STATES = 20
TOLERANCE = 1e-9
PER_CONDITION = 1e-12  # what solves with the mass matrix: times its condition number
FRAMES = {"body": "LOCAL", "world": "WORLD", "world_aligned": "LOCAL_WORLD_ALIGNED"}
PARAMETERS = [0, 1, 2, 3, 4, 6, 9, 5, 8, 7]  # theirs are m, m c, Ixx Ixy Iyy Ixz Iyz Izz

# Each file with its root; several of every kind.
ARMS = [
    ("panda_description/urdf/panda.urdf", "fixed"),
    ("ur_description/urdf/ur5_robot.urdf", "fixed"),
    ("kinova_description/robots/kinova.urdf", "fixed"),
    ("xarm_description/urdf/xarm7.urdf", "fixed"),
    ("z1_description/urdf/z1.urdf", "fixed"),
    ("so_arm_description/urdf/so100.urdf", "fixed"),
    ("talos_data/robots/talos_left_arm.urdf", "free"),
    ("baxter_description/urdf/baxter.urdf", "fixed"),
    ("finger_edu_description/robots/finger_edu.urdf", "fixed"),
    ("double_pendulum_description/urdf/double_pendulum_continuous.urdf", "fixed"),
]
HANDS = [
    ("allegro_hand_description/urdf/allegro_left_hand.urdf", "fixed"),
    ("allegro_hand_description/urdf/allegro_right_hand.urdf", "free"),
    ("tiago_description/robots/tiago.urdf", "fixed"),  # an arm with a hand of 36 freedoms
]
LEGGED = [
    ("anymal_b_simple_description/robots/anymal.urdf", "fixed"),
    ("anymal_b_simple_description/robots/anymal-kinova.urdf", "free"),
    ("anymal_c_simple_description/urdf/anymal.urdf", "free"),
    ("a1_description/urdf/a1.urdf", "free"),
    ("b1_description/urdf/b1-z1.urdf", "free"),
    ("go2_description/urdf/go2.urdf", "free"),
    ("hyq_description/robots/hyq_no_sensors.urdf", "free"),
    ("laikago_description/urdf/laikago.urdf", "free"),
    ("solo_description/robots/solo.urdf", "fixed"),
    ("solo_description/robots/solo12.urdf", "free"),
    ("bolt_description/robots/bolt.urdf", "free"),
]
HUMANOIDS = [
    ("talos_data/robots/talos_reduced.urdf", "free"),
    ("talos_data/robots/talos_full_v2.urdf", "free"),
    ("icub_description/robots/icub.urdf", "free"),
    ("g1_description/urdf/g1_29dof_rev_1_0.urdf", "free"),
    ("g1_description/urdf/g1_29dof_with_hand_rev_1_0.urdf", "fixed"),
    ("simple_humanoid_description/urdf/simple_humanoid.urdf", "free"),
    ("romeo_description/urdf/romeo_small.urdf", "fixed"),
    ("romeo_description/urdf/romeo.urdf", "free"),
    ("human_description/robots/human.urdf", "free"),
    ("alex_description/urdf/alex_sake_hands.urdf", "free"),
    ("centauro_description/urdf/centauro.urdf", "free"),
]
OTHERS = [
    ("borinot_description/urdf/borinot_flying_arm_2.urdf", "free"),
    ("hextilt_description/urdf/hextilt_flying_arm_5.urdf", "free"),
    ("iris_description/robots/iris.urdf", "free"),
    ("tiago_description/robots/tiago_no_hand.urdf", "free"),
    ("pr2_description/urdf/pr2.urdf", "fixed"),
    ("tiago_description/robots/tiago_dual.urdf", "fixed"),
]
FORESTS = {
    "arms, hands, others": ARMS + HANDS + OTHERS,
    "legged": LEGGED + HUMANOIDS[:4],
    "humanoids": HUMANOIDS[4:],
}
ALONE = [ARMS[0], ARMS[2], LEGGED[2], HUMANOIDS[0]]

# What each result is one array of per state: along freedoms, bodies or neither.
AXES = {
    "inverse dynamics": "v",
    "inverse dynamics, external wrenches": "v",
    "transmitted forces": "n.",
    "bias force": "v",
    "gravity force": "v",
    "mass matrix": "vv",
    "inverse mass matrix": "vv",
    "forward dynamics": "v",
    "forward dynamics, external wrenches": "v",
    "Coriolis matrix": "vv",
    "Coriolis matrix times v": "v",
    "rotations": "n..",
    "translations": "n.",
    "velocities": "n.",
    "accelerations": "n.",
    "centroidal momentum matrix": ".v",
    "centre of mass": ".",
    "centroidal momentum": ".",
    "kinetic energy": "",
    "potential energy": "",
}
ESSENTIALS = (
    "inverse dynamics, external wrenches", "mass matrix", "forward dynamics, external wrenches", "Jacobians",
    "rotations", "translations", "velocities", "accelerations", "frame pose",
)  # fmt: skip
"""What is compared on every robot in every run; the rest on one forest, and on the others if `slow`."""
SOLVES = ("inverse mass matrix", "forward dynamics", "forward dynamics, external wrenches")

Results = dict[str, np.ndarray]


class Target(NamedTuple):
    """A body or frame whose Jacobian is compared, in the axes of `frame`."""

    name: str
    frame: Any


class Case(NamedTuple):
    """A model in both engines, and the robots in it by the prefix of their names."""

    model: dx.Model
    theirs: Any
    robots: dict[str, str]
    targets: list[Target]
    full: bool = True


def alone(name: str, root: str) -> Case:
    path = example_robots()[name]
    model = frictionless(dx.load(path, root=root))
    flyer = (pin.JointModelFreeFlyer(),) if root == "free" else ()
    theirs = pin.buildModelFromUrdf(str(path), *flyer)
    targets = [Target(n, frame) for n in names_of_interest(model, "") for frame in FRAMES]
    return Case(model, theirs, {name: ""}, targets)


def together(group: str, full: bool = True) -> Case:
    text = forest(FORESTS[group])
    model = frictionless(dx.load(text))
    robots = {name: prefix(k, name) for k, (name, _) in enumerate(FORESTS[group])}
    choices, targets = list(FRAMES), []
    # Each target is a program of its own: one for each robot, all six combinations in turn; three where few are wanted.
    for k, start in enumerate(robots.values()):
        if full or k % 4 == 0:
            targets.append(Target(names_of_interest(model, start)[k % 2], choices[k // (1 if full else 4) % 3]))
    return Case(model, pin.buildModelFromXML(text), robots, targets, full)


def names_of_interest(model: dx.Model, start: str) -> tuple[str, str]:
    """A robot's body with the most joints below it, and a welded link on it or another body (or that body's parent)."""
    depth = {n: d for n, d in zip(model.body_names, model.topology.depths, strict=True) if n.startswith(start)}
    tip = max(depth, key=depth.__getitem__)
    welded = [n for n in model.frame_names if n.startswith(start) and model.locate(n)[0] >= 0]
    return tip, welded[-1] if welded else min(depth, key=depth.__getitem__)


def parts(case: Case, start: str) -> tuple[np.ndarray, np.ndarray]:
    """Which freedoms and which bodies belong to a robot, two masks."""
    bodies = np.array([name.startswith(start) for name in case.model.body_names])
    return bodies[case.model.topology.body_of_velocity], bodies


def blocks(case: Case, regressor):
    """Each robot's own block of the regressor `(nv, n, 10)`: all of them together would take much memory."""
    masks = {robot: parts(case, start) for robot, start in case.robots.items()}
    return {f"regressor of {robot}": regressor[freedoms][:, bodies] for robot, (freedoms, bodies) in masks.items()}


def compute_ours(case: Case, q, v, a, tau, external) -> Results:
    """For all states, in one program for each result: one for all of them compiles three times as long."""
    model = case.model

    def regressor(q, v, a, tau, external):
        found = dx.inverse_dynamics_regressor(model, q, v, a).reshape(model.nv, model.num_bodies, 10)
        return {"regressor, total": jnp.sum(jnp.abs(found)), **blocks(case, found)}

    def motion(q, v, a, tau, external):
        poses = dx.forward_kinematics(model, q)
        return {
            "rotations": poses.rotation,
            "translations": poses.translation,
            "velocities": dx.body_velocities(model, q, v),
            "accelerations": dx.body_accelerations(model, q, v, a),
            "frame pose": dx.frame_pose(model, q, case.targets[-1].name).homogeneous,
        }

    def momenta(q, v, a, tau, external):
        return {
            "centroidal momentum matrix": dx.centroidal_momentum_matrix(model, q),
            "centre of mass": dx.center_of_mass(model, q),
            "centroidal momentum": dx.centroidal_momentum(model, q, v),
            "kinetic energy": dx.kinetic_energy(model, q, v),
            "potential energy": dx.potential_energy(model, q),
        }

    def coriolis(q, v, a, tau, external):
        found = dx.coriolis_matrix(model, q, v)
        return {"Coriolis matrix": found, "Coriolis matrix times v": found @ v}

    single = {
        "inverse dynamics": lambda q, v, a, tau, external: dx.inverse_dynamics(model, q, v, a),
        "inverse dynamics, external wrenches": lambda q, v, a, tau, external: dx.inverse_dynamics(
            model, q, v, a, external
        ),
        "transmitted forces": lambda q, v, a, tau, external: dx.joint_forces(model, q, v, a, external),
        "bias force": lambda q, v, a, tau, external: dx.bias_force(model, q, v),
        "gravity force": lambda q, v, a, tau, external: dx.gravity_force(model, q),
        "mass matrix": lambda q, v, a, tau, external: dx.mass_matrix(model, q),
        "inverse mass matrix": lambda q, v, a, tau, external: dx.inverse_mass_matrix(model, q),
        "forward dynamics": lambda q, v, a, tau, external: dx.forward_dynamics(model, q, v, tau),
        "forward dynamics, external wrenches": lambda q, v, a, tau, external: dx.forward_dynamics(
            model, q, v, tau, external
        ),
        "Jacobians": lambda q, v, a, tau, external: jnp.stack(
            [dx.jacobian(model, q, n, frame=frame) for n, frame in case.targets]
        ),
        "Jacobian biases": lambda q, v, a, tau, external: jnp.stack(
            [dx.jacobian_bias(model, q, v, n, frame=frame) for n, frame in case.targets]
        ),
    }
    state = q, v, a, tau, external
    wanted = single if case.full else [key for key in single if key in ESSENTIALS]
    found = {key: jax.jit(jax.vmap(single[key]))(*state) for key in wanted}
    for function in (motion, momenta, coriolis, regressor) if case.full else (motion,):
        found |= jax.jit(jax.vmap(function))(*state)
    return jax.tree.map(np.asarray, found)


def swap(linear_first: np.ndarray) -> np.ndarray:
    """`[angular; linear]` from `[linear; angular]` and the reverse, along axis 0."""
    return np.concatenate([linear_first[3:6], linear_first[:3]])


def compute_theirs(case: Case, data, states: PinocchioState, q, v, a, tau, external) -> Results:
    """The same for one state, in our order."""
    model, theirs = case.model, case.theirs
    q, v, a, tau = states.q(q), states.v(v), states.v(a), states.v(tau)
    wrenches = pin.StdVec_Force()
    wrenches.extend([pin.Force.Zero() for _ in range(theirs.njoints)])
    for joint, wrench in zip(states.bodies, external, strict=True):
        wrenches[joint] = pin.Force(swap(wrench))
    back, matrix = states.back_v, states.back_matrix

    def per_body(six) -> np.ndarray:
        return np.array([swap(six[joint].vector) for joint in states.bodies])

    def symmetric(upper: np.ndarray) -> np.ndarray:
        return matrix(np.triu(upper) + np.triu(upper, 1).T)

    r: Results = {}
    r["inverse dynamics"] = back(pin.rnea(theirs, data, q, v, a))
    r["inverse dynamics, external wrenches"] = back(pin.rnea(theirs, data, q, v, a, wrenches))
    r["transmitted forces"] = per_body(data.f)
    r["bias force"] = back(pin.nonLinearEffects(theirs, data, q, v))
    r["gravity force"] = back(pin.computeGeneralizedGravity(theirs, data, q))
    r["mass matrix"] = symmetric(pin.crba(theirs, data, q))
    r["inverse mass matrix"] = symmetric(pin.computeMinverse(theirs, data, q))
    r["forward dynamics"] = back(pin.aba(theirs, data, q, v, tau))
    r["forward dynamics, external wrenches"] = back(pin.aba(theirs, data, q, v, tau, wrenches))
    if case.full:
        coriolis = pin.computeCoriolisMatrix(theirs, data, q, v)
        r["Coriolis matrix"] = matrix(coriolis)
        r["Coriolis matrix times v"] = back(coriolis @ v)
        regressor = pin.computeJointTorqueRegressor(theirs, data, q, v, a).reshape(theirs.nv, -1, 10)
        r["regressor, total"] = np.array(0.0)
        r |= blocks(case, regressor[states.back][:, np.array(states.bodies) - 1][:, :, PARAMETERS])
    r["kinetic energy"] = np.array(pin.computeKineticEnergy(theirs, data, q, v))
    r["potential energy"] = np.array(pin.computePotentialEnergy(theirs, data, q))
    r["centre of mass"] = pin.centerOfMass(theirs, data, q).copy()
    pin.ccrba(theirs, data, q, v)
    r["centroidal momentum"] = swap(data.hg.vector)
    r["centroidal momentum matrix"] = swap(back(data.Ag))

    pin.forwardKinematics(theirs, data, q, v, a)
    pin.updateFramePlacements(theirs, data)
    r["velocities"], r["accelerations"] = per_body(data.v), per_body(data.a)
    links = [data.oMf[theirs.getFrameId(name, pin.BODY)] for name in model.body_names + model.frame_names]
    r["rotations"] = np.array([link.rotation for link in links[: model.num_bodies]])
    r["translations"] = np.array([link.translation for link in links[: model.num_bodies]])
    r["links"] = np.array([link.homogeneous for link in links])
    r["frame pose"] = data.oMf[theirs.getFrameId(case.targets[-1].name, pin.BODY)].homogeneous.copy()

    pin.forwardKinematics(theirs, data, q, v, np.zeros(theirs.nv))
    pin.computeJointJacobians(theirs, data, q)
    jacobians, biases = [], []
    for name, frame in case.targets:
        index, reference = theirs.getFrameId(name, pin.BODY), getattr(pin.ReferenceFrame, FRAMES[frame])
        rate = pin.getFrameClassicalAcceleration if frame == "world_aligned" else pin.getFrameAcceleration
        jacobians.append(swap(back(pin.getFrameJacobian(theirs, data, index, reference))))
        biases.append(swap(rate(theirs, data, index, reference).vector))
    r["Jacobians"], r["Jacobian biases"] = np.stack(jacobians), np.stack(biases)
    return r


def relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest error of an entry over the size it has in any state (axis 0), or a thousandth of the largest size."""
    if not theirs.size:
        return 0.0
    size = np.max(np.abs(theirs), axis=0)
    error = np.abs(ours - theirs) / np.maximum(size, 1e-3 * np.max(size) + 1e-300)
    return float(np.max(error)) if np.all(np.isfinite(error)) else np.inf


def link_poses(model: dx.Model, rotations: np.ndarray, translations: np.ndarray) -> np.ndarray:
    """Homogeneous poses of all bodies and welded links, `(states, links, 4, 4)`."""
    bodies = np.zeros((*rotations.shape[:2], 4, 4))
    bodies[..., :3, :3], bodies[..., :3, 3], bodies[..., 3, 3] = rotations, translations, 1.0
    ground = np.broadcast_to(np.eye(4), (len(bodies), 4, 4))
    frames = []
    for name in model.frame_names:
        body, pose = model.locate(name)
        frames.append((ground if body < 0 else bodies[:, body]) @ np.asarray(pose.homogeneous))
    return np.concatenate([bodies, np.stack(frames, axis=1)], axis=1) if frames else bodies


class Found(NamedTuple):
    """The largest residual of each quantity of one robot, and the largest condition number of its mass matrix."""

    residuals: dict[str, float]
    condition: float
    singular: bool


def compare(case: Case) -> dict[str, Found]:
    """What was found for each robot, and for `all` of them what belongs to none."""
    model = case.model
    states = PinocchioState(model, case.theirs)
    rng = generator(" ".join(case.robots))
    q, v = random_states(model, rng, STATES)
    a, tau = rng.normal(size=(2, STATES, model.nv))
    external = rng.normal(size=(STATES, model.num_bodies, 6))
    ours = compute_ours(case, q, v, a, tau, external)
    ours["links"] = link_poses(model, ours["rotations"], ours["translations"])
    data = case.theirs.createData()  # once: it clears gigabytes
    each = [compute_theirs(case, data, states, *state) for state in zip(q, v, a, tau, external, strict=True)]
    theirs = {key: np.stack([r[key] for r in each]) for key in each[0]}
    assert theirs.keys() == ours.keys() if case.full else set(ESSENTIALS) <= ours.keys() <= theirs.keys()
    axes_of = {key: axes for key, axes in AXES.items() if key in ours}

    found = {}
    parameters = np.array([case.theirs.inertias[joint].toDynamicParameters() for joint in states.bodies])
    whole = {"inertial parameters": relative(dx.inertial_parameters(model)[None], parameters[None, :, PARAMETERS])}
    for key in ("links", "frame pose"):
        whole[key] = relative(ours[key], theirs[key])
    for key, axes in axes_of.items():
        if not set(axes) & {"v", "n"}:
            whole[key] = relative(ours[key], theirs[key])
    found["all"] = Found(whole, 0.0, False)
    inside = np.zeros((model.nv, model.nv), bool)
    for robot, start in case.robots.items():
        freedoms, bodies = parts(case, start)
        inside |= freedoms[:, None] & freedoms
        singular = any("singular" in f.message and f"'{start}" in f.element for f in model.report)
        own = f"regressor of {robot}"
        residuals = {"regressor": relative(ours[own], theirs[own])} if case.full else {}
        for key, axes in axes_of.items():
            if not set(axes) & {"v", "n"} or (singular and key in SOLVES):
                continue
            x, y = ours[key], theirs[key]
            for axis, kind in enumerate(axes, start=1):
                if kind in "vn":
                    x, y = (np.compress(freedoms if kind == "v" else bodies, z, axis) for z in (x, y))
            residuals[key] = relative(x, y)
        for k, (name, frame) in enumerate(case.targets):
            if name.startswith(start):
                for label, key in (("Jacobian", "Jacobians"), ("Jacobian bias", "Jacobian biases")):
                    if key in ours:
                        error = relative(ours[key][:, k], theirs[key][:, k])
                        residuals[f"{label}, {frame}"] = max(error, residuals.get(f"{label}, {frame}", 0.0))
        own = theirs["mass matrix"][:, freedoms][:, :, freedoms]
        condition = np.inf if singular else float(np.max(np.linalg.cond(own)))
        found[robot] = Found(residuals, condition, singular)
    # Robots side by side have nothing to do with each other.
    assert not np.any(ours["mass matrix"][:, ~inside])
    if case.full:
        assert not np.any(ours["Coriolis matrix"][:, ~inside])
        inner = sum(np.sum(np.abs(ours[f"regressor of {robot}"]), axis=(1, 2, 3)) for robot in case.robots)
        np.testing.assert_allclose(inner, ours["regressor, total"], rtol=1e-13)
    return found


def check(found: dict[str, Found]) -> None:
    wrong = [
        f"{robot}: {key} {residual:.1e}"
        for robot, (residuals, condition, _) in found.items()
        for key, residual in residuals.items()
        if not residual <= (PER_CONDITION * condition if key in SOLVES else TOLERANCE)
    ]
    assert not wrong, "; ".join(wrong)


@pytest.mark.spec("RBDA-1.1-EOM")
@pytest.mark.parametrize(
    ("group", "full"),
    [
        ("arms, hands, others", True), ("legged", False), ("humanoids", False),
        *(pytest.param(group, True, marks=pytest.mark.slow) for group in ("legged", "humanoids")),
    ],
)  # fmt: skip
def test_robots_side_by_side(group, full):
    check(compare(together(group, full)))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "root"), ALONE)
def test_robot_alone(name, root):
    check(compare(alone(name, root)))


def test_there_are_enough_robots_of_every_kind():
    files = {name for group in FORESTS.values() for name, _ in group}
    assert len(files) == sum(map(len, FORESTS.values())) >= 25
    assert files <= set(example_robots())
    assert min(len(kind) for kind in (ARMS, HANDS, LEGGED, HUMANOIDS)) >= 3
    assert {root for group in FORESTS.values() for _, root in group} == {"fixed", "free"}


@pytest.mark.slow
def test_mimic_joints():
    """Panda on a free base, whose fingers are geared: of the embedded model, Pinocchio's joints that mimic."""
    path = example_robots()["panda_description/urdf/panda.urdf"]
    tree = frictionless(dx.load(path, root="free"))
    ((follower, leader),) = tree.structure.couplings
    model = dx.embed(tree, independent=[leader])
    theirs = pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer(), mimic=True)
    assert model.nv == theirs.nv == tree.nv - 1
    data, rng = theirs.createData(), generator("mimic")
    q = dx.integrate(model, dx.neutral(model), rng.normal(size=model.nv))
    v, a, tau = rng.normal(size=(3, model.nv))
    place, there = {int(k): row for row, k in enumerate(model.independent)}, np.zeros(theirs.nq)
    rows = np.zeros(model.nv, dtype=int)  # our entry of each of their velocities
    for name in theirs.names[1:]:
        joint, own = theirs.joints[theirs.getJointId(name)], tree.v_slice(name)
        if joint.nv == 0 or name == follower:
            continue
        quaternion_last = [0, 1, 2, 4, 5, 6, 3] if joint.nq == 7 else [0]
        linear_first = [3, 4, 5, 0, 1, 2] if joint.nv == 6 else [0]
        there[joint.idx_q : joint.idx_q + joint.nq] = np.asarray(q)[tree.q_slice(name)][quaternion_last]
        rows[joint.idx_v : joint.idx_v + joint.nv] = [place[own.start + k] for k in linear_first]
    back = np.argsort(rows)
    mass = np.triu(pin.crba(theirs, data, there))
    mass = mass + np.triu(mass, 1).T
    bias = pin.nonLinearEffects(theirs, data, there, v[rows]).copy()
    found = {
        "mass matrix": (dx.mass_matrix(model, q), mass[np.ix_(back, back)]),
        "bias force": (dx.bias_force(model, q, v), bias[back]),
        "inverse dynamics": (
            dx.inverse_dynamics(model, q, v, a),
            pin.rnea(theirs, data, there, v[rows], a[rows])[back],
        ),
        "forward dynamics": (dx.forward_dynamics(model, q, v, tau), np.linalg.solve(mass, tau[rows] - bias)[back]),
        "centre of mass": (dx.center_of_mass(model, q), pin.centerOfMass(theirs, data, there).copy()),
    }
    body = tree.body_names[tree.structure.joint_index[follower]]
    pin.computeJointJacobians(theirs, data, there)
    pin.updateFramePlacements(theirs, data)
    frame = theirs.getFrameId(body, pin.BODY)
    turned = swap(pin.getFrameJacobian(theirs, data, frame, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED))[:, back]
    found["Jacobian"] = dx.jacobian(model, q, body, frame="world_aligned"), turned
    limit = PER_CONDITION * np.linalg.cond(mass)
    wrong = {key: relative(np.asarray(ours)[None], other[None]) for key, (ours, other) in found.items()}
    assert all(x <= (limit if key == "forward dynamics" else TOLERANCE) for key, x in wrong.items()), wrong
