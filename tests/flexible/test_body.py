"""The polynomials of a flexible body are the sums over its nodes, and a free body keeps its momentum and energy."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx

MODES, NODES = 3, 7


def hat(a):
    return np.array([[0.0 * a[0], -a[2], a[1]], [a[2], 0.0 * a[0], -a[0]], [-a[1], a[0], 0.0 * a[0]]])


def nodal_data(rng, *, turning: bool) -> dict:
    data = {
        "position": rng.normal(size=(NODES, 3)),
        "mass": rng.uniform(0.5, 1.5, NODES),
        "translation": rng.normal(size=(NODES, 3, MODES)),
        "stiffness": np.diag(rng.uniform(1.0, 2.0, MODES)),
    }
    if turning:
        shape = rng.normal(size=(NODES, 3, 3))
        data["inertia"] = 0.1 * (shape @ np.swapaxes(shape, 1, 2) + np.eye(3))
        data["rotation"] = rng.normal(size=(NODES, 3, MODES))
        data["offset"] = 0.3 * rng.normal(size=(NODES, 3))
        bend = rng.normal(size=(NODES, MODES, MODES, 3))
        data["foreshortening"] = bend + np.swapaxes(bend, 1, 2)
    return data


def body_of(data: dict, **options) -> dx.FlexibleBody:
    return dx.flexible_body_from_nodes(**data, nodes={"base": 0, "tip": NODES - 1}, **options)


def nodal_energy(data: dict, eta, velocity):
    """The kinetic energy of the nodes themselves: each turns by `exp(psi eta)`, with the exact rate of that.

    Analytic, so that complex numbers may be put in.
    """
    etad, omega, linear = split(velocity)
    energy = 0.0
    for k in range(NODES):
        spin = hat(data["rotation"][k] @ eta)
        powers = [np.linalg.matrix_power(spin, n) for n in range(25)]
        turn = sum(power / math.factorial(n) for n, power in enumerate(powers))
        rate = sum(power / math.factorial(n + 1) for n, power in enumerate(powers)) @ data["rotation"][k] @ etad
        bend = np.einsum("r,rsi->si", eta, data["foreshortening"][k])
        arm = turn @ data["offset"][k]
        place = data["position"][k] + data["translation"][k] @ eta + 0.5 * eta @ bend + arm
        v = linear + hat(omega) @ place + data["translation"][k] @ etad + etad @ bend + hat(rate) @ arm
        own = omega + rate
        energy += 0.5 * data["mass"][k] * v @ v + 0.5 * own @ turn @ data["inertia"][k] @ turn.T @ own
    return energy


def state(rng):
    return rng.normal(size=MODES), rng.normal(size=MODES + 6)


def split(velocity):
    return velocity[:MODES], velocity[MODES : MODES + 3], velocity[MODES + 3 :]


@pytest.mark.spec("FLEX-INT", "FLEX-MM", "FLEX-DATA")
def test_the_polynomial_is_the_sum_over_nodes(rng):
    """Exactly, at any deformation, for point masses."""
    data = nodal_data(rng, turning=False)
    body = body_of(data)
    assert body.level == "full"
    for _ in range(3):
        eta, _ = state(rng)
        nodal = np.zeros((MODES + 6, MODES + 6))
        for r0, mass, phi in zip(data["position"], data["mass"], data["translation"], strict=True):
            moves = np.concatenate([phi, -hat(r0 + phi @ eta), np.eye(3)], axis=1)
            nodal += mass * moves.T @ moves
        mass_matrix = body.mass_matrix(jnp.asarray(eta))
        np.testing.assert_allclose(mass_matrix, nodal, rtol=0, atol=1e-12 * np.abs(nodal).max())
        assert np.linalg.eigvalsh(mass_matrix)[0] > 0.0


@pytest.mark.spec("FLEX-INT", "FLEX-MM")
def test_nodes_that_turn_are_right_to_second_order(rng):
    """Of the modes and their rates together, with inertias that turn, offsets and foreshortening."""
    data = nodal_data(rng, turning=True)
    body = body_of(data)
    assert body.level == "consistent"
    eta, velocity = state(rng)
    etad, omega, linear = split(velocity)
    # Coefficients of the powers of t, where t scales the modes and their rates, by Cauchy's integral on a circle.
    circle = 0.2 * np.exp(2j * np.pi * np.arange(32) / 32)
    values = [nodal_energy(data, t * eta, np.concatenate([t * etad, omega, linear])) for t in circle]
    nodal = (np.fft.fft(values) / 32 / 0.2 ** np.arange(32))[:3].real

    def energy(t):
        moving = jnp.concatenate([t * etad, omega, linear])
        return 0.5 * moving @ body.mass_matrix(t * eta) @ moving

    rate = jax.grad(energy)
    ours = jax.jit(lambda t: (energy(t), rate(t), 0.5 * jax.grad(rate)(t)))(0.0)
    np.testing.assert_allclose(ours, nodal, rtol=1e-12)
    assert np.linalg.eigvalsh(body.mass_matrix(jnp.zeros(MODES)))[0] > 0.0


def nodal_gyroscopic_force(data, eta, velocity):
    """Jain and Rodriguez (1992), equations 29 to 33, for point masses: what is not acceleration."""
    etad, omega, linear = split(velocity)
    force = np.zeros(MODES + 6)
    for k in range(NODES):
        phi = data["translation"][k]
        place = data["position"][k] + phi @ eta
        own = np.cross(omega, linear) + np.cross(omega, np.cross(omega, place)) + 2.0 * np.cross(omega, phi @ etad)
        push = data["mass"][k] * own
        force += np.concatenate([phi.T @ push, np.cross(place, push), push])
    return force


@pytest.mark.spec("FLEX-ANODE", "FLEX-BM")
def test_the_gyroscopic_force_is_the_sum_over_nodes(rng):
    data = nodal_data(rng, turning=False)
    body = body_of(data)
    eta, velocity = state(rng)
    nodal = nodal_gyroscopic_force(data, eta, velocity)
    ours = body.gyroscopic_force(eta, *split(velocity))
    np.testing.assert_allclose(ours, nodal, rtol=0, atol=1e-13 * np.abs(nodal).max())


@pytest.mark.spec("FLEX-BM")
@pytest.mark.parametrize("turning", [False, True])
@pytest.mark.parametrize("level", ["full", "consistent"])
def test_a_free_body_keeps_momentum_and_energy(rng, turning, level):
    """Also with inertias that are not isotropic, since they turn with their nodes."""
    body = body_of(nodal_data(rng, turning=turning)).at_level(level)
    eta, velocity = (jnp.asarray(x) for x in state(rng))
    eta = 0.1 * eta  # where the quadratic polynomial is still an inertia
    etad, omega, linear = split(velocity)
    mass_matrix, rate = jax.jvp(body.mass_matrix, (eta,), (etad,))
    bias = body.gyroscopic_force(eta, etad, omega, linear)
    acceleration = -jnp.linalg.solve(mass_matrix, bias)
    momentum = mass_matrix @ velocity
    _, angular, push = split(momentum)
    _, angular_rate, push_rate = split(mass_matrix @ acceleration + rate @ velocity)
    scale = jnp.abs(bias).max()
    energy_rate = velocity @ mass_matrix @ acceleration + 0.5 * velocity @ rate @ velocity
    assert abs(energy_rate) < 1e-13 * scale * jnp.abs(velocity).max()
    assert jnp.abs(push_rate + jnp.cross(omega, push)).max() < 1e-13 * scale
    assert jnp.abs(angular_rate + jnp.cross(omega, angular) + jnp.cross(linear, push)).max() < 1e-13 * scale


def test_without_modes_a_body_is_rigid(rng):
    tensor = rng.normal(size=(3, 3))
    rigid = dx.SpatialInertia(2.0, rng.normal(size=3), tensor @ tensor.T + np.eye(3))
    body = dx.FlexibleBody.from_integrals(
        mass=rigid.mass,
        first_moment=rigid.mass * rigid.com,
        inertia=rigid.matrix[:3, :3],
        translation_coupling=np.zeros((3, 0)),
        rotation_coupling=np.zeros((3, 0)),
        modal_mass=np.zeros((0, 0)),
        stiffness=np.zeros((0, 0)),
    )
    np.testing.assert_array_equal(body.mass_matrix(jnp.zeros(0)), rigid.matrix)
    omega, linear = rng.normal(size=(2, 3))
    force = body.gyroscopic_force(jnp.zeros(0), jnp.zeros(0), jnp.asarray(omega), jnp.asarray(linear))
    momentum = rigid.matrix @ np.concatenate([omega, linear])
    wanted = np.concatenate(
        [np.cross(omega, momentum[:3]) + np.cross(linear, momentum[3:]), np.cross(omega, momentum[3:])]
    )
    np.testing.assert_allclose(force, wanted, atol=1e-13)


@pytest.mark.spec("FLEX-RUTH")
def test_the_ruthless_level_sees_the_undeformed_body(rng):
    data = nodal_data(rng, turning=True)
    full, ruthless = body_of(data, level="full"), body_of(data, level="ruthless")
    eta, velocity = state(rng)
    etad, *frame = split(velocity)
    at_rest = np.zeros(MODES)
    np.testing.assert_array_equal(ruthless.mass_matrix(eta), full.mass_matrix(at_rest))
    ours, still = ruthless.gyroscopic_force(eta, etad, *frame), full.gyroscopic_force(at_rest, at_rest, *frame)
    np.testing.assert_array_equal(ours, still)
    assert np.abs(ours[:MODES]).max() > 0.1  # what turning throws outwards is a load on the modes all the same


def test_batches_may_come_first_or_last(rng):
    body = body_of(nodal_data(rng, turning=True))
    eta, etad, omega, linear = (jnp.asarray(rng.normal(size=(5, size))) for size in (MODES, MODES, 3, 3))
    both = jax.jit(lambda b, e, d, w, v: (b.mass_matrix(e), b.gyroscopic_force(e, d, w, v)))
    first = jax.vmap(both, (None, 0, 0, 0, 0))(body, eta, etad, omega, linear)
    last = jax.tree.map(lambda x: x[..., None], body)
    got = both(last, eta.T, etad.T, omega.T, linear.T)
    for a, b in zip(first, got, strict=True):
        np.testing.assert_allclose(jnp.moveaxis(b, -1, 0), a, atol=1e-12)


def test_derivatives_by_nodal_data(rng):
    data = nodal_data(rng, turning=True)
    eta, velocity = state(rng)

    def energy(data):
        body = body_of(data)
        force = body.gyroscopic_force(jnp.asarray(eta), *(jnp.asarray(x) for x in split(velocity)))
        return 0.5 * velocity @ body.mass_matrix(jnp.asarray(eta)) @ velocity + jnp.sum(force)

    data = {name: jnp.asarray(value) for name, value in data.items()}
    energy = jax.jit(energy)
    gradient = jax.grad(energy)(data)
    for name in ("position", "mass", "translation", "rotation", "inertia", "offset"):
        step = rng.normal(size=data[name].shape)
        there, here = (energy(data | {name: data[name] + h * step}) for h in (1e-5, -1e-5))
        np.testing.assert_allclose((there - here) / 2e-5, np.sum(step * gradient[name]), rtol=1e-7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mass": 0.0}, "`mass` is 0"),
        ({"modal_mass": np.diag([1.0, 0.0])}, "`modal_mass` is not positive definite: 0 for some motion"),
        ({"stiffness": -np.eye(2)}, "`stiffness` is not positive semidefinite: -1 for some motion"),
        ({"damping": np.array([[1.0, 2.0], [2.0, 1.0]])}, "`damping` is not positive semidefinite: -1 for some motion"),
        ({"inertia_first": np.triu(np.ones((2, 3, 3)))}, "`inertia_first` is not symmetric, by 1"),
        ({"foreshortening": np.arange(12.0).reshape(2, 2, 3)}, "`foreshortening` is not symmetric, by 3"),
        ({"translation_coupling": 9.0 * np.eye(3, 2)}, "a negative kinetic energy for some motion"),
        ({"node_names": ("a", "a")}, r"`node_names` are not all different: \('a', 'a'\)"),
    ],
)
def test_integrals_of_no_body_are_refused(changes, words):
    given = {
        "mass": 1.0,
        "first_moment": np.zeros(3),
        "inertia": np.eye(3),
        "translation_coupling": np.zeros((3, 2)),
        "rotation_coupling": np.zeros((3, 2)),
        "modal_mass": np.eye(2),
        "stiffness": np.eye(2),
    }
    with pytest.raises(dx.ModelError, match=words):
        dx.FlexibleBody.from_integrals(**(given | changes))


def test_what_does_not_fit_is_refused(rng):
    data = nodal_data(rng, turning=False)
    with pytest.raises(dx.ModelError, match=r"`translation` has shape \(7, 3, 2\), expected \(7, 3, 3\)"):
        body_of(data | {"translation": data["translation"][..., :2]})
    with pytest.raises(dx.ModelError, match="attachment node 'tip': is row 9"):
        dx.flexible_body_from_nodes(**data, nodes={"base": 0, "tip": 9})
    with pytest.raises(ValueError, match="'consistent', 'full', 'ruthless'"):
        body_of(data, level="good")
    with pytest.raises(KeyError, match="there are: 'base', 'tip'"):
        body_of(data).node_index("end")
