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
from dynax.optimize.plant import linearized


def arm() -> dx.Model:
    """Two links of a metre that swing in a vertical plane."""
    builder = dx.ModelBuilder()
    rod = dx.SpatialInertia(1.0, np.array([0.0, 0.0, -0.5]), np.diag([1 / 12, 1 / 12, 1e-3]))
    builder.body("upper", joint=dx.Revolute((0, 1, 0)), inertia=rod, damping=0.1)
    below = dx.Transform.from_translation((0.0, 0.0, -1.0))
    builder.body("lower", parent="upper", joint=dx.Revolute((0, 1, 0)), placement=below, inertia=rod)
    return builder.build()


def four_bar_with_an_arm() -> tuple[dx.EmbeddedModel, jax.Array]:
    """Embedded, and where its loop is closed."""

    def rod(length: float) -> dx.SpatialInertia:
        return dx.SpatialInertia(1.0, (0.5 * length, 0.0, 0.0), (1e-3, length**2 / 12, length**2 / 12))

    def at(x: float) -> dx.Transform:
        return dx.Transform.from_translation((x, 0.0, 0.0))

    pin, ends = dx.Revolute((0, 0, 1)), {"predecessor_placement": at(1.2), "successor_placement": at(1.1)}
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    builder.body("crank", joint=pin, inertia=rod(0.5), damping=0.1)
    builder.body("coupler", parent="crank", joint=pin, placement=at(0.5), inertia=rod(1.2))
    builder.body("rocker", joint=pin, placement=at(1.0), inertia=rod(1.1))
    builder.loop("elbow", predecessor="coupler", successor="rocker", joint=pin, **ends)
    builder.body("arm", parent="coupler", joint=pin, placement=at(1.2), inertia=rod(0.4), damping=0.1)
    tree = builder.build()
    q = dx.assemble(tree, jnp.array([1.0, -0.4, 1.4, 0.0]), hold=["crank_joint"]).q
    return dx.embed(tree, q, independent=["crank_joint"]), q


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


@pytest.mark.slow
def test_both_forms_of_a_closed_loop_have_one_optimum():
    """A crank that drives a rocker, with an arm on the coupler: loops embedded, as many accelerations chosen as there
    are freedoms."""
    model, q0 = four_bar_with_an_arm()
    N, h, goal = 20, 0.05, jnp.array([0.5, 0.3])
    forward, inverse = o.plant(model), o.inverse_plant(model)

    def problem(plant, force):
        return o.problem(
            plant,
            jnp.concatenate([q0, jnp.zeros(2)]),
            h,
            knots=N,
            costs=[o.residual(lambda x, u, p: force(p, x, u), 0.02 * h), o.residual(lambda x, u, p: x[4:], h)],
            end_costs=[o.residual(lambda x, p: dx.difference(model, q0, x[:4]) - goal, 100.0)],
            params=plant,
        )

    hold = jnp.broadcast_to(dx.gravity_force(model, q0), (N, 2))
    expected = converged(o.solve(problem(forward, lambda p, x, u: u), hold))
    found = converged(o.solve(problem(inverse, lambda p, x, w: p.controls(x, w)), jnp.zeros((N, 2))))
    near(found.cost, expected.cost, 1e-9)
    near(found.states, expected.states, 1e-5)
    near(jax.vmap(inverse.controls)(found.states[:-1], found.controls), expected.controls, 1e-4)
    assert np.max(np.abs(jax.vmap(lambda x: dx.constraint_residual(model.tree, x[:4]))(found.states))) < 1e-10


@pytest.mark.slow
def test_slopes_of_a_solution_with_a_closed_loop():
    """How fast the middle of the motion follows its goal, against differences."""
    model, q0 = four_bar_with_an_arm()
    N, h, plant, goal = 10, 0.05, o.plant(model), jnp.array([0.5, 0.3])
    hold = jnp.broadcast_to(dx.gravity_force(model, q0), (N, 2))

    @jax.jit
    def middle(goal, change):
        def speed(goal):
            problem = o.problem(
                plant,
                jnp.concatenate([q0, jnp.zeros(2)]),
                h,
                knots=N,
                costs=[o.residual(lambda x, u, p: u, 0.02 * h), o.residual(lambda x, u, p: x[4:], h)],
                end_costs=[o.residual(lambda x, p: dx.difference(model, q0, x[:4]) - p, 100.0)],
                params=goal,
            )
            return o.solve(problem, hold).states[N // 2, 4:]

        return jax.jvp(speed, (goal,), (change,))

    for way in jnp.eye(2):
        ahead, back = (middle(goal + e * way, way)[0] for e in (1e-4, -1e-4))
        near(middle(goal, way)[1], (ahead - back) / 2e-4, 1e-6)


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
    builder = dx.ModelBuilder().body("a", joint=dx.Revolute((0, 0, 1)))
    builder.body("b", joint=dx.Revolute((0, 0, 1))).gear("b_joint", "a_joint", ratio=2.0)
    with pytest.raises(ValueError, match=r"does not keep the loops.*or a model with the loops embedded: dx\.embed"):
        o.inverse_plant(builder.build())


@pytest.mark.slow
def test_a_gear_that_is_embedded(rng):
    """A wheel that another is geared to, with an arm on it, whose elbow is driven: what is not driven is not pushed,
    and slopes and curvature of the steps of both plants are those of differences."""
    builder, rod = dx.ModelBuilder(), dx.SpatialInertia(1.0, (0.3, 0.1, 0.0), (0.1, 0.1, 0.2))
    builder.body("wheel", joint=dx.Revolute((0, 1, 0)), inertia=rod)
    builder.body("other", joint=dx.Revolute((0, 1, 0)), inertia=rod).gear("other_joint", "wheel_joint", ratio=-2.0)
    there = dx.Transform.from_translation((0.5, 0.0, 0.0))
    builder.body("arm", parent="wheel", joint=dx.Revolute((0, 1, 0)), placement=there, inertia=rod, damping=0.1)
    model = dx.embed(builder.build(), independent=["wheel_joint"])
    x, dt = jnp.array([0.4, -0.8, -0.7, 0.5, -1.2]), jnp.asarray(0.05)
    w = jnp.asarray(rng.normal(size=1))
    forward, inverse = o.plant(model, actuation=ELBOW), o.inverse_plant(model, actuation=ELBOW)

    @jax.jit
    def of_plant(plant, u):
        after = plant.step(x, u, None, dt)

        def ahead(z):
            return plant.difference(after, plant.step(plant.integrate(x, z[:4]), u + z[4:], None, dt))

        # All points at once, so that the step is compiled once: along each direction, and along each pair to all sides.
        eye, signs = 1e-4 * np.eye(5), np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
        pairs = signs[:, 0, None, None, None] * eye[:, None] + signs[:, 1, None, None, None] * eye
        there = jax.vmap(ahead)(np.concatenate([eye, -eye, pairs.reshape(-1, 5)]))
        slopes = (there[:5] - there[5:10]).T / 2e-4
        around = jnp.sum(there[10:], axis=1).reshape(4, 5, 5)
        bends = jnp.sum(jnp.prod(signs, axis=1)[:, None, None] * around, axis=0) / 4e-8
        found = linearized(plant, x, u, after, None, dt, jnp.ones(4))
        return found, (jnp.zeros(4), slopes, bends), plant.acceleration(x, u)

    found, expected, a = of_plant(forward, inverse.controls(x, w))
    chosen, by_differences, same = of_plant(inverse, w)
    near(same, a, 1e-10)
    for one, other in ((found, expected), (chosen, by_differences)):
        for part, true, tolerance in zip(one, other, (1e-12, 1e-6, 1e-5), strict=True):
            near(part, true, tolerance)
