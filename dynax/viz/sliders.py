"""Joints by hand: a slider for each freedom, within the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.constraints.assembly import assemble
from dynax.embedding.model import EmbeddedModel
from dynax.model import Model
from dynax.model.configuration import integrate, neutral
from dynax.viz.parts import skeleton


@dataclass(frozen=True)
class Slider:
    """One freedom."""

    name: str
    """Of the joint, with the number of the freedom where it has several."""
    joint: str
    freedom: int
    """In `v`."""
    limits: tuple[float, float]
    """About the configuration that sliders start from [rad or m]."""
    value: float
    floats: bool = False
    """Whether it is one of six of a joint, which do not hold it."""


def configuration(
    model: Any, start: np.ndarray, moved: list[Slider], values: np.ndarray, latest: int, before: jax.Array
) -> jax.Array:
    """Where the sliders put the robot: along the tangent from `start`; loops are closed by the other joints than that
    of the `latest` slider, from where they were."""
    dv = np.zeros(model.nv)
    for slider, value in zip(moved, values, strict=True):
        dv[slider.freedom] = value - slider.value
    q = integrate(model, jnp.asarray(start), jnp.asarray(dv, jnp.asarray(start).dtype))
    if isinstance(model, Model) and model.constrained:
        own = model.q_slice(moved[latest].joint)
        return assemble(model, before.at[own].set(q[own]), hold=[moved[latest].joint]).q
    return q


def sliders(model: Any, q: np.ndarray) -> list[Slider]:
    """Those of a model's joints, at a configuration: a coordinate is read off where it is one of its joint alone."""
    tree = skeleton(model)
    if isinstance(model, EmbeddedModel) or tree.nv != model.nv or tree.nq != model.nq:
        names = [f"freedom {k}" for k in range(model.nv)]
        return [Slider(name, name, k, (-np.pi, np.pi), 0.0) for k, name in enumerate(names)]
    followers = {names[0] for names in tree.couplings}
    limits, home, found = np.asarray(tree.position_limits, float), np.asarray(neutral(tree)), []
    for joint in tree.joint_names:
        own_q, own_v = tree.q_slice(joint), tree.v_slice(joint)
        count = own_v.stop - own_v.start
        if joint in followers:
            continue
        for k in range(count):
            plain = own_q.stop - own_q.start == count and not np.any(home[own_q])
            low, high = limits[own_q.start + k] if plain else (-np.inf, np.inf)
            value = float(q[own_q.start + k]) if plain else 0.0
            bounds = (low if np.isfinite(low) else min(-np.pi, value), high if np.isfinite(high) else max(np.pi, value))
            if bounds[0] < bounds[1]:
                value = float(np.clip(value, *bounds))
                name = joint if count == 1 else f"{joint} {k + 1}"
                found.append(Slider(name, joint, own_v.start + k, bounds, value, count == 6))
    return found
