"""Bodies that bend: cost by operations and by the clock, beside the paper's prediction, and float32 by its errors.

python docs/make_flexible.py cost      # docs/flexible_cost.png, and a table
python docs/make_flexible.py float32   # a table
python docs/make_flexible.py speed     # a table
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import eigh

import dynax as dx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from flexible.costs import counted
from flexible.systems import bus_with_panels, chain

PAPER = {0: 1.415, 2: 1.999, 5: 3.684, 7: 4.911, 10: 7.268, 15: 11.96, 20: 17.06}
"""Operations of the composite route by those of the articulated one, ten bodies on hinges of one freedom, by modes of a
body (Jain and Rodriguez 1992, section 6)."""

MODES = 0, 5, 10, 20


def spread(model: Any, first: float) -> np.ndarray:
    """By what random entries of a velocity are scaled: the first mode of a body by `first`, which moves its tip by
    twice that [m], others by as much less as they are stiffer, as a load would. Otherwise bodies are soon bent too far:
    those of twenty modes by millimetres."""
    found = np.ones(model.nv)
    for row, member, body in zip(model.places.modes_v, model.members, model.bodies, strict=True):
        stiffness = np.diag(np.asarray(body.stiffness))
        found[row[: member.modes]] = first * stiffness[:1] / stiffness
    return found


def by_composite(model: Any, q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
    """Accelerations from the mass matrix by composite bodies."""
    factor = jax.scipy.linalg.cho_factor(dx.mass_matrix(model, q))
    return jax.scipy.linalg.cho_solve(factor, tau - dx.bias_force(model, q, v))


def seconds(function: Callable, *arguments: Any, least: float = 0.3) -> float:
    """CPU time of a call, the best of five runs."""
    run = jax.jit(function)
    assert np.isfinite(run(*arguments)).all(), "a state out of range"
    times, calls = [], 1
    while len(times) < 5:
        start = time.process_time()
        for _ in range(calls):
            jax.block_until_ready(run(*arguments))
        spent = time.process_time() - start
        if spent < least / 5:
            calls *= 2
        else:
            times.append(spent / calls)
    return min(times)


def states(model: Any, size: int, dtype: Any, first: float = 3e-4) -> tuple[jax.Array, ...]:
    scale = spread(model, first) if isinstance(model, dx.FlexibleModel) else np.ones(model.nv)
    dv, v, tau = scale * np.random.default_rng(0).normal(size=(3, size, model.nv))
    q = jax.vmap(partial(dx.integrate, model, dx.neutral(model)))(jnp.asarray(dv))
    return tuple(jnp.asarray(x, dtype) for x in (q, v, tau))


def cost() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = []
    for modes in MODES:
        model = chain(10, modes)
        own = counted(modes)[:2] if modes else (np.nan, np.nan)
        x = states(model, 64, jnp.float64)
        a, c = (seconds(jax.vmap(partial(f, model)), *x) / 64 for f in (dx.forward_dynamics, by_composite))
        rows.append((modes, *own, a, c))
        print(
            f"| {modes} | {own[0]:.0f} | {own[1]:.0f} | {own[1] / own[0]:.2f} | {1e6 * a:.1f} us | {c / a:.2f} "
            f"| {PAPER[modes]} |"
        )
        draw(np.array(rows), plt)


def draw(rows: np.ndarray, plt: Any) -> None:
    """Rows of modes, operations of both routes, seconds of both."""
    modes, ours, other, a, c = rows.T
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot(modes, ours / 10, "o-")
    left.set(xlabel="modes of a body", ylabel="operations a body", title="Forward dynamics, counted")
    right.plot(PAPER.keys(), PAPER.values(), "k--", label="operations, predicted in 1992")
    right.plot(modes, other / ours, "s-", label="operations, counted")
    right.plot(modes, c / a, "o-", label="time, measured")
    right.set(xlabel="modes of a body", ylabel="composite route / articulated route", title="Ten bodies")
    right.legend()
    plt.savefig(Path(__file__).with_name("flexible_cost.png"), dpi=110)


def float32() -> None:
    """The largest error over the largest entry, the worst and the middle one of 20 states."""
    # The beams of a chain hold each other's ends, so that its highest mode wants a shorter step.
    for name, model, dt in (("bus with panels", bus_with_panels(), 1e-3), ("chain of ten", chain(10, 3), 1e-4)):
        single = jax.tree.map(lambda x: x.astype(jnp.float32), model)
        q, v, tau = states(model, 20, jnp.float32, first=3e-3)
        exact = [jnp.asarray(x, jnp.float64) for x in (q, v, tau)]
        exact[0] = jax.vmap(partial(dx.normalize, model))(exact[0])
        functions = {
            "forward dynamics": dx.forward_dynamics,
            "mass matrix": lambda m, q, v, tau: dx.mass_matrix(m, q),
            f"{1000 * dt:g} s of rollout": lambda m, q, v, tau, dt=dt: dx.rollout(
                m, q, v, jnp.tile(tau, (1000, 1)), dt, stepper="rk4", every=1000
            ).q[-1],
        }
        for what, function in functions.items():
            f = jax.jit(jax.vmap(function, in_axes=(None, 0, 0, 0)))
            ours, reference = np.asarray(f(single, q, v, tau), np.float64), np.asarray(f(model, *exact))
            axes = tuple(range(1, reference.ndim))
            errors = np.abs(ours - reference).max(axes) / np.abs(reference).max(axes)
            print(f"| {name} | {what} | {np.median(errors):.1e} | {errors.max():.1e} |")
        exact = frequencies(model, jnp.float64)
        for what in ("mass matrix", "inverse mass matrix"):
            errors = np.abs(frequencies(single, jnp.float32, what) / exact - 1.0)
            print(f"| {name} | frequencies, from the {what} | {np.median(errors):.1e} | {errors.max():.1e} |")


def frequencies(model: Any, dtype: Any, by: str = "mass matrix") -> np.ndarray:
    """Of small motions about the undeformed model at rest, without rigid ones: its mass matrix or the inverse by the
    recursion, and the forces that hold a unit of each mode, since there is no gravity."""
    rest, zero = dx.neutral(model).astype(dtype), jnp.zeros(model.nv, dtype)
    modes = np.sort(model.places.modes_v[model.places.modes_v >= 0])

    def held(d: jax.Array) -> jax.Array:
        return dx.inverse_dynamics(model, dx.integrate(model, rest, d), zero, zero)

    units = 1e-3 * jnp.eye(model.nv, dtype=dtype)[modes]
    stiffness = np.zeros((model.nv, model.nv))
    stiffness[:, modes] = 1e3 * np.asarray(jax.jit(jax.vmap(held))(units), np.float64).T
    if by != "mass matrix":
        inverse = np.asarray(dx.inverse_mass_matrix(model, rest), np.float64)[np.ix_(modes, modes)]
        root = np.linalg.cholesky(stiffness[np.ix_(modes, modes)])
        return np.sqrt(np.linalg.eigvalsh(root.T @ inverse @ root))
    mass = np.asarray(dx.mass_matrix(model, rest), np.float64)
    values = eigh(0.5 * (stiffness + stiffness.T), mass, eigvals_only=True)
    return np.sqrt(values[len(values) - len(modes) :])


def speed() -> None:
    """Ten bodies of six modes, by their level, by ten rigid ones."""
    levels = {level: chain(10, 6, level) for level in ("consistent", "full", "ruthless")}
    for size, dtype in ((1024, jnp.float32), (1, jnp.float64)):
        times = {}
        for name, model in {"rigid": chain(10, 0), **levels}.items():
            own = jax.tree.map(lambda x, dtype=dtype: x.astype(dtype), model)
            x = states(model, size, dtype)
            f = jax.vmap(partial(dx.forward_dynamics, own)) if size > 1 else partial(dx.forward_dynamics, own)
            times[name] = seconds(f, *(x if size > 1 else [a[0] for a in x])) / size
            print(f"| {size} | {name} | {1e6 * times[name]:.2f} us | {times[name] / times['rigid']:.1f} |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    {"cost": cost, "float32": float32, "speed": speed}[sys.argv[1]]()
