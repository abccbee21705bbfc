"""Forward dynamics by divide and conquer, in logarithmic depth (Featherstone 2008, section 7.5; Featherstone 1999,
"A divide-and-conquer articulated-body algorithm", parts 1 and 2).

An articulated body is known by what its handles do, here a near one towards the base and a far one (eq. 7.4):

    a_1 = Phi_1 f_1 + Phi_12 f_2 + b_1        a_2 = Phi_21 f_1 + Phi_2 f_2 + b_2

Two of them meet at a joint between handles 2 and 3. With `W` that of `_assembly.coupling` for `Y = Phi_2 + Phi_3`, and
`beta = c - b_3 + b_2`, they are one (eqs. 7.57 to 7.63):

    Phi_1 - Phi_12 W Phi_21      Phi_14 = Phi_12 W Phi_34      Phi_4 - Phi_43 W Phi_34
    b_1 - Phi_12 W beta                                        b_4 + Phi_43 W beta

for which one of handles 2 and 3 must move freely, or at least `T^T Y T` be regular. Assembly goes in the order of
`dynax.sweep.contraction`: pairs along unbranched runs, and whole bodies taken up by what they hang on, as many at a
time as there are. Forces between the bodies are then found in the opposite order. A chain of n bodies takes
`ceil(log2 n)` levels of pairs; a tree takes few more. Kinematics comes before in as many steps (`_path_kinematics`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.linear.matrices import product, symmetric, turned
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.linear.solve import inverse as inverse_of
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.equivalence import refuse_simplified
from dynax.routes.assembly import coupling
from dynax.routes.handles import Bodies, JointSpace, bodies, in_parent, times
from dynax.sweep.contraction import Level, contraction
from dynax.topology import Topology


class Handles(NamedTuple):
    """What two sets of handles do, of `m` and `k` entries (6 for each handle)."""

    near: jax.Array
    """`Phi_1`, shape `(..., m, m)`."""
    cross: jax.Array
    """`Phi_12`, shape `(..., m, k)`; `Phi_21` is its transpose."""
    far: jax.Array
    """`Phi_2`, shape `(..., k, k)`."""
    near_bias: jax.Array
    """`b_1`, shape `(..., m)`."""
    far_bias: jax.Array

    def near_acceleration(self, near: jax.Array, far: jax.Array) -> jax.Array:
        return times(self.near, near) + times(self.cross, far) + self.near_bias

    def far_acceleration(self, near: jax.Array, far: jax.Array) -> jax.Array:
        return times(turned(self.cross), near) + times(self.far, far) + self.far_bias


def joined(one: Handles, two: Handles, w: jax.Array, c: jax.Array | float = 0.0) -> Handles:
    """Two articulated bodies as one, the far handles of the first at the near ones of the second.

    A set may hold several handles, several of one body among them; `w` then comes from `coupling_of_sets`.
    **Arguments:** `c`: the acceleration across the joints when they do not accelerate, stabilisation included,
    shape `(..., k)`.
    """
    force = times(w, c + one.far_bias - two.near_bias)
    left, right = product(one.cross, w), product(w, two.cross)
    return Handles(
        symmetric(one.near - product(left, turned(one.cross))),
        product(left, two.cross),
        symmetric(two.far - product(turned(two.cross), right)),
        one.near_bias - times(one.cross, force),
        two.far_bias + times(turned(two.cross), force),
    )


def joint_force(one: Handles, two: Handles, w: jax.Array, near: jax.Array, far: jax.Array, c=0.0) -> jax.Array:
    """The constraint force on the second body of a pair, when `near` and `far` act on the handles of the whole."""
    rest = times(turned(one.cross), near) + one.far_bias
    return times(w, c + rest - times(two.cross, far) - two.near_bias)


def coupling_of_sets(y: jax.Array, t: jax.Array, tolerance: float | None = None) -> jax.Array:
    """`W = T (T^T Y T)^+ T^T` for several joints at once, whose constraints may repeat each other.

    Where they do, as those of every planar loop in space, motions are right and constraint forces are the smallest.

    **Arguments:** `y`: shape `(..., k, k)`; `t`: the constraint forces of all joints, block diagonal, shape `(..., k,
    m)`; `tolerance`: of the rank, as in `pseudo_inverse`, default ten times `m` roundings.
    """
    borne = product(turned(t), product(y, t))
    each = jnp.vectorize(lambda a: pseudo_inverse(a, tolerance).matrix, signature="(m,m)->(m,m)")(borne)
    return symmetric(product(t, product(each, turned(t))))


def loaded(one: Handles, inertia: jax.Array, bias: jax.Array) -> Handles:
    """A body whose far handle bears others too, which take the force `inertia a + bias` of it."""
    eye = jnp.eye(6, dtype=bias.dtype)
    free = (one.far_bias - times(one.far, bias))[..., None]
    # 1 + Phi K has a positive spectrum, but it is not symmetric.
    met = solve(eye + product(one.far, inertia), jnp.concatenate([one.far, turned(one.cross), free], axis=-1))
    far, cross, far_bias = met[..., :6], turned(met[..., 6:12]), met[..., 12]
    near = one.near - product(one.cross, product(inertia, turned(cross)))
    near_bias = one.near_bias - times(one.cross, times(inertia, far_bias) + bias)
    return Handles(symmetric(near), cross, symmetric(far), near_bias, far_bias)


class Pairs(NamedTuple):
    """What a level joined."""

    one: Handles
    two: Handles
    w: jax.Array


class Rakes(NamedTuple):
    """What a level took up."""

    whole: Handles
    w: jax.Array
    bias: jax.Array
    """Of the leaves' handles, one row for each."""
    inertia: jax.Array
    load: jax.Array
    """What the far handles of the trunks bear."""


def divide_and_conquer(topology: Topology, b: Bodies, levels: tuple[Level, ...]) -> jax.Array:
    """Accelerations of one state. `levels`: the order of assembly, for a tree that of `contraction`."""
    rigid = rigid_handles(topology, b)
    found, whole = [], rigid
    for level in levels:
        whole, pairs, rakes = assemble(level, b, whole)
        found.append((pairs, rakes))

    # Each tree is one body now, at the joint that holds it to the ground.
    roots = np.array(topology.roots, dtype=int)
    top = rows(whole, roots)
    on_ground = times(coupling(top.near, rows(b.space, roots)), -top.near_bias)
    forces = jnp.zeros_like(b.bias).at[roots].set(on_ground), jnp.zeros_like(b.bias)
    for level, (pairs, rakes) in zip(reversed(levels), reversed(found), strict=True):
        forces = release(level, b, pairs, rakes, *forces)

    motion = rigid.near_acceleration(*forces)
    parents = np.array(topology.parents, dtype=int)
    of_parent = jnp.where((parents >= 0)[:, None], motion[parents], 0.0)
    return b.freedoms(topology, times(b.back, motion) - of_parent)


def rigid_handles(topology: Topology, b: Bodies) -> Handles:
    """Single bodies, both handles at their joint; the forces of motors and springs act on them from outside."""
    parents = np.array(topology.parents, dtype=int)
    carried = np.flatnonzero(parents >= 0)
    motors = times(turned(b.back), b.active).at[parents[carried]].add(-b.active[carried])
    phi = symmetric(inverse_of(b.inertia))
    bias = times(phi, motors - b.bias)
    return Handles(phi, phi, phi, bias, bias)


def rows(tree, index: np.ndarray):
    return jax.tree.map(lambda a: a[index], tree)


def from_parent(b: Bodies, clusters: np.ndarray, whole: Handles) -> tuple[Handles, JointSpace]:
    """Clusters with their near handles in the coordinates of what carries them, and the joints between."""
    own, x = rows(whole, clusters), rows(b, clusters)
    moved = own._replace(
        near=in_parent(x, own.near), cross=product(x.back, own.cross), near_bias=times(x.back, own.near_bias)
    )
    return moved, x.space


def assemble(level: Level, b: Bodies, whole: Handles) -> tuple[Handles, Pairs | None, Rakes | None]:
    """One level of assembly; clusters stand in the rows of their first bodies."""
    pairs = rakes = None
    after = whole

    def put(after: Handles, index: np.ndarray, new: Handles) -> Handles:
        return jax.tree.map(lambda a, x: a.at[index].set(x), after, new)

    if len(level.near):
        one, (two, space) = rows(whole, level.near), from_parent(b, level.far, whole)
        pairs = Pairs(one, two, coupling(one.far + two.near, space))
        after = put(after, level.near, joined(*pairs))
    if len(level.trunks):
        one, (leaf, space) = rows(whole, level.trunks), from_parent(b, level.leaves, whole)
        w = coupling(leaf.near, space)
        inertia = jnp.zeros_like(one.far).at[level.trunk_of_leaf].add(w)
        load = jnp.zeros_like(one.far_bias).at[level.trunk_of_leaf].add(-times(w, leaf.near_bias))
        rakes = Rakes(loaded(one, inertia, load), w, leaf.near_bias, inertia, load)
        after = put(after, level.trunks, rakes.whole)
    return after, pairs, rakes


def release(level: Level, b: Bodies, pairs: Pairs | None, rakes: Rakes | None, near, far):
    """The forces `near, far` on the handles of what a level assembled, from those on the result."""
    if pairs is not None:
        on_far = far[level.near]
        between = joint_force(*pairs, near[level.near], on_far)
        near = near.at[level.far].set(times(turned(b.back[level.far]), between))
        far = far.at[level.far].set(on_far).at[level.near].set(-between)
    if rakes is not None:  # other clusters than those of the pairs
        on_far = far[level.trunks]
        motion = rakes.whole.far_acceleration(near[level.trunks], on_far)
        on_leaves = times(rakes.w, motion[level.trunk_of_leaf] - rakes.bias)
        near = near.at[level.leaves].set(times(turned(b.back[level.leaves]), on_leaves))
        far = far.at[level.trunks].set(on_far - times(rakes.inertia, motion) - rakes.load)
    return near, far


@jax.jit
def _divide_and_conquer(model: Model, q, v, tau, external) -> jax.Array:
    return divide_and_conquer(model.topology, bodies(model, q, v, tau, external), contraction(model.parents))


def divide_and_conquer_dynamics(
    model: Model, q: ArrayLike, v: ArrayLike, tau: ArrayLike, external: ArrayLike | None = None
) -> jax.Array:
    """The acceleration that joint forces produce, in a number of steps that grows with the logarithm of the bodies'.

    What `forward_dynamics` gives, by Featherstone's divide-and-conquer algorithm: each step assembles as many pairs of
    articulated bodies as it can. It takes more arithmetic and keeps fewer digits, and is for wide machines that would
    wait for long recursions, and for a second opinion; `forward_dynamics(..., execution="associative")` does as much
    for single chains of any bodies. It takes any tree, but inverts the inertia of each body: every one needs mass and
    moments of inertia about all axes, or the result is not finite or has no digits.

    **Arguments:** as `forward_dynamics`.

    **Returns:** `a`, shape `(nv,)`. Raises `ValueError` for a model whose inertias were simplified.
    """
    refuse_simplified(model, "dynamics by divide and conquer")
    state = as_state(model, q=q, v=v, tau=tau, external=external)
    return _divide_and_conquer(model, *state) if model.nv else state[2]
