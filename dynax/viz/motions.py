"""Motions to look at a robot by."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.constraints.assembly import assemble
from dynax.model.configuration import integrate
from dynax.simulate.rollout import rollout
from dynax.simulate.trajectory import Trajectory
from dynax.viz.sliders import sliders

RATE = 30.0
"""Rows a second."""


def swing(model: Any, seconds: float, start: jax.Array) -> Trajectory:
    """Every joint to and fro about where it begins, within its limits and by less than a radian or a metre, one after
    another; what floats stays where it is, and loops stay closed."""
    moved = [slider for slider in sliders(model, np.asarray(start)) if not slider.floats]
    time = np.linspace(0.0, seconds, max(2, round(RATE * seconds)))
    dv = np.zeros((len(time), model.nv), start.dtype)
    for k, slider in enumerate(moved):
        low, high = (bound - slider.value for bound in slider.limits)
        way = np.sin(2.0 * np.pi * np.clip(1.5 * time / seconds - 0.5 * k / len(moved), 0.0, 1.0))
        dv[:, slider.freedom] = np.where(way > 0, min(0.8, high) * way, -max(-0.8, low) * way)
    q = jax.jit(jax.vmap(lambda d: integrate(model, start, d)))(dv)
    if getattr(model, "constrained", False):
        q = jax.jit(lambda q: jax.lax.map(lambda one: assemble(model, one).q, q))(q)
    return Trajectory(jnp.asarray(time), q, jnp.zeros((len(time), model.nv)))


def fall(model: Any, seconds: float, start: jax.Array) -> Trajectory:
    """From where it begins, by its weight alone."""
    steps = 10 * max(1, round(seconds / 0.02))
    still = jnp.zeros(model.nv)

    @jax.jit
    def run(q: jax.Array) -> Trajectory:
        return rollout(model, q, still, jnp.zeros((steps, model.nv)), 0.002, every=10)

    return run(start)
