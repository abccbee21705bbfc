# %% [markdown]
# # A hopper that finds its own touchdown
#
# A body on a leg starts in the air, at rest, and shall be 0.3 m further, at the top of a hop, within 0.6 s. Nobody says
# when its foot touches the ground, or where: forces at hip and leg are all there is to find, by the gradient of a
# rollout.
#
# As long as the foot is in the air a step knows nothing of the ground. So the optimisation begins with derivatives of
# contact that is relaxed by `kappa`, `dx.simulate.Smoothed(kappa)`, in which the ground is felt at a distance, and lets
# `kappa` fall. The motion itself is that of rigid contact all the time, and so is the cost.

# %%
import time

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import contact
from dynax.simulate import Smoothed, Touching

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# The robot: 3 kg that stay upright, a hip, a leg that is longer or shorter by a force, and a foot of rubber.


# %%
def rigid(mass, moment):
    return dx.SpatialInertia(mass, (0, 0, 0), (moment,) * 3)


knee = dx.Transform.from_translation((0, 0, -0.4))
builder = dx.ModelBuilder()
builder.body("rail", joint=dx.Prismatic((1, 0, 0)), inertia=rigid(0.01, 1e-5))
builder.body("body", parent="rail", joint=dx.Prismatic((0, 0, 1)), inertia=rigid(3.0, 0.05))
builder.body("thigh", parent="body", joint=dx.Revolute((0, 1, 0)), inertia=rigid(0.3, 0.02), damping=0.1)
builder.body(
    "foot", parent="thigh", joint=dx.Prismatic((0, 0, -1)), placement=knee, inertia=rigid(0.2, 1e-3), damping=1.0,
    position_limits=(-0.15, 0.1),
)  # fmt: skip
model = builder.build()
scene = contact.scene(
    model,
    [
        contact.Collider("world", contact.Plane(), material=contact.Material(friction=0.9)),
        contact.Collider("foot", contact.Sphere(0.03)),
    ],
)

# %% [markdown]
# Steps of 10 ms; forces are held over 30 ms. The cost is the distance from the goal, and some effort.

# %%
DT, STEPS, HELD = 0.01, 60, 3
START = jnp.array([0.0, 0.55, 0.0, 0.0])
GOAL = jnp.array([0.3, 0.6, 0.0])
SCALE = jnp.array([5.0, 60.0])


def motion(knots, kappa):
    forces = jnp.repeat(SCALE * knots, HELD, axis=0)
    forces = jnp.concatenate([jnp.zeros((STEPS, 2)), forces], axis=1)
    return dx.rollout(scene, START, jnp.zeros(4), forces, DT, stepper=Touching(gradient=Smoothed(kappa)))


def cost(knots, kappa):
    run = motion(knots, kappa)
    miss = run.q[-1, :3] - GOAL
    return 20.0 * jnp.sum(miss**2) + 0.5 * jnp.sum(run.v[-1, 1:3] ** 2) + 1e-3 * jnp.sum(knots**2)


# %% [markdown]
# Adam (Kingma & Ba 2015), 100 steps for each `kappa`, from 16 constant forces side by side, and the best of all. Costs
# of motions with contact have many valleys: which of them a search ends in is decided by little, such as the last digit
# of a sum. Two of three find a jump, one of five a good one. `kappa` is an argument: another one compiles nothing.

# %%
gradients, row = jax.jit(jax.vmap(jax.value_and_grad(cost), (0, None))), (slice(None), None, None)
starts = jnp.array([0.0, 0.3]) + 0.1 * jax.random.normal(jax.random.key(2), (16, 1, 2))
knots = jnp.tile(starts, (1, STEPS // HELD, 1))
begin, mean, square, k = time.process_time(), jnp.zeros_like(knots), jnp.zeros_like(knots), 0
first, lowest, best = None, np.full(len(knots), np.inf), knots
for kappa, rate in ((3e-1, 0.03), (1e-1, 0.03), (3e-2, 0.02), (2e-2, 0.01), (1e-2, 0.005)):
    for _ in range(100):
        values, slope = gradients(knots, kappa)
        first = float(jnp.min(values)) if first is None else first
        better = values < lowest
        lowest, best = jnp.where(better, values, lowest), jnp.where(better[row], knots, best)
        slope = slope / jnp.maximum(1.0, jnp.linalg.norm(slope, axis=(1, 2)))[row]
        k += 1
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        step = rate * (mean / (1 - 0.9**k)) / (jnp.sqrt(square / (1 - 0.99**k)) + 1e-8)
        knots = knots - step
    knots = best
    costs = np.sort(lowest)
    print(f"kappa {kappa:.0e}: costs", *np.round(costs[[0, 4, 8, 12, 15]], 2))
lowest, best = float(jnp.min(lowest)), best[jnp.argmin(lowest)]
print(f"{time.process_time() - begin:.0f} CPU s")

# %% [markdown]
# What it found: where the foot touched the ground, and how the motion ends.

# %%
run = motion(best, 1e-4)
height = jax.vmap(lambda q: contact.contacts(scene, q).gap[0])(run.q)
touching = np.flatnonzero(np.asarray(height) < 1e-4)
print(f"on the ground from {DT * touching[0]:.2f} s to {DT * touching[-1]:.2f} s")
print(
    "ends at", np.round(np.asarray(run.q[-1, :3]), 3), "for", GOAL, "at", np.round(np.asarray(run.v[-1, :3]), 2), "m/s"
)
print(f"cost {first:.2f} at first, {lowest:.3f} at last")
assert lowest < 0.1 * first
