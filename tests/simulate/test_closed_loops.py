"""Rollouts of mechanisms with loops and gears: they stay closed, keep their energy, and have exact derivatives."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulate.systems import advance, apart, at, double_pendulum
from simulate.test_gradients import slope

import dynax as dx
from dynax.simulate import SemiImplicitEuler

PIN = dx.Revolute((0.0, 0.0, 1.0))
GUESS = jnp.array([np.pi / 3, -0.4, 1.4])


def bar(length: float) -> dx.SpatialInertia:
    return dx.SpatialInertia(1.0, (0.5 * length, 0.0, 0.0), np.diag([1e-3, length**2 / 12, length**2 / 12]))


def four_bar() -> dx.Model:
    """In the plane across z, where the weight acts; both ends of the coupler are pins, the second closes the loop."""
    b = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="four-bar")
    b.body("crank", joint=PIN, inertia=bar(0.5))
    b.body("coupler", parent="crank", joint=PIN, placement=at(0.5, 0, 0), inertia=bar(1.2))
    b.body("rocker", joint=PIN, placement=at(1.0, 0, 0), inertia=bar(1.1))
    ends = {"predecessor_placement": at(1.2, 0, 0), "successor_placement": at(1.1, 0, 0)}
    return b.loop("close", predecessor="coupler", successor="rocker", joint=PIN, **ends).build()


MODEL = four_bar()


def sized(crank, coupler, rocker) -> dx.Model:
    """The four-bar with other lengths, which may be traced."""
    lengths = jnp.stack([0.0 * crank, crank, jnp.ones_like(crank)])
    return MODEL.replace(
        placements=dx.Transform(MODEL.placements.rotation, MODEL.placements.translation.at[:, 0].set(lengths)),
        loop_predecessors=dx.Transform(MODEL.loop_predecessors.rotation, jnp.zeros((1, 3)).at[0, 0].set(coupler)),
        loop_successors=dx.Transform(MODEL.loop_successors.rotation, jnp.zeros((1, 3)).at[0, 0].set(rocker)),
    )


def energy(model, q, v) -> float:
    return float(dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q))


@jax.jit
def errors(q, v) -> jax.Array:
    """How far a state is from closed, and from staying so."""
    return jnp.max(jnp.abs(jnp.concatenate([dx.constraint_residual(MODEL, q), dx.constraint_rate(MODEL, q, v)])))


@pytest.fixture(scope="module")
def start():
    """A closed configuration in motion."""
    q = dx.assemble(MODEL, GUESS, hold=["crank_joint"]).q
    return q, dx.admissible_velocity(MODEL, q, jnp.array([3.0, 0.0, 0.0]))


@pytest.fixture(scope="module")
def embedded(start):
    return dx.embed(MODEL, start[0], independent=["crank_joint"])


def slow(*cases):
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


STEPPERS = [
    ("rk4", 4, 5e-3, 1e-4),
    *slow(("semi_implicit", 1, 1e-3, 4.0), ("explicit", 1, 1e-3, 8.0), ("heun", 2, 5e-3, 0.1)),
]


@pytest.mark.parametrize(("stepper", "order", "dt", "lost"), STEPPERS)
def test_ten_seconds_of_a_four_bar(start, stepper, order, dt, lost):
    """Closed to rounding, energy within the method's error, and its order in spite of the projection."""
    state, total = start, [energy(MODEL, *start)]
    for _ in range(20):
        state = advance(MODEL, *state, dt, round(0.5 / dt), stepper)
        assert float(errors(*state)) < 1e-12
        total.append(energy(MODEL, *state))
    assert np.ptp(total) < lost
    runs = [advance(MODEL, *start, 0.2 / n, n, stepper) for n in (20, 40, 160)]
    assert np.log2(apart(MODEL, runs[0], runs[2]) / apart(MODEL, runs[1], runs[2])) == pytest.approx(order, abs=0.3)


def test_without_the_projection_a_loop_drifts(start):
    @partial(jax.jit, static_argnums=0)
    def last(stepper, q, v):
        still = jnp.zeros(3)
        return jax.lax.fori_loop(0, 500, lambda _, s: stepper.step(MODEL, *s, still, 2e-3), (q, v))

    assert float(errors(*last(SemiImplicitEuler(), *start))) > 1e-4


EMBEDDED = [("semi_implicit", 1), *slow(("rk4", 4), ("implicit_midpoint", 2), ("heun", 2), ("variational", 2))]


@pytest.mark.parametrize(("stepper", "order"), EMBEDDED)
def test_embedded_loops(start, embedded, stepper, order):
    """The order of each method on the independent freedom; the motion is that of the constrained tree."""
    q, v = start
    runs = [advance(embedded, q, v[:1], 0.1 / n, n, stepper) for n in (10, 20, 100)]
    first, second = (apart(embedded, run, runs[2]) for run in runs[:2])
    assert np.log2(first / second) == pytest.approx(order, abs=0.3)
    assert float(jnp.max(jnp.abs(dx.constraint_residual(MODEL, runs[0][0])))) < 1e-12
    if stepper == "rk4":
        whole = advance(MODEL, q, v, 0.001, 100, "rk4")
        np.testing.assert_allclose(runs[2][0], whole[0], atol=1e-9)
        np.testing.assert_allclose(runs[2][1], whole[1][:1], atol=1e-9)
        assert energy(embedded, *runs[2]) == pytest.approx(energy(MODEL, *start), abs=1e-9)


GRADIENTS = slow(
    ("constrained", "forward"), ("constrained", "reverse"), ("embedded", "forward"), ("embedded", "reverse")
)


@pytest.mark.parametrize(("kind", "mode"), GRADIENTS)
def test_gradient_of_a_rollout(kind, mode, start, request, rng):
    """By state, controls, step, masses and the lengths of the links. The first step closes what a change has opened."""
    own = MODEL if kind == "constrained" else request.getfixturevalue("embedded")
    used = slice(0, own.nv)
    inputs = {
        "q": start[0], "v": start[1][used], "controls": 0.3 * jnp.sin(jnp.arange(12.0)).reshape(4, 3)[:, used],
        "dt": jnp.asarray(0.02), "mass": MODEL.mass, "lengths": jnp.array([0.5, 1.2, 1.1]),
    }  # fmt: skip

    def loss(x):
        model = sized(*x["lengths"])
        leaves = {name: getattr(model, name) for name in ("placements", "loop_predecessors", "loop_successors")}
        model = own.replace(mass=x["mass"], **leaves)
        run = dx.rollout(model, x["q"], x["v"], x["controls"], x["dt"], checkpoint=False)
        return (run.q**2).sum() + (run.v[-1] ** 3).sum()

    rate = jax.jit(lambda x, direction: jax.jvp(loss, (x,), (direction,)))  # one program for both sides
    gradient = jax.jit(jax.grad(loss))(inputs) if mode == "reverse" else None
    nothing = jax.tree.map(jnp.zeros_like, inputs)
    for name in inputs:
        direction = {**nothing, name: jnp.asarray(rng.normal(size=inputs[name].shape))}
        along = rate(inputs, direction)[1] if gradient is None else jnp.vdot(gradient[name], direction[name])
        expected = slope(lambda x: rate(x, nothing)[0], inputs, direction)
        assert float(along) == pytest.approx(float(expected), rel=1e-7, abs=1e-7), name


def test_a_thousand_four_bars_of_different_lengths(key):
    """One program: assembly, dynamics and a rollout."""

    @jax.jit
    @jax.vmap
    def run(lengths):
        model = sized(*lengths)
        found = dx.assemble(model, GUESS, hold=["crank_joint"], iterations=12)
        v = dx.admissible_velocity(model, found.q, jnp.array([2.0, 0.0, 0.0]))
        q, v = dx.step(model, found.q, v, jnp.zeros(3), 1e-3)
        now = dx.constrained_dynamics(model, q, v, jnp.zeros(3))
        error = jnp.max(jnp.abs(jnp.concatenate([now.residual, now.rate])))
        missed = dx.constraint_jacobian(model, q) @ now.a - dx.constraint_bias(model, q, v)
        return q, found.error, error, now.rank, missed

    lengths = jnp.array([0.5, 1.2, 1.1]) * jax.random.uniform(key, (1000, 3), minval=0.9, maxval=1.1)
    q, assembled, error, rank, missed = run(lengths)
    assert float(jnp.max(assembled)) < 1e-12
    assert float(jnp.max(error)) < 1e-12
    assert (rank == 2).all()
    np.testing.assert_allclose(missed, 0.0, atol=1e-9)
    # The pin by trigonometry, in all of them.
    crank, coupler, rocker = lengths.T
    x = crank * jnp.cos(q[:, 0]) + coupler * jnp.cos(q[:, 0] + q[:, 1])
    y = crank * jnp.sin(q[:, 0]) + coupler * jnp.sin(q[:, 0] + q[:, 1])
    np.testing.assert_allclose(x, 1.0 + rocker * jnp.cos(q[:, 2]), atol=1e-12)
    np.testing.assert_allclose(y, rocker * jnp.sin(q[:, 2]), atol=1e-12)


def test_a_condition_that_moves_is_followed():
    """The first joint of a pendulum goes as it is told, at the times of the rows."""
    builder = dx.to_builder(double_pendulum())
    model = builder.condition("told", lambda model, q: q[0] - 0.3 * jnp.sin(2.0 * model.time)).build().at_time(0.1)
    told = 0.3 * np.sin(0.2), 0.6 * np.cos(0.2)
    run = dx.rollout(model, jnp.array([told[0], 0.4]), jnp.array([told[1], 0.0]), jnp.zeros((30, 2)), 0.02)
    np.testing.assert_allclose(run.q[:, 0], 0.3 * np.sin(2.0 * run.time), atol=1e-12)
    np.testing.assert_allclose(run.v[:, 0], 0.6 * np.cos(2.0 * run.time), atol=1e-12)


@pytest.mark.parametrize("stepper", ["implicit_midpoint", "variational"])
def test_steppers_that_keep_no_loops_say_so(stepper):
    with pytest.raises(ValueError, match=r"does not keep the loops.*'four-bar'.*'rk4'.*dx.embed"):
        dx.step(MODEL, dx.neutral(MODEL), *jnp.zeros((2, 3)), 1e-3, stepper=stepper)


def test_batches_of_embedded_models(start, embedded):
    """An embedded model is shared by the batch, as a model is."""
    q, v = jnp.stack([start[0]] * 5), jnp.arange(5.0)[:, None]
    found = dx.batch(lambda e, q, v: dx.forward_dynamics(e, q, v, jnp.zeros(1)), tile=2)(embedded, q, v)
    one = dx.forward_dynamics(embedded, q[3], v[3], jnp.zeros(1))
    np.testing.assert_allclose(found[3], one, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("settle", [None, 0.05])
def test_adaptive_solves(start, settle):
    pytest.importorskip("diffrax")
    found = dx.solve(MODEL, *start, None, jnp.array([0.0, 0.1, 0.4]), rtol=1e-9, atol=1e-11, settle=settle)
    assert float(errors(found.q[-1], found.v[-1])) < 1e-12
    whole = advance(MODEL, *start, 0.001, 400, "rk4")
    np.testing.assert_allclose(found.q[-1], whole[0], atol=1e-7)
