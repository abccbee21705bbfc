"""Which parameters any motion can show, by the structure of a model and not by the rank of samples.

A change of parameters is seen in no force if and only if it changes neither the kinetic energy nor, but for a constant,
the potential one. Both are sums over bodies of `tr(Q J)`, `J` the pseudo-inertia: with `V` the 4x4 matrix of a twist
and `g` of gravity, `Q = V' V / 2` and `Q = -(g e4' + e4 g') / 2`. A hinge with the pose `H exp(q X)` in its carrier
takes what this can have to

    twists   exp(-q X) H^-1 V H exp(q X), and X                         whose span is closed under V X - X V
    Q        exp(q X)' H' Q H exp(q X), and V' X + X' V, and X' X       whose span is closed under X' Q + Q X

and what it carries may take inertia from its carrier, unseen, where `tr(Q J) = 0` for `V' X + X' V` and `X' X` (the
hinge feels nothing) and for `X' Q + Q X` with all `Q` of the carrier (it does not matter how far it has turned). From
the tips on, each hinge asks this of ten numbers, and all that is unseen is made of such exchanges: in the manner of the
recursive algorithm of Wensing, Niemeyer & Slotine (2024, "A geometric characterization of observability in inertial
parameter identification"). Bodies that gears turn together, as a link and its rotor, are asked together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.frame_motion import body_velocities
from dynax.algorithms.frames import forward_kinematics
from dynax.constraints.residual import constraint_jacobian
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.identify.identifiability import Identifiability, identifiability_of
from dynax.identify.pseudo_inertia import from_pseudo_inertia, pseudo_inertia
from dynax.identify.terms import Term, checked, driven, parameter_names
from dynax.model import Model
from dynax.model.configuration import neutral, random_configuration

EXACT = 1e-9
"""What is smaller, as a part of the largest, is nothing but rounding."""


class Hinges(NamedTuple):
    """The joints of a tree as hinges, and which bodies move together."""

    poses: np.ndarray
    """Of each body in its parent, its joint at zero, shape `(n, 4, 4)`."""
    twists: np.ndarray
    """Of each freedom, for a unit of the independent one that moves it, in axes of its body, shape `(nv, 4, 4)`."""
    ratios: np.ndarray
    """How far each freedom moves for a unit of that, shape `(nv,)`."""
    groups: list[list[int]]
    """Bodies that one joint moves, with those geared to it, from the base on."""


def structural_identifiability(
    model: Model | EmbeddedModel, *, terms: Sequence[Term] = ("inertias",), keep: Sequence[str] = ()
) -> Identifiability:
    """What any motion can show of a model's parameters, as `identifiability` finds it from random states, in NumPy.

    **Arguments:** `model`: a tree, or an embedded model that gears alone tie together. `terms`: `"inertias"`,
    `"armature"`, and for a tree `"damping"` and `"friction_loss"`; `keep`: as for `identifiability_of`.

    Raises `ValueError` for loops, for a chain that a freedom moves in two places, and for joints whose motion is no
    product of turns and shifts about axes of their own.
    """
    terms, names = checked(terms), parameter_names(model, terms)
    allowed = ("inertias", "armature", *(() if isinstance(model, EmbeddedModel) else ("damping", "friction_loss")))
    for term in terms:
        if term not in allowed:
            raise ValueError(f"`terms`: {term!r} is not among those looked at here, {', '.join(allowed)}")
    unseen = _unseen(model, terms)
    # What is seen is the complement of that.
    seen = np.linalg.svd(unseen)[0][:, unseen.shape[1] :].T
    return identifiability_of(np.pad(seen, ((0, unseen.shape[1]), (0, 0))), names, keep=keep)


def _unseen(model: Model | EmbeddedModel, terms: tuple[Term, ...]) -> np.ndarray:
    """Changes that no force feels, as independent columns, `(p, k)`."""
    tree, own = tree_of(model), driven(model)
    sizes = [10 * tree.num_bodies if term == "inertias" else len(own) for term in terms]
    start = dict(zip(terms, np.cumsum([0, *sizes]), strict=False))
    hinges, units = _hinges(model), np.asarray(pseudo_inertia(np.eye(10)))
    found = []
    for k, group in enumerate(hinges.groups):
        parents = [tree.parents[body] for body in group]
        freedoms = [_freedoms(tree, body) for body in group]
        _, _, rows, felt = _hinged(*_attainable(tree, hinges, k, parents), hinges, group, freedoms)
        # Ten numbers of each body, if they are asked for; and rotors, which a hinge feels as it feels a body.
        bodies = np.einsum("rbij,kij->rbk", rows, units).reshape(len(rows), -1)
        asked = bodies.shape[1] if "inertias" in terms else 0
        rotors = [j for each in freedoms for j in each if "armature" in terms and j in own]
        drives = np.zeros((len(rows), len(rotors)))
        for at, j in enumerate(rotors):
            step = next(each.index(j) for each in freedoms if j in each)
            drives[felt[step], at] = hinges.ratios[j] ** 2
        for change in _null(np.concatenate([bodies[:, :asked], drives], axis=1)):
            column = np.zeros(sum(sizes))
            for body, parent, part in zip(group, parents, change[:asked].reshape(-1, 10), strict=False):
                column[start["inertias"] + 10 * body + np.arange(10)] += part
                if parent >= 0:
                    J = hinges.poses[body] @ np.asarray(pseudo_inertia(part)) @ hinges.poses[body].T
                    column[start["inertias"] + 10 * parent + np.arange(10)] -= np.asarray(from_pseudo_inertia(J))
            for j, value in zip(rotors, change[asked:], strict=True):
                column[start["armature"] + np.flatnonzero(own == j)] = value
            found.append(column)
    return np.array(found).reshape(-1, sum(sizes)).T


def _attainable(tree: Model, hinges: Hinges, before: int, bodies: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The spans of the twists and of the `Q` that some bodies, or the world, have together, `(s, b, 4, 4)`."""
    Q = np.zeros((1, len(bodies), 4, 4))
    Q[0, :, :3, 3] = Q[0, :, 3, :3] = np.asarray(tree.gravity)
    V, Q = Q[:0], _span(Q)
    for group in hinges.groups[:before]:
        moved = [next((m for m in group if body >= 0 and tree.topology.support[body, m]), -1) for body in bodies]
        if max(moved) >= 0:
            V, Q, _, _ = _hinged(V, Q, hinges, moved, [_freedoms(tree, m) for m in moved])
    return V, Q


def _hinged(V: np.ndarray, Q: np.ndarray, hinges: Hinges, moved: Sequence[int], freedoms: Sequence[Sequence[int]]):
    """The spans beyond the joints of `moved`, -1 for what stays with its carrier; what has to be zero, `(r, b, 4, 4)`,
    for what they carry to be unseen; and the rows of that which hinges, one after another, feel of their own rates."""
    H = np.array([hinges.poses[m] if m >= 0 else np.eye(4) for m in moved])
    V, Q = _span(np.linalg.inv(H) @ V @ H), _span(H.swapaxes(-1, -2) @ Q @ H)
    rows, felt = [], []
    for step in range(max(map(len, freedoms))):
        X = np.array([hinges.twists[own[step]] if step < len(own) else np.zeros((4, 4)) for own in freedoms])
        XT = X.swapaxes(-1, -2)
        V = _closed(V, lambda V, X=X: V @ X - X @ V)
        Q = _closed(Q, lambda Q, X=X, XT=XT: XT @ Q + Q @ X)
        feels = np.concatenate([V.swapaxes(-1, -2) @ X + XT @ V, (XT @ X)[None]])
        rows += [*(XT @ Q + Q @ X), *feels]
        felt.append(len(rows) - 1)
        V, Q = _span(np.concatenate([V, X[None]])), _span(np.concatenate([Q, feels]))
    return V, Q, np.array(rows), felt


def _span(a: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what the rows, of shape `(s, ...)`, span."""
    rows = a.reshape(len(a), int(np.prod(a.shape[1:])))
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows[lengths > EXACT * lengths.max(initial=0.0)]
    if not len(rows):
        return a[:0]
    rows = rows / np.linalg.norm(rows, axis=1)[:, None]
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    return right[values > EXACT * values[0]].reshape(-1, *a.shape[1:])


def _closed(a: np.ndarray, generator: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The least span that holds `a` and its own images."""
    while True:
        # Of length one: a gear's generator is large.
        image = generator(a)
        size = max(np.abs(image).max(initial=0.0), 1.0)
        grown = _span(np.concatenate([a, image / size]))
        if len(grown) == len(a):
            return a
        a = grown


def _null(a: np.ndarray) -> np.ndarray:
    """What the rows of `a` take to zero, as orthonormal rows."""
    if not a.shape[1]:
        return np.zeros((0, 0))
    _, values, right = np.linalg.svd(a)
    return right[np.count_nonzero(values > EXACT * values[0]) :]


def _freedoms(tree: Model, body: int) -> list[int]:
    return [int(j) for j in np.flatnonzero(tree.topology.body_of_velocity == body)] if body >= 0 else []


def _hat(v: np.ndarray) -> np.ndarray:
    """The 4x4 matrices of six-vectors `(..., 6)`."""
    w, u = v[..., :3], v[..., 3:]
    turn = np.cross(w[..., None, :], np.eye(3)).swapaxes(-1, -2)
    return np.concatenate([np.concatenate([turn, u[..., None]], axis=-1), np.zeros((*v.shape[:-1], 1, 4))], axis=-2)


def _hinges(model: Model | EmbeddedModel) -> Hinges:
    tree = tree_of(model)
    q = jnp.stack([neutral(tree), *(random_configuration(tree, jax.random.key(k)) for k in range(2))])
    rates = jax.vmap(lambda q: jax.vmap(lambda v: body_velocities(tree, q, v))(jnp.eye(tree.nv, dtype=q.dtype)))(q)
    # Of each freedom, in axes of the body that its joint moves.
    columns = _hat(np.asarray(rates, float)[:, np.arange(tree.nv), tree.topology.body_of_velocity])
    for body, name in enumerate(tree.joint_names):
        _check(name, columns[:, _freedoms(tree, body)], np.asarray(q, float)[:, tree.q_slice(name)])
    poses = forward_kinematics(tree, q[0])
    world = np.tile(np.eye(4), (tree.num_bodies, 1, 1))
    world[:, :3, :3], world[:, :3, 3] = poses.rotation, poses.translation
    parents = np.array(tree.parents)
    pose = np.where(parents[:, None, None] >= 0, np.linalg.inv(world[parents]), np.eye(4)) @ world
    ratios, by = _ratios(model)
    return Hinges(pose, columns[0] * ratios[:, None, None], ratios, _groups(tree, by))


def _check(name: str, columns: np.ndarray, q: np.ndarray) -> None:
    """That twists at zero, one after another, make the joint's motion: they span the same wherever it stands, or are
    turned by those after them as they should be."""
    spans = [_span(c) for c in columns]
    if all(len(s) == len(spans[0]) and len(_span(np.concatenate([s, spans[0]]))) == len(s) for s in spans):
        return
    if q.shape[1] == columns.shape[1]:
        after = np.tile(np.eye(4), (len(q), 1, 1))
        alike = True
        for j in reversed(range(columns.shape[1])):
            alike &= np.allclose(np.linalg.inv(after) @ columns[0, j] @ after, columns[:, j], atol=EXACT)
            after = np.array([_exponential(x * columns[0, j]) for x in q[:, j]]) @ after
        if alike:
            return
    raise ValueError(f"joint {name!r} does not move along turns and shifts one after another: take `identifiability`")


def _exponential(a: np.ndarray) -> np.ndarray:
    part = term = np.eye(4)
    for k in range(1, 20):
        term = term @ a / (64.0 * k)
        part = part + term
    return np.linalg.matrix_power(part, 64)


def _ratios(model: Model | EmbeddedModel) -> tuple[np.ndarray, np.ndarray]:
    """How far each freedom of the tree moves for a unit of the independent one that moves it, and which that is."""
    tree = tree_of(model)
    if not isinstance(model, EmbeddedModel):
        return np.ones(tree.nv), np.arange(tree.nv)
    somewhere = [random_configuration(tree, jax.random.key(k)) for k in (0, 1)]
    first, second = (np.asarray(constraint_jacobian(tree, q)) for q in somewhere)
    if not np.allclose(first, second, atol=EXACT):
        raise ValueError(f"model {model.name!r} has loops: only gears are looked at here, take `identifiability`")
    free = np.array(model.independent)
    bound = np.setdiff1d(np.arange(tree.nv), free)
    whole = np.zeros((tree.nv, len(free)))
    whole[free, np.arange(len(free))] = 1.0
    whole[bound] = -np.linalg.lstsq(first[:, bound], first[:, free], rcond=None)[0]
    if np.any(np.count_nonzero(np.abs(whole) > EXACT, axis=1) > 1):
        raise ValueError(f"model {model.name!r} has gears with several sources: take `identifiability`")
    by = np.argmax(np.abs(whole), axis=1)
    return whole[np.arange(tree.nv), by], free[by]


def _groups(tree: Model, by: np.ndarray) -> list[list[int]]:
    """Bodies whose joints one freedom moves, ordered so that along each chain they follow one another."""
    leader = [int(by[_freedoms(tree, body)[0]]) for body in range(tree.num_bodies)]
    leader = [int(tree.topology.body_of_velocity[j]) for j in leader]
    for body, first in enumerate(leader):
        on_the_way = [m for m in np.flatnonzero(tree.topology.support[body]) if leader[m] == first]
        if len(on_the_way) > 1:
            raise ValueError(f"joints of {', '.join(tree.body_names[m] for m in on_the_way)} move together, one on the "
                             "other: take `identifiability`")  # fmt: skip
        if first != body and len(_freedoms(tree, body)) > 1:
            raise ValueError(f"the joint of {tree.body_names[body]!r} is geared and has several freedoms")
    depth = dict.fromkeys(leader, 0)
    for _ in depth:
        for body, parent in enumerate(tree.parents):
            if parent >= 0:
                depth[leader[body]] = max(depth[leader[body]], depth[leader[parent]] + 1)
    return [[b for b in range(tree.num_bodies) if leader[b] == g] for g in sorted(depth, key=lambda g: (depth[g], g))]
