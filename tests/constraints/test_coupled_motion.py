"""Coupled systems in motion: drift and what is done against it, derivatives, and what is refused."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx

pytestmark = pytest.mark.slow

HINGE = dx.Revolute((0.0, 0.0, 1.0))


@lru_cache
def linkage():
    """Crank, coupler and rocker of a four-bar linkage as a chain, to be pinned to the ground at its tip."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    lengths = (0.5, 1.2, 1.0)
    for k, length in enumerate(lengths):
        builder.body(
            f"link{k}",
            parent=f"link{k - 1}" if k else "world",
            joint=HINGE,
            placement=dx.Transform.from_translation((lengths[k - 1] if k else 0.0, 0.0, 0.0)),
            inertia=dx.SpatialInertia(1.0 + k, (0.5 * length, 0.05, 0.0), 0.2 * np.eye(3)),
        )
    builder.frame("tip", body="link2", placement=dx.Transform.from_translation((lengths[2], 0.0, 0.0)))
    return builder.frame("pin", placement=dx.Transform.from_translation((1.1, 0.0, 0.0))).build()


def closed(q, v, tau=None, model=None):
    """The linkage at a state, and its pin: five conditions of which the plane leaves two."""
    system = dx.open_system(linkage() if model is None else model, q, v, tau, nodes=("tip", "pin"))
    return system, dx.joint_coupling(system, None, ("primary", "pin"), ("primary", "tip"), HINGE)


@lru_cache
def assembled():
    """A configuration that closes, by projection, and the errors on the way there."""

    model = linkage()

    @jax.jit
    def improved(q):
        system, coupling = closed(q, jnp.zeros(3), model=model)
        return dx.coupled_projection(system, None, coupling)[0], jnp.sqrt(jnp.sum(coupling.residual**2))

    q, errors = jnp.array([1.0, -0.9, -1.3]), []
    for _ in range(8):
        q, error = improved(q)
        errors.append(float(error))
    return q, errors


@pytest.mark.spec("CC-DRIFT")
def test_projection_converges_as_newtons_method():
    _, errors = assembled()
    assert errors[0] > 0.5
    assert errors[-1] < 1e-14
    for a, b in pairwise(errors[3:]):
        assert b < a**2 + 1e-14


@pytest.mark.spec("CC-DRIFT")
def test_drift_and_stabilization():
    """A linkage swings for five seconds: its error grows, or stays where stabilisation and the step put it."""
    model, q = linkage(), assembled()[0]

    def rates(rate, q, v):
        system, coupling = closed(q, v)
        return v, dx.coupled_dynamics(system, None, coupling, stabilization=rate).primary

    def step(rate, state, _):
        (q, v), h = state, 0.01
        k1 = rates(rate, q, v)
        k2 = rates(rate, q + 0.5 * h * k1[0], v + 0.5 * h * k1[1])
        k3 = rates(rate, q + 0.5 * h * k2[0], v + 0.5 * h * k2[1])
        k4 = rates(rate, q + h * k3[0], v + h * k3[1])
        state = tuple(x + h / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True))
        _, coupling = closed(*state)
        energy = dx.kinetic_energy(model, *state) + dx.potential_energy(model, state[0])
        return state, (jnp.sqrt(jnp.sum(coupling.residual**2)), energy)

    @jax.jit
    @jax.vmap
    def swing(rate, crooked):
        system, coupling = closed(q + crooked, jnp.array([2.0, 0.0, 0.0]))
        v = dx.coupled_impulse(system, None, coupling).primary
        start = dx.kinetic_energy(model, q + crooked, v) + dx.potential_energy(model, q + crooked)
        return jax.lax.scan(partial(step, rate), (q + crooked, v), length=500)[1], start

    crooked = jnp.array([[0.0] * 3, [0.0] * 3, [0.0, 0.0, 1e-3]])
    (error, energy), start = jax.tree.map(np.asarray, swing(jnp.array([0.0, 20.0, 20.0]), crooked))
    drift = np.abs(energy - start[:, None]).max(1) / np.abs(start)
    free, stable, corrected = error
    assert free[-1] > 10.0 * free[100] > 100.0 * free[0]
    assert stable.max() < 5e-6 < 0.05 * free[-1]
    assert corrected[0] > 9e-4
    assert corrected[100:].max() < 5e-6
    assert drift[0] > 10.0 * drift[1]
    assert drift[1] < 3e-5


def test_derivatives_through_redundant_conditions(rng):
    """Of accelerations and of the least forces, by state, masses and torques; the conditions have rank two of five."""
    plain = linkage()

    def value(x):
        q, v, tau, mass = x
        system, coupling = closed(q, v, tau, plain.replace(mass=mass))
        found = dx.coupled_dynamics(system, None, coupling, stabilization=3.0)
        return jnp.sum(jnp.sin(found.primary)) + jnp.sum(found.force**2), found.rank

    slope = jax.jit(jax.value_and_grad(value, has_aux=True))
    for q in (assembled()[0], jnp.array([0.0, 1.0, 0.0])):
        x = (q, *(jnp.asarray(rng.normal(size=3)) for _ in range(2)), plain.mass)
        along = tuple(jnp.asarray(rng.normal(size=3)) for _ in range(4))
        (_, rank), found = slope(x)
        assert rank == 2
        at = {k: slope(jax.tree.map(lambda a, d, k=k: a + 3e-4 * k * d, x, along))[0][0] for k in (-2, -1, 1, 2)}
        expected = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / 36e-4
        total = sum(jnp.vdot(a, d) for a, d in zip(found, along, strict=True))
        np.testing.assert_allclose(total, expected, rtol=1e-7)
    # Stretched out, at rest: a freedom of the tip is lost, and nothing is infinite.
    (_, rank), found = slope((jnp.zeros(3), jnp.zeros(3), jnp.zeros(3), plain.mass))
    assert rank == 1
    assert all(np.isfinite(a).all() for a in found)


def test_what_is_refused():
    q = jnp.zeros(3)
    system, coupling = closed(q, q)
    assert dx.open_system(linkage(), q, q, nodes="tip").nodes == ("tip",)
    for arguments, message in [
        ((None, None, dx.Coupling()), "neither a primary nor a secondary"),
        ((None, system, coupling), "matrix for the primary system, which is None"),
        ((system, None, coupling._replace(primary=jnp.zeros((5, 6)))), r"shape \(5, 6\), expected \(5, 12\)"),
        ((system, None, coupling._replace(rate=jnp.zeros(4))), "different numbers of conditions"),
    ]:
        with pytest.raises(ValueError, match=message):
            dx.coupled_dynamics(*arguments)
    with pytest.raises(ValueError, match="unknown method"):
        dx.coupled_dynamics(system, None, coupling, method="lagrange")
    with pytest.raises(ValueError, match="no `residual`"):
        dx.coupled_projection(system, None, dx.Coupling(coupling.primary))
    with pytest.raises(KeyError, match="did you mean"):
        dx.open_system(linkage(), q, q, nodes=["tp"])
    for end, message in (
        (("secondary", "tip"), "on no system that is given"),
        (("primary", "link0"), "open it with nodes"),
    ):
        with pytest.raises(ValueError, match=message):
            dx.joint_coupling(system, None, ("primary", "pin"), end)
    world = dx.open_system(linkage(), q, q, nodes=("tip", "pin"), frame="world")
    with pytest.raises(ValueError, match="frame='body'"):
        dx.joint_coupling(world, None, ("primary", "pin"), ("primary", "tip"))
