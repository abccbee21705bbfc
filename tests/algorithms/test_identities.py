"""Every quantity against the derivative that defines it, along motions of random trees.

Derivatives are central differences of fourth order of the compiled functions, at other states.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import routes
import trees
from dense import Dense, mul

import dynax as dx

RICH = ["mixed", "screws"]
#: Programs that no other test needs: every joint in the slow run, one-freedom joints in every run.
BOUNDED = [pytest.param("mixed", marks=pytest.mark.slow), "screws"]
STEP = 2e-3


def near(actual, expected, tolerance=2e-8):
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(np.asarray(actual) / scale, np.asarray(expected) / scale, rtol=0, atol=tolerance)


def moved(model, q, dv):
    return jax.vmap(lambda q, dv: dx.integrate(model, q, dv))(q, dv)


def rate(function, h=STEP):
    """The derivative at zero of `function(t)`, an array or `routes.Results`."""
    four = [function(k * h) for k in (1, -1, 2, -2)]

    def of(a, b, c, d):
        return jax.tree.map(lambda a, b, c, d: (8.0 * (a - b) - (c - d)) / (12.0 * h), a, b, c, d)

    if isinstance(four[0], routes.Results):
        return routes.Results(lambda what: of(*(y[what] for y in four)))
    return of(*four)


def along(name, model, s, v, a, *, clock=True):
    """The rates of `routes.motion` when the system moves with `v` and accelerates with `a`."""

    def at(t):
        later = model.replace(time=model.time + t) if clock else model
        return routes.motion(name, later, moved(model, s.q, t * v), s.v + t * a, s.a)

    return rate(at)


@pytest.mark.spec("RBDA-3.1-ALPHA", "RBDA-2.11-ACCADD", "SOA-HINGE", "SOA-COR", "SOA-JDOT", "RBDA-3.5-JACC")
@pytest.mark.parametrize("name", BOUNDED)
def test_velocities_and_accelerations_are_rates(name):
    model, s, _ = routes.case(name)
    here = routes.moving(name)
    d = along(name, model, s, s.v, s.a)
    spin = np.swapaxes(here["rotation"], -1, -2) @ d["rotation"]
    omega = np.stack([spin[..., 2, 1], spin[..., 0, 2], spin[..., 1, 0]], -1)
    near(here["velocity"][..., :3], omega)
    near(here["velocity"][..., 3:], np.einsum("bnji,bnj->bni", here["rotation"], d["position"]))
    near(here["acceleration"], d["velocity"])
    steady = along(name, model, s, s.v, 0 * s.a)
    for frame, bias in here["jacobian_bias"].items():
        near(bias, mul(steady["jacobian"][frame], np.asarray(s.v)))


@pytest.mark.spec("RBDA-3.1-KE", "RBDA-X-ENERGY", "RBDA-2.6-POWER", "RBDA-4.4-TIME", "INV-KE")
@pytest.mark.parametrize("name", RICH)
def test_power_balance(name):
    """d/dt (T + V) = motors + external wrenches + drives - friction, while forward dynamics moves the tree."""
    model, s, y = routes.case(name)
    d = along(name, model, s, s.v, jnp.asarray(y["fd"]))
    dense = Dense(model, s.q, s.v)
    friction = model.damping * s.v + model.friction_loss * jnp.tanh(s.v / model.friction_velocity)
    power = np.sum(np.asarray((s.tau - friction) * s.v), 1) + np.sum(np.asarray(s.external) * dense.velocity, (1, 2))
    forces = dense.joint_forces(y["fd"], s.external)
    for i, joint in enumerate(model.joints):
        if joint.rheonomic:
            power += np.sum(forces[:, i] * dense.sigma_and_rates[:, i], 1)
    near(d["kinetic"] + d["potential"], power, 1e-7)


@pytest.mark.spec("RBDA-X-FLOAT", "SOA-BASE", "INV-MOM", "RBDA-9.5-MOM")
def test_momentum_changes_by_outside_forces_alone():
    name = "screws"
    model, s, _ = routes.case(name)
    model = model.replace(gravity=0 * model.gravity)
    tau = s.tau.at[:, :6].set(0.0)  # no motor between the base and the world
    y = routes.dynamics(name, model, s.q, s.v, s.a, tau, 0 * s.external)
    d = along(name, model, s, s.v, jnp.asarray(y["fd"]))
    near(d["momentum"], 0 * d["momentum"])
    y = routes.dynamics(name, model, s.q, s.v, s.a, tau, s.external)
    d = along(name, model, s, s.v, jnp.asarray(y["fd"]))
    dense = Dense(model, s.q, s.v)
    force = mul(dense.rotation, np.asarray(s.external)[..., 3:])
    moment = mul(dense.rotation, np.asarray(s.external)[..., :3]) + np.cross(dense.position, force)
    near(d["momentum"], np.concatenate([moment, force], -1).sum(1), 1e-7)


@pytest.mark.spec("RBDA-5.3-PARTS", "RBDA-5.3-GRAV")
@pytest.mark.parametrize("name", RICH)
def test_gravity_force_is_the_gradient_of_the_potential(name):
    model, s, y = routes.case(name)
    directions = np.random.default_rng(1).normal(size=(3, *s.v.shape))
    stretch = jax.vmap(lambda q: dx.difference(model, model.spring_reference, q))(s.q)
    force = y["gravity"] + np.asarray(model.stiffness * stretch)
    for dv in directions:
        d = along(name, model, s, jnp.asarray(dv), s.a, clock=False)
        near(d["potential"], np.sum(force * dv, 1), 1e-7)


@pytest.mark.parametrize("name", BOUNDED)
def test_rate_of_the_mass_matrix_less_twice_coriolis_is_skew(name):
    model, s, y = routes.case(name)

    def mass(t):
        return routes.dynamics(name, model, moved(model, s.q, t * s.v), s.v, s.a, s.tau, s.external)["mass"]

    skew = rate(mass) - 2.0 * y["coriolis"]
    near(skew, -np.swapaxes(skew, 1, 2), 1e-7)


@pytest.mark.spec("RBDA-5.2-CLOSED", "RBDA-5.3-PARTS")
def test_closed_form_with_christoffel_symbols():
    name = "arm"
    model, s, _ = routes.case(name)
    rest = model.replace(**{leaf: 0 * getattr(model, leaf) for leaf in ("damping", "friction_loss", "stiffness")})
    n = model.nv
    slopes, weights = [], []
    for k in range(n):
        unit = jnp.zeros_like(s.q).at[:, k].set(1.0)
        slopes.append(rate(lambda t, u=unit: routes.dynamics(name, rest, s.q + t * u, *s[1:])["mass"]))

        def potential(t, u=unit):
            d = Dense(rest, s.q + t * u, s.v)
            com = d.position + mul(d.rotation, np.asarray(rest.com))
            return -np.einsum("n,bni,i->b", rest.mass, com, rest.gravity)

        weights.append(rate(potential))
    dm = np.stack(slopes, -1)  # [b, i, j, k]
    christoffel = 0.5 * (dm + np.swapaxes(dm, 2, 3) - np.einsum("bjki->bijk", dm))
    velocity_terms = np.einsum("bijk,bj,bk->bi", christoffel, s.v, s.v)
    y = routes.dynamics(name, rest, s.q, s.v, s.a, s.tau, 0 * s.external)
    near(velocity_terms + np.stack(weights, -1), y["bias"])
    near(mul(y["mass"], np.asarray(s.a)) + velocity_terms + np.stack(weights, -1), y["id"])


@pytest.mark.spec("RBDA-6.1-IDDELTA", "RBDA-6.1-COLS", "SOA-MV", "SOA-MINV")
@pytest.mark.parametrize("name", RICH)
def test_differential_inverse_dynamics(name):
    """Inverse dynamics is linear in the acceleration, and its slope is the mass matrix column by column."""
    model, s, y = routes.case(name)
    zero = y["bias"]
    for k in range(0, model.nv, 5):
        unit = jnp.zeros_like(s.a).at[:, k].set(1.0)
        column = routes.dynamics(name, model, s.q, s.v, unit, s.tau, s.external)["id"] - zero
        near(column, y["mass"][:, :, k], 1e-11)
        still = routes.dynamics(
            name, model.replace(gravity=0 * model.gravity), s.q, 0 * s.v, unit, s.tau, 0 * s.external
        )
        if name == "screws":  # no velocity, no weight, no wrench: the column by itself
            near(still["id"] - still["bias"], column, 1e-11)
        pushed = routes.dynamics(name, model, s.q, s.v, s.a, jnp.asarray(zero) + unit, s.external)["fd"]
        near(pushed, y["inverse"][:, :, k], 1e-10)


@pytest.mark.spec("RBDA-6.3-PHYS")
def test_physical_reading_of_the_mass_matrix():
    """From rest, a unit acceleration at one freedom moves the bodies beyond it as one."""
    name = "screws"
    model, s, _ = routes.case(name)
    weightless = model.replace(gravity=0 * model.gravity)
    dense = Dense(weightless, s.q, 0 * s.v)
    k = 8
    body = int(model.topology.body_of_velocity[k])
    unit = jnp.zeros_like(s.a).at[:, k].set(1.0)
    forces = routes.dynamics(name, weightless, s.q, 0 * s.v, unit, s.tau, 0 * s.external)["forces"]
    composite = dense.phi @ dense.inertia @ dense.phi_t  # diagonal blocks of phi M phi* are the composite inertias
    rows = slice(6 * body, 6 * body + 6)
    own = mul(composite[:, rows, rows], dense.s[:, rows, k])
    near(forces[:, body], own, 1e-11)
    for other in range(model.num_bodies):
        if model.topology.support[body, other] and other != body:
            shift = dense.phi[:, 6 * other : 6 * other + 6, rows]
            near(forces[:, other], mul(shift, own), 1e-11)
        elif not model.topology.support[other, body]:
            near(forces[:, other], 0 * own, 1e-11)


@pytest.mark.spec("INV-NEWTON")
def test_a_constant_velocity_of_the_whole_changes_nothing():
    name = "screws"
    model, s, _ = routes.case(name)
    # A velocity in the world, seen from the base; then a spin, which is not the same.
    base = routes.moving(name)["rotation"][:, 0]
    drift = np.einsum("bji,j->bi", base, [3.0, -2.0, 5.0])
    rest = model.replace(damping=model.damping.at[:6].set(0.0))
    y, z, w = (
        routes.dynamics(name, rest, s.q, s.v + jnp.zeros_like(s.v).at[:, k : k + 3].set(u), s.a, s.tau, s.external)[
            "fd"
        ]
        for k, u in ((3, 0.0), (3, jnp.asarray(drift)), (0, jnp.asarray(drift)))
    )
    near(z[:, 6:], y[:, 6:], 1e-10)
    assert np.abs(w[:, 6:] - y[:, 6:]).max() > 0.1


@pytest.mark.spec("SOA-TREE", "CONV-ORDER", "RBDA-4.1.2-NUM", "SOA-FORESTBASE")
def test_numbering_does_not_matter():
    joints = trees.SCREWS
    order = (0, 7, 4, 6, 1, 5, 2, 3)
    model = trees.tree("screws")
    other = trees.build(joints, seed=sorted(trees.TREES).index("screws"), order=order)
    _, s, y = routes.case("screws")
    assert other.body_names == tuple(f"b{k}" for k in order)
    names = model.joint_names
    to_q = np.concatenate([np.r_[other.q_slice(n)] for n in names])
    to_v = np.concatenate([np.r_[other.v_slice(n)] for n in names])
    back_q, back_v = np.argsort(to_q), np.argsort(to_v)
    z = routes.dynamics(
        "screws",
        other,
        s.q[:, back_q],
        s.v[:, back_v],
        s.a[:, back_v],
        s.tau[:, back_v],
        s.external[:, np.array(order)],
    )
    near(z["fd"][:, to_v], y["fd"], 1e-10)
    near(z["mass"][:, to_v][:, :, to_v], y["mass"], 1e-12)
