"""Least squares over the bodies that can exist, by a barrier (Sousa & Cortesao 2014; Lee, Wensing & Park 2020).

    min 1/2 |Y pi - tau|^2 + w sum_i D(J_i | J0_i)        D = tr(J0^-1 J) - log det(J0^-1 J) - 4

`J_i` is the pseudo-inertia of body `i` and `J0_i` that of the model one starts from. `D` is infinite outside of the
cone `J > 0`, convex, the same in all units and axes, and it is how far a body is from another as a distribution of
mass. With a small weight `w` it is the barrier of the semidefinite program, whose solution lies on the cone's boundary
as a rule; with a larger one the prior of the geometric kind; and it decides what the data leave open. Drives have
`D = x/x0 - log(x/x0) - 1`, offsets nothing.

The steps are primal-dual, those of Helmberg, Kojima and Monteiro: with `J = L0 K L0'`, `K = P P'`, and multipliers
`Z = N N'` of the cone, `K Z = w 1` at the optimum, and a step is that of least squares with the rows

    A d = b - A y        B_i = P^-1 E_i N,  B d = w (P^-1 - P') N^-T        E_i the directions of K

so that each of them is one triangle of these below the compressed log, or Cholesky's factor of their squares where the
condition of these allows it; the last is the triangle. Mehrotra's predictor says what weight to aim at; some fifteen
steps lead from any body to the boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.typing import ArrayLike

from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.identify.estimate import Compressed
from dynax.identify.pseudo_inertia import cholesky4, from_pseudo_inertia, pseudo_inertia, solve4
from dynax.identify.terms import Term, checked, driven, parameter_vector
from dynax.linear.cholesky import cholesky
from dynax.linear.matrices import product, symmetric
from dynax.linear.triangle import back_substituted, forward_substituted, triangle
from dynax.model import Model
from dynax.model.parameters import inconsistent_bodies

MOST = 60
"""Steps; fits take some fifteen."""
SHORT = 0.1
"""A step that is shorter than this in the metric of the barrier is the last."""
LENGTHS, MARGIN = (*(0.88 ** np.arange(50)), 0.0), 1.05
"""Parts of a step that are tried, and how much further must still be inside of the cone."""
JAMMED = 0.1
"""A step of which only a shorter part stays inside of the cone is followed by one to the middle: corrections found far
from there lead out of the cone at once, again and again."""
CLOSE = 1e-4
"""How far above the optimum a fit may stay, about, as a part of its sum of squares. Nearer to the boundary what the
data leave open wanders off to bodies of any weight, in many more steps."""
SQUARED = 0.375
"""A power of the rounding: how far the least pivot may be below the largest for a factor of squares, which has then
kept a quarter of the digits."""
THICKNESS = 1e-3
"""Of a body that has no volume, as a part of its size: there is no way back from the boundary."""


class ConsistentFit(NamedTuple):
    """Parameters of bodies that can exist, of positive friction and armature."""

    values: jax.Array
    """As `parameter_vector` has them, shape `(p,)`."""
    squares: jax.Array
    """`|Y x - tau|^2` over all samples."""
    converged: jax.Array
    """Whether the steps came to rest, a boolean; if not, the bodies are still such that can exist."""
    steps: jax.Array
    """How many steps were taken."""


def consistent_fit(
    model: Model | EmbeddedModel,
    data: Compressed,
    *,
    terms: Sequence[Term] = ("inertias",),
    prior: ArrayLike = 0.0,
) -> ConsistentFit:
    """The parameters of the model that fit best, among those that bodies and drives can have; under `jit` and `vmap`.

    **Arguments:**

    - `model`: where the prior is, and what is taken where the data say nothing. All bodies need mass; one without
      volume, as a rod or what lies on the boundary by rounding in a file, counts as a little thicker.
    - `data`: from `compress(regressor(...), forces)`, all columns of `terms`, not those of a base alone.
    - `prior`: the weight `w` of the distance from the model, against half the sum of squares of rows that have noise of
      deviation one. With zero the fit is the semidefinite optimum, to a thousandth of its sum of squares.

    Differentiable with respect to `data` and `prior`, by the optimum's own condition. `ValueError` for a body that has
    no mass.
    """
    tree, terms = tree_of(model), checked(terms)
    if "inertias" not in terms:
        raise ValueError("`terms` has no 'inertias', which alone have a cone")
    p = len(data.triangle) - 1
    expected = len(jax.eval_shape(lambda: parameter_vector(model, terms)))
    if p != expected:
        raise ValueError(f"`data` has {p} columns, and the terms {', '.join(terms)} have {expected}: give all of them")
    if not isinstance(tree.mass, Tracer):
        masses = np.asarray(tree.mass)
        for name, mass in zip(tree.body_names, masses, strict=True):
            if not mass > 0.0:
                raise ValueError(f"body {name!r} has mass {mass:g}: give it some, since a prior must be a body")
        with jax.ensure_compile_time_eval():
            wrong = inconsistent_bodies(tree)
        if wrong:
            raise ValueError(f"bodies {', '.join(wrong)} have inertias that no body has: a prior must be one")
    return _fit(model, data, jnp.asarray(prior, data.triangle.dtype), terms)


def _directions() -> np.ndarray:
    """The symmetric 4x4 matrices of unit parameters: the diagonal, then pairs, shape `(10, 4, 4)`."""
    units = np.zeros((10, 4, 4))
    units[np.arange(4), np.arange(4), np.arange(4)] = 1.0
    for k, (i, j) in enumerate(((0, 1), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3))):
        units[4 + k, i, j] = units[4 + k, j, i] = 1.0
    return units


DIRECTIONS = _directions()


def _thickened(parameters: jax.Array) -> jax.Array:
    """Pseudo-inertias `(n, 4, 4)`, inside of the cone."""
    j = pseudo_inertia(parameters)
    m, h = j[:, 3, 3], j[:, :3, 3]
    about_com = j[:, :3, :3] - h[:, :, None] * h[:, None] / m[:, None, None]
    # A body that is a point counts as a ball of a centimetre.
    size = jnp.trace(about_com, axis1=1, axis2=2) + 1e-4 * m
    thick = THICKNESS * size[:, None, None] * jnp.eye(4, dtype=j.dtype).at[3, 3].set(0.0)
    return j + thick


@partial(jax.jit, static_argnums=3)
def _fit(model: Model | EmbeddedModel, data: Compressed, prior: jax.Array, terms: tuple[Term, ...]) -> ConsistentFit:
    tree, dtype = tree_of(model), data.triangle.dtype
    own, n = len(driven(model)), tree.num_bodies
    start = parameter_vector(model, terms).astype(dtype)
    sizes = [10 * n if term == "inertias" else own for term in terms]
    first = int(np.cumsum([0, *sizes])[terms.index("inertias")])
    bodies = first + np.arange(10 * n)
    offsets = np.concatenate([np.full(size, term == "offset") for term, size in zip(terms, sizes, strict=True)])
    drives = np.setdiff1d(np.flatnonzero(~offsets), bodies)

    # Columns of the map from K to the parameters, body by body, and what drives are measured by.
    lower = cholesky4(_thickened(start[bodies].reshape(n, 10)))
    moved = jnp.einsum("nij,kjl,nml->nkim", lower, jnp.asarray(DIRECTIONS, dtype), lower, precision="highest")
    # What the model has none of counts in parts of what would explain all forces alone; a scale, without derivative.
    regressor, target = lax.stop_gradient((data.regressor, data.target))
    lengths = jnp.sqrt(jnp.sum(regressor**2, axis=0))
    alone = jnp.sqrt(jnp.sum(target**2)) / jnp.where(lengths > 0.0, lengths, 1.0)
    size = jnp.where(start > 0.0, start, jnp.where(alone > 0.0, alone, 1.0))
    scale = jnp.diag(jnp.where(offsets, 1.0, size).at[bodies].set(0.0))
    places = bodies.reshape(n, 10)
    scale = scale.at[places[:, :, None], places[:, None, :]].set(jnp.swapaxes(from_pseudo_inertia(moved), 1, 2))

    A, b = product(data.regressor, scale), data.target
    rest, eps = data.triangle[-1, -1] ** 2, float(jnp.finfo(dtype).eps)
    units, eye = jnp.asarray(DIRECTIONS, dtype), jnp.eye(4, dtype=dtype)
    parts, count = 4 * n + len(drives), len(start)
    last = jnp.maximum(prior, CLOSE * 0.5 * rest / (2.0 * parts) + eps * jnp.sum(b**2))

    def bodies_of(y: jax.Array) -> jax.Array:
        return jnp.einsum("nk,kij->nij", y[places], units, precision="highest")

    def cone(P: jax.Array, N: jax.Array, x: jax.Array, z: jax.Array) -> tuple:
        """The rows `B_i` of bodies on their own parameters and of drives on theirs, each with what a unit of weight
        adds on the right."""
        half = solve4(P[:, None], jnp.broadcast_to(units, (n, 10, 4, 4)))
        B = product(half, N[:, None]).reshape(n, 10, 16)
        PT = jnp.swapaxes(P, 1, 2)
        # (P^-1 - P') N^-T, by its transpose.
        right = solve4(N, jnp.swapaxes(solve4(P, jnp.broadcast_to(eye, P.shape)) - PT, 1, 2))
        root = jnp.sqrt(z / x)
        return B, jnp.swapaxes(right, 1, 2).reshape(n, 16), root, (1.0 / x - 1.0) / root

    def system(A: jax.Array, b: jax.Array, y: jax.Array, rows: tuple) -> tuple[jax.Array, jax.Array]:
        """The triangle of a step's rows, and its two parts: with weight zero, and what each unit of weight adds."""
        B, right, root, beside = rows
        body = jnp.zeros((n, 16, count), dtype).at[np.arange(n)[:, None], :, places].set(B)
        drive = jnp.zeros((len(drives), count), dtype).at[np.arange(len(drives)), drives].set(root)
        every = jnp.concatenate([A, body.reshape(16 * n, count), drive])
        weighed = jnp.concatenate([jnp.zeros_like(b), right.reshape(-1), beside])
        own = jnp.concatenate([b - product(A, y), jnp.zeros(len(weighed) - len(b), dtype)])
        r = triangle(jnp.column_stack([every, own, weighed]))
        return r[:count, :count], back_substituted(r[:count, :count], r[:count, count:])

    def squared(A: jax.Array, b: jax.Array, AA: jax.Array, y: jax.Array, rows: tuple) -> tuple[jax.Array, jax.Array]:
        """The same by Cholesky's factor of the squares, in a tenth of the time where their condition allows it: what
        a step misses by rounding the next one sees in its own right sides."""
        B, right, root, beside = rows
        squares = AA.at[places[:, :, None], places[:, None, :]].add(product(B, jnp.swapaxes(B, 1, 2)))
        r = cholesky(squares.at[drives, drives].add(root**2)).T
        weighed = jnp.zeros(count, dtype).at[places].set(jnp.einsum("nkj,nj->nk", B, right, precision="highest"))
        both = jnp.column_stack([product(A.T, b - product(A, y)), weighed.at[drives].set(root * beside)])
        return r, back_substituted(r, forward_substituted(r, both))

    def inside(K: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.all(jnp.isfinite(cholesky4(K))) & jnp.all(x > 0.0)

    def improve(A: jax.Array, b: jax.Array, AA: jax.Array, last: jax.Array, state: tuple) -> tuple:
        y, Z, z, steps, jammed, _ = state
        K, x = bodies_of(y), y[drives]
        P, N = cholesky4(K), cholesky4(Z)
        rows = cone(P, N, x, z)
        r, found = squared(A, b, AA, y, rows)
        pivots = jnp.diagonal(r)
        enough = jnp.min(pivots) > eps**SQUARED * jnp.max(pivots)  # not of NaN
        r, found = lax.cond(enough, lambda: (r, found), lambda: system(A, b, y, rows))
        inverse = solve4(P, jnp.broadcast_to(eye, P.shape))
        inverse = product(jnp.swapaxes(inverse, 1, 2), inverse)
        now = (jnp.sum(K * Z) + jnp.sum(x * z)) / parts

        def reach(dK, dx, dZ, dz) -> jax.Array:
            fits = jax.vmap(lambda a: inside(K + a * dK, x + a * dx) & inside(Z + a * dZ, z + a * dz))
            lengths = jnp.asarray(LENGTHS, dtype)
            return lengths[jnp.argmax(fits(MARGIN * lengths))]

        def towards(weight: jax.Array, off: jax.Array, beside: jax.Array) -> tuple:
            """The step, for products `dK dZ` of a step that are `off`, and `dx dz` that are `beside`."""
            off = symmetric(product(inverse, off))
            missing = jnp.zeros(count, dtype).at[places].set(jnp.einsum("kij,nij->nk", units, off, precision="highest"))
            missing = missing.at[drives].set(beside / x)
            d = found[:, 0] + weight * found[:, 1] - back_substituted(r, forward_substituted(r, missing))
            dK, dx = bodies_of(d), d[drives]
            dZ = weight * inverse - Z - off - symmetric(product(inverse, product(dK, Z)))
            return d, (dK, dx, dZ, (weight - beside - z * dx) / x - z)

        # Mehrotra's predictor and corrector: how much of the gap a step straight to the last weight could close says
        # what weight to aim at, and by how much products of steps lead past it.
        _, (dK, dx, dZ, dz) = towards(last, jnp.zeros_like(K), jnp.zeros_like(x))
        free = reach(dK, dx, dZ, dz)
        then = (jnp.sum((K + free * dK) * (Z + free * dZ)) + jnp.sum((x + free * dx) * (z + free * dz))) / parts
        weight = jnp.maximum(last, jnp.where(jammed, 1.0, jnp.minimum((then / now) ** 3, 0.5)) * now)
        d, ahead = towards(weight, jnp.where(jammed, 0.0, product(dK, dZ)), jnp.where(jammed, 0.0, dx * dz))
        length = reach(*ahead)
        _, _, dZ, dz = ahead
        short = jnp.sum(product(r, d) ** 2) <= SHORT**2 * last
        done = (weight <= last) & (now <= 1.5 * last) & short
        return y + length * d, Z + length * dZ, z + length * dz, steps + 1, length < JAMMED, done

    begin = jnp.zeros(count, dtype).at[places[:, :4]].set(1.0).at[drives].set(1.0)
    first_weight = jnp.maximum(jnp.sum((product(A, begin) - b) ** 2) / parts, last)
    begun = begin, first_weight * jnp.broadcast_to(eye, (n, 4, 4)), first_weight * jnp.ones(len(drives), dtype)
    fixed = lax.stop_gradient((A, b, product(A.T, A), last))
    y, _, _, steps, _, done = lax.while_loop(
        lambda state: ~state[-1] & (state[3] < MOST),
        partial(improve, *fixed),
        (*lax.stop_gradient(begun), jnp.zeros((), int), jnp.zeros((), bool), jnp.zeros((), bool)),
    )
    # One step more, Newton's of the primal problem, of which data and weight have derivatives: those of the optimum.
    P, x = cholesky4(bodies_of(y)), y[drives]
    inverse = solve4(P, jnp.broadcast_to(eye, P.shape))
    N = cholesky4(last * product(jnp.swapaxes(inverse, 1, 2), inverse))
    _, found = system(A, b, y, cone(P, N, x, last / x))
    y = y + jnp.where(done, found[:, 0] + last * found[:, 1], 0.0)
    return ConsistentFit(product(scale, y), jnp.sum((product(A, y) - b) ** 2) + rest, done, steps)
