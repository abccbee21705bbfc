"""Dynamics seen from frames of the robot, the operational space (Khatib 1987; Jain, OSC, SOA-ALPHAF).

    F = inertia a + mu      inertia = Lambda^-1      Lambda = J M^-1 J^T      mu = Lambda^-1 (J M^-1 C - Jdot v)

    Jbar = M^-1 J^T Lambda^-1       J Jbar = 1                  the dynamically consistent inverse
    N = 1 - J^T Jbar^T              J M^-1 N = 0                joint forces `N tau` do not accelerate the frames

`C` is `dx.bias_force`, `a` the accelerations of the frames, `F` the wrenches on them that make up for motors: joint
forces `J^T F + N tau` give the frames the acceleration `a`, whatever `tau`. As the equation of a handle,
`a = Lambda F + b`, its `b` is `-Lambda mu` (Featherstone 2008, eqs. 7.4, 7.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.algorithms.factor import factorize
from dynax.algorithms.frames import FrameChoice, _check_frame
from dynax.algorithms.rnea import rnea
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.operators.compliance import inward, outward, unit_responses
from dynax.operators.nodes import Nodes, find_nodes, jacobian_rows, node_biases, node_motions, node_rows, of_bodies
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import setup

_times = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class OperationalSpace(NamedTuple):
    """The dynamics of `m` frames."""

    jacobian: jax.Array
    """`J`, shape `(6 m, nv)`."""
    compliance: jax.Array
    """`Lambda = J M^-1 J^T`, shape `(6 m, 6 m)`."""
    inertia: jax.Array
    """`Lambda^-1`, shape `(6 m, 6 m)`; the pseudo-inverse where the frames cannot move in all ways."""
    inverse: jax.Array
    """`Jbar`, shape `(nv, 6 m)`; `J Jbar` is the projector on what the frames can do."""
    null_space: jax.Array
    """`N`, shape `(nv, nv)`, a projector of joint forces."""
    bias: jax.Array | None
    """`mu`, shape `(6 m,)`; `None` without a velocity."""
    rank: jax.Array
    """In how many ways the frames can move, an integer."""
    singular_values: jax.Array
    """Of `Lambda`, the largest first, shape `(6 m,)`; the first over the last is its condition number."""


@partial(jax.jit, static_argnames=("bodies", "frame"))
def _operational_space(
    model: Model, q, v, poses, damping, tolerance, *, bodies: tuple[int, ...], frame: FrameChoice
) -> OperationalSpace:
    s, nodes = setup(model, q, v), Nodes(bodies, poses)
    kin = kinematics(model, s, v, positions=True, accelerations=v is not None)
    rows, _ = node_rows(model, s, kin, nodes, frame)
    jacobian = jacobian_rows(model, s, kin, bodies, rows)
    factor = factorize(model, q)
    compliance, left, w = unit_responses(s.layout, factor, rows, nodes)
    response, _ = outward(factor, left, w)
    found = damped = pseudo_inverse(compliance, tolerance)
    if damping is not None:
        damped = pseudo_inverse(compliance + damping * jnp.eye(len(compliance), dtype=q.dtype), tolerance)
    inertia = 0.5 * (damped.matrix + damped.matrix.T)
    inverse = _times(response, inertia)
    bias = None
    if v is not None:
        moving = Parts((kin.roots.velocity, kin.roots.acceleration), (kin.rows.velocity, kin.rows.acceleration))
        velocity, acceleration = of_bodies(s.layout, bodies, moving)
        rate = node_biases(rows, frame, velocity, acceleration).array.reshape(-1)
        bias = _times(inertia, _times(response.T, rnea(model, q, v, None)) - rate)
    return OperationalSpace(
        jacobian,
        compliance,
        inertia,
        inverse,
        jnp.eye(model.nv, dtype=q.dtype) - _times(jacobian.T, inverse.T),
        bias,
        found.rank,
        found.singular_values,
    )


@for_models
def operational_space(
    model: Model,
    q: ArrayLike,
    frames: str | Sequence[str],
    *,
    frame: FrameChoice,
    v: ArrayLike | None = None,
    damping: ArrayLike = 0.0,
    tolerance: ArrayLike | None = None,
) -> OperationalSpace:
    """The dynamics of frames under forces on them: inertia, bias, and what joint forces do besides (Khatib 1987).

    A task the robot cannot do in full, for want of joints or at a singularity, is reported by `rank`: `inertia` is then
    the pseudo-inverse, and everything holds for what the frames can do. Derivatives are those at the rank found.

    **Arguments:**

    - `q`, `v`: configuration `(nq,)` and velocity `(nv,)`; without `v` there is no `bias`.
    - `frames`: names of `m` bodies or frames, any number on a body; `KeyError` with near names otherwise.
    - `frame`: axes and points of the six-vectors, as for `dx.jacobian`; accelerations are the rates it names.
    - `damping`: added to the diagonal of the compliance before it is inverted (damped least squares), which bounds
      the inertia near a singularity; the compliance, the rank and the singular values are without it.
    - `tolerance`: singular values of the compliance up to this fraction of the largest count as zero; `60 m` units of
      rounding if not given.
    """
    _check_frame(frame)
    q, v = as_state(model, q=q, v=v, optional=("v",))
    nodes = find_nodes(model, frames, q.dtype)
    added = None if isinstance(damping, float) and damping == 0.0 else jnp.asarray(damping, q.dtype)
    return _operational_space(model, q, v, nodes.poses, added, tolerance, bodies=nodes.bodies, frame=frame)


@partial(jax.jit, static_argnames=("bodies", "frame"))
def _free_accelerations(model: Model, q, tau, poses, *, bodies: tuple[int, ...], frame: FrameChoice) -> jax.Array:
    s, nodes = setup(model, q), Nodes(bodies, poses)
    rows, _ = node_rows(model, s, kinematics(model, s, positions=True), nodes, frame)
    factor = factorize(model, q)
    _, motions = outward(factor, *inward(factor, None, tau[:, None]))
    motion = jax.tree.map(lambda a: a[:, 0], of_bodies(s.layout, bodies, motions))
    return node_motions(rows, motion).array


@for_models
def free_accelerations(
    model: Model, q: ArrayLike, tau: ArrayLike, frames: str | Sequence[str], *, frame: FrameChoice
) -> jax.Array:
    """How frames accelerate under joint forces alone, `J M^-1 tau`, shape `(m, 6)`, in O(n + m).

    Nothing of velocities, gravity or springs is in it. `tau - dx.bias_force(model, q, v)` gives `J a` of the free
    motion, to which `Jdot v` (`dx.jacobian_bias`) comes once.

    **Arguments:** `q`, `tau`: configuration `(nq,)` and joint forces `(nv,)`; `frames`, `frame`: as for
    `operational_space`.
    """
    _check_frame(frame)
    q, tau = as_state(model, q=q, tau=tau)
    nodes = find_nodes(model, frames, q.dtype)
    return _free_accelerations(model, q, tau, nodes.poses, bodies=nodes.bodies, frame=frame)
