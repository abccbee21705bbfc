"""The axes of free and planar bases turn within a step.

Their velocities are along axes of the body, which turn by some degrees a step if it rolls fast. But weight and what
bears it, or what two bodies do to each other, are in balance along axes that both share: else what rolls gains speed
from its weight, up to `g dt / 2 r` of it in a second, and a hit loses momentum. So a step with contact knows the
velocity `w` along the axes where it begins,

    w  = v + dt a + dt omega x c         without contact: of Coriolis forces without the turn of axes
    v+ = w + (exp(-dt omega) - 1) c      along the axes where it ends
    x  = w + (V^-1 - 1) c                q+ = integrate(q, dt x), where V is the translation of exp(dt omega)

with `c` the velocity of the centre of mass of all that the base carries, its momentum by its mass. That moves straight,
by `dt c`, and the base turns about it; of linear momentum nothing is lost by the turn. What floats alone turns on from
a hit as a free body does (`simulate.precession`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.batching import trailing
from dynax.compile.fence import apart
from dynax.contact.placing import Places
from dynax.embedding.coefficients import plan_of
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.linear.sums import by_terms
from dynax.model import Model
from dynax.model.configuration import integrate, integrate_rows
from dynax.model.flexible import FlexibleModel, skeleton_of
from dynax.operators.pytree import pytree_dataclass
from dynax.simulate.precession import precession
from dynax.simulate.stepper import AnyTree
from dynax.spatial import Exponential, Quaternion, Vec3
from dynax.sweep import take_rows
from dynax.sweep.sums import Tree
from dynax.tree.setup import lift


@pytree_dataclass("angular", "linear", "alone")
class Turning:
    """The bases whose axes turn, and the step; with or without trailing batch axes."""

    angular: tuple[tuple[int, ...], ...]
    """Entries of the velocity, three for each base, -1 for none."""
    linear: tuple[tuple[int, ...], ...]
    alone: tuple[int, ...]
    """Of each the body, if it turns about any axis and carries none, else -1."""
    centre: jax.Array
    """`c` by the velocity of the model, shape `(k, 3, nv)`."""
    dt: jax.Array

    @classmethod
    def of_any(cls, model: AnyTree, inertia: jax.Array, dt: jax.Array) -> Turning:
        bases = _bases(model)
        rows = np.array(bases.linear, int).reshape(-1, 3)
        mass = jnp.diagonal(inertia)[rows]
        return cls(*bases, inertia[rows] / mass[:, :, None], dt)

    @classmethod
    def of_tree(cls, model: Model, centre: jax.Array, dt: jax.Array) -> Turning:
        """The same from `centres`, so that nothing is asked of the mass matrix."""
        return cls(*_bases(model), centre, dt)

    def begun(self, v: jax.Array, mean: jax.Array) -> jax.Array:
        """`v + dt omega x c` of a mean velocity, whose Coriolis forces are counted without it."""
        return _begun(self, v, mean) if self.linear else v

    def ended(self, model: AnyTree, q: jax.Array, v: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        """`q+, v+`, of a step that begins with `v`."""
        if isinstance(model, Model):
            return _tree_ended(model, q, v, w, self)
        if not self.linear:
            return integrate(model, q, self.dt * w), w
        screw, after = _turned(skeleton_of(tree_of(model)), v, w, self)
        return integrate(model, q, self.dt * screw), after

    def moved(self, model: AnyTree, q: jax.Array, w: jax.Array) -> jax.Array:
        """`q+`, if all goes on with `w`."""
        if isinstance(model, Model):
            return _tree_moved(model, q, w, self)
        return integrate(model, q, self.dt * (_screw(self, w) if self.linear else w))

    def _changed(self, v: jax.Array, mean: jax.Array, by: Callable[[Vec3, Vec3], Vec3]) -> jax.Array:
        """`v` with a change of linear velocities, by the angle and by `c` of a mean velocity."""
        angular, linear = np.array(self.angular, int), np.array(self.linear, int)
        centre = _components(by_terms(jnp.moveaxis(self.centre, 2, 0), mean[:, None, None]), linear)
        change = by(_components(self.dt * take_rows(mean, angular), angular), centre)
        place = np.where(linear < 0, -1, 3 * np.arange(len(linear))[:, None] + np.arange(3)).ravel()
        rows = np.full(len(v), -1)
        rows[linear.ravel()[place >= 0]] = place[place >= 0]
        changes = jnp.stack([apart(x) for x in (change.x, change.y, change.z)], axis=1)
        return v + take_rows(changes.reshape(-1, *v.shape[1:]), rows)


def centres(model: Model, at: Places) -> jax.Array:
    """`c` of a tree by its velocity, shape `(k, 3, nv, *batch)`: a freedom moves the centre of mass of what it carries,
    as a part of all that the base carries."""
    linear = np.array(_bases(model).linear, int)
    topology, batch, dtype = model.topology, at.place.x.ndim - 1, at.place.x.dtype
    if not len(linear):
        return jnp.zeros((0, 3, *at.place.x.shape), dtype)

    def of_each(x: np.ndarray) -> jax.Array:
        return jnp.asarray(x, dtype).reshape(*x.shape, *(1,) * batch)

    def carried(x: Tree) -> Tree:
        """Of each body, summed over what each freedom carries."""
        return jax.tree.map(lambda x: by_terms(of_each(carries), x[:, None]), x)

    carries = topology.support[:, topology.body_of_velocity]  # (n, nv)
    mass = lift(model.mass, 1, batch, dtype)
    # First moments about the base, so that far from the world's origin no digits are lost.
    root = np.argmax(topology.support, axis=1)
    masses = carried(mass)
    moments = carried((at.origin - take_rows(at.origin, root)) * mass + at.moment)
    moments = moments - (at.place - take_rows(at.origin, root[topology.body_of_velocity])) * masses
    turns, shifts = at.column.angular, at.column.linear
    moved = shifts * masses + turns.cross(moments)
    # Only what this base carries moves it.
    alone = (topology.velocity_support | topology.velocity_support.T)[linear.ravel()]
    axes = jax.tree.map(lambda x: x[:, None], take_rows(shifts, linear.ravel()))
    found = axes.dot(moved) * of_each(alone) / take_rows(masses, linear.ravel())[:, None]
    return found.reshape(*linear.shape, *found.shape[1:])


def begun_rows(axes: Turning, v: jax.Array, mean: jax.Array) -> jax.Array:
    """`Turning.begun` for trailing batch axes."""
    return axes._changed(v, mean, lambda angle, c: angle.cross(c)) if axes.linear else v


def _screw_rows(axes: Turning, w: jax.Array) -> jax.Array:
    return axes._changed(w, w, lambda angle, c: Exponential.of(angle).log_translation(c) - c) if axes.linear else w


def _turned_rows(model: Model, v: jax.Array, w: jax.Array, axes: Turning) -> tuple[jax.Array, jax.Array]:
    """`x, v+`."""
    if not axes.linear:
        return w, w
    lacks = _lacking(model, v, w, axes)
    mean = w if lacks is None else w + 0.5 * lacks
    after = axes._changed(w, mean, lambda angle, c: Quaternion.exp(-angle).matrix() @ c - c)
    return _screw_rows(axes, mean), after if lacks is None else after + lacks


def _lacking(model: Model, v: jax.Array, w: jax.Array, axes: Turning) -> jax.Array | None:
    """By what bodies that float alone precess, of all velocities."""
    bases = np.flatnonzero(np.array(axes.alone, int) >= 0)
    if not len(bases):
        return None
    angular, linear = (np.array(x, int)[bases] for x in (axes.angular, axes.linear))
    before, found = (_components(take_rows(x, angular), angular) for x in (v, w))
    changes = precession(model, np.array(axes.alone)[bases], before, found, axes.dt)
    rows = np.full(len(w), -1)
    rows[np.concatenate([angular, linear], axis=1).ravel()] = np.arange(6 * len(bases))
    each = (apart(x) for change in changes for x in (change.x, change.y, change.z))
    parts = jnp.stack(jnp.broadcast_arrays(*each), axis=1)
    return take_rows(parts.reshape(-1, *parts.shape[2:]), rows)


def _ended(model: Model, q: jax.Array, v: jax.Array, w: jax.Array, axes: Turning) -> tuple[jax.Array, jax.Array]:
    screw, after = _turned_rows(model, v, w, axes)
    return integrate_rows(model, q, axes.dt * screw), after


def _moved(model: Model, q: jax.Array, w: jax.Array, axes: Turning) -> jax.Array:
    return integrate_rows(model, q, axes.dt * _screw_rows(axes, w))


_begun, _screw, _tree_ended = trailing(begun_rows), trailing(_screw_rows), trailing(_ended)
_turned, _tree_moved = trailing(_turned_rows), trailing(_moved)


def _components(x: jax.Array, entries: np.ndarray) -> Vec3:
    """Of rows `(k, 3, ...)`."""
    none = entries.reshape(*entries.shape, *(1,) * (x.ndim - 2)) < 0
    x = jnp.where(none, 0.0, x)
    return Vec3(x[:, 0], x[:, 1], x[:, 2])


class _Bases(NamedTuple):
    """As of a `Turning`."""

    angular: tuple[tuple[int, ...], ...]
    linear: tuple[tuple[int, ...], ...]
    alone: tuple[int, ...]


def _bases(model: Any) -> _Bases:
    tree = tree_of(model)
    topology, place = skeleton_of(tree).topology, np.arange(tree.nv)
    if isinstance(model, EmbeddedModel):
        # Of a base in a loop, or in a chart, velocities are not those of a body alone.
        plan = plan_of(model.tree, model.embedding)
        alone = np.setdiff1d(plan.independent, np.concatenate([g.freedoms.ravel() for g in plan.groups] or [[]]))
        place = np.where(np.isin(place, alone), np.searchsorted(plan.independent, place), -1)
    if isinstance(tree, FlexibleModel):
        place = np.append(place, -1)[np.minimum(tree.places.v, tree.nv)]
    angular, linear, bodies = [], [], []
    for body, (joint, parent, start) in enumerate(
        zip(topology.joints, topology.parents, topology.v_start, strict=False)
    ):
        if not joint.turning or parent >= 0 or np.any(place[start : start + joint.nv] < 0):
            continue
        entries = np.where(np.array(joint.turning) < 0, -1, place[start + np.array(joint.turning)])
        angular.append(tuple(map(int, entries[:3])))
        linear.append(tuple(map(int, entries[3:])))
        bodies.append(body if np.all(entries >= 0) and body not in topology.parents else -1)
    return _Bases(tuple(angular), tuple(linear), tuple(bodies))
