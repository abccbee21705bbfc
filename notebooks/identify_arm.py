# %% [markdown]
# # An arm from its log
#
# A robot is never the robot of its drawing. Here an arm moves under its own servos, is measured with noise, and from
# this log alone comes a model whose bodies can exist, with what is known of each number, and its URDF.
#
# The log is simulated, so that the truth is known at the end; nothing before the last section looks at it.

# %%
from importlib import resources

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dynax as dx
from dynax import actuate, identify

jax.config.update("jax_enable_x64", True)
URDF = resources.files("dynax").joinpath("models/arm7.urdf").read_text()
drawing = dx.load(URDF)
drawing = drawing.replace(friction_loss=jnp.full(7, 0.1), friction_velocity=0.05)
print(drawing)

# %% [markdown]
# ## What could be seen at all
#
# Forces are linear in the parameters, `tau = Y(q, v, a) pi`, but show only combinations of them.

# %%
TERMS = ("inertias", "damping", "friction_loss")
possible = identify.identifiability(drawing, terms=TERMS)
for line in str(possible).splitlines()[:6]:
    print(line if len(line) < 110 else line[:107] + "...")

# %% [markdown]
# ## A motion that shows much
#
# Fourier series within the limits of the joints, optimised from several random starts. What they let one know of the
# parameters differs, and the best is taken.

# %%
KEYS = jax.random.split(jax.random.key(0), 4)


@jax.jit
@jax.vmap
def design(key):
    return identify.excitation(
        drawing, possible.base, key, period=10.0, terms=TERMS, samples=50, iterations=60, position=0.6, speed=0.6
    )


designs = design(KEYS)
best = int(jnp.argmax(designs.log_determinant))
motion = jax.tree.map(lambda x: x[best], designs)
print("log det of", np.round(designs.log_determinant, 1))

# %% [markdown]
# ## The robot that nobody knows, and its log
#
# Bodies, damping and dry friction differ from the drawing. Servos follow the motion for twice its period; encoders and
# torque sensors are read at 250 Hz.

# %%
rng = np.random.default_rng(1)
off = {name: 0.15 * rng.normal(size=x.shape) for name, x in dx.parameters(drawing).items() if name == "inertias"}
off |= {"damping": 0.5 * rng.normal(size=7), "friction_loss": 0.5 * rng.normal(size=7)}
robot = dx.with_parameters(drawing, off)

DT, STEPS = 0.004, 5000
times = DT * jnp.arange(STEPS)
wanted = motion.at(times)
stiffness = jnp.array([1500.0, 1500.0, 800.0, 800.0, 200.0, 200.0, 100.0])
servos = actuate.on_joints(robot, robot.joint_names, actuate.PositionServo(stiffness, stiffness / 20.0))
sensors = {
    "encoders": actuate.Noisy(actuate.JointPosition(), 1e-5),
    "torques": actuate.Noisy(actuate.ActuatorForce(), 0.1),
}
run = dx.rollout(
    robot, wanted[0][0], wanted[1][0], wanted[0], DT, actuators=servos, sensors=sensors, key=jax.random.key(2)
)
q, tau = run.sensors["encoders"][1:], run.sensors["torques"][1:]

figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 4), layout="constrained")
above.plot(times, q, lw=1)
above.set(ylabel="angle [rad]")
below.plot(times, tau, lw=0.7)
below.set(ylabel="torque [N m]", xlabel="time [s]")
plt.show()

# %% [markdown]
# ## From samples to estimates
#
# Angles and torques go through one filter without delay, the angles are differentiated, and every fifth sample is
# kept. The last third of the log is not used: it is for the check.

# %%
log = identify.prepare(drawing, np.asarray(run.time[1:]), q, tau, cutoff=8.0, every=5)
y = jax.jit(jax.vmap(lambda *state: identify.regressor(drawing, *state, terms=TERMS)))(log.q, log.v, log.a)
used = slice(0, 2 * len(y) // 3)
kept = slice(2 * len(y) // 3, len(y))

seen = identify.identifiability_of(y[used], identify.parameter_names(drawing, TERMS))
estimate = identify.weighted_least_squares(y[used][..., seen.base], log.tau[used])
shown = {"channels": drawing.joint_names, "held_out": (y[kept], log.tau[kept])}
told = identify.report(seen, estimate, y[used], log.tau[used], **shown)
print(told)
identify.plot(told)

# %% [markdown]
# ## Bodies that can exist
#
# Least squares knows nothing of bodies. `consistent_fit` takes, of all bodies that can exist, those that explain the
# log best; where it says nothing the drawing does, as a prior.

# %%
data = identify.compress(y[used], log.tau[used], noise=estimate.noise)
fit = identify.consistent_fit(drawing, data, terms=TERMS, prior=1.0)
model = identify.with_parameter_vector(drawing, fit.values, TERMS)
print("converged:", bool(fit.converged), "- bodies that cannot exist:", len(dx.inconsistent_bodies(model)))

text = dx.rewrite(URDF, model.replace(friction_velocity=dx.load(URDF).friction_velocity))
written = [line.strip() for line in text.splitlines() if "<inertial>" in line or "<dynamics" in line]
print("\n".join(line[:100] for line in written[:4]))

# %% [markdown]
# ## Beside the truth
#
# The forces of motions that no log had, by the drawing and by the fit; and the masses, of which a log shows only parts.

# %%
states = rng.normal(size=(3, 300, 7))


@jax.jit
def forces(model):
    return jax.vmap(lambda q, v, a: dx.inverse_dynamics(model, q, v, a))(*states)


true = forces(robot)
for name, one in (("drawing", drawing), ("fit", model)):
    missed = jnp.sqrt(jnp.mean((forces(one) - true) ** 2) / jnp.mean(true**2))
    print(f"{name} misses the forces of other motions by {100 * missed:.1f} percent")

figure, axes = plt.subplots(figsize=(7, 2.5), layout="constrained")
for k, (name, one) in enumerate((("drawing", drawing), ("fit", model), ("truth", robot))):
    axes.bar(np.arange(7) + 0.27 * (k - 1), one.mass, 0.25, label=name, color=("#b0b7c3", "#2563eb", "#dc2626")[k])
axes.set_xticks(range(7), robot.body_names)
axes.set_ylabel("mass [kg]")
axes.legend(frameon=False)
plt.show()
