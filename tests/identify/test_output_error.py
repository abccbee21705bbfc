"""Fits of simulated motions: what noise does to them, where they end, and what they say of themselves."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.robots import example_robots
from scipy.optimize import least_squares

import dynax as dx
from dynax import actuate, identify
from dynax.identify.sensitivity import _carried, _in_one_kernel
from dynax.identify.step_slopes import euler, slopes_of, step_slopes
from dynax.linear.matrices import product
from dynax.simulate.motion import simulated

DT = 0.01
TERMS = ("inertias", "damping")
HINGE = dx.Revolute((0.0, 1.0, 0.0))


def two_links() -> dx.Model:
    rod = dx.SpatialInertia.box((0.5, 0.05, 0.05), mass=1.0, com=(0.25, 0.0, 0.0))
    builder = dx.ModelBuilder().body("upper", joint=HINGE, inertia=rod, damping=0.3)
    end = dx.Transform.from_translation((0.5, 0.0, 0.0))
    return builder.body("lower", parent="upper", joint=HINGE, placement=end, inertia=rod, damping=0.2).build()


ARM = two_links()
FOUND = identify.identifiability(ARM, terms=TERMS)
TRUE = identify.parameter_vector(ARM, TERMS)


def of_base(beta):
    """The arm with the base parameters `beta`, the others as they are."""
    own = jnp.asarray(FOUND.base)
    return identify.with_parameter_vector(ARM, TRUE.at[own].add(beta - FOUND.regrouping @ TRUE), TERMS)


def of_logs(x):
    return ARM.replace(mass=ARM.mass * jnp.exp(x["mass"]), damping=ARM.damping * jnp.exp(x["damping"]))


def driven(steps: int, dt: float) -> tuple[jax.Array, dx.Trajectory]:
    time = dt * np.arange(steps)[:, None]
    torques = jnp.asarray(4.0 * np.sin(2.1 * time + [0.0, 1.0]) + 2.0 * np.sin([5.0, 7.3] * time))
    return torques, dx.rollout(ARM, jnp.array([1.2, 0.4]), jnp.zeros(2), torques, dt, stepper="explicit")


@pytest.mark.spec("ID-12")
def test_noisy_velocities_bias_least_squares_and_not_output_error(key):
    """Velocities with ten times the noise of a good one; least squares is given the true angles and accelerations."""
    torques, run = driven(199, DT)
    a = (run.v[1:] - run.v[:-1]) / DT
    true = FOUND.regrouping @ TRUE

    @jax.jit
    @jax.vmap
    def experiment(key):
        angle, rate = jax.random.split(key)
        q = run.q + 1e-3 * jax.random.normal(angle, run.q.shape)
        v = run.v + 0.1 * jax.random.normal(rate, run.v.shape)
        y = jax.vmap(partial(identify.regressor, ARM, terms=TERMS))(run.q[:-1], v[:-1], a)[..., FOUND.base]
        plain = identify.least_squares(identify.compress(y, torques)).values
        data, noise = identify.segments(q, v, torques, 99), jnp.array([1e-3, 1e-3, 0.1, 0.1])
        fit = identify.output_error(of_base, true + 0.05, data, DT, noise=noise, scale=0.1, stepper="explicit")
        return plain - true, fit.params - true, fit

    plain, found, fit = experiment(jax.random.split(key, 10))
    assert np.all(fit.status == identify.Status.CONVERGED)
    assert np.linalg.norm(np.mean(found, axis=0)) < np.linalg.norm(np.mean(plain, axis=0)) / 3.0
    # As far off as the covariance says, and the noise is what it was.
    squares = jnp.einsum("ki,kij,kj->k", found, jnp.linalg.inv(fit.covariance), found)
    assert abs(np.mean(squares) - len(true)) < 4.0 * np.sqrt(2.0 * len(true) / 10)
    np.testing.assert_allclose(fit.noise, 1.0, rtol=0.1)


def test_drives_take_part_in_what_is_missed():
    """A wheel behind a lag, which a model alone does not have; its Jacobian is that of differences."""
    wheel = dx.SpatialInertia(1.0, (0.0, 0.0, 0.0), (0.2, 0.2, 0.2))
    model = dx.ModelBuilder().body("wheel", joint=dx.Revolute((0.0, 0.0, 1.0)), inertia=wheel).build()

    def build(lag):
        law = actuate.Filtered(actuate.Direct(), lag)
        return model, actuate.on_joints(model, ["wheel_joint"], law)

    pushes, nothing, of = jnp.ones((20, 1)), jnp.zeros(1), {"stepper": "explicit"}
    run = dx.rollout(model, nothing, nothing, pushes, DT, actuators=build(0.05)[1], **of)
    data = identify.segments(run.q, run.v, pushes, 20)
    found = identify.output_residual, identify.output_jacobian
    both = jax.jit(lambda x: [f(build, x, data, DT, **of) for f in found])
    (missed, slope), (above, _), (below, _) = both(0.05), both(0.05 + 1e-6), both(0.05 - 1e-6)
    assert np.max(np.abs(missed)) < 1e-12
    np.testing.assert_allclose(slope[..., 0], (above - below) / 2e-6, atol=1e-7)
    assert np.max(np.abs(slope)) > 0.1


def test_short_numbers_end_where_rounding_hides_the_optimum(rng):
    """In float32, whose last bits walk along a motion; not where they are more than the noise, nor on the way."""
    short = jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, ARM)
    torques, run = driven(99, DT)
    parts = [rng.normal(size=x.shape) for x in (run.q, run.v)]

    def build(logs):
        return short.replace(damping=short.damping * jnp.exp(logs))

    def fitted(noise, iterations=30):
        states = run.q, run.v, run.q + noise * parts[0], run.v + 10.0 * noise * parts[1]
        q, v, *measured = (jnp.asarray(x, jnp.float32) for x in states)
        data = identify.segments(q, v, torques.astype(jnp.float32), 99, measured=tuple(measured))
        # A deviation for each row and entry.
        each = jnp.broadcast_to(jnp.asarray(noise * np.repeat([1.0, 10.0], 2), jnp.float32), (100, 4))
        start, of = jnp.array([0.5, -0.5], jnp.float32), {"free": False, "stepper": "explicit"}
        return identify.output_error(build, start, data, DT, noise=each, iterations=iterations, **of)

    for noise in (1e-2, 1e-3, 2e-4):
        fit = fitted(noise)
        assert fit.params.dtype == jnp.float32
        assert fit.status == identify.Status.CONVERGED, noise
        assert np.all(np.abs(fit.params) < 4.0 * fit.deviations)
        np.testing.assert_allclose(fit.noise, 1.0, rtol=0.15)
    assert fitted(1e-3, iterations=2).status == identify.Status.ITERATIONS
    assert fitted(1e-7).status != identify.Status.CONVERGED


@pytest.mark.slow
def test_friction_of_drives_is_found(rng):
    """Three wheels whose drives have Stribeck's, an asymmetric and LuGre's friction, pushed to and fro about what holds
    them; all of their numbers from angles and speeds with noise."""
    wheel = dx.SpatialInertia(1.0, (0.0, 0.0, 0.0), (0.2, 0.2, 0.2))
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    for name in "abc":
        builder.body(name, joint=dx.Revolute((0.0, 0.0, 1.0)), inertia=wheel)
    model, dt, steps = builder.build(), 0.01, 500
    true = {
        "curve": jnp.array([[1.0, 1.6, 0.3, 0.4], [1.0, 1.5, 0.2, 0.5]]),
        "gear": jnp.array([[1.0, 0.3], [1.4, 0.5]]),
        "bristles": jnp.array(40.0),
    }

    def build(logs):
        x = jax.tree.map(lambda x, d: x * jnp.exp(d), true, logs)
        names = ("coulomb", "static", "stribeck_velocity", "viscous")
        one, other = (dict(zip(names, row, strict=True)) for row in x["curve"])
        laws = {
            "a_joint": actuate.StribeckFriction(actuate.Direct(), **one, softness=0.05),
            "b_joint": actuate.AsymmetricFriction(actuate.Direct(), *x["gear"], softness=0.05),
            "c_joint": actuate.LuGreFriction(actuate.Direct(), x["bristles"], **other, damping=1.0),
        }
        return model, actuate.together(*(actuate.on_joints(model, [name], law) for name, law in laws.items()))

    nothing, time = jax.tree.map(jnp.zeros_like, true), dt * np.arange(steps)[:, None]
    pushes = 1.7 * np.sin([1.9, 2.0, 1.8] * time) + 0.8 * np.sin([5.3, 4.9, 5.7] * time)
    drives = build(nothing)[1]
    run = dx.rollout(model, jnp.zeros(3), jnp.zeros(3), pushes, dt, actuators=drives)
    noise = np.repeat([1e-4, 1e-3], 3)
    q, v = (x + size * rng.normal(size=x.shape) for x, size in ((run.q, 1e-4), (run.v, 1e-3)))
    data = identify.segments(run.q, run.v, pushes, steps, measured=(q, v))
    start = jax.tree.map(lambda x: 0.3 * jnp.asarray(rng.choice([-1.0, 1.0], x.shape)), true)
    fit = identify.output_error(build, start, data, dt, noise=noise, free=False)
    assert fit.status == identify.Status.CONVERGED
    np.testing.assert_allclose(fit.noise, 1.0, rtol=0.1)
    logs = np.concatenate([np.ravel(x) for x in jax.tree.leaves(fit.params)])
    assert np.all(np.abs(logs) < 4.0 * fit.deviations)
    assert np.max(fit.deviations) < 0.02


@pytest.mark.slow
@pytest.mark.spec("ID-12")
def test_noisy_velocities_of_a_panda(optimised):
    """Ten seconds of a motion within its limits; fifty combinations, found from a robot of other bodies."""
    terms, dt, steps = ("inertias", "damping"), 0.005, 1999
    model = dx.load(str(example_robots()["panda_description/urdf/panda.urdf"]))
    model = dx.fix_joints(model, dict.fromkeys(model.joint_names[7:], 0.0)).replace(damping=jnp.full(7, 0.5))
    found, values = identify.identifiability(model, terms=terms), identify.parameter_vector(model, terms)
    own, true, rng = jnp.asarray(found.base), found.regrouping @ values, np.random.default_rng(1)

    def build(beta):
        return identify.with_parameter_vector(model, values.at[own].add(beta - true), terms)

    speed, time = 2 * np.pi * 0.2 * np.arange(1, 6)[:, None], dt * np.arange(steps + 1)
    size, phase = rng.normal(size=(2, 5, 7)) * [[[1.0]], [[3.0]]]
    waves = speed * time[:, None, None] + phase
    aim, rate = (size * np.sin(waves)).sum(1), (size * speed * np.cos(waves)).sum(1)
    part = 0.8 * np.asarray(model.velocity_limits) / np.abs(rate).max(axis=0)
    aim, rate = jnp.asarray(part * aim), jnp.asarray(part * rate)

    def servo(t, q, v):
        k = jnp.rint(t / dt).astype(int)
        pull = 400.0 * (aim[k] - q) + 40.0 * (rate[k] - v)
        return dx.mass_matrix(model, q) @ pull + dx.bias_force(model, q, v)

    run = dx.rollout(model, aim[0], rate[0], servo, dt, steps=steps, stepper="explicit")
    assert np.all(np.abs(run.v) < model.velocity_limits)
    torques, a = jax.vmap(servo)(run.time[:-1], run.q[:-1], run.v[:-1]), (run.v[1:] - run.v[:-1]) / dt
    bodies = {"inertias": 0.03 * jnp.asarray(rng.normal(size=(7, 10))), "damping": jnp.full(7, 0.2)}
    start = found.regrouping @ identify.parameter_vector(dx.with_parameters(model, bodies), terms)

    def experiment(key):
        angle, rate = jax.random.split(key)
        q = run.q + 1e-3 * jax.random.normal(angle, run.q.shape)
        v = run.v + 0.1 * jax.random.normal(rate, run.v.shape)
        y = jax.vmap(partial(identify.regressor, model, terms=terms))(run.q[:-1], v[:-1], a)[..., own]
        plain = identify.least_squares(identify.compress(y, torques)).values
        data, noise = identify.segments(q, v, torques, 49), jnp.repeat(jnp.array([1e-3, 0.1]), 7)
        fit = identify.output_error(build, start, data, dt, noise=noise, scale=0.1, stepper="explicit")
        return plain - true, fit.params - true, fit

    plain, missed, fit = jax.jit(partial(jax.lax.map, experiment))(jax.random.split(jax.random.key(0), 6))
    assert np.all(fit.status == identify.Status.CONVERGED)
    assert np.linalg.norm(np.mean(missed, axis=0)) < np.linalg.norm(np.mean(plain, axis=0)) / 3.0
    squares = jnp.einsum("ki,kij,kj->k", missed, jnp.linalg.inv(fit.covariance), missed)
    assert abs(np.mean(squares) - len(true)) < 4.0 * np.sqrt(2.0 * len(true) / 6)
    np.testing.assert_allclose(fit.noise, 1.0, rtol=0.05)


def test_forces_alone_show_a_robot_under_its_controller(key):
    """No angle is measured: the controller and what it was to follow are known."""
    true, time = FOUND.regrouping @ TRUE, DT * np.arange(400)
    aim = jnp.asarray(np.stack([np.sin(2.0 * time) + 0.5 * np.sin(5.0 * time), np.cos(3.0 * time)], axis=1))
    rate = jnp.asarray(np.gradient(aim, DT, axis=0))

    def moved(beta):
        def servo(t, q, v):
            k = jnp.rint(t / DT).astype(int)
            return 60.0 * (aim[k] - q) + 2.0 * (rate[k] - v)

        run = dx.rollout(of_base(beta), aim[0], jnp.zeros(2), servo, DT, steps=399, stepper="explicit")
        q, v, a = run.q[:-1], run.v[:-1], (run.v[1:] - run.v[:-1]) / DT
        return jax.vmap(partial(identify.regressor, ARM, terms=TERMS))(q, v, a)[..., FOUND.base]

    @jax.jit
    def fit(key):
        tau = moved(true) @ true
        tau = tau + 0.3 * jax.random.normal(key, tau.shape)
        return identify.simulated_least_squares(moved, tau, 0.85 * true, rounds=15)

    found = fit(key)
    assert found.moved < 0.1
    assert np.all(np.abs(found.estimate.values - true) < 4.0 * found.estimate.deviations)
    assert np.all(found.estimate.deviations < 0.1 * np.abs(true).max())
    np.testing.assert_allclose(found.estimate.noise, 0.3, rtol=0.15)


@pytest.mark.spec("ID-13")
def test_the_jacobian_and_the_optimum_are_those_of_others(rng):
    """Of a motion of 500 steps: central differences, and the fit of SciPy."""
    dt = 0.002
    torques, run = driven(500, dt)
    q, v = (x + 0.01 * rng.normal(size=x.shape) for x in (run.q, run.v))
    data = identify.segments(q, v, torques, 500)
    names = ("mass", "damping")

    @jax.jit
    def residual(x):
        params = dict(zip(names, (x[:2], x[2:4]), strict=True))
        begun = data._replace(q=data.q + x[4:6], v=data.v + x[6:8])
        return identify.output_residual(of_logs, params, begun, dt, stepper="explicit").ravel()

    slope = jax.jit(jax.jacfwd(residual))
    x0 = jnp.array([0.1, -0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 0.0])
    h = 1e-5
    differences = [(residual(x0 + h * e) - residual(x0 - h * e)) / (2 * h) for e in np.eye(8)]
    J = np.asarray(slope(x0))
    np.testing.assert_allclose(J, np.stack(differences, axis=1), atol=1e-6 * np.abs(J).max())
    # Step by step side by side it is the same; in the order of names damping comes first.
    begun = data._replace(q=data.q + x0[4:6], v=data.v + x0[6:8])
    own = identify.output_jacobian(of_logs, dict(zip(names, (x0[:2], x0[2:4]), strict=True)), begun, dt,
                                   stepper="explicit").reshape(-1, 4)  # fmt: skip
    np.testing.assert_allclose(own, J[:, [2, 3, 0, 1]], atol=1e-11 * np.abs(J).max())

    # And by all parameters at once, ten of each body and the dampings.
    whole = partial(identify.with_parameter_vector, ARM, terms=TERMS)
    all_residuals = jax.jit(jax.vmap(lambda x: identify.output_residual(whole, x, data, dt, stepper="explicit")))
    steps = 1e-6 * np.eye(len(TRUE))
    differences = (all_residuals(TRUE + steps) - all_residuals(TRUE - steps)) / 2e-6
    own = identify.output_jacobian(whole, TRUE, data, dt, stepper="explicit")
    np.testing.assert_allclose(own, np.moveaxis(differences, 0, -1), atol=1e-6 * np.abs(own).max())

    fit = identify.output_error(of_logs, {"mass": x0[:2], "damping": x0[2:4]}, data, dt, stepper="explicit")
    tight = dict.fromkeys(("xtol", "ftol", "gtol"), 1e-12)
    other = least_squares(lambda x: np.asarray(residual(x)), x0, jac=slope, **tight)  # pyright: ignore[reportArgumentType]
    found = jnp.concatenate([*(fit.params[name] for name in names), (fit.q - data.q)[0], (fit.v - data.v)[0]])
    assert fit.status == identify.Status.CONVERGED
    np.testing.assert_allclose(found, other.x, atol=1e-6)
    # Order of `ravel_pytree`: by name.
    own = np.linalg.inv(other.jac.T @ other.jac)[:4, :4][[2, 3, 0, 1]][:, [2, 3, 0, 1]]
    np.testing.assert_allclose(fit.covariance, own * 2 * other.cost / (4 * 501 - 8), rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(fit.deviations, np.sqrt(np.diag(fit.covariance)))

    far = {"mass": x0[:2] + 0.3, "damping": x0[2:4]}
    fit = identify.output_error(of_logs, far, data, dt, stepper="explicit", iterations=1)
    assert fit.status == identify.Status.ITERATIONS
    lost = data._replace(measured=(data.measured[0].at[0, 3].set(jnp.nan), data.measured[1]))
    fit = identify.output_error(of_logs, far, lost, dt, stepper="explicit")
    assert fit.status == identify.Status.NOT_FINITE
    np.testing.assert_array_equal(fit.params["mass"], far["mass"])


@pytest.mark.parametrize("stepper", ["semi_implicit", "explicit"])
def test_the_closed_form_of_a_step_is_its_derivative(stepper, rng):
    """A ball joint that carries a hinge, with all that a drive has, moving, at rest and held by dry friction."""
    body, dt = dx.SpatialInertia.box((0.3, 0.1, 0.2), mass=1.3, com=(0.1, 0.02, -0.05)), jnp.asarray(0.01)
    builder = dx.ModelBuilder().body("ball", joint=dx.Spherical(), inertia=body, damping=0.2, friction_loss=0.3)
    end = dx.Transform.from_translation((0.3, 0.0, 0.1))
    builder = builder.body("link", parent="ball", joint=HINGE, placement=end, inertia=body, damping=0.1)
    model = builder.build().replace(armature=jnp.full(4, 0.02), stiffness=jnp.array([0.0, 0.0, 0.0, 5.0]))
    terms = ("inertias", "armature", "damping", "friction_loss", "stiffness")
    x = identify.parameter_vector(model, terms)

    def build(x):
        return identify.with_parameter_vector(model, x, terms)

    slopes, method = slopes_of(build, x, stepper), euler(stepper)
    assert slopes is not None
    assert method is not None
    assert slopes_of(lambda x: model.replace(gravity=x), model.gravity, stepper) is None
    assert slopes_of(build, x, "rk4") is None

    def both(q, v, tau):
        after = dx.step(model, q, v, tau, dt, stepper=stepper)[0]

        def ahead(dq, dv, x):
            q_next, v_next = dx.step(build(x), dx.integrate(model, q, dq), v + dv, tau, dt, stepper=stepper)
            return jnp.concatenate([dx.difference(model, after, q_next), v_next])

        own = jnp.concatenate(jax.jacrev(ahead, argnums=(0, 1, 2))(jnp.zeros(4), v * 0.0, x), axis=1)
        run, found = simulated(model, q, v, tau[None], dt, method)
        found = jax.tree.map(lambda x: x[0], found)
        return step_slopes(model, slopes, q, v, found, run.q[1], dt, stepper), own, run.q[1], after

    keys = jax.random.split(jax.random.key(1), 6)
    q = jax.vmap(lambda key: dx.random_configuration(model, key))(keys)
    v, tau = jnp.asarray(rng.normal(size=(2, 6, 4)))
    v, tau = v.at[:3].set(0.0), (0.1 * tau + jax.vmap(lambda q: dx.gravity_force(model, q))(q)).at[4:].multiply(20.0)
    found, own, there, after = jax.jit(jax.vmap(both))(q, v, tau)
    np.testing.assert_allclose(found, own, atol=1e-11 * np.abs(own).max())
    np.testing.assert_allclose(there, after, atol=1e-15)


def test_the_jacobian_of_many_freedoms_and_of_what_is_missed_by_parameters(rng):
    """A chain whose matrices are not written out, and outputs in which a parameter stands itself."""
    body, down = dx.SpatialInertia.box((0.1, 0.1, 0.3), mass=1.0), dx.Transform.from_translation((0.0, 0.0, -0.3))
    builder, parent = dx.ModelBuilder(), "world"
    for k in range(17):
        joint = dx.Revolute((0, 1, 0) if k % 2 else (1, 0, 0))
        builder = builder.body(f"b{k}", parent=parent, joint=joint, placement=down, inertia=body, damping=1.0)
        parent = f"b{k}"
    model = builder.build()

    def build(x):
        return model.replace(damping=model.damping * x[0], mass=model.mass.at[5].multiply(x[1]))

    def missed(model, q, v, measured):
        return jnp.stack([q[0], model.damping[0] * v[16] * model.mass[5]])

    data = identify.segments(0.3 * rng.normal(size=(6, 17)), rng.normal(size=(6, 17)), rng.normal(size=(5, 17)), 5)
    x = jnp.array([1.1, 0.9])
    own = identify.output_jacobian(build, x, data, DT, missed=missed)
    true = jax.jit(jax.jacfwd(lambda x: identify.output_residual(build, x, data, DT, missed=missed)))(x)
    np.testing.assert_allclose(own, true, atol=1e-11 * np.abs(true).max())


def test_slopes_are_carried_through_time_in_one_kernel_as_by_products(rng):
    """Few rows take the kernel, many a library's products: the same numbers."""
    first, steps = rng.normal(size=(4, 3 + 2)), rng.normal(size=(6, 4, 4 + 2))
    found = _in_one_kernel((), jnp.asarray(first), jnp.asarray(steps))
    slope = first
    for own, k in zip(steps, range(6), strict=True):
        slope = own[:, :4] @ slope + np.pad(own[:, 4:], ((0, 0), (3, 0)))
        np.testing.assert_allclose(found[k], slope, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(_carried(product, jnp.asarray(first), jnp.asarray(steps)), found, rtol=1e-12, atol=1e-12)


def elastic() -> dx.Model:
    """A motor and what it turns, through a shaft."""
    about = dx.Revolute((0.0, 0.0, 1.0))
    builder = dx.ModelBuilder().body("motor", joint=about, inertia=dx.SpatialInertia(0.5, (0, 0, 0), (1, 1, 0.02)))
    load = dx.SpatialInertia(2.0, (0, 0, 0), (1, 1, 0.1))
    return builder.body("load", parent="motor", joint=about, inertia=load, stiffness=20.0, damping=0.15).build()


SHAFT = elastic()


def of_shaft(x):
    return SHAFT.replace(
        stiffness=SHAFT.stiffness.at[1].multiply(jnp.exp(x[0])), damping=SHAFT.damping.at[1].multiply(jnp.exp(x[1]))
    )


def motor_side(model, q, v, measured):
    return jnp.stack([q[0], v[0]]) - measured


@pytest.mark.spec("ID-16")
def test_an_elastic_joint_from_the_motor_alone(rng):
    """Stiffness and damping from a third off, at 40 dB; where the load begins is not measured either."""
    dt, steps = 0.002, 1999
    time = dt * np.arange(steps)
    sweep = np.sin(2 * np.pi * (1.0 + 1.5 * time) * time)
    torques = jnp.asarray(np.stack([sweep, 0.0 * time], axis=1))
    run = dx.rollout(SHAFT, jnp.array([0.0, 0.02]), jnp.zeros(2), torques, dt, stepper="explicit")
    seen = np.stack([run.q[:, 0], run.v[:, 0]], axis=1)
    noise = 0.01 * np.std(seen, axis=0)
    seen = jnp.asarray(seen + noise * rng.normal(size=seen.shape))
    # The load is taken to move as the motor does.
    q, v = (jnp.stack([x, 0.0 * x], axis=1) for x in seen.T)
    data = identify.segments(q, v, torques, 999, measured=seen)
    first = jnp.log(jnp.array([0.7, 1.5]))
    fit = identify.output_error(of_shaft, first, data, dt, missed=motor_side, noise=noise, stepper="explicit")
    assert fit.status == identify.Status.CONVERGED
    np.testing.assert_allclose(fit.params, 0.0, atol=0.01)
    np.testing.assert_allclose(fit.noise, 1.0, rtol=0.05)


def test_exact_data_of_a_ball_joint_and_what_nothing_shows():
    """A box that tumbles about its end: its mass and damping come back; what no motion feels stays."""
    body = dx.SpatialInertia.box((0.1, 0.2, 0.3), mass=2.0, com=(0.05, 0.0, -0.1))
    box = dx.ModelBuilder().body("box", joint=dx.Spherical(), inertia=body, damping=0.2).build()

    def build(x):
        return box.replace(mass=box.mass * jnp.exp(x["mass"]), damping=box.damping * jnp.exp(x["damping"]))

    forces = jnp.asarray(np.random.default_rng(0).normal(size=(99, 3)))
    run = dx.rollout(box, jnp.full(4, 0.5), jnp.array([1.0, 2.0, 0.5]), forces, DT, stepper="explicit")
    data = identify.segments(run.q, run.v, forces, 24)
    assert data.q.shape == (4, 4)
    assert data.controls.shape == (4, 24, 3)
    np.testing.assert_array_equal(data.q[1], run.q[25])
    off = data._replace(q=jax.vmap(partial(dx.integrate, box))(data.q, jnp.full((4, 3), 0.1)))
    params = {"mass": jnp.array([0.2]), "damping": jnp.full(3, 0.3), "colour": jnp.asarray(2.0)}
    fit = identify.output_error(build, params, off, DT, stepper="explicit")
    assert fit.status == identify.Status.CONVERGED
    np.testing.assert_allclose(fit.params["mass"], 0.0, atol=1e-7)
    np.testing.assert_allclose(fit.params["damping"], 0.0, atol=1e-7)
    np.testing.assert_allclose(fit.q, data.q, atol=1e-9)
    # In order of their names, the first is the colour.
    assert fit.params["colour"] == 2.0
    assert np.isfinite(fit.deviations[0])


def test_logarithms_that_the_motion_hardly_shows_come_back_or_say_that_they_do_not():
    """A hub about a vertical axis, whose mass turns with all that it carries, and starts from which it evaporated;
    and a hub without damping, whose logarithm has no optimum."""
    about, off = dx.Revolute((0.0, 0.0, 1.0)), dx.Transform.from_translation((0.05, 0.0, 0.1))
    hub = dx.SpatialInertia(2.0, (0.02, 0.0, 0.0), (5e-3, 5e-3, 1e-3))
    rod = dx.SpatialInertia.box((0.3, 0.05, 0.05), mass=1.0, com=(0.15, 0.0, 0.0))
    builder = dx.ModelBuilder().body("hub", joint=about, inertia=hub, damping=0.1)
    model = builder.body("rod", parent="hub", joint=HINGE, placement=off, inertia=rod, damping=0.1).build()
    time = DT * np.arange(100)[:, None]
    torques, q0 = jnp.asarray(4.0 * np.sin([3.0, 3.5] * time + [0.0, 1.0])), jnp.array([0.3, 0.5])

    def build(x):
        return model.replace(mass=model.mass * jnp.exp(x["mass"]), damping=model.damping * jnp.exp(x["damping"]))

    @jax.jit
    @jax.vmap
    def fit(damping, masses):
        true = model.replace(damping=damping)
        run = dx.rollout(true, q0, jnp.zeros(2), torques, DT, stepper="explicit")
        data = identify.segments(run.q, run.v, torques, 100, measured=run.q)
        start = {"mass": masses, "damping": jnp.full(2, 0.3)}
        missed = lambda model, q, v, seen: q - seen  # noqa: E731
        return identify.output_error(build, start, data, DT, missed=missed, free=False, stepper="explicit")

    masses = jnp.array([[-0.8, 0.3], [-0.3, 0.0], [1.5, 0.0], [0.1, 0.0], [0.0, 0.1]])
    found = fit(jnp.array([[0.1, 0.1]] * 3 + [[0.0, 0.1]] * 2), masses)
    assert np.all(found.status[:3] == identify.Status.CONVERGED)
    np.testing.assert_allclose(found.params["mass"][:3], 0.0, atol=1e-6)
    np.testing.assert_allclose(found.params["damping"][:3], 0.0, atol=1e-6)
    assert np.all(found.status[3:] != identify.Status.CONVERGED)


def test_what_is_wrong_is_said():
    torques, run = driven(60, DT)
    with pytest.raises(ValueError, match="`controls` has 59 rows, expected 60"):
        identify.segments(run.q, run.v, torques[1:], 30)
    with pytest.raises(ValueError, match="`length` is 61, expected 1 to 60 steps"):
        identify.segments(run.q, run.v, torques, 61)
    with pytest.raises(ValueError, match="`v` has 60 rows, expected 61"):
        identify.segments(run.q, run.v[1:], torques, 30)
    with pytest.raises(ValueError, match="`params` must be floating arrays, got int"):
        identify.output_error(of_logs, jnp.array([1]), identify.segments(run.q, run.v, torques, 30), DT)


def test_float32_stays_float32_from_known_beginnings():
    rod = dx.SpatialInertia.box((0.5, 0.05, 0.05), mass=1.0, com=(0.25, 0.0, 0.0))
    model = dx.ModelBuilder().body("rod", joint=HINGE, inertia=rod, damping=0.3).build()
    model = jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.inexact) else x, model)
    forces = jnp.asarray(np.random.default_rng(0).normal(size=(99, 1)), jnp.float32)

    def build(x):
        return model.replace(mass=model.mass * jnp.exp(x[:1]), damping=model.damping * jnp.exp(x[1:]))

    with jax.numpy_dtype_promotion("strict"):
        run = dx.rollout(model, jnp.ones(1, jnp.float32), jnp.zeros(1, jnp.float32), forces, 0.01, stepper="explicit")
        data = identify.segments(run.q, run.v, forces, 49)
        start = jnp.full(2, 0.2, jnp.float32)
        fit = identify.output_error(build, start, data, 0.01, free=False, stepper="explicit")
    assert {x.dtype for x in jax.tree.leaves(fit[:5])} == {jnp.dtype("float32")}
    assert fit.status == identify.Status.CONVERGED
    np.testing.assert_array_equal(fit.q, data.q)
    np.testing.assert_allclose(fit.params, 0.0, atol=1e-4)
