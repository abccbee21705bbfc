"""The velocity along each normal, and along each stop, of a unit of impulse, where a scene's freedoms fall into trees.

    j H^-1 j^T = sum over trees of j_t H_t^-1 j_t^T

since no mass couples what hangs from nothing common, though contacts may: an arm and the cube that it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.batching import trailing
from dynax.contact.branching import moved_by
from dynax.contact.ends import single_freedoms
from dynax.contact.scene import Scene
from dynax.contact.stop_rows import StopRows, stops_of
from dynax.linear.branches import apart
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.model import Model
from dynax.sweep import take_rows
from dynax.sweep.sums import summed


@dataclass(frozen=True)
class Tree:
    """Freedoms that masses couple, and what moves them."""

    freedoms: tuple[int, ...]
    contacts: tuple[int, ...]
    stops: tuple[int, ...]
    """Of those that have no freedom of their own, from 0 on."""


def trees_of(scene: Scene) -> tuple[Tree, ...]:
    """Of a scene of a tree or several, in whose steps all candidates take part."""
    assert isinstance(scene.model, Model)
    touched, stops = moved_by(scene)
    stops = stops[len(single_freedoms(scene.model, scene.limited)) :]
    support = scene.model.topology.velocity_support
    return tuple(
        Tree(tuple(own), *(tuple(map(int, np.flatnonzero(x[:, own].any(axis=1)))) for x in (touched, stops)))
        for own in apart(support | support.T, range(len(support)))
    )


@lru_cache(maxsize=512)
def mobilities_by(trees: tuple[Tree, ...]) -> Callable[..., jax.Array]:
    """The function `((), inertia, normals, stops)`, which gives what `coulomb.mobilities` does of both."""

    def core(_: tuple, inertia: jax.Array, normals: jax.Array, stops: StopRows) -> jax.Array:
        batch = jnp.broadcast_shapes(inertia.shape[2:], normals.shape[2:], stops.rows.shape[2:])
        none = jnp.zeros((len(normals) + len(stops), *batch), inertia.dtype)
        return sum((_of_tree(own, inertia, normals, stops, batch) for own in trees), none)

    return trailing(core)


def _of_tree(tree: Tree, inertia: jax.Array, normals: jax.Array, stops: StopRows, batch: tuple[int, ...]) -> jax.Array:
    at, single, n = np.array(tree.freedoms, int), len(stops.freedoms), len(inertia)
    contacts, others = np.array(tree.contacts, int), np.array(tree.stops, int)
    limits = stops_of(stops.freedoms, at)
    ones = np.eye(len(at), dtype=inertia.dtype)[limits >= 0].reshape(-1, len(at), *[1] * len(batch))
    each = _columns(take_rows(normals, contacts), at), ones, _columns(take_rows(stops.rows, others), at)
    rows = jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:2], *batch)) for x in each])
    block = take_rows(inertia.reshape(n * n, *inertia.shape[2:]), n * at[:, None] + at)
    columns = jnp.moveaxis(rows, 1, 0)
    found = summed(columns * gauss_jordan(block, columns), 0)
    count = len(normals)
    place = np.full(count + len(stops), -1)
    place[np.concatenate([contacts, count + limits[limits >= 0], count + single + others])] = np.arange(len(found))
    return take_rows(found, place)


def _columns(rows: jax.Array, at: np.ndarray) -> jax.Array:
    count, n = rows.shape[:2]
    return take_rows(rows.reshape(count * n, *rows.shape[2:]), n * np.arange(count)[:, None] + at)
