"""Collocation against closed forms and published optima, and the same problems as nonlinear programs."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from optimize.standard import cart_pole, converged, near, pendulum, runge_kutta, single
from optimize.test_inverse_plant import four_bar_with_an_arm

import dynax as dx
from dynax import optimize as o
from dynax.optimize import nlp as module
from dynax.optimize.plant import by_directions
from dynax.optimize.tangents import directions


def block(N: int, method: str) -> o.Problem:
    """Unit mass from rest at 0 to rest at 1 in a second, least integral of u^2."""
    return o.collocation(
        o.plant(lambda x, u, p: jnp.stack([x[1], u[0]]), states=2, controls=1),
        jnp.zeros(2),
        jnp.full(N, 1.0 / N),
        method=method,
        costs=[o.residual(lambda x, u, p: u, 2.0)],
        end_constraints=[o.equality(lambda x, p: x - jnp.array([1.0, 0.0]))],
    )


def newton(nlp: o.NonlinearProgram, steps: int = 30) -> np.ndarray:
    """Equality-constrained, by sparse systems of optimality; steps are halved until cost and misses go down."""
    y, multipliers, weight = np.zeros(nlp.n), np.zeros(nlp.m), 0.0

    def merit(y: np.ndarray) -> float:
        return nlp.objective(y) + weight * np.abs(nlp.constraints(y)).sum()

    for _ in range(steps):
        J = scipy.sparse.coo_matrix((nlp.jacobian(y), nlp.jacobianstructure()), (nlp.m, nlp.n))
        L = scipy.sparse.coo_matrix((nlp.hessian(y, multipliers), nlp.hessianstructure()), (nlp.n, nlp.n)).tocsr()
        H = L + scipy.sparse.tril(L, -1).T
        system = scipy.sparse.bmat([[H, J.T], [J, None]]).tocsc()
        slope, misses = nlp.gradient(y), nlp.constraints(y)
        found = scipy.sparse.linalg.spsolve(system, -np.concatenate([slope, misses]))
        step, wanted = found[: nlp.n], found[nlp.n :]
        weight = max(weight, 2.0 * np.abs(wanted).max())
        promised, size = slope @ step - weight * np.abs(misses).sum(), 1.0
        while size > 1e-4 and merit(y + size * step) > merit(y) + 1e-4 * size * promised + 1e-9:
            size /= 2
        y, multipliers = y + size * step, multipliers + size * (wanted - multipliers)
        if np.abs(step).max() < 1e-9:
            break
    assert np.all((nlp.lower <= y) & (y <= nlp.upper)), "limits press, which this does not know"
    return y


BLOCK = {
    ("trapezoid", 10): 12.461059190031158,
    ("trapezoid", 20): 12.116622491,
    ("trapezoid", 40): 12.029509891,
    ("trapezoid", 80): 12.007434290,
    ("trapezoid", 100): 12.004765892,
    ("midpoint", 10): 12.0 * 100 / 99,
    ("hermite_simpson", 3): 12.0,
}


@pytest.mark.spec("OC-01")
def test_a_block_is_moved():
    """By the solver, to its last digits, and by one step of Newton's on the nonlinear program. With constant controls
    the midpoint is exact: 12 N^2 / (N^2 - 1), as shooting with a zero-order hold gives it."""
    for (method, N), cost in BLOCK.items():
        problem = block(N, method)
        start = o.guess(problem, np.zeros((N + 1, 2)), np.zeros((N + 1, 1)))
        nlp = o.as_nlp(problem, *start)
        y = newton(nlp, 1)
        near(nlp.objective(y), cost, 1e-9)
        if method == "hermite_simpson":
            near(nlp.objective(y), cost, 1e-10)
            lengths = jnp.array([0.0, 0.2, 0.5, 0.3, 0.0])
            uneven = o.as_nlp(dataclasses.replace(problem, dt=lengths[:-1], per_knot=lengths), *start)
            near(uneven.objective(newton(uneven, 1)), cost, 1e-10)
            # The middles begin where Hermite has them, and are more variables with as many equations.
            apart = o.as_nlp(problem, *start, separated=True)
            assert (apart.n - nlp.n, apart.m - nlp.m) == (2 * (N + 1), 2 * (N + 1))
            near(apart.objective(newton(apart, 1)), cost, 1e-9)
        if N <= 10:
            result = o.polish(problem, converged(o.solve(problem, *start)))
            near(result.cost, cost, 1e-10)
            near(nlp.trajectory(y)[1], result.states, 1e-9)
            time, states, controls, middles = o.nodes(problem, result)
            near(time, np.arange(N + 1) / N, 1e-12)
            assert states.shape == (N + 1, 2)
            assert middles.shape == (N, 1)
            if method == "hermite_simpson":
                near(controls[:, 0], 6.0 - 12.0 * time, 1e-9)


def swing_up(N: int, method: str, **more) -> o.Problem:
    return o.collocation(
        o.plant(lambda x, u, p: cart_pole(x, u, p), states=4, controls=1),
        jnp.zeros(4),
        jnp.full(N, 2.0 / N),
        method=method,
        costs=[o.residual(lambda x, u, p: u, 2.0)],
        end_constraints=[o.equality(lambda x, p: x - p["goal"])],
        lower=-20.0,
        upper=20.0,
        params={"masses": (1.0, 0.3), "goal": jnp.array([1.0, np.pi, 0.0, 0.0])},
        **more,
    )


def straight(N: int, end, T: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of the straight line from zero to a configuration, at its mean velocity; controls are zero."""
    end = np.asarray(end)
    line = np.linspace(0.0, 1.0, N + 1)[:, None] * end
    return np.concatenate([line, np.broadcast_to(end / T, line.shape)], axis=1), np.zeros((N + 1, 1))


@pytest.mark.spec("OC-04")
def test_a_cart_pole_swings_up_as_kelly_has_it():
    """From the straight line, as a nonlinear program, to the published optimum."""
    N = 80
    problem = swing_up(N, "hermite_simpson")
    nlp = o.as_nlp(problem, *o.guess(problem, *straight(N, [1.0, np.pi], 2.0)))
    y = newton(nlp)
    near(nlp.objective(y), 58.807667, 1e-5)
    near(nlp.objective(y), 58.807664, 1e-6)  # on this mesh
    controls, states = nlp.trajectory(y)
    near([states[1, -1], -states[-1, -1]], 1.8645, 0.01)
    near(np.max(np.abs(controls)), 13.98, 0.02)  # which is between two nodes
    assert np.max(np.abs(states[:, 0])) <= 2.0


@pytest.mark.slow
@pytest.mark.spec("OC-04")
def test_meshes_of_kelly():
    """How either rule comes to the optimum as the mesh is refined."""
    published = {
        ("hermite_simpson", 40): (58.807576, 1e-6),
        ("hermite_simpson", 160): (58.8076673, 1e-7),
        ("hermite_simpson", 320): (58.8076675, 1e-7),
        ("trapezoid", 40): (59.3255, 1e-4),
        ("trapezoid", 80): (58.9453, 1e-4),
    }
    for (method, N), (cost, tolerance) in published.items():
        problem = swing_up(N, method)
        nlp = o.as_nlp(problem, *o.guess(problem, *straight(N, [1.0, np.pi], 2.0)))
        near(nlp.objective(newton(nlp)), cost, tolerance)


@pytest.mark.spec("OC-05")
def test_a_cart_pole_swings_up_from_many_starts():
    """Shooting with a held force finds the optima, side by side; collocation has the best one's digits."""
    N, h = 40, 2.0 / 40
    fine = swing_up(80, "hermite_simpson")
    coarse = o.problem(
        o.plant(runge_kutta(cart_pole, h, 4), states=4, controls=1),
        fine.x0[:4],
        h,
        knots=N,
        costs=[o.residual(lambda x, u, p: u, 2.0 * h)],
        end_constraints=[o.equality(lambda x, p: x - p["goal"])],
        lower=-20.0,
        upper=20.0,
        params=fine.params,
    )
    bends = jax.random.normal(jax.random.key(0), (32, 2, 2)) * jnp.array([0.3, 1.5])
    waves = jnp.sin(np.pi * np.linspace(0.0, 1.0, N + 1)[:, None] * np.array([1.0, 2.0]))
    line = jnp.asarray(straight(N, [1.0, np.pi], 2.0)[0])

    def solved(bend):
        return o.solve(coarse, jnp.zeros((N, 1)), line.at[:, :2].add(waves @ bend), second_order=True)

    starts = jax.jit(lambda bends: o.multi_start(solved, bends))(bends)
    assert starts.found > 20
    assert starts.spread > 0.5
    old, new = np.arange(N + 1) / N, np.arange(81) / 80
    states = np.stack([np.interp(new, old, column) for column in starts.best.states.T], axis=1)
    controls = np.interp(new, old[:-1] + 0.5 / N, starts.best.controls[:, 0])[:, None]
    nlp = o.as_nlp(fine, *o.guess(fine, states, controls))
    y = newton(nlp)
    near(nlp.objective(y), 57.944780, 1e-4)
    near(np.min(nlp.trajectory(y)[1][:, 1]), -1.053, 0.01)


@pytest.mark.spec("OC-12", "OC-13")
def test_slews():
    """From rest to rest in a second, least integral of the squared torque: a ball about a slanted axis, near the half
    turn too, and a body of three inertias, which turns off its axis. One program for all."""
    N, model = 80, single(dx.Spherical(), (1.0, 1.0, 1.0))
    start = dx.neutral(model)

    def rate(x, u, p):
        return jnp.concatenate([x[4:], (u - jnp.cross(x[4:], p["inertia"] * x[4:])) / p["inertia"]])

    plant = o.plant(
        rate,
        states=7,
        controls=3,
        tangents=6,
        integrate=lambda x, d: jnp.concatenate([dx.integrate(model, x[:4], d[:3]), x[4:] + d[3:]]),
        difference=lambda x, y: jnp.concatenate([dx.difference(model, x[:4], y[:4]), y[4:] - x[4:]]),
    )
    problem = o.collocation(
        plant,
        jnp.concatenate([start, jnp.zeros(3)]),
        jnp.full(N, 1.0 / N),
        costs=[o.residual(lambda x, u, p: u, 2.0)],
        end_constraints=[o.equality(lambda x, p: jnp.concatenate([dx.difference(model, p["goal"], x[:4]), x[4:]]))],
        params={"inertia": jnp.ones(3), "goal": start},
    )
    rows = (
        ((1.0, 1.0, 1.0), np.pi / 2, 29.608813, 1e-6),
        ((1.0, 1.0, 1.0), np.deg2rad(178.2), 116.078391, 1e-6),
        ((1.0, 2.0, 3.0), np.pi / 2, 120.852119, 1e-5),
    )
    for inertia, angle, cost, tolerance in rows:
        turn = jnp.full(3, angle / np.sqrt(3.0))
        params = {"inertia": jnp.asarray(inertia), "goal": dx.integrate(model, start, turn)}
        turned = jax.vmap(lambda t, turn=turn: dx.integrate(model, start, t * turn))(jnp.linspace(0.0, 1.0, N + 1))
        states = jnp.concatenate([turned, jnp.broadcast_to(turn, (N + 1, 3))], axis=1)
        moved = dataclasses.replace(problem, params=params)
        nlp = o.as_nlp(moved, *o.guess(moved, states, np.zeros((N + 1, 3))))
        near(nlp.objective(newton(nlp)), cost, tolerance)


def test_a_cart_pole_swings_up():
    """From a straight line to the better of the two known optima, on a coarse mesh."""
    N = 40
    problem = swing_up(N, "hermite_simpson", constraints=[o.inequality(lambda x, u, p: jnp.abs(x[:1]) - 2.0)])
    line = np.linspace(0.0, 1.0, N + 1)[:, None] * np.array([1.0, np.pi, 0.0, 0.0])
    result = converged(o.solve(problem, *o.guess(problem, line, np.zeros((N + 1, 1))), second_order=True))
    near(result.cost, 57.94502, 1e-4)
    _, states, controls, _ = o.nodes(problem, result)
    near(controls[0, 0], -6.88, 0.01)
    near(np.min(states[:, 1]), -1.053, 0.01)
    # A few intervals, where the pole swings through, err more than the others: those are halved.
    finer = o.refine(problem, result, 2e-5)
    halved = np.flatnonzero(finer.error > 2e-5)
    assert 3 < len(halved) < N // 4
    assert finer.problem.knots == N + 1 + len(halved)
    near(jnp.sum(finer.problem.dt), 2.0, 1e-12)
    old = np.delete(np.arange(N + 1 + len(halved)), halved + 1 + np.arange(len(halved)))
    near(finer.states[1:][old], result.states[1:], 1e-12)
    assert o.refine(problem, result, 1.0).problem is problem


@pytest.mark.parametrize("method", ["hermite_simpson", "trapezoid"])
def test_the_final_time_is_chosen(method):
    """A block from rest to rest over one metre: `c T + integral of u^2` is least at `T = (36 / c)^(1/4)`; by the rule
    of the trapezoid, whose integral is `k` times 12, at `(36 k / c)^(1/4)`."""
    N, c = 10, 2.25
    k = BLOCK["trapezoid", 10] / 12.0 if method == "trapezoid" else 1.0
    problem = o.collocation(
        o.plant(lambda x, u, p: jnp.stack([x[1], u[0]]), states=2, controls=1),
        jnp.zeros(2),
        jnp.full(N, 1.0 / N),
        method=method,
        costs=[o.residual(lambda x, u, p: u, 2.0), o.cost(lambda x, u, p: p)],
        end_constraints=[o.equality(lambda x, p: x - jnp.array([1.0, 0.0]))],
        params=c,
        free_time=(0.3, 10.0),
    )
    t = np.linspace(0.0, 1.0, N + 1)[:, None]
    moving = np.concatenate([t * t * (3.0 - 2.0 * t), 6.0 * t * (1.0 - t)], axis=1)
    start = o.guess(problem, moving, 6.0 - 12.0 * t, 1.5)
    # A light penalty would give up the goal for a short time first.
    result = o.polish(problem, converged(o.solve(problem, *start, second_order=True, penalty=1e3)))
    T = (36.0 * k / c) ** 0.25
    near(o.nodes(problem, result).time[-1], T, 1e-7)
    near(result.cost, c * T + 12.0 * k / T**3, 1e-9)
    pressed = dataclasses.replace(problem, limits=(problem.limits[0], problem.limits[1].at[:, -1].set(1.8)))
    result = converged(o.solve(pressed, *start, second_order=True, penalty=1e3))
    near(o.nodes(pressed, result).time[-1], 1.8, 1e-7)
    near(result.cost, c * 1.8 + 12.0 * k / 1.8**3, 1e-6)


def geared() -> tuple[dx.EmbeddedModel, dx.Model]:
    """A pendulum whose rotor stands in a gear, embedded, and the same with an armature."""
    rod = dx.SpatialInertia(1.0, (0.3, 0.0, 0.0), (0.1, 0.1, 0.2))
    wheel = dx.SpatialInertia(0.0, np.zeros(3), np.diag([0.0, 0.01, 0.0]))
    builder = dx.ModelBuilder().body("link", joint=dx.Revolute((0, 1, 0)), inertia=rod)
    builder.body("rotor", joint=dx.Revolute((0, 1, 0)), inertia=wheel).gear("rotor_joint", "link_joint", ratio=-6.0)
    plain = dx.ModelBuilder().body("link", joint=dx.Revolute((0, 1, 0)), inertia=rod, armature=0.36)
    return dx.embed(builder.build(), independent=["link_joint"]), plain.build()


@pytest.mark.slow
def test_a_gear_that_is_embedded():
    """The optimum is that of the armature."""

    def lifted(model) -> o.Result:
        N, n = 8, model.nq
        problem = o.collocation(
            o.plant(model),
            jnp.zeros(n + 1),
            jnp.full(N, 0.1),
            method="midpoint",
            costs=[o.residual(lambda x, u, p: u, 2.0)],
            end_constraints=[o.equality(lambda x, p: jnp.stack([x[0] - 1.0, x[-1]]))],
        )
        guess = o.guess(problem, jnp.zeros((N + 1, n + 1)), jnp.zeros((N + 1, 1)))
        return converged(jax.jit(lambda: o.solve(problem, *guess))())

    found, expected = map(lifted, geared())
    near(found.cost, expected.cost, 1e-10)
    near(found.states[:, [0, 2]], expected.states[:, :2], 1e-8)
    near(found.states[:, 1], -6.0 * found.states[:, 0], 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("base", "method"), [("ball", "hermite_simpson"), ("ball", "trapezoid"), ("gear", "midpoint")])
def test_an_interval_is_linearized(base, method, rng):
    """By Newton's last Jacobian as by derivatives of the step itself, of what costs know of it too."""
    model = single(dx.Spherical(), (1.0, 2.0, 3.0)) if base == "ball" else geared()[0]
    q = dx.integrate(model, dx.neutral(model), jnp.asarray(0.5 * rng.normal(size=model.nv)))
    x0, lengths = jnp.concatenate([q, jnp.asarray(rng.normal(size=model.nv))]), jnp.full(2, 0.05)
    plant = o.collocation(o.plant(model), x0, lengths, method=method, free_time=(0.5, 2.0)).plant
    x = jnp.concatenate([x0, jnp.asarray(rng.normal(size=model.nv)), jnp.array([1.3])])
    u = jnp.asarray(rng.normal(size=plant.nu))
    after = plant.integrate(x, 0.05 * jnp.asarray(rng.normal(size=plant.ndx)))

    @jax.jit
    def both(h):
        known = None, h
        own, taken = plant.passed_linearized(x, u, after, known, h), plant.passed(x, u, after, known, h)
        step = lambda x, u: plant.step(x, u, known, h)  # noqa: E731
        end, rows = jax.vmap(lambda *d: jax.jvp(step, (x, u), d), out_axes=(None, 0))(*directions(plant, x, u))
        return own, taken, by_directions(plant, x, u, after, known, h, None)[:2], end, rows

    for h in (0.05, 0.0):
        (c, J, known, ways), (end, of_step), (gap, slopes), by_root, rows = both(h)
        near(c, gap, 1e-12)
        near(J, slopes, 1e-10)
        near(end, by_root, 1e-12)
        near(known[0], end[: plant.base.nx], 1e-12)
        near(ways[0], rows[:, : plant.base.nx], 1e-10)
        for one, other, way in zip(known, of_step, ways, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)
            assert way.shape == (plant.ndx + plant.nu, *one.shape)


@pytest.mark.parametrize("method", ["midpoint", "trapezoid", "hermite_simpson"])
def test_a_long_interval_stays_with_its_solution(method, rng):
    """A double pendulum turns by up to three radians in an interval, whose equation has several solutions, and from
    rest Newton's method comes to another, or to none. From where the interval ended it stays there."""
    link = {"joint": dx.Revolute((0, 1, 0)), "inertia": dx.SpatialInertia(1.0, (0.25, 0.0, 0.0), (0.001, 0.02, 0.02))}
    builder, ahead = dx.ModelBuilder().body("upper", **link), dx.Transform.from_translation((0.5, 0.0, 0.0))
    model = builder.body("lower", parent="upper", placement=ahead, **link).build()
    plant = o.collocation(o.plant(model), jnp.zeros(4), jnp.full(1, 0.1), method=method).plant
    x = jnp.asarray(rng.uniform(-1.0, 1.0, (500, 6)) * np.array([3, 3, 15, 15, 5, 5]))

    @jax.jit
    @jax.vmap
    def ends(x, near):
        return plant.passed(x, jnp.zeros(plant.nu), near, (None, 0.1), 0.1)[0]

    from_rest = ends(x, x)
    fine = jax.jit(jax.vmap(lambda x: dx.rollout(model, x[:2], x[2:4], jnp.zeros((40, 2)), 0.0025, stepper="rk4")))(x)
    there = ends(x, jnp.concatenate([fine.q[:, -1], fine.v[:, -1], x[:, 4:]], axis=1))
    again = ends(x + 1e-6, there)
    finite = np.all(np.isfinite(there), axis=1)
    assert np.sum(finite) > np.sum(np.all(np.isfinite(from_rest), axis=1))
    moved = np.max(np.abs(again - there), axis=1)[finite]
    assert np.mean(moved < 1e-3) > 0.98, np.sort(moved)[-20:]
    assert np.mean(np.max(np.abs(from_rest - there), axis=1)[finite] < 1e-3) < 0.97


@pytest.mark.slow
def test_a_four_bar_is_driven():
    """From rest to rest, the crank by 1.2 rad: loops are closed at all nodes, and it ends where it is to."""

    def rod(length: float) -> dx.SpatialInertia:
        return dx.SpatialInertia(1.0, (0.5 * length, 0.0, 0.0), (1e-3, length**2 / 12, length**2 / 12))

    N, pin = 10, dx.Revolute((0, 0, 1))
    at = lambda x: dx.Transform.from_translation((x, 0.0, 0.0))  # noqa: E731
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0)).body("crank", joint=pin, inertia=rod(0.5), damping=0.1)
    builder.body("coupler", parent="crank", joint=pin, placement=at(0.5), inertia=rod(1.2))
    builder.body("rocker", joint=pin, placement=at(1.0), inertia=rod(1.1))
    ends = {"predecessor_placement": at(1.2), "successor_placement": at(1.1)}
    tree = builder.loop("elbow", predecessor="coupler", successor="rocker", joint=pin, **ends).build()
    q = dx.assemble(tree, jnp.array([1.0, -0.4, 1.4]), hold=["crank_joint"]).q
    x0 = jnp.append(q, 0.0)
    problem = o.collocation(
        o.plant(dx.embed(tree, q, independent=["crank_joint"])),
        x0,
        jnp.full(N, 0.08),
        method="midpoint",
        costs=[o.residual(lambda x, u, p: u)],
        end_constraints=[o.equality(lambda x, p: jnp.stack([x[0] - 2.2, x[-1]]))],
    )
    guess = o.guess(problem, jnp.broadcast_to(x0, (N + 1, 4)), jnp.zeros((N + 1, 1)))
    result = converged(jax.jit(lambda: o.solve(problem, *guess))())
    assert result.iterations < 35
    _, states, _, _ = o.nodes(problem, result)
    near(jax.vmap(lambda x: dx.constraint_residual(tree, x[:3]))(states), 0.0, 1e-12)
    near(states[-1, [0, 3]], jnp.array([2.2, 0.0]), 1e-7)
    near(result.cost, 10.7398116, 1e-6)  # of the solver when it differentiated the step itself


@pytest.mark.slow
def test_an_interval_of_a_four_bar():
    """Loops are closed where it ends, and what that is off falls with the fifth power of its length."""
    model, q = four_bar_with_an_arm()
    x, u = jnp.concatenate([q, jnp.array([1.5, -2.0])]), jnp.array([4.0, -3.0])
    problem = o.collocation(o.plant(model), x, jnp.full(1, 0.01), costs=[o.residual(lambda x, u, p: u)])

    @jax.jit
    @jax.vmap
    def ends(h):
        found = problem.plant.step(jnp.concatenate([x, u]), jnp.concatenate([u, u]), (None, h), h)[:6]
        steps = dx.rollout(model, q, x[4:], jnp.broadcast_to(u, (20, 2)), h / 20, stepper="rk4")
        return found, jnp.concatenate([steps.q[-1], steps.v[-1]]), dx.constraint_residual(model.tree, found[:4])

    found, expected, loop = ends(jnp.array([0.01, 0.005]))
    assert np.max(np.abs(loop)) < 1e-10
    long, short = np.max(np.abs(found - expected), axis=1)
    assert long < 1e-5
    assert long / short > 28.0  # 32 in the limit, or more where terms of higher order add


@pytest.mark.slow
def test_a_joint_that_leads_in_part_is_named():
    pin, ball = dx.Revolute((0, 0, 1)), dx.Spherical()
    rod = dx.SpatialInertia(1.0, (0.5, 0.0, 0.0), (0.1, 0.1, 0.1))
    builder = dx.ModelBuilder().body("ball", joint=ball, inertia=rod)
    ends = {"predecessor_placement": dx.Transform(), "successor_placement": dx.Transform()}
    builder.loop("about z", predecessor="world", successor="ball", joint=pin, **ends)
    model = dx.embed(builder.build())
    with pytest.raises(ValueError, match=r"joint 'ball_joint' of model .* is independent in part"):
        o.collocation(o.plant(model), jnp.concatenate([dx.neutral(model), jnp.zeros(1)]), jnp.full(2, 0.1))


@pytest.mark.parametrize("form", ["trapezoid", "separated"])
def test_the_program_is_the_problem(form, rng):
    """Sparse derivatives of a pendulum's, with all kinds of costs and constraints, against dense ones."""
    separated = form == "separated"
    N = 3
    problem = o.collocation(
        o.plant(pendulum, states=2, controls=1),
        jnp.array([0.3, 0.1]),
        jnp.array([0.1, 0.2, 0.3]),
        method="hermite_simpson" if separated else "trapezoid",
        costs=[o.residual(lambda x, u, p: u), o.cost(lambda x, u, p: jnp.sum(u**4))],
        end_costs=[o.residual(lambda x, p: x[1:])],
        constraints=[o.inequality(lambda x, u, p: x[1:] * u - 1.0)],
        end_constraints=[o.equality(lambda x, p: jnp.sin(x[:1]) - p["mass"])],
        lower=-3.0,
        params={"mass": 0.8},
    )
    guess = o.guess(problem, rng.normal(size=(N + 1, 2)), rng.normal(size=(N + 1, 1)))
    nlp = o.as_nlp(problem, *guess, separated=separated)
    y, multipliers = 0.2 * rng.normal(size=nlp.n), rng.normal(size=nlp.m)
    assert nlp.lower.shape == nlp.upper.shape == (nlp.n,)
    assert np.sum(np.isfinite(nlp.lower)) == (N + 1) * problem.plant.nu
    assert np.sum(nlp.constraint_lower < 0) == N + 1

    known = nlp._known
    J = jax.jit(jax.jacfwd(module._constraints, argnums=4))(*known, y)
    found = scipy.sparse.coo_matrix((nlp.jacobian(y), nlp.jacobianstructure()), J.shape).toarray()
    np.testing.assert_allclose(found, J, atol=1e-12)
    assert np.count_nonzero(J) <= len(nlp.jacobian(y))

    def lagrangian(y):
        return 0.7 * module._objective(*known, y) + jnp.sum(multipliers * module._constraints(*known, y))

    H = jax.jit(jax.hessian(lagrangian))(y)
    found = scipy.sparse.coo_matrix((nlp.hessian(y, multipliers, 0.7), nlp.hessianstructure()), H.shape).toarray()
    np.testing.assert_allclose(found, np.tril(H), atol=1e-10)
    np.testing.assert_allclose(nlp.gradient(y), jax.jit(jax.grad(module._objective, argnums=4))(*known, y), atol=1e-12)


def test_what_does_not_fit_is_named():
    plant = o.plant(lambda x, u, p: x, states=2, controls=1)
    with pytest.raises(ValueError, match="`method` is 'radau', expected one of 'trapezoid'"):
        o.collocation(plant, jnp.zeros(2), jnp.ones(3), method="radau")
    with pytest.raises(ValueError, match=r"`dt` has shape \(\), expected \(N,\)"):
        o.collocation(plant, jnp.zeros(2), 0.1)
    with pytest.raises(ValueError, match=r"`x0` has shape \(3,\), expected \(2,\)"):
        o.collocation(plant, jnp.zeros(3), jnp.ones(3))
    with pytest.raises(ValueError, match=r"`free_time` is \(2.0, 1.0\), expected two positive factors"):
        o.collocation(plant, jnp.zeros(2), jnp.ones(3), free_time=(2.0, 1.0))
    problem = o.collocation(plant, jnp.zeros(2), jnp.ones(3), method="midpoint")
    with pytest.raises(ValueError, match=r"`separated` is for o.collocation with `method` 'hermite_simpson'"):
        o.as_nlp(problem, np.zeros((4, 1)), np.zeros((5, 3)), separated=True)
    problem = o.collocation(plant, jnp.zeros(2), jnp.ones(3))
    with pytest.raises(ValueError, match=r"`states` has shape \(3, 2\), expected \(4, 2\), a row per node"):
        o.guess(problem, np.zeros((3, 2)), np.zeros((4, 1)))
    with pytest.raises(ValueError, match=r"`controls` has shape \(3, 1\), expected \(4, 2\)"):
        o.as_nlp(problem, np.zeros((3, 1)), np.zeros((5, 3)))
