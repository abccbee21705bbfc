# %% [markdown]
# # First steps
#
# A robot from a file, its dynamics, a motion, a batch, and gradients of all of it.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import dynax as dx

jax.config.update("jax_enable_x64", True)  # float32 is the default, as everywhere in JAX

# %% [markdown]
# ## A robot
#
# `dx.load` takes the path of a URDF or an MJCF, or its text. This arm has two links, and hangs down at zero.

# %%
URDF = """
<robot name="two_links">
  <link name="base"/>
  <link name="upper">
    <inertial>
      <origin xyz="0 0 -0.25"/><mass value="2"/>
      <inertia ixx="0.042" iyy="0.042" izz="0.001" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <link name="lower">
    <inertial>
      <origin xyz="0 0 -0.2"/><mass value="1"/>
      <inertia ixx="0.014" iyy="0.014" izz="0.001" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <link name="hand"/>
  <joint name="shoulder" type="continuous">
    <parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
  </joint>
  <joint name="elbow" type="continuous">
    <parent link="upper"/><child link="lower"/><origin xyz="0 0 -0.5"/><axis xyz="0 1 0"/>
  </joint>
  <joint name="wrist" type="fixed">
    <parent link="lower"/><child link="hand"/><origin xyz="0 0 -0.4"/>
  </joint>
</robot>
"""
model = dx.load(URDF)
print(model)

# %% [markdown]
# A welded link, such as the hand, is a frame of the body that carries it. The configuration `q` and the velocity `v`
# are plain arrays.

# %%
q = jnp.array([0.9, 0.4])
v = jnp.array([0.0, 1.0])
print("the hand is at", dx.frame_pose(model, q, "hand").translation)
print("moves by", dx.jacobian(model, q, "hand", frame="world_aligned")[3:] @ v)
print("mass matrix", dx.mass_matrix(model, q), sep="\n")

# %% [markdown]
# ## Forces and accelerations
#
# Inverse and forward dynamics undo one another.

# %%
tau = jnp.array([1.0, -0.5])
a = dx.forward_dynamics(model, q, v, tau)
print("accelerations", a)
print("torques again", dx.inverse_dynamics(model, q, v, a))

# %% [markdown]
# ## A motion
#
# Let it fall for three seconds. Energy is not lost: nothing rubs.

# %%
steps, dt = 1500, 0.002
motion = jax.jit(lambda q, v: dx.rollout(model, q, v, jnp.zeros((steps, 2)), dt))(q, v)
kinetic = jax.vmap(lambda q, v: dx.kinetic_energy(model, q, v))(motion.q, motion.v)
potential = jax.vmap(lambda q: dx.potential_energy(model, q))(motion.q)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot(motion.time, motion.q, label=model.joint_names)
left.set(xlabel="time [s]", ylabel="angle [rad]")
left.legend(frameon=False)
right.plot(motion.time, kinetic, label="kinetic")
right.plot(motion.time, potential, label="potential")
right.plot(motion.time, kinetic + potential, label="total")
right.set(xlabel="time [s]", ylabel="energy [J]")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# What it looks like: `dx.render` draws without a screen, here the boxes of the links' inertias, and
# `dx.view(model, motion)` plays it in a browser.

# %%
eye = dx.viz.Camera(jnp.array([0.3, -2.2, -0.3]), jnp.array([0.0, 0.0, -0.45]))
film = dx.render(model, motion, size=(240, 240), fps=5, camera=eye, ground=None)
figure, axes = plt.subplots(1, 5, figsize=(9, 2), layout="constrained")
for k, moment in enumerate(axes):
    moment.imshow(film[k])
    moment.set(xticks=[], yticks=[], title=f"{k / 5:.1f} s")
plt.show()

# %% [markdown]
# ## Gradients
#
# Everything is a function of `model`, `q`, `v` and the torques, and `jax.grad` takes the derivative by any of them.
# Where is the hand after half a second, and how does that depend on where it began, and on the masses?


# %%
def height(q, mass):
    path = dx.rollout(model.replace(mass=mass), q, jnp.zeros(2), jnp.zeros((50, 2)), 0.01)
    return dx.frame_pose(model, path.q[-1], "hand").translation[2]


value, (by_q, by_mass) = jax.jit(jax.value_and_grad(height, argnums=(0, 1)))(q, model.mass)
print(f"height {value:.4f} m")
print("by the angles [m/rad]", by_q)
print("by the masses [m/kg]", by_mass)

# %% [markdown]
# ## A batch
#
# A batch is a `jax.vmap`: here of a thousand arms from angles of their own.

# %%
starts = jax.random.uniform(jax.random.key(0), (1000, 2), minval=-1.5, maxval=1.5)
ends = jax.jit(jax.vmap(lambda q: dx.rollout(model, q, jnp.zeros(2), jnp.zeros((50, 2)), 0.01).q[-1]))(starts)
hands = jax.vmap(lambda q: dx.frame_pose(model, q, "hand").translation)(ends)

figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
axes.scatter(hands[:, 0], hands[:, 2], s=2)
axes.set(xlabel="x [m]", ylabel="z [m]", title="hands after half a second", aspect="equal")
plt.show()
