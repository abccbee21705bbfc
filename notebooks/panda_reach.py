# %% [markdown]
# # Panda reaches: from a model to control
#
# An arm of seven joints brings its hand to a place in a second, within the limits of its motors, with little effort.
# The trajectory is found, for many places at once, and at last made anew a hundred times a second while the place moves
# and the arm is heavier than its model.
#
# The robot comes from the package `example-robot-data` (`pip install "dynax[robots]"`).

# %%
import dataclasses
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dynax as dx
from dynax import optimize as o

jax.config.update("jax_enable_x64", True)
model = dx.load(dx.installed_robots()["panda"])
model = dx.fix_joints(model, {name: 0.0 for name in model.joint_names if "finger" in name})
nothing = jnp.zeros(7)
model = model.replace(damping=nothing, friction_loss=nothing, armature=nothing)
print(model)

# %% [markdown]
# ## The problem
#
# A hundred steps of 10 ms. Residuals say what shall be small: the distance of the state from where it began and the
# torques, all the way; at the end the distance of the hand from its target, and velocities. The target is a parameter,
# so that other targets need no new compilation.

# %%
dt, knots = 0.01, 100
q0 = jnp.array([0.0, -np.pi / 4, 0.0, -3 * np.pi / 4, 0.0, np.pi / 2, np.pi / 4])
x0 = jnp.concatenate([q0, jnp.zeros(7)])
target = jnp.array([0.3, 0.4, 0.6])
motors = jnp.array([10.0, 40.0, 10.0, 25.0, 5.0, 5.0, 2.0])  # [N m]


def hand(x):
    return dx.frame_pose(model, x[:7], "panda_hand").translation


reach = o.problem(
    o.plant(model),
    x0,
    dt,
    knots=knots,
    costs=[o.residual(lambda x, u, p: x - x0, 0.1 * dt), o.residual(lambda x, u, p: u, 1e-3 * dt)],
    end_costs=[o.residual(lambda x, p: hand(x) - p, 1e3), o.residual(lambda x, p: x[7:], 10.0)],
    lower=-motors,
    upper=motors,
    params=target,
)
hold = jnp.broadcast_to(dx.gravity_force(model, q0), (knots, 7))  # what keeps the arm where it is

# %% [markdown]
# Sixteen places are solved side by side: a batch is `jax.vmap`, and each lane has a status of its own.

# %%
places = target + 0.15 * jax.random.uniform(jax.random.key(0), (16, 3), minval=-1.0)
places = places.at[0].set(target)
many = jax.jit(jax.vmap(lambda target: o.solve(dataclasses.replace(reach, params=target), hold)))(places)
print(many)
misses = jnp.linalg.norm(jax.vmap(hand)(many.states[:, -1]) - places, axis=1)
print("misses by at most", np.round(1e3 * float(misses.max()), 2), "mm")
result = jax.tree.map(lambda x: x[0], many)
print(result)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
moment = np.arange(knots) * dt
left.plot(np.arange(knots + 1) * dt, jax.vmap(hand)(result.states), label=["x", "y", "z"])
left.set(xlabel="time [s]", ylabel="hand [m]")
left.legend()
right.step(moment, result.controls[:, 2:4], where="post", label=["joint 3", "joint 4"])
for limit in (-10.0, 25.0):
    right.axhline(limit, color="gray", linestyle=":")
right.set(xlabel="time [s]", ylabel="torque [N m]")
right.legend()
plt.show()

# %% [markdown]
# ## Control at 100 Hz
#
# The place goes round in a circle, every body of the arm is a tenth heavier than in the model, and nobody tells. At
# every tick the plan of 30 knots moves up by one and takes one iteration from the measured state. The plan takes the
# place to stay where it is seen, and torques have their price: so the hand follows some way behind.

# %%
ahead = 30
follow = o.problem(
    o.plant(model),
    x0,
    dt,
    knots=ahead,
    costs=[
        o.residual(lambda x, u, p: hand(x) - p, 100.0 * dt),
        o.residual(lambda x, u, p: x[7:], 0.1 * dt),
        o.residual(lambda x, u, p: u, 1e-4 * dt),
    ],
    end_costs=[o.residual(lambda x, p: hand(x) - p, 100.0), o.residual(lambda x, p: x[7:], 1.0)],
    lower=-2.0 * motors,
    upper=2.0 * motors,
    params=target,
)
heavier = dx.with_inertial_parameters(model, 1.1 * dx.inertial_parameters(model))


@jax.jit
def tick(plan, x, target):
    now = dataclasses.replace(follow, params=target)
    plan = o.replan(now, plan, x)
    return plan, o.command(now, plan, x)


@jax.jit
def move(x, u):
    return jnp.concatenate(dx.step(heavier, x[:7], x[7:], u, dt, stepper=o.ClosedFormEuler()))


def place(t):
    return np.array([0.45 + 0.1 * np.cos(np.pi * t), 0.1 * np.sin(np.pi * t), 0.5])


plan = o.start(jax.jit(o.solve)(dataclasses.replace(follow, params=jnp.asarray(place(0.0))), hold[:ahead]))
x, path, took = x0, [], []
tick(plan, x, jnp.asarray(place(0.0)))  # compiles
for k in range(400):
    begin = time.perf_counter()
    plan, u = jax.block_until_ready(tick(plan, x, jnp.asarray(place(k * dt))))
    took.append(1e3 * (time.perf_counter() - begin))
    x = move(x, u)
    path.append(hand(x))
path, wanted = np.array(path), np.array([place((k + 1) * dt) for k in range(400)])
away = 1e3 * np.linalg.norm(path - wanted, axis=1)
print(f"away from the place after one second: mean {away[100:].mean():.1f} mm, largest {away[100:].max():.1f} mm")
print("ticks missed:", int(plan.missed), "- of 400, later than 10 ms:", int(np.sum(np.array(took) > 10.0)))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
left.plot(*wanted[:, :2].T, ":", label="place")
left.plot(*path[:, :2].T, label="hand")
left.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
left.legend()
right.hist(took, bins=40)
right.axvline(10.0, color="gray", linestyle=":")
right.set(xlabel="time of a tick [ms]", ylabel="ticks")
plt.show()
