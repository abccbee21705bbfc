"""Estimates against what is known of them: exact for exact data, as uncertain as they say, and of bodies that exist."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.robots import example_robots

import dynax as dx
from dynax import identify
from dynax.linear.triangle import triangle

TERMS = ("inertias", "damping", "friction_loss")
Y = (0.0, 1.0, 0.0)


class Arm(NamedTuple):
    """A Panda without fingers, a smooth motion of it, and what forces that shows."""

    model: dx.Model
    q: jax.Array
    v: jax.Array
    a: jax.Array
    regressor: jax.Array
    values: jax.Array
    found: identify.Identifiability


@pytest.fixture(scope="module")
def arm() -> Arm:
    model = dx.load(str(example_robots()["panda_description/urdf/panda.urdf"]))
    model = dx.fix_joints(model, dict.fromkeys(model.joint_names[7:], 0.0))
    model = model.replace(damping=jnp.full(7, 0.3), friction_loss=jnp.full(7, 0.5), friction_velocity=jnp.asarray(0.1))
    rng = np.random.default_rng(1)
    time, w = np.linspace(0.0, 10.0, 200)[:, None, None], 2 * np.pi * 0.2 * np.arange(1, 6)[:, None]
    size, phase = rng.normal(size=(2, 5, 7)) * [[[0.4]], [[3.0]]]
    waves = w * time + phase
    q, v, a = ((size * s).sum(1) for s in (np.sin(waves), w * np.cos(waves), -(w**2) * np.sin(waves)))
    y = sampled(model, q, v, a)
    return Arm(model, q, v, a, y, identify.parameter_vector(model, TERMS),
               identify.identifiability_of(y, identify.parameter_names(model, TERMS)))  # fmt: skip


def sampled(model, q, v, a):
    return jax.jit(jax.vmap(lambda *s: identify.regressor(model, *s, terms=TERMS)))(q, v, a)


def base(arm: Arm):
    """Columns of the base, and the values they have."""
    return arm.regressor[..., arm.found.base], arm.found.regrouping @ arm.values


def test_the_triangle_has_the_squares_of_the_matrix(rng):
    for shape in ((700, 9), (4, 9), (5, 1), (0, 3)):
        a = rng.normal(size=shape)
        a[:, -1] = 0.0
        r = np.asarray(triangle(jnp.asarray(a)))
        np.testing.assert_allclose(r.T @ r, a.T @ a, atol=1e-12)
        assert np.all(np.tril(r, -1) == 0.0)
        assert np.all(np.diag(r) >= 0.0)


def test_exact_data_give_exact_parameters(arm):
    """By every estimator; and a log in two parts says what it says as a whole."""
    y, true = base(arm)
    tau = y @ true
    whole = identify.compress(y, tau)
    parts = identify.compress(y[90:], tau[90:], onto=identify.compress(y[:90], tau[:90]))
    np.testing.assert_allclose(parts.triangle, whole.triangle, atol=1e-9)
    assert int(parts.count) == int(whole.count) == tau.size
    taken = identify.compress(arm.regressor, tau).take(arm.found.base)
    estimates = (
        identify.least_squares(taken).values,
        identify.weighted_least_squares(y, tau + 1e-9 * np.sin(np.arange(tau.size)).reshape(tau.shape)).values,
        identify.robust_least_squares(y, tau).values,
        identify.instrumental_variables(y, y, tau).values,
        identify.total_least_squares(whole),
    )
    for found in estimates:
        np.testing.assert_allclose(found, true, atol=1e-6)
    np.testing.assert_allclose(whole.squares(1.1 * true), jnp.sum((0.1 * tau) ** 2), rtol=1e-9)


@pytest.mark.spec("ID-06")
def test_estimates_are_as_far_off_as_they_say(arm, key):
    """Two hundred experiments at once, with noise of the forces and of the angles they are explained by."""
    y, true = base(arm)
    columns = np.array(arm.found.base)

    @jax.jit
    @jax.vmap
    def experiment(key):
        force, angle = jax.random.split(key)
        tau = y[::2] @ true
        tau = tau + 0.1 * jax.random.normal(force, tau.shape)
        q = arm.q[::2] + 1e-4 * jax.random.normal(angle, arm.q[::2].shape)
        seen = sampled(arm.model, q, arm.v[::2], arm.a[::2])[..., columns]
        found = identify.least_squares(identify.compress(seen, tau, noise=0.1), known_noise=True)
        off = found.values - true
        r = identify.compress(seen, tau, noise=0.1).regressor
        return off / found.deviations, jnp.sum((r @ off) ** 2)

    errors, squares = experiment(jax.random.split(key, 200))
    assert np.mean(np.abs(errors) < 3.0) > 0.99
    degrees = len(true)
    # The mean of 200 draws of chi-square.
    assert abs(np.mean(squares) - degrees) < 4.0 * np.sqrt(2.0 * degrees / 200)


def test_noise_of_joints_is_told_apart(arm, rng):
    """Weights by joint, where one is noisy, make the others count; outliers move Huber's estimate ten times less."""
    y, true = base(arm)
    noise = np.array([1.0, 0.01, 0.02, 0.01, 0.02, 0.01, 0.01])
    tau = y @ true + noise * rng.normal(size=y.shape[:-1])
    weighted, plain = identify.weighted_least_squares(y, tau), identify.least_squares(identify.compress(y, tau))
    np.testing.assert_allclose(weighted.noise, noise, rtol=0.3)
    assert np.median(np.asarray(weighted.deviations) / np.asarray(plain.deviations)) < 0.1
    assert np.mean(np.abs(weighted.values - true) < 3.0 * weighted.deviations) > 0.95
    spoilt = np.where(rng.uniform(size=tau.shape) < 0.05, tau + 30.0, tau)
    robust, mean = identify.robust_least_squares(y, spoilt), identify.least_squares(identify.compress(y, spoilt))
    assert np.linalg.norm(robust.values - true) < 0.1 * np.linalg.norm(mean.values - true)


def test_instruments_take_the_bias_of_noisy_regressors():
    """A drive's damping from a noisy velocity: least squares sees too little of it, by exactly the noise's share."""
    rng = np.random.default_rng(0)
    v = np.sin(np.linspace(0.0, 200.0, 20000))[:, None]
    seen = v + 0.5 * rng.normal(size=v.shape)
    tau = 2.0 * v[:, 0] + 0.01 * rng.normal(size=len(v))
    plain = identify.least_squares(identify.compress(seen, tau)).values[0]
    np.testing.assert_allclose(plain, 2.0 * 0.5 / (0.5 + 0.25), rtol=0.02)
    found = identify.instrumental_variables(v, seen, tau)
    assert abs(found.values[0] - 2.0) < 3.0 * found.deviations[0] < 0.1
    # Both have their share of the noise for total least squares.
    both = identify.compress(seen / 0.5, (2.0 * v[:, 0] + 0.5 * rng.normal(size=len(v))) / 0.5)
    np.testing.assert_allclose(identify.total_least_squares(both), 2.0, rtol=0.03)


def test_draws_of_a_log_spread_as_fisher_says(key):
    rng = np.random.default_rng(2)
    y = rng.normal(size=(150, 2, 3))
    tau = y @ np.array([1.0, -2.0, 0.5]) + 0.2 * rng.normal(size=(150, 2))

    def estimator(y, tau):
        return identify.least_squares(identify.compress(y, tau))

    draws = identify.bootstrap(lambda *log: estimator(*log).values, y, tau, key, draws=300)
    np.testing.assert_allclose(np.std(draws, axis=0), estimator(y, tau).deviations, rtol=0.25)
    blocks = identify.bootstrap(lambda *log: estimator(*log).values, y, tau, key, draws=20, block=8)
    assert blocks.shape == (20, 3)
    draws = identify.bootstrap_compressed(lambda data: identify.least_squares(data).values, y, tau, key, draws=300,
                                          pieces=75)  # fmt: skip
    np.testing.assert_allclose(np.std(draws, axis=0), estimator(y, tau).deviations, rtol=0.25)


def test_a_draw_has_the_squares_of_its_pieces(key, rng):
    """Pieces of two lengths, a column that nothing shows, one that is another's double, and one far smaller."""
    y, tau, noise = rng.normal(size=(103, 2, 5)), rng.normal(size=(103, 2)), np.array([0.5, 2.0])
    y[..., 1], y[..., 3], y[..., 4] = 0.0, 2.0 * y[..., 0], 1e-5 * y[..., 4]
    found = identify.bootstrap_compressed(tuple, y, tau, key, noise=noise, draws=130, pieces=10)
    rows = np.concatenate([y, tau[..., None]], axis=-1) / noise[:, None]
    pieces = np.split(rows, np.cumsum([11, 11, 11, *[10] * 6]))
    chosen = np.asarray(jax.random.randint(key, (130, 10), 0, 10))
    for k in (0, 99, 100, 129):
        drawn = np.concatenate([pieces[i] for i in chosen[k]]).reshape(-1, 6)
        assert found[1][k] == len(drawn)
        r, sizes = np.asarray(found[0][k]), np.array([1.0, 1.0, 1.0, 1.0, 1e-5, 1.0])
        unit = drawn / sizes
        np.testing.assert_allclose(r.T @ r / np.outer(sizes, sizes), unit.T @ unit, atol=1e-9)
        assert np.all(np.tril(r, -1) == 0.0)


@pytest.mark.slow
def test_a_thousand_consistent_fits_of_an_arm(arm, poor, key, optimised):
    """Each of bodies that exist, near the least of its own log; eight seconds on one core."""
    stribeck = 0.8 * np.tanh(arm.v / 0.2) * np.exp(-((arm.v / 0.3) ** 2))
    noise = 0.5 * np.random.default_rng(0).normal(size=arm.v.shape)
    tau = arm.regressor @ arm.values + stribeck + noise

    def estimator(data):
        return identify.consistent_fit(arm.model, data, terms=TERMS), data.triangle[-1, -1] ** 2

    fits, least = jax.jit(partial(identify.bootstrap_compressed, estimator))(arm.regressor, tau, key)
    assert fits.values.shape == (1000, len(arm.values))
    assert np.all(fits.converged)
    bodies = np.asarray(identify.pseudo_inertia(fits.values[:, :70].reshape(1000, 7, 10)))
    assert np.linalg.eigvalsh(bodies).min() > 0.0
    assert np.all(fits.squares < 1.04 * least)
    spread = np.std(fits.values @ arm.found.regrouping.T, axis=0)
    assert 0.5 < np.median(spread / identify.least_squares(poor[0].take(arm.found.base)).deviations) < 1.2


@pytest.mark.spec("ID-05")
def test_log_cholesky_covers_all_bodies_once(rng):
    x = 0.7 * rng.normal(size=(10000, 10))
    bodies = identify.from_log_cholesky(x)
    assert np.linalg.eigvalsh(identify.pseudo_inertia(bodies)).min() > 0.0
    np.testing.assert_allclose(identify.to_log_cholesky(bodies), x, atol=1e-9)
    np.testing.assert_allclose(identify.from_pseudo_inertia(identify.pseudo_inertia(bodies)), bodies, rtol=1e-12)
    slope = jax.vmap(jax.jacfwd(identify.from_log_cholesky))(jnp.asarray(x[:100]))
    assert np.all(np.isfinite(slope))
    assert np.linalg.svd(slope, compute_uv=False).min() > 0.0
    nobody = jnp.array([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.1, 0.0, 0.0, 0.0])
    assert np.any(np.isnan(identify.to_log_cholesky(nobody)))


@pytest.mark.spec("ID-05")
def test_bodies_of_real_robots_go_there_and_back():
    """Links of files that bodies can have; link 2 of the Panda lies on the boundary, to the digits of its file."""
    found, wrong = {}, set()
    for name in ("panda_description/urdf/panda.urdf", "ur_description/urdf/ur5_robot.urdf",
                 "kinova_description/robots/kinova.urdf", "solo_description/robots/solo12.urdf",
                 "talos_data/robots/talos_reduced.urdf"):  # fmt: skip
        model = dx.load(str(example_robots()[name]))
        pi = np.asarray(dx.inertial_parameters(model))
        j = np.asarray(identify.pseudo_inertia(pi))
        scaled = np.linalg.eigvalsh(j).min(axis=1) / np.linalg.eigvalsh(j[:, :3, :3]).max(axis=1)
        wrong |= {body for body, least in zip(model.body_names, scaled, strict=True) if least <= 0.0}
        fine = scaled > 1e-9
        back = identify.from_log_cholesky(identify.to_log_cholesky(pi[fine]))
        np.testing.assert_allclose(back, pi[fine], rtol=1e-9, atol=1e-12)
        found |= dict(zip(model.body_names, scaled, strict=True))
    assert len(found) > 60
    assert abs(found["panda_link2"]) < 1e-4
    assert wrong == set(), wrong


@pytest.mark.slow
@pytest.mark.spec("ID-05")
def test_bodies_of_all_example_robots():
    """Of every file of the wheel: which bodies nothing can have, and that all others go there and back."""
    impossible, count = {}, 0
    for name, path in example_robots().items():
        try:
            model = dx.load(path)
        except dx.ModelError:
            assert name.endswith(("alex_psyonic_hands.urdf", "ur3.urdf"))  # no joint of that name; no link
            continue
        own = model.mass > 0.0
        pi, names = np.asarray(dx.inertial_parameters(model))[own], np.array(model.body_names)[own]
        j = np.asarray(identify.pseudo_inertia(pi))
        size = np.maximum(np.linalg.eigvalsh(j[:, :3, :3]).max(axis=1), 1e-12)  # points have none
        least = np.linalg.eigvalsh(j).min(axis=1) / size
        fine = pi[least > 1e-9]
        back = identify.from_log_cholesky(identify.to_log_cholesky(fine))
        np.testing.assert_array_less(np.abs(back - fine).max(axis=1), 1e-9 * np.abs(fine).max(axis=1))
        count += len(pi)
        if np.any(least < -1e-9):
            impossible[name.rpartition("/")[2]] = set(names[least < -1e-9])
        assert set(names[least < -1e-9]) == set(dx.inconsistent_bodies(model)) & set(names)
    assert count > 1000
    print("IMPOSSIBLE", count, impossible)


@pytest.fixture(scope="module")
def poor(arm) -> tuple[identify.Compressed, identify.ConsistentFit]:
    """A log with forces that no model has, and the best bodies for it."""
    rng = np.random.default_rng(0)
    stribeck = 0.8 * np.tanh(arm.v / 0.2) * np.exp(-((arm.v / 0.3) ** 2))
    tau = arm.regressor @ arm.values + stribeck + 0.5 * rng.normal(size=arm.v.shape)
    data = identify.compress(arm.regressor, tau)
    return data, identify.consistent_fit(arm.model, data, terms=TERMS)


def test_the_best_bodies_that_exist(arm, poor):
    """Least squares finds none; what the barrier finds is near the optimum, by its own multipliers.

    With `g` the gradient of half the sum of squares and `Z` the matrices of it, `f(x) - f(best) <= <g, x> - <g, best>`,
    and the second is no less than zero for all bodies if `Z` is positive.
    """
    data, fit = poor
    free = identify.least_squares(data.take(arm.found.base))
    loose = np.zeros(len(arm.values))
    loose[list(arm.found.base)] = free.values
    assert np.all(np.linalg.eigvalsh(identify.pseudo_inertia(loose[:70].reshape(7, 10))).min(axis=1) <= 0.0)

    assert bool(fit.converged)
    assert int(fit.steps) < 30
    values = np.asarray(fit.values)
    assert np.all(np.linalg.eigvalsh(identify.pseudo_inertia(values[:70].reshape(7, 10))).min(axis=1) > 0.0)
    assert np.all(values[70:] > 0.0)
    np.testing.assert_allclose(data.squares(values), fit.squares, rtol=1e-9)
    least = float(data.triangle[-1, -1] ** 2)
    assert least < fit.squares < 1.04 * least

    slope = np.asarray(jax.grad(lambda x: 0.5 * data.squares(x))(fit.values))
    # <Z, J> = g . pi for all bodies: Z from its products with the pseudo-inertias of unit parameters.
    units = np.asarray(identify.pseudo_inertia(np.eye(10)))
    upper = np.triu_indices(4)
    doubled = np.where(upper[0] == upper[1], 1.0, 2.0)
    maps = units[:, upper[0], upper[1]] * doubled
    Z = np.zeros((7, 4, 4))
    Z[:, upper[0], upper[1]] = np.linalg.solve(maps, slope[:70].reshape(7, 10).T).T
    Z += np.triu(Z, 1).swapaxes(1, 2)
    J = np.asarray(identify.pseudo_inertia(values[:70].reshape(7, 10)))
    # How much the multipliers miss positivity counts for bodies fifty times those of the fit.
    lower = np.linalg.cholesky(J)
    missed = -np.minimum(np.linalg.eigvalsh(np.swapaxes(lower, 1, 2) @ Z @ lower).min(axis=1), 0.0)
    negative = -np.minimum(slope[70:] * values[70:], 0.0)
    gap = 2.0 * (slope @ values + 50.0 * (4 * missed.sum() + negative.sum()))
    assert 0.0 <= gap < 0.04 * fit.squares


def test_a_prior_keeps_what_data_leave_open(arm, poor):
    """Of the first link no force shows the mass; what other masses may take from each other, the prior decides."""
    data, loose = poor
    prior = jax.jit(lambda weight: identify.consistent_fit(arm.model, data, terms=TERMS, prior=weight))
    fits = [prior(weight) for weight in (0.01, 1.0, 1e4)]
    squares = [float(loose.squares), *(float(fit.squares) for fit in fits)]
    assert all(bool(fit.converged) for fit in fits)
    assert squares == sorted(squares)
    true = np.asarray(arm.values)
    masses = [np.asarray(fit.values)[:70:10] / true[:70:10] for fit in (loose, *fits)]
    spread = [np.abs(np.log(m)).max() for m in masses]
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] < 0.01
    np.testing.assert_allclose([m[0] for m in masses], 1.0, rtol=0.02)


def test_consistent_fits_of_a_batch_and_their_derivatives(arm, poor):
    data, _ = poor

    def mass(scale):
        scaled = data.triangle.at[:, -1].multiply(scale)
        fit = identify.consistent_fit(arm.model, identify.Compressed(scaled, data.count), terms=TERMS, prior=0.5)
        return fit.values[10], fit.converged

    scales = jnp.array([0.9, 1.0 - 1e-4, 1.0 + 1e-4])
    (found, converged), slope = jax.jit(jax.vmap(mass))(scales), jax.jit(jax.grad(mass, has_aux=True))(1.0)[0]
    assert np.all(converged)
    np.testing.assert_allclose(slope, (found[2] - found[1]) / 2e-4, rtol=1e-4)


def test_derivatives_are_finite_where_nothing_is_seen():
    """A column of zeros, of a drive that the model has none of."""
    model = dx.ModelBuilder().body("rod", joint=dx.Revolute(Y), inertia=dx.SpatialInertia.box((1, 1, 1), mass=1.0))
    model = model.build()
    rng = np.random.default_rng(0)
    triangle = jnp.triu(jnp.asarray(rng.normal(size=(12, 12)))).at[:, 10].set(0.0)

    def fit(triangle):
        data = identify.Compressed(triangle, jnp.asarray(40))
        return jnp.sum(identify.consistent_fit(model, data, terms=("inertias", "damping")).values[:3])

    assert np.all(np.isfinite(jax.grad(fit)(triangle)))


def test_exact_data_of_a_body_give_it_back():
    """A free body shows everything, and the cone is far away: the fit is the body."""
    body = dx.SpatialInertia.box((0.1, 0.2, 0.3), mass=2.0, com=(0.05, 0.0, -0.1))
    model = dx.ModelBuilder().body("box", joint=dx.Free(), inertia=body).build()
    y = identify.random_regressor(model, 20)
    other = dx.with_parameters(model, {"inertias": jnp.full((1, 10), 0.3)})
    fit = identify.consistent_fit(other, identify.compress(y, y @ body.parameters))
    np.testing.assert_allclose(fit.values, body.parameters, atol=1e-6)


def test_what_is_wrong_is_said(arm):
    data = identify.compress(jnp.ones((30, 70)), jnp.ones(30))
    with pytest.raises(ValueError, match="`data` has 70 columns, and the terms inertias, damping have 77"):
        identify.consistent_fit(arm.model, data, terms=("inertias", "damping"))
    with pytest.raises(ValueError, match="body 'panda_link3' has mass 0"):
        identify.consistent_fit(arm.model.replace(mass=arm.model.mass.at[2].set(0.0)), data)
    with pytest.raises(ValueError, match=r"`forces` has shape \(29,\), expected \(30,\)"):
        identify.compress(jnp.ones((30, 70)), jnp.ones(29))
    with pytest.raises(ValueError, match="`pieces` is 40, expected 2 to 30"):
        identify.bootstrap_compressed(tuple, jnp.ones((30, 1, 7)), jnp.ones((30, 1)), jax.random.key(0), pieces=40)
    with pytest.raises(ValueError, match=r"`regressor` \(T, m, p\) and `forces` \(T, m\)"):
        identify.bootstrap_compressed(tuple, jnp.ones((30, 7)), jnp.ones(30), jax.random.key(0))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_types_are_kept_without_promotion(dtype):
    """From the log to the fit, nothing is mixed with another precision."""
    body = dx.SpatialInertia.box((0.1, 0.2, 0.3), mass=2.0)
    builder = dx.ModelBuilder().body("arm", joint=dx.Revolute((0.0, 1.0, 0.0)), inertia=body, damping=0.1)
    model = builder.body("hand", parent="arm", joint=dx.Prismatic((1.0, 0.0, 0.0)), inertia=body).build()
    model = jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else x, model)
    q, v, a, tau = jnp.ones((4, 40, 2), dtype)

    def everything(model, q, v, a, tau):
        y = jax.vmap(lambda *s: identify.regressor(model, *s, terms=TERMS))(q, v, a)
        state = q[0], v[0]
        data = identify.compress(y, tau, noise=0.1)
        return (
            y, data.triangle, identify.least_squares(data), identify.weighted_least_squares(y, tau),
            identify.robust_least_squares(y, tau), identify.total_least_squares(data),
            identify.instrumental_variables(y, y, tau), identify.consistent_fit(model, data, terms=TERMS),
            identify.energy_regressor(model, *state), identify.power_regressor(model, *state, a[0]),
            identify.momentum_regressor(model, *state), identify.momentum_rate_regressor(model, *state),
            identify.to_log_cholesky(dx.inertial_parameters(model)), identify.from_log_cholesky(jnp.zeros(10, dtype)),
            identify.with_parameter_vector(model, identify.parameter_vector(model, TERMS), TERMS).mass,
        )  # fmt: skip

    with jax.numpy_dtype_promotion("strict"):
        found = jax.eval_shape(everything, model, q, v, a, tau)
    assert {x.dtype for x in jax.tree.leaves(found) if jnp.issubdtype(x.dtype, jnp.inexact)} == {jnp.dtype(dtype)}
