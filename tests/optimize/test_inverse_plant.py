"""The form of inverse dynamics: the same optima as with forces for controls."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import converged, near

import dynax as dx
from dynax import optimize as o


def arm() -> dx.Model:
    """Two links of a metre that swing in a vertical plane."""
    builder = dx.ModelBuilder()
    rod = dx.SpatialInertia(1.0, np.array([0.0, 0.0, -0.5]), np.diag([1 / 12, 1 / 12, 1e-3]))
    builder.body("upper", joint=dx.Revolute((0, 1, 0)), inertia=rod, damping=0.1)
    below = dx.Transform.from_translation((0.0, 0.0, -1.0))
    builder.body("lower", parent="upper", joint=dx.Revolute((0, 1, 0)), placement=below, inertia=rod)
    return builder.build()


ELBOW = np.array([[0.0], [2.0]])


@pytest.mark.parametrize("actuation", [None, ELBOW], ids=["all joints", "the elbow"])
def test_both_forms_have_one_optimum(actuation):
    """With a force that costs, and a goal that all cannot quite reach: cost, motion and forces are the same."""
    model, N, h = arm(), 20, 0.05
    goal = jnp.array([0.5, -0.3])
    forward, inverse = o.plant(model, actuation=actuation), o.inverse_plant(model, actuation=actuation)

    def problem(plant, force):
        return o.problem(
            plant,
            jnp.zeros(4),
            h,
            knots=N,
            costs=[o.residual(lambda x, u, p: force(p, x, u), 0.02 * h), o.residual(lambda x, u, p: x[2:], h)],
            end_costs=[o.residual(lambda x, p: x[:2] - goal, 10.0)],
            params=plant,
        )

    guess = jnp.zeros((N, inverse.nu))
    expected = converged(o.solve(problem(forward, lambda p, x, u: u), guess))
    found = converged(o.solve(problem(inverse, lambda p, x, w: p.controls(x, w)), guess))
    near(found.cost, expected.cost, 1e-9)
    near(found.states, expected.states, 1e-5)
    near(jax.vmap(inverse.controls)(found.states[:-1], found.controls), expected.controls, 1e-4)


def test_its_forces_move_the_model_so(rng):
    """What is not driven is not pushed; of a joint driven alone the acceleration is what was chosen."""
    model, x = arm(), rng.normal(size=(10, 4))
    for actuation in (None, ELBOW, np.array([[1.0], [-1.0]]), np.array([[3.0, 1.0], [0.0, 2.0]])):
        forward: Any = o.plant(model, actuation=actuation)
        inverse = o.inverse_plant(model, actuation=actuation)
        w = rng.normal(size=(10, inverse.nu))
        a, u = jax.vmap(inverse.acceleration)(x, w), jax.vmap(inverse.controls)(x, w)
        near(a, jax.vmap(forward.acceleration)(x, u), 1e-10)
        if actuation is ELBOW:
            near(a[:, 1:], w, 1e-12)
        elif inverse.nu == 2:
            near(a, w, 1e-12)


def test_what_does_not_fit_is_named():
    model = arm()
    with pytest.raises(ValueError, match=r"`actuation` has shape \(3, 1\), expected \(2, controls\)"):
        o.inverse_plant(model, actuation=np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"`actuation` of shape \(2, 2\) has columns that depend on each other"):
        o.inverse_plant(model, actuation=np.ones((2, 2)))
    with pytest.raises(ValueError, match="`model` is of type EmbeddedModel, expected a tree of rigid bodies"):
        o.inverse_plant(dx.embed(model, jnp.zeros(2)))
