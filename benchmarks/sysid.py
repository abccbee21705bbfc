"""Output error beside MuJoCo's `mujoco.sysid`: `python -m benchmarks.sysid`.

The same arm, motion and residual: armatures, dampings and six masses, 500 steps, all angles and speeds measured.
The Jacobian of the residual by each (its own is of forward differences over rollouts in threads), and where each fit
ends. Needs `mujoco` 4 and what its toolbox imports: scipy, tabulate, colorama, absl-py, pyyaml, plotly, jinja2.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import identify

DT, STEPS = 0.002, 500
STEPPER = dx.SemiImplicitEuler(evaluations=1)


def seconds(*functions: Callable, rounds: int = 9) -> np.ndarray:
    """Wall and CPU seconds of the whole process for one call of each, in turn, shape `(rounds, functions, 2)`."""
    found = np.zeros((rounds + 1, len(functions), 2))
    for own in found:
        for k, function in enumerate(functions):
            wall, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(function())
            own[k] = time.perf_counter() - wall, time.process_time() - cpu
    return found[1:]


def text_of(model: dx.Model) -> str:
    """The arm with a motor on each joint and sensors of angles and speeds."""
    names = model.joint_names
    motors = "".join(f'<motor name="{name}" joint="{name}"/>' for name in names)
    sensors = "".join(f'<joint{what} name="{what}_{j}" joint="{j}"/>' for what in ("pos", "vel") for j in names)
    flags = '<flag contact="disable" constraint="disable"/>'
    option = f'<option timestep="{DT}" integrator="implicitfast">{flags}</option>'
    return dx.write_mjcf(model).text.replace(
        "</mujoco>", f"{option}<actuator>{motors}</actuator><sensor>{sensors}</sensor></mujoco>"
    )


def main() -> None:
    import mujoco
    from mujoco import minimize, rollout, sysid

    jax.config.update("jax_enable_x64", True)
    model = dx.load(resources.files("dynax").joinpath("models/arm7.urdf").read_text())
    model = model.replace(
        armature=jnp.linspace(0.2, 0.05, 7), damping=jnp.linspace(1.0, 0.3, 7), friction_loss=jnp.zeros(7)
    )
    rng = np.random.default_rng(0)
    clock = DT * np.arange(STEPS + 1)
    size, phase = rng.uniform(1.0, 3.5, (3, 7)), rng.uniform(0.0, 6.0, (3, 7))
    controls = (size * np.sin(np.array([3.0, 5.0, 9.0])[:, None] * clock[:, None, None] + phase)).sum(1)

    spec = mujoco.MjSpec.from_string(text_of(model))
    compiled = spec.compile()
    data = mujoco.MjData(compiled)
    start = sysid.create_initial_state(compiled, data.qpos, data.qvel, data.act)
    state, sensed = (x[0] for x in rollout.rollout(compiled, data, start, controls[:-1]))
    noisy = sensed + 1e-3 * rng.normal(size=sensed.shape)
    true = np.concatenate([model.armature, model.damping, model.mass[1:]])
    first = true * np.repeat([1.3, 0.7, 1.1], [7, 7, 6])
    params = sysid.ParameterDict()
    for of, what, names, values in (
        ("joint", "armature", model.joint_names, first[:7]),
        ("joint", "damping", model.joint_names, first[7:14]),
        ("body", "mass", model.body_names[1:], first[14:]),
    ):
        for name, value in zip(names, values, strict=True):

            def changed(s, p, of=of, name=name, what=what) -> None:
                setattr(getattr(s, of)(name), what, [p.value[0], 0.0, 0.0] if what == "damping" else p.value[0])

            one = sysid.Parameter(f"{what}_{name}", nominal=value, min_value=1e-4, max_value=20.0, modifier=changed)
            params.add(one)
    series = sysid.TimeSeries(clock, controls), sysid.TimeSeries.from_names(state[:, 0], noisy, compiled)
    sequences = [sysid.ModelSequences("arm", spec, "waves", start, *series)]
    theirs = sysid.build_residual_fn(models_sequences=sequences)
    x = params.as_vector()

    # Sensors of their rollout are those of the beginning of each step, each in parts of its size.
    sizes = np.linalg.norm(noisy, axis=0) / np.sqrt(2.0)
    seen = np.column_stack([np.concatenate([noisy, noisy[-1:]]), np.arange(STEPS + 1) < STEPS])
    segment = identify.segments(np.zeros((STEPS + 1, 7)), np.zeros((STEPS + 1, 7)), controls[:-1], STEPS, measured=seen)

    def build(x: jax.Array) -> dx.Model:
        return model.replace(armature=x[:7], damping=x[7:14], mass=model.mass.at[1:].set(x[14:]))

    def missed(model: dx.Model, q: jax.Array, v: jax.Array, seen: jax.Array) -> jax.Array:
        return seen[-1] * (jnp.concatenate([q, v]) - seen[:-1]) / sizes

    options = {"missed": missed, "stepper": STEPPER}
    residual = jax.jit(lambda x: identify.output_residual(build, x, segment, DT, **options))
    jacobian = jax.jit(lambda x: identify.output_jacobian(build, x, segment, DT, **options))
    ours = np.asarray(residual(x)).reshape(STEPS + 1, 14)[:STEPS]

    def of_theirs(x: np.ndarray) -> np.ndarray:
        return np.concatenate(theirs(x, params)[0])

    other = of_theirs(x).reshape(STEPS, 14)
    print(f"residuals differ by {np.abs(np.abs(ours) - np.abs(other)).max() / np.abs(ours).max():.1e} of the largest")

    def differences() -> np.ndarray:
        r, eps = of_theirs(x).reshape(-1, 1), np.finfo(float).eps ** 0.5
        return minimize.jacobian_fd(lambda x: theirs(x, params)[0][0], x.reshape(-1, 1), r, eps, 0)[0]

    J = np.asarray(jacobian(x)).reshape(STEPS + 1, 14, 20)[:STEPS]
    theirs_J = differences().reshape(STEPS, 14, 20)
    print(f"Jacobians by {np.abs(np.abs(J) - np.abs(theirs_J)).max() / np.abs(J).max():.1e}")
    spent = seconds(lambda: jacobian(x), differences)
    times = 1e3 * np.median(spent, axis=0).ravel()
    print("one Jacobian, ms: dynax {:.1f} ({:.1f} CPU), sysid {:.1f} ({:.1f} CPU)".format(*times))
    wall, cpu = np.median(spent[:, 1] / spent[:, 0], axis=0)
    print(f"{wall:.1f} times as fast, {cpu:.1f} in CPU time; mujoco {mujoco.__version__}")

    fit = identify.output_error(build, jnp.asarray(x), segment, DT, free=False, scale=0.1, **options)
    print(f"dynax ends with {identify.Status(int(fit.status)).name}")

    def central(x: np.ndarray, _: np.ndarray) -> np.ndarray:
        """Of their residual: for the toolbox in the place of its forward differences, and as a judge of all ends."""
        steps = 1e-5 * np.maximum(1.0, np.abs(x.ravel()))
        both = (of_theirs(x.reshape(-1, 1) + sign * np.diag(steps)) for sign in (1.0, -1.0))
        return np.subtract(*both) / (2.0 * steps)

    ends = {"dynax": np.asarray(fit.params)}
    tight: dict[str, Any] = {"gtol": 1e-14, "xtol": 1e-14}
    exact = tight | {"jacobian": central}
    for name, extra in (("sysid", {}), ("sysid, tight", tight), ("sysid, tight, central differences", exact)):
        best, _ = sysid.optimize(params, theirs, optimizer="mujoco", verbose=False, **extra)
        ends[name] = best.as_vector()
    for name, end in ends.items():
        off = np.abs(end - ends["dynax"]).max()
        print(f"{name}: parameters {off:.1e} from those of dynax; a step of Gauss and Newton from there")
        r, J = (np.asarray(f(jnp.asarray(end))).reshape(14 * (STEPS + 1), -1) for f in (residual, jacobian))
        for what, missing, slope in (
            ("our residual and its exact Jacobian", r[:, 0], J),
            ("theirs and central differences", of_theirs(end), central(end, end)),
        ):
            left, squares = np.linalg.lstsq(slope, missing, rcond=None)[0], 0.5 * missing @ missing
            print(f"  {np.abs(left).max():.1e} by {what}, half the squares {squares:.12e}")


if __name__ == "__main__":
    main()
