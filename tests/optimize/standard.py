"""Problems that several tests of optimisers share, and how their results are judged."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import optimize as o


def near(found, expected, tolerance):
    assert np.max(np.abs(np.asarray(found) - expected)) <= tolerance, (found, expected)


def converged(result: o.Result) -> o.Result:
    assert np.all(result.status == o.Status.CONVERGED), str(result)
    return result


def block(N: int, **more) -> o.Problem:
    """Unit mass from rest at 0 to rest at 1 in a second, least integral of u^2; controls held, semi-implicit Euler."""
    h = 1.0 / N

    def step(x, u, params):
        v = x[1] + h * u[0]
        return jnp.stack([x[0] + h * v, v])

    return o.problem(
        o.plant(step, states=2, controls=1),
        jnp.zeros(2),
        h,
        knots=N,
        costs=[o.residual(lambda x, u, p: u, 2.0 * h)],
        end_constraints=[o.equality(lambda x, p: x - p)],
        params=jnp.array([1.0, 0.0]),
        **more,
    )


def runge_kutta(rate, h, order):
    def three(x, u, p):
        k1 = h * rate(x, u, p)
        k2 = h * rate(x + k1 / 2, u, p)
        k3 = h * rate(x - k1 + 2 * k2, u, p)
        return x + (k1 + 4 * k2 + k3) / 6

    def four(x, u, p):
        k1 = h * rate(x, u, p)
        k2 = h * rate(x + k1 / 2, u, p)
        k3 = h * rate(x + k2 / 2, u, p)
        k4 = h * rate(x + k3, u, p)
        return x + (k1 + 2 * k2 + 2 * k3 + k4) / 6

    return {3: three, 4: four}[order]


def pendulum(x, u, p):
    """Mass 1 at .5, inertia .25, friction .1."""
    return jnp.stack([x[1], (u[0] - p["mass"] * 9.81 * 0.5 * jnp.sin(x[0]) - 0.1 * x[1]) / 0.25])


def pendulum_problem() -> o.Problem:
    h, goal = 3.0 / 50, jnp.array([jnp.pi, 0.0])
    return o.problem(
        o.plant(runge_kutta(pendulum, h, 4), states=2, controls=1),
        jnp.zeros(2),
        h,
        knots=50,
        costs=[
            o.residual(lambda x, u, p: x - p["goal"], 1e-3 * h),
            o.residual(lambda x, u, p: u, 1e-3 * h),
        ],
        end_costs=[o.residual(lambda x, p: x - p["goal"])],
        end_constraints=[o.equality(lambda x, p: x - p["goal"])],
        lower=-3.0,
        upper=3.0,
        params={"goal": goal, "mass": 1.0},
    )


def cart_pole(x, u, p):
    """Cart 1, pole .2 at .5, or `p["masses"]`; angle from hanging."""
    (mc, mp), l, g = p["masses"] if isinstance(p, dict) else (1.0, 0.2), 0.5, 9.81
    s, c = jnp.sin(x[1]), jnp.cos(x[1])
    H = jnp.array([[mc + mp, 0.0], [0.0, mp * l * l]]) + mp * l * c * jnp.array([[0.0, 1.0], [1.0, 0.0]])
    force = jnp.stack([u[0] + mp * l * s * x[3] ** 2, -mp * g * l * s])
    determinant = H[0, 0] * H[1, 1] - H[0, 1] ** 2
    a = jnp.stack([H[1, 1] * force[0] - H[0, 1] * force[1], H[0, 0] * force[1] - H[0, 1] * force[0]]) / determinant
    return jnp.concatenate([x[2:], a])


def single(joint, inertia, mass=1.0) -> dx.Model:
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, -9.81) if isinstance(joint, dx.Free) else (0.0, 0.0, 0.0))
    builder.body("body", parent="world", joint=joint, inertia=dx.SpatialInertia(mass, np.zeros(3), np.diag(inertia)))
    return builder.build()


def panda() -> dx.Model:
    from oracles.robots import example_robots

    model = dx.load(example_robots()["panda_description/urdf/panda.urdf"])
    model = dx.fix_joints(model, {name: 0.0 for name in model.joint_names if "finger" in name})
    nothing = jnp.zeros(7)
    return model.replace(damping=nothing, friction_loss=nothing, armature=nothing)


def panda_reach(model: dx.Model, **limits) -> tuple[o.Problem, jnp.ndarray]:
    """OC-21, with the guess that holds the arm up; its target is `params`."""
    q0 = jnp.array([0.0, -np.pi / 4, 0.0, -3 * np.pi / 4, 0.0, np.pi / 2, np.pi / 4])
    x0 = jnp.concatenate([q0, jnp.zeros(7)])
    reach = o.problem(
        o.plant(model),
        x0,
        0.01,
        knots=100,
        costs=[o.residual(lambda x, u, p: x - x0, 0.01 * 0.1), o.residual(lambda x, u, p: u, 0.01 * 1e-3)],
        end_costs=[
            o.residual(lambda x, p: dx.frame_pose(model, x[:7], "panda_hand").translation - p, 1e3),
            o.residual(lambda x, p: x[7:], 10.0),
        ],
        params=jnp.array([0.3, 0.4, 0.6]),
        **limits,
    )
    return reach, jnp.broadcast_to(dx.gravity_force(model, q0), (100, 7))
