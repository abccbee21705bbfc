"""Fly a quadrotor round a post within the limits of its rotors, then in a gust that the gains of the plan answer."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import optimize as o

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="few iterations, for a smoke test")
parser.add_argument("--figure", help="where to draw the flight, for example quadrotor.png")
arguments = parser.parse_args()
jax.config.update("jax_enable_x64", True)

MASS, ARM, DRAG = 1.0, 0.2, 0.02  # [kg], [m], moment of a rotor by its thrust [m]
KNOTS, DT = 50, 0.04
POST, CLEAR = jnp.array([1.5, 0.05]), 0.7  # where it stands and how far to keep away [m]
builder = dx.ModelBuilder(name="quadrotor")
builder.body("frame", joint=dx.Free(), inertia=dx.SpatialInertia(MASS, (0, 0, 0), (0.01, 0.01, 0.02)))
model = builder.build()
# Moments about x, y, z and the force along z of each thrust, in body axes.
mixing = np.zeros((6, 4))
mixing[0], mixing[1], mixing[2], mixing[5] = (0, ARM, 0, -ARM), (-ARM, 0, ARM, 0), (-DRAG, DRAG, -DRAG, DRAG), 1.0
hover = MASS * 9.81 / 4

start = jnp.concatenate([jnp.array([0.0, 0.0, 1.0]), dx.neutral(model)[3:], jnp.zeros(6)])
# Three metres on, turned by a right angle about the vertical, at rest.
turned = jnp.array([np.cos(np.pi / 4), 0.0, 0.0, np.sin(np.pi / 4)])
goal = jnp.concatenate([jnp.array([3.0, 0.0, 1.0]), turned, jnp.zeros(6)])
plant = o.plant(model, actuation=mixing)
flight = o.problem(
    plant,
    start,
    DT,
    knots=KNOTS,
    costs=[
        o.residual(lambda x, u, p: u - hover, DT),
        o.residual(lambda x, u, p: x[7:10], 0.1 * DT),  # turns
    ],
    constraints=[o.inequality(lambda x, u, p: CLEAR**2 - jnp.sum((x[:2] - POST) ** 2))],
    end_constraints=[o.equality(lambda x, p: plant.difference(p, x))],
    lower=0.0,
    upper=2.0 * hover,
    params=goal,
)
result = jax.jit(lambda problem, u: o.solve(problem, u, max_iterations=20 if arguments.quick else 200))(
    flight, jnp.full((KNOTS, 4), hover)
)
print(result)
distance = float(jnp.min(jnp.linalg.norm(result.states[:, :2] - POST, axis=1)))
print(f"nearest to the post {distance:.4f} m, largest thrust {float(result.controls.max()):.3f} N of {2 * hover:.3f}")


@jax.jit
def fly(gains):
    """In a gust from the side, of 1.5 N for a fifth of the flight."""

    def step(x, at):
        k, planned, u, K = at
        u = jnp.clip(u + K @ plant.difference(planned, x), 0.0, 2.0 * hover)
        wind = jnp.where((k >= 10) & (k < 20), 1.5, 0.0) * DT / MASS
        rotation = dx.forward_kinematics(model, x[:7]).rotation[0]
        x = x.at[10:].add(rotation.T @ jnp.array([0.0, wind, 0.0]))
        x = plant.step(x, u, None, DT)
        return x, x

    rows = jnp.arange(KNOTS), result.states[:-1], result.controls, gains
    return jnp.concatenate([start[None], jax.lax.scan(step, start, rows)[1]])


flights = {"with gains": fly(result.gains), "without": fly(0.0 * result.gains)}
misses = {name: float(jnp.linalg.norm(path[-1, :3] - goal[:3])) for name, path in flights.items()}
print("in a gust it ends off the goal by", ", ".join(f"{miss:.3f} m {name}" for name, miss in misses.items()))
if not arguments.quick:
    assert result.status == o.Status.CONVERGED
    assert misses["with gains"] < 0.2 * misses["without"]

if arguments.figure:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.add_patch(plt.Circle(tuple(POST), CLEAR, color="lightgray"))
    left.plot(*result.states[:, :2].T, label="plan")
    for name, path in flights.items():
        left.plot(*path[:, :2].T, "--", label=f"gust, {name}")
    left.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
    right.step(np.arange(KNOTS) * DT, result.controls, where="post", label=[f"rotor {k + 1}" for k in range(4)])
    right.set(xlabel="time [s]", ylabel="thrusts [N]")
    for axes in (left, right):  # above, where no curve is
        axes.legend(frameon=False, ncols=4, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.savefig(arguments.figure, dpi=90)
