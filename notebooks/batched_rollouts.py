# %% [markdown]
# # Batched rollouts
#
# A thousand robots at once, each with its own start, its own torques and its own masses; gradients through all of them;
# and how fast that is.

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import dynax as dx

# %% [markdown]
# ## The robot
#
# A double pendulum on a cart: three freedoms.

# %%
rod = dx.SpatialInertia(mass=0.5, com=(0.0, 0.0, -0.25), inertia=(0.0105, 0.0105, 0.0001))
builder = dx.ModelBuilder(name="cart")
builder.body("cart", joint=dx.Prismatic((1, 0, 0)), inertia=dx.SpatialInertia(2.0, (0, 0, 0), (0.01, 0.01, 0.01)))
builder.body("upper", parent="cart", joint=dx.Revolute((0, 1, 0)), inertia=rod, damping=0.01)
below = dx.Transform.from_translation((0.0, 0.0, -0.5))
builder.body("lower", parent="upper", joint=dx.Revolute((0, 1, 0)), placement=below, inertia=rod, damping=0.01)
builder.frame("tip", body="lower", placement=below)
model = builder.build()
steps, dt, robots = 200, 0.01, 1000

# %% [markdown]
# ## A batch of states
#
# Every function takes one state. `jax.vmap` makes it one of many, `jax.jit` one program.

# %%
keys = jax.random.split(jax.random.key(0), 3)
starts = jax.random.uniform(keys[0], (robots, model.nq), minval=-1.0, maxval=1.0)
pushes = 2.0 * jax.random.normal(keys[1], (robots, steps, 1)) * jnp.array([1.0, 0.0, 0.0])


def motion(model, q, controls):
    return dx.rollout(model, q, jnp.zeros(model.nv), controls, dt)


many = jax.jit(jax.vmap(motion, in_axes=(None, 0, 0)))
paths = jax.block_until_ready(many(model, starts, pushes))
begin = time.perf_counter()
jax.block_until_ready(many(model, starts, pushes))
rate = robots * steps / (time.perf_counter() - begin)
print(paths)
print("more than a hundred thousand steps a second:", rate > 1e5)

# %%
tips = jax.vmap(jax.vmap(lambda q: dx.frame_pose(model, q, "tip").translation))(paths.q)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for k in range(30):
    axes.plot(tips[k, :, 0], tips[k, :, 2], lw=0.7)
axes.set(xlabel="x [m]", ylabel="z [m]", title="tips of 30 of the robots", aspect="equal")
plt.show()

# %% [markdown]
# ## A batch of robots
#
# A model is a pytree, and its numbers are leaves. Models that differ in some of them are one model with a batch axis on
# these, here the masses, and `in_axes` says where it is.

# %%
masses = model.mass * jnp.exp(0.3 * jax.random.normal(keys[2], (robots, model.num_bodies)))
varied = model.replace(mass=masses)
axes_of = jax.tree.map(lambda _: None, model).replace(mass=0)
ends = jax.jit(jax.vmap(lambda m, u: motion(m, starts[0], u).q[-1], in_axes=(axes_of, None)))(varied, pushes[0])
print("where the cart ends: mean", ends[:, 0].mean(), "spread", ends[:, 0].std(), "[m]")

# %% [markdown]
# ## Gradients of a batch
#
# Which constant push brings each cart to the middle? Newton's method for every robot at once: `jax.grad` inside `vmap`.


# %%
def end(push, q):
    controls = jnp.tile(push * jnp.array([1.0, 0.0, 0.0]), (100, 1))
    return dx.rollout(model, q, jnp.zeros(model.nv), controls, dt).q[-1, 0]


@jax.jit
@jax.vmap
def improve(push, q):
    value, slope = jax.value_and_grad(end)(push, q)
    return push - value / slope, value


push = jnp.zeros(robots)
for iteration in range(4):
    push, off = improve(push, starts)
    print(f"{iteration}: carts off the middle by {jnp.abs(off).max():.1e} m at most")

# %% [markdown]
# ## Where the time goes
#
# `dx.batch(function)` is `jax.vmap` in tiles that fit the caches, over all CPU devices or cards of the process; results
# are the same. [The page on batches](../docs/batches.md) says when it pays.

# %%
tiled = jax.jit(dx.batch(lambda q, u: motion(model, q, u).q[-1]))(starts, pushes)
print("largest difference", jnp.abs(tiled - paths.q[:, -1]).max())
