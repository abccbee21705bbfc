"""Batches of states and of parameters, both precisions, and what compiles anew: nothing but structure."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import routes
import trees

import dynax as dx
from dynax.routes import forward_dynamics as _aba

NAME = "screws"


@pytest.mark.spec("RBDA-X-BATCH", "RBDA-1.1-FDID")
def test_states_and_parameters_in_batches_equal_loops():
    model, s, y = routes.case(NAME)
    before = _aba.EXECUTIONS["automatic"]._cache_size()
    one = [dx.forward_dynamics(model, *(x[k] for x in (s.q, s.v, s.tau, s.external))) for k in range(3)]
    np.testing.assert_allclose(y["fd"][:3], one, rtol=1e-11)
    masses = model.mass * jnp.array([[1.0], [1.5], [0.7]])
    gravities = model.gravity * jnp.array([[1.0], [0.0], [2.0]])
    models = [model.replace(mass=m, gravity=g) for m, g in zip(masses, gravities, strict=True)]
    state = s.q[0], s.v[0], s.tau[0], s.external[0]
    looped = [dx.forward_dynamics(m, *state) for m in models]
    # Six calls with other numbers, one compiled program.
    assert _aba.EXECUTIONS["automatic"]._cache_size() == before + 1
    axes = jax.tree.map(lambda leaf: None, model).replace(mass=0, gravity=0)
    batch = model.replace(mass=masses, gravity=gravities)
    together = jax.vmap(dx.forward_dynamics, in_axes=(axes, None, None, None, None))(batch, *state)
    np.testing.assert_allclose(together, looped, rtol=1e-11)
    # Every leaf in the batch at once.
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    np.testing.assert_allclose(jax.vmap(lambda m: dx.forward_dynamics(m, *state))(stacked), looped, rtol=1e-11)


#: float32 against float64, relative to the largest entry: the budget of each tree.
BUDGET = {"screws": {"fd": 3e-4, "id": 3e-6, "mass": 2e-6}}


@pytest.mark.spec("RBDA-X-BATCH", "RBDA-X-FLOAT")
def test_float32_keeps_its_digits_and_its_type():
    model, s, y = routes.case(NAME)
    single = trees.State(*(x.astype(jnp.float32) for x in s))

    @jax.jit
    def all_of(q, v, a, tau, external):
        def one(q, v, a, tau, external):
            return {
                "fd": dx.forward_dynamics(model, q, v, tau, external),
                "id": dx.inverse_dynamics(model, q, v, a, external),
                "mass": dx.mass_matrix(model, q),
            }

        return jax.vmap(one)(q, v, a, tau, external)

    here = all_of(*single)
    for what, value in here.items():
        assert value.dtype == jnp.float32
        error = np.abs(value - y[what]).max() / np.abs(y[what]).max()
        assert error < BUDGET[NAME][what], f"{what}: {error:.1e}"
    # A million metres away nothing is lost: the recursion never speaks of the world's origin.
    far = all_of(single.q.at[:, :3].add(1e6), *single[1:])
    for what in here:
        np.testing.assert_array_equal(far[what], here[what])


def test_shapes_without_freedoms(key):
    """Models of driven joints alone: arrays of length zero go through every function."""
    model = (
        dx.ModelBuilder()
        .body("a", joint=dx.Driven(dx.Revolute((0, 1, 0)), trees.swing), inertia=dx.SpatialInertia(1.0, (0.1, 0, 0)))
        .build()
    )
    nothing = jnp.zeros(0)
    assert dx.random_configuration(model, key).shape == (0,)
    assert dx.forward_dynamics(model, nothing, nothing, nothing).shape == (0,)
    assert dx.inverse_dynamics(model, nothing, nothing, nothing).shape == (0,)
    assert dx.mass_matrix(model, nothing).shape == (0, 0)
    for stepper in ("rk4", "implicit_midpoint"):
        assert [x.shape for x in dx.step(model, nothing, nothing, nothing, 0.1, stepper=stepper)] == [(0,), (0,)]
    force = np.asarray(dx.joint_forces(model, nothing, nothing, nothing))[0]
    assert np.all(np.isfinite(force))
    assert np.any(force != 0.0)
