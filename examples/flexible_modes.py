"""Find frequencies and damping of a boom's modes from where a camera sees its tip while the hub it is on is shaken."""

import argparse
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import dynax as dx

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="a quarter of the record, for a smoke test")
parser.add_argument("--figure", help="where to draw the motion and the modes, for example modes.png")
arguments = parser.parse_args()
jax.config.update("jax_enable_x64", True)

# A boom that bends in one plane, clamped to a hub that turns freely: what rings are the modes of both together, and
# what is looked for are those of the clamped boom. Its drawing knows their shapes, not how stiff and damped they are.
section = dx.BeamSection.tube(0.05, 0.001, E=70e9, density=1700.0)
beam = dx.beam_elements(section, 10.0, elements=20)
flat = dict.fromkeys(range(1, 21), "1345") | {0: "123456"}
hub = dx.SpatialInertia(40.0, (0.0, 0.0, 0.0), (8.0, 8.0, 8.0))
dt, noise, sought = 0.0025, 2e-4, 3


def satellite(modes):
    builder = dx.ModelBuilder(gravity=(0, 0, 0), name="satellite")
    builder.body("hub", joint=dx.Revolute((0, 0, 1)), inertia=hub)
    builder.body("boom", parent="hub", inertia=beam.body(beam.modes(modes, held=flat)))
    return builder.build()


def tuned(model, frequencies, ratios):
    """With modes of these frequencies [rad/s] and shares of critical damping; their modal masses are one."""
    boom = replace(model.bodies[0], stiffness=jnp.diag(frequencies**2), damping=jnp.diag(2.0 * ratios * frequencies))
    return model.replace(bodies=(boom,))


def tip(model, q):
    """How far the tip stands across the hub's axis [m]."""
    on_hub, on_tip = dx.frame_pose(model, q, "hub"), dx.frame_pose(model, q, "boom/tip")
    return on_hub.rotation[:, 1] @ (on_tip.translation - on_hub.translation)


@jax.jit
def seen(model, torque, dt):
    """The tip before, between and after the steps, from rest."""
    still = jnp.zeros(model.nv)
    forces = jnp.zeros((len(torque), model.nv)).at[:, 0].set(torque)
    path = dx.rollout(model, still, still, forces, dt, stepper="rk4", checkpoint=False)
    return jax.vmap(partial(tip, model))(path.q)


# The test: a torque that jumps at random shakes all modes at once. The boom as it is has twelve modes, some of them not
# as drawn, and moves in steps of a quarter; the camera adds noise of 0.2 mm.
rng = np.random.default_rng(0)
steps = 400 if arguments.quick else 1600
torque = np.repeat(20.0 * rng.choice([-1.0, 1.0], steps // 8), 8)
real, drawing = satellite(12), satellite(sought + 2)
drawn = jnp.sqrt(jnp.diagonal(drawing.bodies[0].stiffness))
true = jnp.sqrt(jnp.diagonal(real.bodies[0].stiffness)).at[:sought].multiply(jnp.array([0.9, 1.08, 0.95]))
damped = jnp.full(12, 0.01).at[:sought].set(jnp.array([0.004, 0.007, 0.012]))
measured = np.asarray(seen(tuned(real, true, damped), np.repeat(torque, 4), dt / 4))[::4]
measured = measured + noise * rng.normal(size=steps + 1)


def of_logarithms(x):
    """The drawing with three modes tuned. Two more stay as drawn, and stand for all that are left out: without them the
    second frequency comes out 0.03 % too low, sixteen times its standard deviation."""
    frequencies, ratios = jnp.exp(x[:sought]), jnp.exp(x[sought:])
    return tuned(drawing, drawn.at[:sought].set(frequencies), jnp.full(len(drawn), 0.01).at[:sought].set(ratios))


@jax.jit
def missed(x):
    """Residuals in units of the noise, and their exact Jacobian: six tangents through the whole motion."""
    return jax.jacfwd(lambda x: ((seen(of_logarithms(x), torque, dt) - measured) / noise,) * 2, has_aux=True)(x)


def residual(x, rows):
    return missed(x)[1][rows]


def slope(x, rows):
    return missed(x)[0][rows]


# A long record has many minima: a frequency that is off by 5 % is out of step after ten periods. So a quarter of a
# second first, then more and more from what that found.
x = np.log(np.concatenate([drawn[:sought], np.full(sought, 0.01)]))
for seconds in (0.25, 1.0, steps * dt):
    rows = slice(1, 1 + round(seconds / dt))
    fit = least_squares(residual, x, jac=slope, x_scale=0.1, args=(rows,))
    x = fit.x
    off = np.sqrt(2.0 * fit.cost / (len(fit.fun) - len(x)))
    print(f"{seconds:5.2f} s of the record: missed by {off:.3f} of the noise", flush=True)

# Standard deviations of logarithms are relative ones.
deviation = np.sqrt(np.diag(np.linalg.inv(fit.jac.T @ fit.jac)))
truth = np.log(np.concatenate([true[:sought], damped[:sought]]))
found, known = np.exp(x).reshape(2, -1), np.exp(truth).reshape(2, -1)
spread = (np.exp(x) * deviation).reshape(2, -1)
for k in range(sought):
    hertz = np.array([drawn[k], found[0, k], spread[0, k], known[0, k]]) / (2.0 * np.pi)
    percent = 100.0 * np.array([0.01, found[1, k], spread[1, k], known[1, k]])
    print("mode {}: drawn {:.2f} Hz, found {:.5f} +- {:.5f}, is {:.5f};".format(k + 1, *hertz), end=" ")
    print("damping drawn {:.2f} %, found {:.4f} +- {:.4f}, is {:.4f}".format(*percent))
assert 0.9 < off < 1.1
assert np.all(np.abs(x - truth) < 4.0 * deviation), (x - truth) / deviation

if arguments.figure:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below, last) = plt.subplots(3, figsize=(7, 7), layout="constrained")
    time, shown = dt * np.arange(steps + 1), slice(0, 241)
    ours = seen(of_logarithms(x), torque, dt)
    before = seen(tuned(drawing, drawn, jnp.full(len(drawn), 0.01)), torque, dt)
    above.plot(time[shown], 1e3 * measured[shown], ".", markersize=3, color="gray", label="measured")
    for path, name in ((before, "as drawn"), (ours, "found")):
        above.plot(time[shown], 1e3 * np.asarray(path)[shown], linewidth=1, label=name)
    above.set(ylabel="tip [mm]", xlim=(0.0, time[shown][-1]))
    above.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    below.plot(time, 1e3 * (measured - ours), ".", markersize=2)
    below.set(xlabel="time [s]", ylabel="measured less found [mm]")
    modes = np.arange(1, sought + 1)
    last.errorbar(modes, 100.0 * found[1], 300.0 * spread[1], fmt="o", capsize=4, label="found, three sigma")
    last.plot(modes, 100.0 * known[1], "x", markersize=10, label="is")
    last.axhline(1.0, color="gray", linestyle=":", label="drawn")
    last.set(xlabel="mode", ylabel="damping ratio [%]", xticks=modes, ylim=(0.0, None))
    last.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    figure.savefig(arguments.figure, dpi=110)
