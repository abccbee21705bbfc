# %% [markdown]
# # A thousand robots, none of them yours
#
# A controller that is to work on a robot nobody has measured is tried on many that it could be. Every number of a model
# is a leaf, so robots that differ are one model with a batch axis: one program rolls them all out, and the gradient of
# what they do on average goes through all of them.

# %%
from importlib import resources

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dynax as dx
from dynax import actuate

# float32, the default: what such a batch runs in.
arm = dx.load(resources.files("dynax").joinpath("models/arm7.urdf").read_text())
arm = arm.replace(friction_loss=jnp.full(7, 0.3))
print(arm)

# %% [markdown]
# ## What could be different
#
# Masses within a tenth, centres of mass within a few centimetres, friction and damping by up to a factor of two, an
# unknown load in the hand, gravity that is not quite vertical since the arm stands askew, servos that are softer or
# stiffer, and commands that come late.

# %%
LANES = 256


def some_robot(key):
    """A robot that the arm could be, and its servos."""
    keys = iter(jax.random.split(key, 8))

    def within(low, high, shape=()):
        return jax.random.uniform(next(keys), shape, minval=low, maxval=high)

    mass = arm.mass * within(0.9, 1.1, (7,))
    robot = arm.replace(
        mass=mass.at[6].add(within(0.0, 1.0)),
        com=arm.com + within(-0.02, 0.02, (7, 3)),
        damping=arm.damping * jnp.exp(within(-0.7, 0.7, (7,))),
        friction_loss=arm.friction_loss * jnp.exp(within(-0.7, 0.7, (7,))),
        gravity=arm.gravity + within(-0.3, 0.3, (3,)),
    )
    return robot, within(0.8, 1.2)


robots, strengths = jax.vmap(some_robot)(jax.random.split(jax.random.key(0), LANES))
print("masses of the last link [kg]:", *(f"{mass:.2f}" for mass in robots.mass[:6, 6]), "...")

# %% [markdown]
# ## A controller and what it does to all of them
#
# Servos follow a step of the command, which is filtered and two steps late. Of the controller, stiffness and damping
# are to be found.

# %%
DT, STEPS = 0.01, 100
start = jnp.array([0.0, -0.5, 0.0, -2.0, 0.0, 1.5, 0.0])
target = start + jnp.array([0.4, 0.3, -0.3, 0.4, 0.3, -0.3, 0.5])
first = jnp.log(jnp.array([[300.0] * 4 + [60.0] * 3, [5.0] * 4 + [1.0] * 3]))


def path(gains, robot, strength):
    """The motion of a robot under the logarithms of its gains."""
    stiffness, damping = strength * jnp.exp(gains)
    law = actuate.Delayed(actuate.Filtered(actuate.PositionServo(stiffness, damping), 0.03), 2)
    servos = actuate.on_joints(arm, arm.joint_names, law).with_effort_limits(arm.effort_limits)
    return dx.rollout(robot, start, jnp.zeros(7), jnp.tile(target, (STEPS, 1)), DT, actuators=servos)


def cost(gains, robot, strength):
    """Distance from the target over the second half, and torque that shakes."""
    run = path(gains, robot, strength)
    late = run.q[STEPS // 2 :] - target
    return jnp.mean(late**2) + 1e-3 * jnp.mean(run.v[STEPS // 2 :] ** 2) + 1e-9 * jnp.sum(jnp.exp(2.0 * gains))


@jax.jit
def average(gains):
    return jnp.mean(jax.vmap(cost, in_axes=(None, 0, 0))(gains, robots, strengths))


improved = jax.jit(jax.value_and_grad(average))

# %% [markdown]
# ## The gains that are best for all
#
# Plain gradient steps of bounded length, each of them through `LANES` rollouts. Beside it the gains that are best for
# the robot of the drawing alone.


# %%
def descend(function, gains, steps=40, length=0.15):
    costs = []
    for k in range(steps):
        value, slope = function(gains)
        costs.append(float(value))
        gains = gains - length * 0.97**k * slope / (jnp.max(jnp.abs(slope)) + 1e-12)
    return gains, costs


@jax.jit
def of_drawing(gains):
    return jax.value_and_grad(cost)(gains, arm, jnp.ones(()))


robust, costs = descend(improved, first)
nominal, _ = descend(of_drawing, first)
print(f"mean cost of {LANES} robots: {costs[0]:.2e} at first, {min(costs):.2e} found")

# %% [markdown]
# ## Robots that it has never seen

# %%
unseen = jax.vmap(some_robot)(jax.random.split(jax.random.key(1), LANES))
judge = jax.jit(jax.vmap(cost, in_axes=(None, 0, 0)))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for name, gains, colour in (("for the drawing", nominal, "#b0b7c3"), ("for all", robust, "#2563eb")):
    found = np.asarray(judge(gains, *unseen))
    assert np.all(np.isfinite(found))
    print(f"gains {name}: mean {found.mean():.2e}, worst {found.max():.2e}")
    left.hist(np.log10(found), 30, color=colour, alpha=0.7, label=name)
left.set(xlabel="log10 of the cost of an unseen robot", ylabel="robots")
left.legend(frameon=False)
runs = jax.jit(jax.vmap(path, in_axes=(None, 0, 0)))(robust, *unseen)
right.plot(runs.time[0], runs.q[:60, :, 1].T, color="#2563eb", lw=0.4, alpha=0.5)
right.axhline(target[1], color="#dc2626", lw=1)
right.set(xlabel="time [s]", ylabel="angle of joint 2 [rad]")
plt.show()
