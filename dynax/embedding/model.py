"""Constraint embedding: loops taken into the tree, which then has independent velocities only (Jain, sections 4 to 9).

    v_tree = X(q) v        a_tree = X a + Xdot v        tau = X^T tau_tree        M = X^T M_tree X

Sub-graphs tied by loops become nodes of an aggregated tree, on which the recursions run as on any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.constraints.assembly import ITERATIONS, Assembly, assembled
from dynax.constraints.ends import loop_paths
from dynax.constraints.independent import least_of
from dynax.constraints.residual import rows_at
from dynax.constraints.rows import Rows
from dynax.constraints.rows import plan as row_plan
from dynax.embedding.aggregation import Aggregate, aggregates, independent_columns
from dynax.embedding.coefficients import (
    Chart,
    Elimination,
    Embedding,
    coefficients,
    dense,
    elimination,
    pick,
    plan_of,
)
from dynax.errors import ModelError
from dynax.linear.singular_values import singular_values
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import integrate, neutral
from dynax.model.flexible import FlexibleModel, Member, entries_of, skeleton_of
from dynax.operators.pytree import pytree_dataclass
from dynax.sweep import take_rows
from dynax.topology import Topology

# Reference configurations that close better than this, in the units of the residual, are taken.
CLOSED = 1e-4


@pytree_dataclass("embedding")
class EmbeddedModel:
    """A model whose loops are part of it; made by `dx.embed`.

    The configuration `q` is the whole tree's, shape `(nq,)`, and closes all loops: the branch of an assembly is part of
    it. Velocities, accelerations and forces are those of the independent freedoms, shape `(nv,)`, as a quaternion has
    four coordinates and three velocities. `dx` functions take it in the place of a `Model`.
    """

    tree: Model
    """The tree, with its loops as data; a `FlexibleModel` in its place, if bodies bend."""
    embedding: Embedding
    chart: Chart | None = None
    """In the course of a rollout: other independent freedoms than `independent`, see `dynax/embedding/charts.py`."""

    @property
    def nq(self) -> int:
        return self.tree.nq

    @property
    def nv(self) -> int:
        """The number of independent velocities: the mobility."""
        return len(self.independent)

    @property
    def independent(self) -> tuple[int, ...]:
        """Which of the tree's velocities are independent, in order."""
        return tuple(int(j) for j in plan_of(self.tree, self.embedding).independent)

    @property
    def independent_joints(self) -> tuple[str, ...]:
        """The joints they belong to, one name for each."""
        skeleton, owner = skeleton_of(self.tree), body_of_entry(self.tree)
        return tuple(skeleton.joint_names[owner[j]] for j in self.independent)

    @property
    def aggregates(self) -> tuple[tuple[str, ...], ...]:
        """The bodies of each aggregate."""
        return tuple(tuple(self.tree.body_names[b] for b in a.bodies) for a in self.embedding.aggregates)

    @property
    def name(self) -> str:
        return self.tree.name

    @property
    def num_bodies(self) -> int:
        return self.tree.num_bodies

    @property
    def body_names(self) -> tuple[str, ...]:
        return self.tree.body_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        return self.tree.joint_names

    def body_index(self, name: str) -> int:
        """The row of a body; raises `KeyError` with near names."""
        return self.tree.body_index(name)

    @property
    def mass(self) -> jax.Array:
        return self.tree.mass

    @property
    def time(self) -> jax.Array:
        return self.tree.time

    @property
    def armature(self) -> jax.Array:
        """Of all joints of the tree, as `tree.armature`."""
        return self.tree.armature

    @property
    def damping(self) -> jax.Array:
        """Of all joints of the tree."""
        return self.tree.damping

    def replace(self, **leaves) -> EmbeddedModel:
        """With leaves of the tree replaced: masses, lengths, where loops are closed."""
        return EmbeddedModel(self.tree.replace(**leaves), self.embedding, self.chart)

    def at_time(self, time) -> EmbeddedModel:
        return EmbeddedModel(self.tree.at_time(time), self.embedding, self.chart)

    def __repr__(self) -> str:
        sizes = ", ".join(str(len(a.bodies)) for a in self.embedding.aggregates)
        return f"EmbeddedModel({self.name!r}, nv={self.nv} of {self.tree.nv}, aggregates of {sizes or 'no'} bodies)"


def embed(
    model: Model | FlexibleModel,
    q: ArrayLike | None = None,
    *,
    independent: Sequence[str] = (),
    tolerance: float | None = None,
) -> EmbeddedModel:
    """The model with its loops, gears and conditions embedded: every algorithm runs on it as on a tree.

    Which bodies form an aggregate follows from the graph; which velocities are independent is chosen once, by pivoting
    on the Jacobian of the conditions at a reference configuration, and stays. Watch `embedding_quality` where the
    mechanism moves far from it. Modes stay independent wherever joints can follow them.

    **Arguments:**

    - `model`: with loops, gears or conditions, its leaves known (not traced, not batched): replace them afterwards.
    - `q`: near the reference configuration, shape `(nq,)`; default the neutral one. Loops are closed from there.
    - `independent`: joints to keep independent, if that is possible.
    - `tolerance`: of the rank, as for `constrained_dynamics`.

    Raises `ModelError` when the loops do not close near `q`, when `q` is a singular configuration, or the joints named
    cannot be independent.
    """
    where = f"model {model.name!r}"
    found, reference = _closed(model, *as_state(model, q=neutral(model) if q is None else q))
    if not float(found.error) < CLOSED:
        raise ModelError(
            f"its loops do not close near the reference configuration (error {float(found.error):.2g})",
            element=where,
            hint="pass `q`, a configuration near an assembled one, to dx.embed",
        )
    scale = 0.02 * _measure(model)
    near = [jnp.asarray(scale * x, found.q.dtype) for x in np.random.default_rng(0).normal(size=(2, model.nv))]
    others = [_closed(model, integrate(model, found.q, dv))[1] for dv in near]
    jacobians = [np.asarray(rows.matrix, dtype=np.float64) for rows in (reference, *others)]
    weights, least = np.asarray(reference.weights)[:, None], float(least_of(reference, _given(tolerance)))
    members = model.members if isinstance(model, FlexibleModel) else ()
    structure, entries, owner = skeleton_of(model).structure, tree_entries(model), body_of_entry(model)
    start, topology, rows = row_plan(structure).start, structure.topology, loop_paths(structure).freedom
    moved: list[set[int]] = []
    for k in range(len(start) - 1):
        if k < len(rows):
            moved.append({int(topology.body_of_velocity[j]) for j in rows[k][rows[k] >= 0]})
        else:
            largest = np.max([np.abs(j[start[k] : start[k + 1]]).max(axis=0) for j in jacobians], axis=0)
            moved.append({owner[int(j)] for j in np.flatnonzero(largest > 1e-12)})
    made, alone = _with_bending(topology, moved, members)
    modes = {j for member in members for j in entries[member.frame]}
    wanted = {j for joint in independent for j in range(*model.v_slice(joint).indices(model.nv))}
    dependent = []
    for aggregate in made:
        own = [row for k in aggregate.conditions for row in range(start[k], start[k + 1])]
        free = [j for body in aggregate.bodies for j in entries[body]]
        keep, last = ([i for i, j in enumerate(free) if j in some] for some in (wanted, modes))
        chosen, rank = independent_columns((jacobians[0] * weights)[np.ix_(own, free)], keep, least, last)
        label = f"loop of bodies {', '.join(repr(model.body_names[b]) for b in aggregate.bodies)}"
        if len(chosen) < rank:
            raise ModelError(
                "the joints that are to be independent depend on one another",
                element=label,
                hint=f"name at most {len(free) - rank} freedoms, or leave `independent` out",
            )
        if any(independent_columns((j * weights)[np.ix_(own, free)], (), least)[1] != rank for j in jacobians[1:]):
            raise ModelError(
                f"is singular at the reference configuration, where its rank is {rank}",
                element=label,
                hint="pass `q`, another assembled configuration, to dx.embed",
            )
        dependent.append(tuple(free[i] for i in chosen))
    return EmbeddedModel(cast(Model, model), Embedding(made, tuple(dependent), members, alone))


def _closed(model: Model | FlexibleModel, q: jax.Array) -> tuple[Assembly, Rows]:
    return assembled(cast(Model, model), q, (False,) * model.nv, ITERATIONS, None)


def _measure(model: Model | FlexibleModel) -> np.ndarray:
    """By what entries of a velocity count: one, but of modes no more than moves a node by one."""
    found = np.ones(model.nv)
    if isinstance(model, FlexibleModel):
        for modes, member, body in zip(model.places.modes_v, model.members, model.bodies, strict=True):
            nodes = np.concatenate([np.asarray(body.node_translation), np.asarray(body.node_rotation)])
            found[modes[: member.modes]] = 1.0 / np.maximum(np.abs(nodes).max(axis=(0, 1)), 1.0)
    return found


def _with_bending(
    topology: Topology, moved: list[set[int]], members: tuple[Member, ...]
) -> tuple[tuple[Aggregate, ...], tuple[Aggregate, ...]]:
    """The aggregates of conditions, and the places of bodies that bend outside of these: places of one body stay
    together."""
    places = [{member.frame, *member.nodes} for member in members]
    found = [
        a._replace(conditions=tuple(k for k in a.conditions if k < len(moved)))
        for a in aggregates(topology, [*moved, *places])
    ]
    return tuple(a for a in found if a.conditions), tuple(a for a in found if not a.conditions)


def tree_entries(model: Model | FlexibleModel) -> list[list[int]]:
    """For each body its entries of a velocity."""
    return entries_of(skeleton_of(model).topology, model.members if isinstance(model, FlexibleModel) else ())


def body_of_entry(model: Model | FlexibleModel) -> dict[int, int]:
    """The body of each entry of a velocity."""
    return {j: body for body, own in enumerate(tree_entries(model)) for j in own}


def _given(tolerance: float | None) -> jax.Array | None:
    return None if tolerance is None else jnp.asarray(tolerance)


class EmbeddingQuality(NamedTuple):
    """How well the independent velocities serve at one configuration, for each aggregate."""

    dependent: jax.Array
    """The least singular value of `Y1`: near zero the choice of independent velocities fails, another may serve."""
    conditions: jax.Array
    """The least of those of `Y` that count at the reference: near zero the mechanism itself is singular, its mobility
    grows."""
    error: jax.Array
    """The largest entry of the residual of all conditions."""


def embedding_quality(model: EmbeddedModel, q: ArrayLike) -> EmbeddingQuality:
    """Rank and conditioning of an embedding at `q`, one entry per aggregate (Jain, EMBED-RANK)."""
    return _quality(model, *as_state(model.tree, q=q))


@jax.jit
def _quality(model: EmbeddedModel, q: jax.Array) -> EmbeddingQuality:
    rows, start = rows_at(model.tree, q), row_plan(skeleton_of(model.tree).structure).start
    entries, first, second = tree_entries(model.tree), [], []
    for aggregate, dependent in zip(model.embedding.aggregates, model.embedding.dependent, strict=True):
        own = np.array([row for k in aggregate.conditions for row in range(start[k], start[k + 1])], dtype=int)
        free = [j for b in aggregate.bodies for j in entries[b]]
        y = rows.matrix[own]
        first.append(_least(y[:, np.array(dependent, dtype=int)], len(dependent)))
        second.append(_least(y[:, np.array(free, dtype=int)], len(dependent)))
    none = jnp.zeros(0, q.dtype)
    return EmbeddingQuality(
        jnp.stack(first) if first else none,
        jnp.stack(second) if second else none,
        jnp.max(jnp.abs(rows.residual), initial=0.0),
    )


def _least(matrix: jax.Array, rank: int) -> jax.Array:
    if not rank:
        return jnp.full((), jnp.inf, matrix.dtype)
    return singular_values(matrix)[rank - 1]


def embedding_matrix(model: EmbeddedModel, q: ArrayLike) -> jax.Array:
    """`X`, whose columns are the tree's velocities for each independent one, shape `(nv of the tree, nv)`."""
    (q,) = as_state(model.tree, q=q)
    return _matrix(model, q)


@jax.jit
def _matrix(model: EmbeddedModel, q: jax.Array) -> jax.Array:
    p = plan_of(model.tree, model.embedding)
    return dense(p, factors(model, rows_at(model.tree, q))[1])


def factors(model: EmbeddedModel, rows: Rows) -> tuple[Elimination, jax.Array]:
    """`Y1` factorised, and `X` by freedom of the tree and place."""
    assert rows.entries is not None
    p = plan_of(model.tree, model.embedding)
    solved = elimination(p, rows.entries, model.chart and model.chart.columns)
    return solved, coefficients(p, solved, rows.entries)


@overload
def tree_of(model: Model | EmbeddedModel) -> Model: ...
@overload
def tree_of(model: FlexibleModel) -> FlexibleModel: ...
def tree_of(model: Model | EmbeddedModel | FlexibleModel) -> Model | FlexibleModel:
    """The tree whose bodies and joints have the names and the parameters: of a model without embedding, itself."""
    return model.tree if isinstance(model, EmbeddedModel) else model


def of_independent(model: EmbeddedModel, whole: jax.Array) -> jax.Array:
    """Of entries for the tree's freedoms, `(nv of the tree,)`, those of the independent ones; batch axes trail."""
    p = plan_of(model.tree, model.embedding)
    found = take_rows(whole, p.independent)
    if model.chart is None:
        return found
    place, index = np.full(model.tree.nv, -1), np.arange(len(p.independent))
    place[p.independent] = index
    rows, end = [found], len(found)
    for g, columns in zip(p.groups, model.chart.columns, strict=True):
        own = jnp.sum(columns[:, :, g.dependent :] * pick(whole, g.freedoms)[:, :, None], axis=1)
        rows.append(own.reshape(-1, *own.shape[2:]))
        index[place[g.freedoms[:, g.dependent :]].reshape(-1)] = end + np.arange(len(rows[-1]))
        end += len(rows[-1])
    return take_rows(jnp.concatenate(rows), index)
