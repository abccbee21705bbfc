"""Limits of joints, cones and ropes as contacts: a gap, its rate by the velocity, and nothing that rubs.

limit    gap = min(q - lower, upper - q)       gap' = +-q'
cone     gap = angle - |log r|                 gap' = -n . omega,      n the axis that the joint is turned about
rope     gap = length - sum |p_k+1 - p_k|      gap' = -sum e_k . (p_k+1' - p_k')
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.algorithms.crba import mass_matrix
from dynax.contact.coulomb import mobilities
from dynax.contact.ends import Cone, Rope, single_freedoms
from dynax.contact.material import Material, of_stops
from dynax.contact.motion import by_model, jacobian_at
from dynax.contact.placing import Placed, placed
from dynax.contact.scene import Scene
from dynax.contact.shapes import EX, unit
from dynax.contact.stop_rows import StopRows
from dynax.embedding.meanings import tree_configuration
from dynax.model import Model
from dynax.model.configuration import configuration_rate, neutral

FAR = 1e3
"""Where there is no limit [m, rad]."""
TIME = 0.02
"""In which a stop of unknown stiffness gives and comes back, critically damped: what MuJoCo takes [s]."""


class Stops(NamedTuple):
    """Rows of `scene.limited`, and after them those of `scene.stops`."""

    gap: jax.Array
    """Shape `(l,)` [m, rad], negative beyond the end."""
    sign: jax.Array
    """1 where a force of the stop is along the coordinate, as at a lower limit, -1 where it is against it."""
    rows: StopRows
    """The rate of the gap by `v`."""

    @property
    def jacobian(self) -> jax.Array:
        """The same, shape `(l, nv)`."""
        return self.rows.dense


def stops_at(scene: Scene, q: jax.Array, at: Placed | None) -> Stops:
    """How far what has an end is from it, at `q` of shape `(nq,)`; `at` is only asked for ropes."""
    gap, sign, rows = _limits(scene, q)
    if not scene.stops:
        return Stops(gap, sign, rows)
    others = [_cone(scene, s, q) if isinstance(s, Cone) else _rope(scene, s, q, at) for s in scene.stops]
    gaps, whole = (jnp.stack(x) for x in zip(*others, strict=True))
    rows = StopRows(rows.freedoms, rows.signs, jnp.concatenate([rows.rows, whole]))
    return Stops(jnp.concatenate([gap, gaps]), jnp.concatenate([sign, -jnp.ones_like(gaps)]), rows)


def _limits(scene: Scene, q: jax.Array) -> Stops:
    tree, at = scene.tree, tree_configuration(scene.model, q)
    place = np.array([tree.q_slice(name).start + k for name, k in scene.limited], int)
    ends = tree.position_limits.astype(q.dtype)[place]
    below, above = at[place] - ends[:, 0], ends[:, 1] - at[place]
    lower = lax.stop_gradient(below <= above)
    gap = jnp.where(lower, below, above)
    gap = jnp.where(jnp.isfinite(gap), gap, FAR)
    sign = jnp.where(lower, 1.0, -1.0).astype(q.dtype)
    freedoms = single_freedoms(tree, scene.limited)
    if len(freedoms) == len(sign):
        rows = StopRows(freedoms, sign, jnp.zeros((0, tree.nv), q.dtype))
        return Stops(
            gap, sign, rows if isinstance(scene.model, Model) else StopRows.whole(by_model(scene, q, rows.dense))
        )
    rates = jax.vmap(lambda v: configuration_rate(tree, at, v)[place], out_axes=1)(jnp.eye(tree.nv, dtype=q.dtype))
    return Stops(gap, sign, StopRows.whole(sign[:, None] * by_model(scene, q, rates)))


def _cone(scene: Scene, stop: Cone, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    tree = scene.tree
    w, *xyz = tree_configuration(scene.model, q)[tree.q_slice(stop.joint)]
    axis, sine = unit(jnp.where(w < 0, -1.0, 1.0).astype(q.dtype) * jnp.stack(xyz), EX)
    row = jnp.zeros(tree.nv, q.dtype).at[tree.v_slice(stop.joint)].set(-axis)
    return stop.angle - 2.0 * jnp.arctan2(sine, jnp.abs(w)), by_model(scene, q, row)


def _rope(scene: Scene, stop: Rope, q: jax.Array, at: Placed | None) -> tuple[jax.Array, jax.Array]:
    tree, at = scene.tree, placed(scene, q) if at is None else at
    offsets = jnp.zeros((len(stop.points), 3), q.dtype) if stop.offsets is None else jnp.asarray(stop.offsets, q.dtype)
    bodies, points = [], []
    for name, offset in zip(stop.points, offsets, strict=True):
        body, pose = tree.locate(name)
        own = offset if pose is None else pose.rotation.astype(q.dtype) @ offset + pose.translation.astype(q.dtype)
        bodies.append(body)
        points.append(at.rotation[body] @ own + at.origin[body])
    moving = np.concatenate([tree.topology.support[:, tree.topology.body_of_velocity], np.zeros((1, tree.nv), bool)])
    jacobian = jacobian_at(scene, jnp.stack(points), moving[np.array(bodies)], q, at)
    total, row = jnp.zeros((), q.dtype), jnp.zeros(scene.nv, q.dtype)
    for k in range(len(points) - 1):
        along, length = unit(points[k + 1] - points[k], EX)
        total, row = total + length, row + along @ (jacobian[k + 1] - jacobian[k])
    return stop.length - total, -row


def stop_materials(scene: Scene, dtype: Any) -> Material:
    """What stops are made of, entries of shape `(l,)`; a scene that is not `filled` has no stiffness of some."""
    return of_stops(of_each_stop(scene), dtype)


def filled(scene: Scene) -> Scene:
    """The scene with stiffness and damping of its stops: where none is given, those with which what the stop feels of
    the mass, in the neutral configuration, comes back in `TIME`, critically damped."""
    given = of_each_stop(scene)
    if all(m.stiffness is not None and m.damping is not None for m in given):
        return scene
    q = neutral(scene.model)
    rows = stops_at(scene, q, None).jacobian
    mobility = mobilities(mass_matrix(scene.model, q), rows)
    masses = jnp.where(mobility > 0, 1.0 / jnp.where(mobility > 0, mobility, 1.0), 1.0)
    own = []
    for material, mass in zip(given, masses, strict=True):
        stiffness = mass / TIME**2 if material.stiffness is None else material.stiffness
        damping = 2.0 * jnp.sqrt(mass * stiffness) if material.damping is None else material.damping
        own.append(dataclasses.replace(material, stiffness=stiffness, damping=damping))
    count = len(scene.limited)
    stops = tuple(dataclasses.replace(s, material=m) for s, m in zip(scene.stops, own[count:], strict=True))
    return dataclasses.replace(scene, limiting=tuple(own[:count]), stops=stops)


def of_each_stop(scene: Scene) -> list[Material]:
    return [*scene.limiting, *(stop.material for stop in scene.stops)]
