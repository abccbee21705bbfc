"""The way back of embedded dynamics in closed form, against the way there, which differentiates inverse dynamics."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms

import dynax as dx
from dynax.constraints.powers import in_closed_form


def tethered() -> mechanisms.Mechanism:
    """A body that floats, tied to the world: freedoms of the base are on the loop's path, beside a slide."""
    b = dx.ModelBuilder(gravity=(0.3, -9.0, 0.5), name="tethered")
    b.body("base", joint=dx.Free(), inertia=mechanisms.rod(1.0, 2.0))
    b.body("a", parent="base", joint=dx.Revolute((0, 1.0, 0)), placement=mechanisms.at(0.5, 0.1))
    slide = dx.Prismatic((0, 0.6, 0.8))
    b.body("b", parent="a", joint=slide, placement=mechanisms.at(0.4, 0.1, 0.2), inertia=mechanisms.rod(0.3))
    ends = {"predecessor_placement": mechanisms.at(0.1, 0.2, 0.3), "successor_placement": mechanisms.at(0.3)}
    b.loop("tether", predecessor="world", successor="b", joint=dx.Revolute((1.0, 0, 0)), **ends)
    model = b.build()
    return mechanisms.Mechanism(model, np.asarray(dx.neutral(model)), 3)


def embedded(mechanism: mechanisms.Mechanism, rng=None):
    """The model, and a state with forces and wrenches."""
    model, rng = mechanism.model, np.random.default_rng(5) if rng is None else rng
    model = model.replace(damping=model.damping + 0.1, stiffness=model.stiffness + 0.2, armature=model.armature + 0.01)
    q = dx.assemble(model, jnp.asarray(mechanism.q)).q
    assert in_closed_form(model.structure)
    e = dx.embed(model, np.asarray(q))
    v, tau = jnp.asarray(rng.normal(size=(2, e.nv)))
    return e, q, v, tau, jnp.asarray(rng.normal(size=(model.num_bodies, 6)))


def value_and_directions(mechanism: mechanisms.Mechanism):
    rng = np.random.default_rng(5)
    e, q, v, tau, external = embedded(mechanism, rng)
    model, w = e.tree, jnp.asarray(rng.normal(size=e.nv))

    def value(d, v, tau, external, mass):
        return w @ dx.forward_dynamics(e.replace(mass=mass), dx.integrate(model, q, d), v, tau, external)

    point = (jnp.zeros(model.nv), v, tau, external, model.mass)
    # Along the embedded motion: off the loops rows that repeat others are only as good as they fit.
    along = (dx.embedding_matrix(e, q) @ v, *(jnp.asarray(rng.normal(size=np.shape(x))) for x in point[1:]))
    return value, point, along


@pytest.mark.spec("EMBED-ABA")
@pytest.mark.parametrize("made", [mechanisms.slider_crank])
def test_the_way_back_is_the_way_there(made):
    """By `q`, `v`, forces, wrenches and masses."""
    value, point, along = value_and_directions(made())
    gradient = jax.jit(jax.grad(value, argnums=range(5)))(*point)
    power = sum(jnp.sum(bar * d) for bar, d in zip(gradient, along, strict=True))
    tangent = jax.jit(lambda *x: jax.jvp(value, x, along)[1])(*point)
    np.testing.assert_allclose(power, tangent, rtol=1e-10)


LARGER = (
    tethered,
    mechanisms.geared_chain,
    mechanisms.bricard,
    lambda: mechanisms.legged_robot(1),
    lambda: mechanisms.four_bar_chain(2),
)
NAMES = ("tethered", "geared", "bricard", "leg", "chain")


@pytest.mark.slow
@pytest.mark.spec("EMBED-ABA")
@pytest.mark.parametrize("made", LARGER, ids=NAMES)
def test_the_way_back_of_larger_mechanisms(made):
    test_the_way_back_is_the_way_there(made)


@pytest.mark.slow
@pytest.mark.spec("EMBED-ABA")
@pytest.mark.parametrize("made", LARGER, ids=NAMES)
def test_jacobians_are_the_way_there(made):
    """All rows at once, of states in a batch too, against the derivative of inverse dynamics."""
    e, q, v, tau, external = embedded(made())
    found = jax.jit(jax.vmap(lambda v: dx.forward_dynamics_derivatives(e, q, v, tau, external)))(jnp.stack([2 * v, v]))

    def value(z: jax.Array) -> jax.Array:
        d, v, tau = jnp.split(z, 3)
        return dx.forward_dynamics(e, q + dx.configuration_rate(e, q, d), v, tau, external)

    expected = jax.jit(jax.jacfwd(value))(jnp.concatenate([jnp.zeros_like(v), v, tau]))
    for own, column in zip(found, np.split(expected, 3, axis=1), strict=True):
        np.testing.assert_allclose(own[1], column, rtol=0, atol=1e-10 * (1.0 + np.max(np.abs(column))))
    assert np.max(np.abs(found.v[0] - found.v[1])) > 1e-3


@pytest.mark.slow
@pytest.mark.spec("EMBED-ABA")
def test_the_gradient_of_a_rollout_is_its_slope():
    """Accelerations of rk4 are kept, charts are differentiated by a formula: against differences."""
    mechanism = mechanisms.four_bar()
    q = dx.assemble(mechanism.model, jnp.asarray(mechanism.q)).q
    e, rng = dx.embed(mechanism.model, np.asarray(q)), np.random.default_rng(1)
    controls, d = jnp.asarray(rng.normal(size=(2, 5, 1)))

    @jax.jit
    def end(controls, v):
        run = dx.rollout(e, q, v, controls, 0.01, stepper="rk4")
        return jnp.sum(jnp.sin(run.q[-1])) + jnp.sum(run.v[-1])

    bar, _ = jax.jit(jax.grad(end, argnums=(0, 1)))(controls, jnp.ones(1))
    slope = (end(controls + 1e-4 * d, jnp.ones(1)) - end(controls - 1e-4 * d, jnp.ones(1))) / 2e-4
    np.testing.assert_allclose(jnp.sum(bar * d), slope, rtol=1e-6)
