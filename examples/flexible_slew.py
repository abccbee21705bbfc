"""Turn a spacecraft that bends by a right angle, so that its panels end at rest: a torque found by gradient."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import dynax as dx

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="few iterations, for a smoke test")
parser.add_argument("--figure", help="where to draw the two slews, for example slew.png")
arguments = parser.parse_args()
jax.config.update("jax_enable_x64", True)

# A platform that bends, held at its middle, and on two of its edges panels on sprung hinges, one longer than the other.
deck = dx.PanelSection(bending=3e3, membrane=1e7, mass_per_area=25.0)
sheet = dx.PanelSection(bending=400.0, membrane=1e7, mass_per_area=3.0)
ends = {"middle": (2.0, 0.0), "left": (2.0, 2.0), "right": (2.0, -2.0)}
bus = dx.flexible_panel(
    deck, 4.0, 4.0, modes=2, held={}, elements=(4, 4), origin=(-2.0, 0.0, 0.0), stations=ends, damping_ratio=0.005
)
builder = dx.ModelBuilder(gravity=(0, 0, 0), name="spacecraft")
builder.body("bus", joint=dx.Free(), inertia=bus)
for side, way, length in (("left", 1.0, 6.0), ("right", -1.0, 5.0)):
    panel = dx.flexible_panel(
        sheet, length, 1.5, modes=1, direction=(0.0, way, 0.0), elements=(6, 2), damping_ratio=0.005
    )
    hinge = dx.Revolute((1, 0, 0))
    builder.body(side, parent=f"bus/{side}", joint=hinge, inertia=panel, stiffness=400.0, damping=1.0)
model = builder.build()

dt, steps, after = 0.1, 100, 28  # the slew, and what is watched after it
goal, duration = 0.5 * np.pi, steps * dt
rest = dx.neutral(model), jnp.zeros(model.nv)
turn = model.v_slice("bus_joint").start  # about x
swinging = [name for name in model.joint_names if name != "bus_joint"]  # hinges and modes
inertia = float(dx.mass_matrix(model, rest[0])[turn, turn])


def angle(q):
    """Of the bus about x."""
    return 2.0 * jnp.arctan2(q[..., 4], q[..., 3])


def slew(torque):
    controls = jnp.zeros((steps + after, model.nv)).at[:steps, turn].set(torque)
    return dx.rollout(model, *rest, controls, dt, stepper="rk4", checkpoint=False)


@jax.jit
def judged(torque):
    """What a slew leaves in its last state, its path, and the slope of the former by the torque of every step."""

    def loss(torque):
        path = slew(torque)
        q, v = path.q[steps], path.v[steps]
        bent = sum(jnp.sum(q[model.q_slice(name)] ** 2) for name in swinging)
        return bent + jnp.sum(v**2) + 10.0 * (angle(q) - goal) ** 2, path

    return jax.value_and_grad(loss, has_aux=True)(torque)


@jax.jit
@jax.vmap
def energy(q, v):
    """Of motion, and what springs and modes store [J]."""
    return dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q)


# Each wave leaves no spin behind. In units of the torque of the naive slew, full ahead and then full astern.
middle = (np.arange(steps) + 0.5) / steps
waves = np.sin(2 * np.pi * np.arange(1, 7) * middle[:, None])
most = 4.0 * inertia * goal / duration**2
naive = most * np.where(middle < 0.5, 1.0, -1.0)


# The first wave alone would turn a rigid spacecraft as far; the search begins there with steps of a hundredth.
first, scale = np.array([0.5 * np.pi, 0.0, 0.0, 0.0, 0.0, 0.0]), 0.01


def of_weights(x):
    (loss, _), slope = judged(most * waves @ (first + scale * x))
    print(f"off rest by {float(loss):.2e}", flush=True)
    return float(loss), scale * most * np.asarray(slope) @ waves


search = minimize(of_weights, np.zeros(6), jac=True, method="BFGS", options={"maxiter": 15 if arguments.quick else 40})
found = first + scale * search.x

left, slews = {}, {"naive": naive, "first wave": most * waves @ first, "found": most * waves @ found}
for name, torque in slews.items():
    (_, path), _ = judged(torque)
    left[name] = float(energy(path.q, path.v)[steps])
    print(f"{name:>10}: turned {np.degrees(angle(path.q[steps])):.3f} deg, vibrates with {left[name]:.2e} J")
    slews[name] = torque, path
assert left["found"] < (0.5 if arguments.quick else 0.01) * left["naive"]

if arguments.figure:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below, last) = plt.subplots(3, figsize=(7, 6.5), sharex=True, layout="constrained")
    for name in ("naive", "found"):
        torque, path = slews[name]
        above.plot(np.arange(steps + 1) * dt, [*torque, 0.0], drawstyle="steps-post", label=name)
        below.plot(path.time, np.degrees(path.q[:, model.q_slice("left_joint").start]))
        last.semilogy(path.time[1:], energy(path.q, path.v)[1:])
    above.set_ylabel("torque [N m]")
    above.legend()
    below.set_ylabel("hinge of the left panel [deg]")
    last.set(ylabel="kinetic and elastic\nenergy [J]", xlabel="time [s]", ylim=(1e-3, None))
    for axes in (above, below, last):
        axes.axvline(duration, color="gray", linestyle=":")
    figure.savefig(arguments.figure, dpi=110)
