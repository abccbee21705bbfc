"""Write docs/steppers.md: the energy that each stepper keeps, gains or loses in a hundred thousand steps.

python docs/make_steppers.py     some minutes
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx

HERE = Path(__file__).resolve().parent
STEPS, WINDOW = 100_000, 10_000
STEPPERS = ("semi_implicit", "explicit", "heun", "rk4", "implicit_midpoint", "variational")
TEXT = """# Steppers

Which one to take: `docs/make_steppers.py` writes this page (`python docs/make_steppers.py`).

| stepper | order | forward dynamics in a step | damping, dry friction | for |
|---|---|---|---|---|
| `semi_implicit`, the default | 1 | 3 with one factor | implicit; sticks | robots: safe |
| `SemiImplicitEuler(evaluations=1)` | 1 | 1 | implicit; sticks | MuJoCo's `Euler`, step for step |
| `explicit` | 1 | 1 | explicit | comparing with |
| `heun` | 2 | 2 | explicit | |
| `rk4` | 4 | 4 | explicit | accurate motion |
| `implicit_midpoint` | 2 | inverse dynamics, some ten times | damping at the middle; sticks | stiff springs |
| `variational` | 2 | inverse dynamics, some ten times | implicit, smoothed | floating bodies: momentum to rounding |

## Energy

Mechanical energy after {steps:,} steps less that at the start [J], the mean of the last {window:,} steps, and in
parentheses how much kinetic energy comes and goes (rk4). No friction, no damping: it should stay.

{table}

The double pendulum is chaotic; what matters is that its energy does not run away. `explicit` and
`SemiImplicitEuler(evaluations=1)` take Coriolis and gyroscopic forces at the beginning of the step, which feeds energy
into everything that spins.

## Dry friction

Outside of steps dry friction is smooth, `friction_loss * tanh(v / friction_velocity)`, and so it is in `explicit`,
`heun` and `rk4`, which take it explicitly. It is steep at rest: they shake a joint unless

    dt < 2 * friction_velocity * M / friction_loss        (rk4: 2.8 instead of 2)

with `M` the inertia that the joint feels, `1 / inverse_mass_matrix(model, q)[i, i]`. With the default
`friction_velocity` of 0.01 rad/s that is 5e-6 s for the fingers of an Allegro hand. `semi_implicit` and
`implicit_midpoint` take Coulomb's law itself at the end of the step, whatever `dt`: a joint slips under all of its
friction, or sticks under any force up to it. They agree with the smooth law where `abs(v)` is some times
`friction_velocity` and more; where the smooth law creeps under a load, they hold. Who sticks is guessed; a step of
`semi_implicit` costs as much again for each guess that fails, and the first, that who moves goes on, mostly holds.

Whether a joint sticks is decided in each step and taken as given by derivatives: those of a joint that sticks are zero,
those by `friction_loss` are those of the slip.
"""


def systems() -> list[tuple[str, dx.Model, list[float], list[float], float]]:
    """Name, model, state and length of a step."""
    pin, eye = dx.Revolute((0, 1, 0)), np.eye(3)
    top = dx.ModelBuilder().body(
        "top", joint=dx.Spherical(), inertia=dx.SpatialInertia(1.0, (0, 0, 0.5), (0.05, 0.05, 0.02))
    )
    free = dx.ModelBuilder(gravity=(0, 0, 0))
    free.body("body", joint=dx.Free(), inertia=dx.SpatialInertia(1.0, (0.1, 0.2, 0.3), (1.0, 2.0, 2.8)))
    rod, below = dx.SpatialInertia(1.0, (0, 0, -0.5), (1 / 12, 1 / 12, 1e-3)), dx.Transform(eye, np.array([0, 0, -1.0]))
    pendulum = dx.ModelBuilder().body("upper", joint=pin, inertia=rod)
    pendulum.body("lower", parent="upper", joint=pin, placement=below, inertia=rod)
    return [
        ("top at 40 rad/s, 1 ms", top.build(), [np.cos(0.2), np.sin(0.2), 0, 0], [0, 0, 40.0], 1e-3),
        ("tumbling body, 2 rad/s, 10 ms", free.build(), [0, 0, 0, 1.0, 0, 0, 0], [0.05, 2, 0.05, 0.1, -0.2, 0.3], 1e-2),
        ("double pendulum, 1 ms", pendulum.build(), [1.5, 0.8], [0.0, 0.0], 1e-3),
    ]


@partial(jax.jit, static_argnames=("steps", "stepper"))
def energies(model: dx.Model, q, v, dt, steps: int, stepper) -> tuple[jax.Array, jax.Array]:
    """Kinetic and whole energy at the end of each step."""

    def advance(state, _):
        q, v = dx.step(model, *state, jnp.zeros(model.nv), dt, stepper=stepper)
        kinetic = dx.kinetic_energy(model, q, v)
        return (q, v), (kinetic, kinetic + dx.potential_energy(model, q))

    return jax.lax.scan(advance, (q, v), length=steps)[1]


def drift(model: dx.Model, q, v, dt, stepper, steps: int = STEPS, window: int = WINDOW) -> tuple[float, float]:
    """Mean energy of the last `window` steps less that at the start, and the range of the kinetic energy."""
    q, v = jnp.array(q), jnp.array(v)
    start = dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q)
    kinetic, whole = energies(model, q, v, dt, steps, stepper)
    return float(whole[-window:].mean() - start), float(jnp.ptp(kinetic))


def cell(value: float) -> str:
    return f"{value:+.1e}" if np.isfinite(value) else "not finite"


def page() -> str:
    tried = systems()
    steppers = [*((f"`{name}`", name) for name in STEPPERS)]
    steppers.insert(1, ("`SemiImplicitEuler(evaluations=1)`", dx.SemiImplicitEuler(evaluations=1)))
    found = {(label, name): drift(*system, stepper) for label, stepper in steppers for name, *system in tried}
    heads = [f"{name} ({found['`rk4`', name][1]:.2g})" for name, *_ in tried]
    rows = [["stepper", *heads], ["---"] * (len(heads) + 1)]
    rows += [[label, *(cell(found[label, name][0]) for name, *_ in tried)] for label, _ in steppers]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return TEXT.format(steps=STEPS, window=WINDOW, table=table)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    (HERE / "steppers.md").write_text(page(), encoding="utf-8")
