# %% [markdown]
# # A spacecraft with flexible panels
#
# From the matrices of a finite-element program to a controlled slew: read a panel, keep its lowest modes, put it on a
# spacecraft, linearise, design the control, and try it on the nonlinear model, and on many whose panels are stiffer or
# softer than drawn.

# %%
import tempfile
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import block_diag, expm, solve_continuous_are

import dynax as dx

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## Matrices
#
# What comes from a finite-element program is a mass and a stiffness matrix, where the nodes stand, and the names of
# those that matter: [docs/structures.md](../docs/structures.md) says how they are stored. Here dynax's own plate
# elements write such a folder of Matrix Market files: a panel of 6 by 1.5 metres, free as it should be, held nowhere.

# %%
sheet = dx.PanelSection(bending=1600.0, membrane=1e7, mass_per_area=3.0)
folder = Path(tempfile.mkdtemp()) / "panel"
dx.save_finite_elements(dx.panel_elements(sheet, 6.0, 1.5, elements=(8, 2), direction=(0, 1, 0)), folder)
print(*sorted(file.name for file in folder.iterdir()), sep=", ")

structure = dx.load_finite_elements(folder)
print(dx.check_elements(structure))

# %% [markdown]
# The report finds six motions without strain, the mass of the panel, and its centre. That a matrix is not symmetric, or
# the structure held, would be said here.
#
# ## Modes
#
# A flexible body needs modes. The panel is held by its root, so those of a cantilever converge fast; free ones, or
# those of Craig and Bampton, would do as well. Their share in the inertia says which modes a slew can excite.

# %%
modes = structure.modes(4, held={"root": "123456"})
panel = structure.body(modes, damping_ratio=0.005)
effective = np.asarray(panel.rotation_coupling[0]) ** 2 / panel.inertia[0, 0]
for k, (frequency, share) in enumerate(zip(modes.frequencies, effective, strict=True)):
    print(f"mode {k + 1}: {frequency / (2 * np.pi):.3f} Hz, {100 * share:5.1f} % of the inertia about the root")

# %% [markdown]
# Two of the four bend along the panel, and hold nearly all of its inertia about the axis of the slew. These are kept.
#
# ## The spacecraft
#
# A hub that turns about x, a panel on each side. `q` and `v` hold the hub's angle and then the modes of each panel.
#
# Mass and stiffness matrices know nothing of geometric stiffness, what a body gains by being drawn outwards as it
# turns. The file's panel is therefore at the level `"full"`, for slow turning; dynax's own elements give foreshortening
# too, and `"consistent"` bodies. This slew turns at 0.3 rad/s, a sixth of the lowest frequency: it takes the latter.

# %%
kept = np.flatnonzero(effective > 0.01)


def side(way):
    """The panel along the positive or the negative y."""
    elements = dx.panel_elements(sheet, 6.0, 1.5, elements=(8, 2), direction=(0, way, 0))
    found = elements.modes(4, held={"root": "123456"})
    return elements.body(elements.modes_of(found.shapes[:, kept]), damping_ratio=0.005)


builder = dx.ModelBuilder(gravity=(0, 0, 0), name="spacecraft")
builder.body("hub", joint=dx.Revolute((1, 0, 0)), inertia=dx.SpatialInertia(400.0, (0, 0, 0), (150.0, 150.0, 150.0)))
for name, way in (("left", 1.0), ("right", -1.0)):
    root = dx.Transform.from_translation((0.0, 0.5 * way, 0.0))
    builder.body(name, parent="hub", placement=root, inertia=side(way))
model = builder.build()
print(model)

# %% [markdown]
# ## The linear system
#
# `dx.linearize` gives `A` and `B` at rest, `dx.eigenmodes` what swings. Where the panels' moments on the hub cancel, it
# rests, and the frequencies are those of clamped panels; where they add up, it gives way, and they are higher.

# %%
rest = dx.neutral(model), jnp.zeros(model.nv)
hub = model.v_slice("hub_joint").start
actuation = jnp.zeros((model.nv, 1)).at[hub, 0].set(1.0)
system = dx.linearize(model, *rest, jnp.zeros(1), actuation=actuation)
swings = dx.eigenmodes(system)
for value, ratio in zip(swings.values, swings.damping, strict=True):
    if value.imag > 1e-3:
        print(f"{value.imag / (2 * np.pi):.3f} Hz, damped by {100 * ratio:.2f} % of critical")

# %% [markdown]
# ## Control
#
# The slew: a right angle in 10 s. First the torque of least effort that takes the linear system from rest to rest: of
# the system over steps of 20 ms the shortest vector `u` with `C u` the goal. It is compared with the torque that would
# turn a rigid spacecraft there, full ahead and then full astern.

# %%
dt, steps, goal = 0.02, 500, 0.5 * np.pi
A, B, nv = np.asarray(system.A), np.asarray(system.B), model.nv
stepped = expm(dt * np.block([[A, B], [np.zeros((1, 2 * nv + 1))]]))
Ad, Bd = stepped[: 2 * nv, : 2 * nv], stepped[: 2 * nv, 2 * nv]
columns = [Bd]
for _ in range(steps - 1):
    columns.append(Ad @ columns[-1])
target = np.zeros(2 * nv)
target[hub] = goal
gentle = np.linalg.lstsq(np.stack(columns[::-1], axis=1), target, rcond=1e-12)[0]

after = 300  # steps, in which the spacecraft is watched
inertia = float(dx.mass_matrix(model, rest[0])[hub, hub])
naive = 4.0 * inertia * goal / (steps * dt) ** 2 * np.repeat([1.0, -1.0], steps // 2)
naive, gentle = (np.pad(torque, (0, after)) for torque in (naive, gentle))

# %% [markdown]
# Then a linear-quadratic regulator that keeps the spacecraft on the path which the linear system takes under this
# torque. Its cost is the energy off the path, and the hub's angle. It is given the whole state here; a real one has an
# observer for the modes, which is designed with the same `A`.

# %%
path = np.zeros((steps + after + 1, 2 * nv))
for k, torque in enumerate(gentle):
    path[k + 1] = Ad @ path[k] + Bd * torque
stiffness = np.zeros((nv, nv))
for name, body in zip(("left/modes", "right/modes"), model.bodies, strict=True):
    stiffness[model.v_slice(name), model.v_slice(name)] = body.stiffness
cost = block_diag(stiffness, dx.mass_matrix(model, rest[0]))
cost[hub, hub] = 100.0
gain = 1e3 * B.T @ solve_continuous_are(A, B, cost, np.array([[1e-3]]))
closed = np.linalg.eigvals(A - B @ gain)
print("damping of the poles:", *np.round(np.sort(-closed.real / np.abs(closed))[::2], 3))


# %% [markdown]
# The poles that keep their half of a percent are those of panels that swing against each other: no torque on the hub
# reaches them, nor does it excite them.
#
# The slews, on the nonlinear model.


# %%
@jax.jit
def slew(model, torques, gain):
    """The motion under given torques and a regulator, what the hub was turned by, and the energy."""

    def policy(t, q, v):
        k = jnp.round(t / dt).astype(int)
        off = jnp.concatenate([q, v]) - jnp.asarray(path)[k]
        return jnp.zeros(nv).at[hub].set(torques[k] - gain @ off)

    found = dx.rollout(model, *rest, policy, dt, steps=steps + after, stepper="rk4")
    torque = jax.vmap(policy)(found.time[:-1], found.q[:-1], found.v[:-1])[:, hub]
    energy = jax.vmap(lambda q, v: dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q))(found.q, found.v)
    return found, torque, energy


ways = {"full ahead, full astern": (naive, 0.0 * gain[0]), "least effort": (gentle, 0.0 * gain[0])}
slews = {name: slew(model, *way) for name, way in ways.items()}
for name, (_, torque, energy) in slews.items():
    print(f"{name}: peak torque {np.abs(torque).max():.1f} N m, {float(energy[steps]):.1e} J left after the slew")

# %%
figure, axes = plt.subplots(3, figsize=(7, 6), sharex=True, layout="constrained")
shape = model.flexible_body("left").node_translation[1, 2]
for name, (found, torque, energy) in slews.items():
    bent = found.q[:, model.q_slice("left/modes")] @ shape
    for ax, y in zip(axes, (torque, 1e3 * bent[1:], energy[1:]), strict=True):
        ax.plot(found.time[1:], y, label=name, linewidth=1)
axes[0].set_ylabel("torque [N m]")
axes[0].legend(fontsize="small")
axes[1].set_ylabel("left tip [mm]")
axes[2].set(yscale="log", ylabel="energy [J]", xlabel="time [s]", ylim=(1e-4, None))
plt.show()

# %% [markdown]
# ## Panels that are not as drawn
#
# Models batch like states: `vmap` over their leaves. Spacecraft whose panels are up to 40 % softer or stiffer than
# drawn, all under the same control, with the regulator and without.


# %%
def others(scale, gain):
    bodies = tuple(replace(body, stiffness=scale * body.stiffness) for body in model.bodies)
    found, _, energy = slew(model.replace(bodies=bodies), gentle, gain)
    return jnp.stack([jnp.degrees(found.q[-1, hub]) - 90.0, energy[-1]])


scales = jnp.linspace(0.6, 1.4, 17)
both = jnp.stack([0.0 * gain[0], gain[0]])
error, left = jnp.moveaxis(jax.jit(jax.vmap(jax.vmap(others, (None, 0)), (0, None)))(scales, both), -1, 0)
figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
axes[0].plot(scales, error, label=("torque alone", "with the regulator"))
axes[1].semilogy(scales, left)
axes[0].set(xlabel="stiffness, of that drawn", ylabel="off the right angle [deg]")
axes[1].set(xlabel="stiffness, of that drawn", ylabel="energy 6 s after the slew [J]")
axes[0].legend(fontsize="small")
plt.show()
print(
    "with panels 20 % stiffer:",
    *(f"{e:.2f} deg and {x:.1e} J" for e, x in zip(error[12], left[12], strict=True)),
    sep="\n  ",
)
