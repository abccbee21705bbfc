"""The operational-space compliance: how frames of a tree accelerate under forces on them (Jain, OMEGA, UPS, LAMBDA).

    Lambda = J M^-1 J^T = B* Omega B      Omega = psi* H* D^-1 H psi

In whitened form it is a product: one inward walk takes the unit wrenches of all frames at once, and what they leave at
each hinge is `W = D^-1/2 H psi B`, so that `Lambda = W^T W`, positive semidefinite by its form. For `m` frames that is
O(n m) for the walk and O(nv m^2) for the product.

The diagonal blocks for all bodies are Upsilon, by one outward walk in O(n). Between bodies `i` and `j` stands the path
from their closest common ancestor `c`, `Omega(i, j) = psi*(c, i) Upsilon(c) psi(c, j)`: zero for bodies of different
trees, but not for those of different branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.algorithms import factor as walks
from dynax.algorithms.factor import Factor, factorize
from dynax.algorithms.frames import FrameChoice, _check_frame
from dynax.bodies.hinge import Hinge, HingeGains
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.operators.nodes import NodeRows, Nodes, find_nodes, node_rows, on_bodies, unit_wrenches
from dynax.operators.upsilon import Compliance, compliances
from dynax.spatial import ArticulatedInertia
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Layout, Parts
from dynax.tree.setup import setup

_times = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def inward(factor: Factor, forces: Parts | None, torque: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`D^-1/2 [(1 - H psi K) T + H psi f]` for `c` cases of joint forces `(nv, c)` and forces on the bodies.

    Forces stand in world axes about the joints, on free roots and in slot rows. Returns the forces left on the free
    roots in their own axes, `(6 k, c)`, and what is left at the slots, `(slots, c)`.
    """
    z, w = walks.inward(factor, torque, forces=forces)
    return torque[factor.order.roots] - z, w


def outward(factor: Factor, left: jax.Array, w: jax.Array) -> tuple[jax.Array, Parts]:
    """Accelerations of the freedoms, `(nv, c)`, and of the bodies in world axes about their joints, from `inward`."""
    base = factor.roots.solve(left) if len(left) else left
    rates, motions = walks.outward(factor, base, w, motions=True)
    assert motions is not None
    return factor.order.vector(base, rates), motions


def unit_responses(
    plan: Layout, factor: Factor, rows: NodeRows, nodes: Nodes
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`Lambda (6 m, 6 m)` of nodes, and what `inward` leaves of their unit wrenches."""
    count = 6 * len(nodes.bodies)
    units = on_bodies(plan, nodes.bodies, unit_wrenches(rows))
    forces = jax.tree.map(lambda a: a.reshape(a.shape[0], count), units)
    left, w = inward(factor, forces, jnp.zeros((plan.topology.nv, count), rows.point.x.dtype))
    found = _times(w.T, w)
    if len(left):
        roots = _times(left.T, factor.roots.solve(left))
        found = found + 0.5 * (roots + roots.T)
    return found, left, w


@partial(jax.jit, static_argnames=("bodies", "frame"))
def _compliance(model: Model, q, poses, *, bodies: tuple[int, ...], frame: FrameChoice) -> jax.Array:
    s = setup(model, q)
    nodes = Nodes(bodies, poses)
    rows, _ = node_rows(model, s, kinematics(model, s, positions=True), nodes, frame)
    return unit_responses(s.layout, factorize(model, q), rows, nodes)[0]


@for_models
def operational_compliance(model: Model, q: ArrayLike, frames: str | Sequence[str], *, frame: FrameChoice) -> jax.Array:
    """`J M^-1 J^T` of frames: their accelerations under unit wrenches on them, shape `(6 m, 6 m)`.

    Symmetric and positive semidefinite; of full rank only if the frames can move in all `6 m` ways. It is the
    operational-space inertia's inverse (Khatib 1987), and for constraints Delassus' matrix. O(n m + nv m^2), without
    forming the mass matrix.

    **Arguments:**

    - `q`: configuration, shape `(nq,)`.
    - `frames`: names of `m` bodies or frames, any number on a body, on any branch or tree; `KeyError` with near names
      otherwise. A frame fixed to the world has blocks of zeros.
    - `frame`: axes and points of the six-vectors, as for `dx.jacobian`.
    """
    _check_frame(frame)
    (q,) = as_state(model, q=q)
    nodes = find_nodes(model, frames, q.dtype)
    return _compliance(model, q, nodes.poses, bodies=nodes.bodies, frame=frame)


@jax.jit
def _body_compliances(model: Model, q: jax.Array) -> jax.Array:
    s = setup(model, q)
    kin, factor = kinematics(model, s), factorize(model, q)
    slots, gains, count = factor.nodes, factor.gains, len(s.layout.topology.free_roots)
    assert isinstance(slots, Hinge)
    assert isinstance(gains, HingeGains)
    above = compliances(s.layout, s.root_rotation, slots, gains, factor.roots)
    # Upsilon = (1 - s G^T) Y (1 - G s^T) + s s^T / D, at the last slot of each body.
    column, given = slots.column.motion(), above @ gains.gain / gains.root
    found = above.plus(column, column * (0.5 * (1.0 / gains.root + gains.gain.dot(given)) / gains.root) - given)
    rows = factor.order.to_bodies(found).rotate(kin.rows.rotation.T)
    six = jnp.tile(jnp.eye(6, dtype=q.dtype), (count, 1))
    inverse = ArticulatedInertia.from_matrix((factor.roots.solve(six) if count else six).reshape(count, 6, 6))
    roots = Compliance(inverse.inertia, inverse.coupling, inverse.mass)
    own, constants = s.layout.body_order(Parts(roots, rows)), s.layout.body_order(s.constants)
    own = own.rotate(constants.hinge_rotation).shift(-constants.hinge_offset)
    return ArticulatedInertia(own.angular, own.coupling, own.linear).matrix


@for_models
def body_compliances(model: Model, q: ArrayLike) -> jax.Array:
    """How each body accelerates under unit wrenches on itself, in its own axes about its own origin; `(n, 6, 6)`.

    The blocks of `J M^-1 J^T` on the diagonal, for all bodies in O(n) (Upsilon). Where a body can move in all six ways
    the inverse is its articulated inertia as a handle (Featherstone 2008, section 7.1).

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _body_compliances(model, *as_state(model, q=q))
