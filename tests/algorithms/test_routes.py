"""The cross-algorithm suite: recursion, dense operators and the system of all bodies agree on random trees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import routes
import trees
from dense import Dense, motion_transform, mul

import dynax as dx

TREES = list(trees.TREES)
RICH = ["mixed", "screws"]
#: Programs that no other test needs: every joint in the slow run, one-freedom joints in every run.
BOUNDED = [pytest.param("mixed", marks=pytest.mark.slow), "screws"]


def close(actual, expected, tolerance=1e-10):
    """Relative to the largest entry of each state."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    scale = np.maximum(1.0, np.abs(expected).reshape(len(expected), -1).max(1))
    error = np.abs(actual - expected).reshape(len(expected), -1).max(1) / scale
    assert np.all(error < tolerance), f"relative errors {error}"


def passive(model, q, v):
    """What joints need against damping, friction and springs."""
    reference = jnp.asarray(model.spring_reference)
    stretch = jax.vmap(lambda q: dx.difference(model, reference, q))(q)
    friction = model.friction_loss * jnp.tanh(v / model.friction_velocity)
    return np.asarray(model.damping * v + friction + model.stiffness * stretch)


@pytest.mark.spec("RBDA-X-TREE", "RBDA-7.3-ABA", "RBDA-6.1-FD", "RBDA-1.1-FDID", "SOA-FD")
@pytest.mark.parametrize("name", TREES)
def test_routes_to_the_acceleration_agree(name):
    model, s, y = routes.case(name)
    condition = np.linalg.cond(y["mass"]).max()
    rhs = (np.asarray(s.tau) - y["bias"])[..., None]
    by_solve = np.linalg.solve(y["mass"], rhs)[..., 0]
    close(y["fd"], by_solve, 1e-12 * condition)
    close(y["inverse"] @ y["mass"], np.broadcast_to(np.eye(model.nv), y["mass"].shape), 1e-12 * condition)
    close((y["inverse"] @ rhs)[..., 0], by_solve, 1e-12 * condition)
    # Inverse dynamics undoes forward dynamics and the other way round: the same compiled function, other numbers.
    there = routes.dynamics(name, model, s.q, s.v, jnp.asarray(y["fd"]), jnp.asarray(y["id"]), s.external)
    close(there["id"], s.tau, 1e-12 * condition)
    close(there["fd"], s.a, 1e-12 * condition)


@pytest.mark.spec("RBDA-X-TREE", "RBDA-5.3-GENQ", "SOA-FD")
@pytest.mark.parametrize("name", TREES)
def test_acceleration_is_that_of_the_system_of_all_bodies(name):
    model, s, _ = routes.case(name)
    model = model.replace(armature=0.0 * model.armature)
    y = routes.dynamics(name, model, *s)
    tau = np.asarray(s.tau) - passive(model, s.q, s.v)
    expected = Dense(model, s.q, s.v).whole_system(tau, s.external)
    close(y["fd"], expected, 1e-12 * np.linalg.cond(y["mass"]).max())


@pytest.mark.spec("RBDA-5.3-RNEA", "RBDA-5.3-BODY", "SOA-RNEA", "SOA-FRC")
@pytest.mark.parametrize("name", TREES)
def test_inverse_dynamics(name):
    model, s, y = routes.case(name)
    dense = Dense(model, s.q, s.v)
    extra = passive(model, s.q, s.v)
    close(y["id"], dense.tau(s.a, s.external) + extra + np.asarray(model.armature * s.a))


@pytest.mark.spec("RBDA-1.1-EOM", "RBDA-6.1-BIAS")
@pytest.mark.parametrize("name", [pytest.param("mixed", marks=pytest.mark.slow), "screws", "arm"])
def test_equation_of_motion(name):
    model, s, y = routes.case(name)
    close(y["bias"], Dense(model, s.q, s.v).tau(0 * s.a, s.external) + passive(model, s.q, s.v))
    close(mul(y["mass"], np.asarray(s.a)) + y["bias"], y["id"])


@pytest.mark.spec(
    "RBDA-6.2-CRBA", "SOA-MASS", "RBDA-3.1-KE", "CRB-ALG", "SOA-PARTIAL", "RBDA-6.1-BLOCK", "RBDA-6.4-BIS"
)
@pytest.mark.parametrize("name", TREES)
def test_mass_matrix(name):
    model, s, y = routes.case(name)
    dense = Dense(model, s.q, s.v)
    close(y["mass"], dense.mass_matrix + np.diag(np.asarray(model.armature)))
    close(y["mass"], np.swapaxes(y["mass"], 1, 2), 1e-14)
    assert np.linalg.eigvalsh(y["mass"]).min() > 0
    related = model.topology.velocity_support
    related = related | related.T
    assert np.all(y["mass"][:, ~related] == 0.0)
    assert np.all(
        np.any(y["mass"][:, related] != 0.0, axis=0) | np.any(np.abs(dense.mass_matrix[:, related]) < 1e-12, axis=0)
    )
    if not any(joint.rheonomic for joint in model.joints):
        energy = 0.5 * np.einsum("bi,ij,bj->b", dense.flat(dense.velocity), dense.inertia, dense.flat(dense.velocity))
        rotors = 0.5 * np.sum(np.asarray(model.armature * s.v**2), 1)
        close(np.einsum("bi,bij,bj->b", s.v, y["mass"], s.v) / 2, energy + rotors)


@pytest.mark.spec("RBDA-5.3-BYPROD", "IBF")
@pytest.mark.parametrize("name", RICH)
def test_joint_forces(name):
    model, s, y = routes.case(name)
    dense = Dense(model, s.q, s.v)
    close(y["forces"], dense.joint_forces(s.a, s.external))
    # What a joint transmits, along its freedoms, is what its motor gives the rigid bodies.
    along = mul(np.swapaxes(dense.s, 1, 2), y["forces"].reshape(len(s.q), -1))
    close(along, y["id"] - passive(model, s.q, s.v) - np.asarray(model.armature * s.a))


@pytest.mark.spec("RBDA-5.3-FX", "EXTF")
@pytest.mark.parametrize("name", TREES)
def test_external_wrenches_shift_the_joint_forces(name):
    model, s, y = routes.case(name)
    without = routes.dynamics(name, model, s.q, s.v, s.a, s.tau, 0 * s.external)
    dense = Dense(model, s.q, s.v)
    pushed = mul(np.swapaxes(dense.jacobians, 1, 2), np.asarray(s.external).reshape(len(s.q), -1))
    close(without["id"] - y["id"], pushed)
    close(mul(y["mass"], y["fd"] - without["fd"]), pushed)


@pytest.mark.spec("RBDA-5.3-GRAV")
@pytest.mark.parametrize("name", RICH)
def test_gravity_is_a_force_on_every_body(name):
    model, s, y = routes.case(name)
    m = routes.moving(name)
    dense = Dense(model, s.q, s.v)
    g = np.concatenate(
        [np.zeros((len(s.q), model.num_bodies, 3)), np.einsum("bnji,j->bni", dense.rotation, model.gravity)], 2
    )
    weight = dense.stack(mul(dense.inertia, dense.flat(g)))
    weightless = model.replace(gravity=0 * model.gravity)
    z = routes.dynamics(name, weightless, s.q, s.v, s.a, s.tau, s.external + weight)
    close(z["id"], y["id"])
    close(z["fd"], y["fd"], 1e-12 * np.linalg.cond(y["mass"]).max())
    close(z["forces"], y["forces"])
    close(z["gravity"], 0 * y["gravity"])
    # Reported accelerations are true ones: gravity is not among them.
    close(m["acceleration"], dense.acceleration(s.a, gravity=False))


@pytest.mark.spec("RBDA-5.3-PARTS")
@pytest.mark.parametrize("name", BOUNDED)
def test_parts_of_the_bias(name):
    model, s, y = routes.case(name)
    rest = model.replace(
        friction_loss=0 * model.friction_loss, damping=0 * model.damping, stiffness=0 * model.stiffness
    )
    once, twice = (routes.dynamics(name, rest, s.q, k * s.v, s.a, s.tau, 0 * s.external) for k in (1.0, 2.0))
    close(twice["coriolis"], 2.0 * once["coriolis"])
    np.testing.assert_array_equal(once["gravity"], y["gravity"])
    still = Dense(rest, s.q, 0 * s.v)
    if name == "mixed":  # gravity and Coriolis forces take the driven joint at rest, the bias does not
        still.sigma_and_rates *= 0
        still.bias *= 0
        still.velocity *= 0
        close(y["gravity"], still.tau(0 * s.a, 0 * s.external))
        return
    close(y["gravity"], still.tau(0 * s.a, 0 * s.external))
    close(twice["bias"] - y["gravity"], 4.0 * (once["bias"] - y["gravity"]))
    close(mul(once["coriolis"], np.asarray(s.v)), once["bias"] - once["gravity"])


@pytest.mark.parametrize("name", BOUNDED)
def test_regressor_is_linear_in_the_parameters(name):
    model, s, y = routes.case(name)
    parameters = np.asarray(dx.inertial_parameters(model)).reshape(-1)
    rigid = Dense(model, s.q, s.v).tau(s.a, 0 * s.external)
    close(y["regressor"] @ parameters, rigid)
    again = dx.with_inertial_parameters(model, parameters.reshape(-1, 10))
    np.testing.assert_array_equal(dx.inertial_parameters(again).reshape(-1), parameters)
    # Linear: other parameters, the same matrix.
    other = dx.with_inertial_parameters(model, 2.0 * parameters.reshape(-1, 10))
    close(y["regressor"] @ (2.0 * parameters), Dense(other, s.q, s.v).tau(s.a, 0 * s.external))


@pytest.mark.spec(
    "RBDA-4.2-FK", "RBDA-4.2-GEOM", "SOA-VEL", "SOA-ACC", "RBDA-4.1.4-JAC", "RBDA-2.7-CHAINJ", "SOA-JAC", "K-NODE"
)
@pytest.mark.parametrize("name", RICH)
def test_kinematics(name):
    model, s, _ = routes.case(name)
    m = routes.moving(name)
    dense = Dense(model, s.q, s.v)
    close(m["rotation"], dense.rotation)
    close(m["position"], dense.position)
    close(m["velocity"], dense.velocity)
    close(m["acceleration"], dense.acceleration(s.a, gravity=False))
    body = model.body_index(routes.NAMES[name])
    j = m["jacobian"]["body"]
    close(j, dense.jacobians[:, 6 * body : 6 * body + 6])
    carried = model.topology.support[body][model.topology.body_of_velocity]
    for other in m["jacobian"].values():
        assert np.all(other[:, :, ~carried] == 0.0)
    if not any(model.joints[k].rheonomic for k in np.flatnonzero(model.topology.support[body])):
        close(mul(j, np.asarray(s.v)), dense.velocity[:, body])
    if "world" not in m["jacobian"]:
        return
    turned = np.swapaxes(dense.rotation[:, body], 1, 2)
    zero = np.zeros_like(turned)
    close(np.block([[turned, zero], [zero, turned]]) @ m["jacobian"]["world_aligned"], j)
    close(motion_transform(dense.rotation[:, body], dense.position[:, body]) @ m["jacobian"]["world"], j)


@pytest.mark.spec("RBDA-9.5-MOM", "RBDA-2.12-MOM")
@pytest.mark.parametrize("name", BOUNDED)
def test_momenta(name):
    model, s, _ = routes.case(name)
    m = routes.moving(name)
    dense = Dense(model, s.q, s.v)
    h = dense.stack(mul(dense.inertia, dense.flat(dense.velocity)))
    moment, force = mul(dense.rotation, h[..., :3]), mul(dense.rotation, h[..., 3:])
    total = np.concatenate([(moment + np.cross(dense.position, force)).sum(1), force.sum(1)], 1)
    close(m["momentum"], total)
    close(m["kinetic"], 0.5 * (h * dense.velocity).sum((1, 2)) + 0.5 * np.sum(np.asarray(model.armature) * s.v**2, 1))
    if name == "mixed":
        return
    mass = np.asarray(model.mass)
    at = dense.position + mul(dense.rotation, np.asarray(model.com))
    com = np.einsum("n,bni->bi", mass, at) / mass.sum()
    close(m["com"], com)
    about = np.concatenate([total[:, :3] - np.cross(com, total[:, 3:]), total[:, 3:]], 1)
    close(m["centroidal"], about)
    close(mul(m["centroidal_matrix"], np.asarray(s.v)), about)


@pytest.mark.parametrize("name", BOUNDED)
def test_a_body_moves_alike_about_whatever_point_it_is_described(name, rng):
    model, s, y = routes.case(name)
    other = trees.elsewhere(model, rng)
    close(dx.inertial_parameters(other), dx.inertial_parameters(model))
    found = routes.dynamics(name, other, *s)
    for what in ("fd", "id", "mass", "coriolis", "forces"):
        close(found[what], y[what], 1e-9)
    found, expected = routes.motion(name, other, s.q, s.v, s.a), routes.moving(name)
    for what in ("momentum", "centroidal", "com", "kinetic", "potential"):
        close(found[what], expected[what])


@pytest.mark.spec("RBDA-1.3-UNITS")
def test_units():
    """Metres, kilograms and seconds stretched by any factors: every result by its dimension."""
    name = "screws"
    model, s, y = routes.case(name)
    m = routes.moving(name)
    length, mass, time = 3.0, 0.7, 0.2
    turning = np.array([1.0 if j.screw is None or j.screw[0] else 0.0 for j in model.joints])
    # Per entry of q and v: an angle or a length. The free root has [x y z, quaternion] and [omega; velocity].
    q_length = np.concatenate([[1, 1, 1, 0, 0, 0, 0], 1 - turning[1:]])
    v_length = np.concatenate([[0, 0, 0, 1, 1, 1], 1 - turning[1:]])
    unit = length**v_length
    force = mass * length**2 / time**2 / unit
    scaled = model.replace(
        gravity=model.gravity * length / time**2,
        placements=dx.Transform(model.placements.rotation, model.placements.translation * length),
        hinges=dx.Transform(model.hinges.rotation, model.hinges.translation * length),
        frames=dx.Transform(model.frames.rotation, model.frames.translation * length),
        joint_parameters=model.joint_parameters * length,
        mass=model.mass * mass,
        com=model.com * length,
        inertia=model.inertia * mass * length**2,
        armature=model.armature * mass * length**2 / unit**2,
        damping=model.damping * force / unit * time,
        friction_loss=model.friction_loss * force,
        friction_velocity=model.friction_velocity,
        stiffness=model.stiffness * force / unit,
        spring_reference=model.spring_reference * length**q_length,
    )
    # The smoothed friction compares rates of all joints with one number, which has no one dimension: left out.
    model, scaled = (x.replace(friction_loss=0 * x.friction_loss) for x in (model, scaled))
    wrench = np.repeat([mass * length**2 / time**2, mass * length / time**2], 3)
    twist = np.repeat([1.0, length], 3)
    new = (s.q * length**q_length, s.v * unit / time, s.a * unit / time**2, s.tau * force, s.external * wrench)
    y = routes.dynamics(name, model, *s)
    z = routes.dynamics(name, scaled, *new)
    w = routes.motion(name, scaled, *new[:3])
    close(z["fd"], y["fd"] * unit / time**2, 1e-9)
    close(z["id"], y["id"] * force)
    close(z["mass"], y["mass"] * mass * length**2 / np.outer(unit, unit))
    close(z["coriolis"], y["coriolis"] * mass * length**2 / time / np.outer(unit, unit))
    close(z["forces"], y["forces"] * wrench)
    close(w["position"], m["position"] * length)
    close(w["velocity"], m["velocity"] * twist / time)
    close(w["acceleration"], m["acceleration"] * twist / time**2)
    close(w["kinetic"], m["kinetic"] * mass * length**2 / time**2)
    close(w["potential"], m["potential"] * mass * length**2 / time**2)
    close(w["momentum"], m["momentum"] * np.repeat([mass * length**2 / time, mass * length / time], 3))
