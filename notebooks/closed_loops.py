# %% [markdown]
# # Closed loops
#
# A four-bar linkage: how to close it, two ways to move it, and a design by gradient. The page is
# [closed_loops.md](../docs/closed_loops.md).

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import dynax as dx

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## A tree, and what closes it
#
# Cut the loop at one joint, build the tree, say what the cut joint was.


# %%
def at(x):
    return dx.Transform.from_translation((x, 0.0, 0.0))


def bar(length):
    return dx.SpatialInertia(1.0, (0.5 * length, 0.0, 0.0), (1e-3, length**2 / 12, length**2 / 12))


pin = dx.Revolute((0, 0, 1))
builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="four-bar")
builder.body("crank", joint=pin, inertia=bar(0.5))
builder.body("coupler", parent="crank", joint=pin, placement=at(0.5), inertia=bar(1.2))
builder.body("rocker", joint=pin, placement=at(1.0), inertia=bar(1.1))
ends = {"predecessor_placement": at(1.2), "successor_placement": at(1.1)}
builder.loop("elbow", predecessor="coupler", successor="rocker", joint=pin, **ends)
builder.frame("pen", body="coupler", placement=at(0.6))
model = builder.build()
print(model)
print(dx.mobility(model, dx.assemble(model, jnp.array([1.0, -0.4, 1.4])).q))

# %% [markdown]
# ## Assembly
#
# `assemble` closes the loops from a guess, which also says on which of the branches; `hold` keeps joints in place.

# %%
q = dx.assemble(model, jnp.array([1.0, -0.4, 1.4]), hold=["crank_joint"]).q
print("angles", q, "open by", jnp.abs(dx.constraint_residual(model, q)).max())

# %% [markdown]
# ## Forces that close it
#
# All joints as the state, and the force of the loop as an output: `multipliers` are what the pin transmits. A planar
# loop in space repeats itself: of its conditions two count, and the rank says so.

# %%
found = dx.constrained_dynamics(model, q, jnp.zeros(3), jnp.zeros(3))
print("accelerations", found.a)
print("conditions that count", found.rank)

# %% [markdown]
# ## One freedom
#
# `dx.embed` takes the loop into the tree. Then every algorithm runs as on a tree, with one velocity, and no drift.

# %%
closed = dx.embed(model, q, independent=["crank_joint"])
print("the same acceleration", dx.forward_dynamics(closed, q, jnp.zeros(1), jnp.zeros(1)), "of the crank")
motion = jax.jit(lambda q: dx.rollout(closed, q, jnp.array([8.0]), jnp.zeros((600, 1)), 0.002))(q)
kinetic = jax.vmap(lambda q, v: dx.kinetic_energy(closed, q, v))(motion.q, motion.v)
potential = jax.vmap(lambda q: dx.potential_energy(closed, q))(motion.q)
total = kinetic + potential
print("loops stay closed to", jnp.abs(jax.vmap(lambda q: dx.constraint_residual(model, q))(motion.q)).max())
print("energy changes by", jnp.ptp(total) / kinetic.max(), "of the kinetic energy")

# %%
pens = jax.vmap(lambda q: dx.frame_pose(model, q, "pen").translation)(motion.q)
poses = jax.vmap(lambda q: dx.forward_kinematics(model, q).translation)(motion.q)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot(pens[:, 0], pens[:, 1], color="tab:red", label="pen on the coupler")
for k in range(0, 400, 80):
    elbow, pen = poses[k, 1, :2], pens[k, :2]
    left.plot(*jnp.stack([jnp.zeros(2), elbow, 2 * pen - elbow, jnp.array([1.0, 0.0])]).T, color="0.7", lw=1)
left.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
left.legend(frameon=False)
right.plot(motion.time, motion.v[:, 0])
right.set(xlabel="time [s]", ylabel="speed of the crank [rad/s]")
plt.show()

# %% [markdown]
# ## Gradients by lengths
#
# Lengths are leaves. How does the height of the pen depend on where the coupler is held?


# %%
def height(length):
    moved = model.replace(placements=dx.Transform(
        model.placements.rotation, model.placements.translation.at[1, 0].set(length)
    ))  # fmt: skip
    found = dx.assemble(moved, q, hold=["crank_joint"])
    return dx.frame_pose(moved, found.q, "pen").translation[1]


slope, step = jax.grad(height)(0.5), 1e-6
print("by the crank's length", slope, "by differences", (height(0.5 + step) - height(0.5 - step)) / (2 * step))
