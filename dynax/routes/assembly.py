"""Articulated bodies assembled two at a time, in three forms (Featherstone 2008, sections 7.2 and 7.4).

Body 1 and body 2 meet at a joint, everything in one set of coordinates. The joint allows `a_2 - a_1 = S qdd + c` and
transmits `f_J = T_a (tau - A qdd) + T lambda` to body 2, with `A` its rotor inertia. With `Y = Phi_1 + Phi_2`, what the
two bodies yield to a force between them, and

    W = (Y + S A^-1 S^T)^-1    in the limit    W = T (T^T Y T)^-1 T^T    without rotors,

the force across the joint is `f_J = T_a tau + W (c + a_1 - a_2)`, accelerations taken as if `T_a tau` alone acted.

| form | articulated body | assembled |
|---|---|---|
| standard | `f = I a + p` | `I = I_1 + I_2 - U D^-1 U^T`, eqs. 7.19, 7.20 |
| variant 1 | `a = Phi f + b` | `Phi = Phi_1 - Phi_1 W Phi_1`, table 7.2 |
| variant 2 | `f = I a + p` | `I = I_1 + W` with `Y = I_2^-1`, section 7.4 |

The variants find no `qdd` on their way: `qdd = T_a^T (a_2 - a_1 - c)`. All functions take arrays with any leading axes:
matrices `(..., 6, 6)`, vectors `(..., 6)`.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.linear.matrices import product, symmetric, turned
from dynax.linear.solve import inverse as inverse_of
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.equivalence import refuse_simplified
from dynax.routes.handles import Bodies, JointSpace, bodies, in_parent, times
from dynax.sweep import Walk, take_rows, walk
from dynax.topology import Topology

Pair = tuple[jax.Array, jax.Array]


def coupling(y: jax.Array, space: JointSpace) -> jax.Array:
    """`W`: the force across a joint for what the two bodies yield to it, `Y`; `T^T Y T` must not be singular.

    With `Z = [T_a T]` all joints are alike: `W = Z R (Z^T Y Z R + J)^-1 Z^T`, where `R` holds `A` and ones, `J` ones
    and zeros. It may be differentiated by rotor inertias that are zero.
    """
    z, r = space.forces, space.armature[..., None, :]
    scaled = product(turned(z), product(y, z)) * r + jnp.eye(6, dtype=y.dtype) * space.free[..., None, :]
    return symmetric(product(z * r, solve(scaled, turned(z))))


def assembled(one: Pair, two: Pair, columns: jax.Array, tau: jax.Array, c: jax.Array, armature=0.0) -> Pair:
    """The standard form `(I, p)` of two articulated bodies `(I, p)`, the handle on body 1 (eqs. 7.19, 7.20).

    **Arguments:** `columns`: `S (..., 6, k)`; `tau`, `armature`: `(..., k)`; `c`: the acceleration across the joint at
    `qdd = 0`.
    """
    (i_1, p_1), (i_2, p_2) = one, two
    u = product(i_2, columns)
    d = product(turned(columns), u) + jnp.eye(tau.shape[-1], dtype=tau.dtype) * jnp.asarray(armature)[..., None]
    gain = turned(solve(d, turned(u)))
    moved = p_2 + times(i_2, c)
    return i_1 + i_2 - product(gain, turned(u)), p_1 + moved + times(gain, tau - times(turned(columns), moved))


def assembled_inverse(one: Pair, two: Pair, w: jax.Array, active: jax.Array, c: jax.Array) -> Pair:
    """Variant 1: the inverse inertia and bias acceleration `(Phi, b)` of two of them, the handle on body 1.

    Either may be grounded, its `Phi` then singular. **Arguments:** `w`: `coupling` of `Phi_1 + Phi_2`; `active`:
    `T_a tau`; `c` as in `assembled`.
    """
    phi, b = one
    return phi - product(phi, product(w, phi)), b - times(phi, transmitted_force(one, two, w, active, c))


def transmitted_force(one: Pair, two: Pair, w: jax.Array, active: jax.Array, c: jax.Array, force=None) -> jax.Array:
    """The force on body 2 across the joint, when `force` (default none) acts on the handle of body 1 (table 7.2)."""
    (phi_1, b_1), (phi_2, b_2) = one, two
    free = b_1 if force is None else b_1 + times(phi_1, force)
    return active + times(w, c + free - b_2 - times(phi_1 + phi_2, active))


def transmitted(phi: jax.Array, p: jax.Array, w: jax.Array, active: jax.Array, c: jax.Array) -> Pair:
    """Variant 2: the `(I, p)` that body 2 adds to body 1's through the joint, from its `Phi = I_2^-1` and `p_2`.

    `w`: `coupling` of `Phi`.
    """
    return w, active + times(w, c - times(phi, active - p))


def joint_acceleration(space: JointSpace, a_1: jax.Array, a_2: jax.Array, c: jax.Array) -> jax.Array:
    """`qdd = T_a^T (a_2 - a_1 - c)`, followed by what the constraint leaves, zeros, shape `(..., 6)`."""
    return times(turned(space.forces), a_2 - a_1 - c)


def by_inertias(topology: Topology, b: Bodies) -> jax.Array:
    """Forward dynamics by variant 2: inertias inwards, accelerations outwards."""
    rows, dtype = walk(topology.parents), b.bias.dtype
    padded = jnp.asarray(rows.rows < 0, dtype)[:, None, None] * jnp.eye(6, dtype=dtype)
    still = jnp.zeros(6, dtype)

    def inward(handed: Pair, row) -> tuple[Pair, tuple]:
        body, padded = row
        total, p = handed[0] + body.inertia + padded, times(turned(body.shift), handed[1] + body.bias)
        phi = in_parent(body, inverse_of(total))
        passed = transmitted(phi, p, coupling(phi, body.space), body.active, still)
        return passed, (phi, p, *passed)

    x = arranged(rows, b)
    _, found = rows.gather(inward, (jnp.zeros((6, 6), dtype), still), (x, padded))

    def outward(parent: jax.Array, row) -> tuple[jax.Array, jax.Array]:
        body, (phi, p, inertia, bias) = row
        own = times(phi, times(inertia, parent) + bias - p)
        return times(body.shift, own), own - parent

    return b.freedoms(topology, rows.restore(rows.scatter(outward, still[None], (x, found))))


def by_inverse_inertias(topology: Topology, b: Bodies) -> jax.Array:
    """Forward dynamics by variant 1: inverse inertias inwards, forces outwards.

    Inverse inertias of bodies on one parent do not add: its joints are assembled one after the other. The walk goes
    over the tree in which each body hangs on its elder sibling and the eldest on the parent; a row is a joint, what it
    hands on is the parent with this joint and those of all younger siblings.
    """
    family = siblings(topology.parents)
    rows = walk(family.elder)
    x = arranged(rows, b)
    inverse = inverse_of(b.inertia)
    rigid = (inverse, -times(inverse, b.bias))
    # What has not been assembled yet is rigid: a body that carries nothing, a parent before its youngest child's joint.
    bare = rows.arrange(take_rows(rigid, family.bare)), rows.arrange(take_rows(rigid, family.fresh))
    eldest = rows.arrange(jnp.asarray(family.eldest))
    still = jnp.zeros(6, b.bias.dtype)

    def either(which: jax.Array, yes: Any, no: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no)

    def inward(handed: tuple[Pair, Pair], row) -> tuple[tuple[Pair, Pair], tuple[Pair, Pair, jax.Array]]:
        body, bare, eldest = row
        (phi, b), one = jax.tree.map(jnp.add, handed, bare)
        two = (in_parent(body, phi), times(body.back, b))
        w = coupling(one[0] + two[0], body.space)
        whole = assembled_inverse(one, two, w, body.active, still)
        nothing = jax.tree.map(jnp.zeros_like, whole)
        return (either(eldest, whole, nothing), either(eldest, nothing, whole)), (one, two, w)

    zero = (jnp.zeros((6, 6), still.dtype), still)
    _, found = rows.gather(inward, (zero, zero), (x, bare, eldest))

    def outward(parent: Pair, row) -> tuple[Pair, jax.Array]:
        body, eldest, (one, two, w) = row
        on_parent = either(eldest, *parent)
        across = transmitted_force(one, two, w, body.active, still, on_parent)
        a_1 = times(one[0], on_parent - across) + one[1]
        a_2 = times(two[0], across) + two[1]
        return (times(turned(body.back), across), on_parent - across), a_2 - a_1

    base = (still[None], still[None])
    return b.freedoms(topology, rows.restore(rows.scatter(outward, base, (x, eldest, found))))


def arranged(rows: Walk, b: Bodies) -> Bodies:
    """In rows; in padded ones nothing couples, and nothing is singular."""
    x = rows.arrange(b)
    padded = jnp.asarray(rows.rows < 0, x.bias.dtype)[:, None]
    return x._replace(space=x.space._replace(free=x.space.free + padded))


class Siblings(NamedTuple):
    """The tree in which siblings hang on each other."""

    elder: tuple[int, ...]
    """The sibling just before each body, else its parent."""
    eldest: np.ndarray
    """Whether it is the parent."""
    bare: np.ndarray
    """The body itself if it carries nothing, else -1."""
    fresh: np.ndarray
    """Its parent (-1: the ground) if no younger sibling follows, else -1."""


@lru_cache(maxsize=512)
def siblings(parents: tuple[int, ...]) -> Siblings:
    elder, youngest = list(parents), {}
    for body, parent in enumerate(parents):
        if parent >= 0:
            elder[body] = youngest.get(parent, parent)
            youngest[parent] = body
    fresh = np.full(len(parents), -1)
    for parent, body in youngest.items():
        fresh[body] = parent
    bare = [-1 if body in youngest else body for body in range(len(parents))]
    return Siblings(tuple(elder), np.equal(elder, parents), np.array(bare, dtype=int), fresh)


VARIANTS = {"inertia": by_inertias, "inverse_inertia": by_inverse_inertias}


@partial(jax.jit, static_argnames="variant")
def _forward_dynamics(model: Model, q, v, tau, external, *, variant: str) -> jax.Array:
    return VARIANTS[variant](model.topology, bodies(model, q, v, tau, external))


def forward_dynamics_by_assembly(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    external: ArrayLike | None = None,
    *,
    variant: Literal["inertia", "inverse_inertia"],
) -> jax.Array:
    """The acceleration that joint forces produce, from constraint forces instead of motion columns.

    What `forward_dynamics` gives, by other means (Featherstone 2008, section 7.4): slower and less exact, a second
    opinion. Both variants invert inertias, so they refuse what the standard form can do:

    - `"inertia"` (variant 2) inverts that of each body with all it carries: none may be singular, as that of a last
      body which is a point, or has no mass.
    - `"inverse_inertia"` (variant 1) inverts that of each body alone: every body needs mass, and moments of inertia
      about all axes.

    Masses are leaves, so nothing checks this; the result is not finite, or has no digits, where it does not hold.

    **Arguments:** as `forward_dynamics`.

    **Returns:** `a`, shape `(nv,)`. Raises `ValueError` for a model whose inertias were simplified.
    """
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r}: choose one of {', '.join(VARIANTS)}")
    refuse_simplified(model, f"the variant {variant!r} of forward dynamics")
    state = as_state(model, q=q, v=v, tau=tau, external=external)
    return _forward_dynamics(model, *state, variant=variant) if model.nv else state[2]
