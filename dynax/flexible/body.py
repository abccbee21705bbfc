"""A body that bends by modes: its integrals, its inertia and its gyroscopic forces as polynomials of the modes.

A point of the body stands, in the body's axes, `r0` from the origin, and moves by `m` modes to

    l = r0 + sum_r eta_r phi_r + 1/2 sum_rs eta_r eta_s g_rs              its axes turn by exp(sum_r eta_r psi_r)

where `g` is the foreshortening: what the point is drawn in when the body bends without stretching. The kinetic energy
is that of the velocities `v + omega x l + dl/dt`, to second order in `eta` and its rate together, as
`T = 1/2 V M(eta) V` with `V = [eta rate; omega; v]`, and the equations of motion are those of Lagrange (for the modes)
and of Euler and Poincare (for the frame) of that `T`. So energy and momentum are kept exactly at any deformation,
and the geometric stiffness of the body's own inertia, whatever makes it, is in `M` and in the gyroscopic force.

Jain and Rodriguez, "Recursive flexible multibody system dynamics using spatial operators" (1992), equations 23 to 39;
the integrals are those of Wallrapp, "Standardization of flexible body modeling in multibody system codes" (1994).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.flexible.polynomials import ENTRY, Polynomials, over
from dynax.sweep.sums import summed

Level = Literal["consistent", "full", "ruthless"]


@dataclass(frozen=True, eq=False, repr=False)
class FlexibleBody:
    """A body that bends by `m` modes and is joined to others at `p` attachment nodes.

    Made by `FlexibleBody.from_integrals`, by the functions that take nodal data, matrices or dimensions, or from a
    file; changed by `replace`, never in place. All fields but `node_names` and `level` are leaves: differentiate with
    respect to them, batch them. Axes are the body's, and so is the origin about which moments are taken.
    """

    node_position: jax.Array
    """Undeformed, from the origin [m], shape `(p, 3)`; the first node is where the body's own joint holds it."""
    node_translation: jax.Array
    """How each mode moves each node, shape `(p, 3, m)`."""
    node_rotation: jax.Array
    """How each mode turns each node, a rotation vector, shape `(p, 3, m)`."""
    node_foreshortening: jax.Array
    """`g` of each node, symmetric in its modes, shape `(p, m, m, 3)`."""
    mass: jax.Array
    """[kg], a scalar."""
    first_moment: jax.Array
    """`sum m r0`, shape `(3,)`."""
    inertia: jax.Array
    """About the origin, undeformed, shape `(3, 3)`."""
    translation_coupling: jax.Array
    """`sum m phi`, shape `(3, m)`."""
    rotation_coupling: jax.Array
    """`sum m r0 x phi + J psi`, shape `(3, m)`."""
    rotation_coupling_rate: jax.Array
    """Entry `[r, :, s]`: derivative by `eta_r` of column `s` of the above, `sum m phi_r x phi_s`; `(m, 3, m)`."""
    inertia_first: jax.Array
    """Derivatives of the inertia by each mode, shape `(m, 3, 3)`."""
    inertia_second: jax.Array
    """Its second derivatives, so `J = J0 + sum eta_r J1_r + 1/2 sum eta_r eta_s J2_rs`; shape `(m, m, 3, 3)`."""
    foreshortening: jax.Array
    """`sum m g`, symmetric in its modes, shape `(m, m, 3)`."""
    foreshortening_moment: jax.Array
    """Entry `[r, s, i, j]`: `sum m r0_i g_rs,j`, shape `(m, m, 3, 3)`."""
    modal_mass: jax.Array
    """Shape `(m, m)`."""
    stiffness: jax.Array
    """Shape `(m, m)`."""
    damping: jax.Array
    """Shape `(m, m)`."""
    node_names: tuple[str, ...]
    level: Level
    """What of the deformation the inertia sees:

    - `"consistent"`: all to second order, foreshortening included, without which a body that turns fast has the wrong
      stiffness;
    - `"full"`: the same without foreshortening. Wrong, and unstable, at speeds near the lowest frequency;
    - `"ruthless"`: the inertia of the undeformed body, and no velocity of the modes in the gyroscopic force. Stable and
      cheap, for small motions of the modes and slow turning.
    """

    @staticmethod
    def from_integrals(
        *,
        mass: ArrayLike,
        first_moment: ArrayLike,
        inertia: ArrayLike,
        translation_coupling: ArrayLike,
        rotation_coupling: ArrayLike,
        modal_mass: ArrayLike,
        stiffness: ArrayLike,
        damping: ArrayLike | None = None,
        rotation_coupling_rate: ArrayLike | None = None,
        inertia_first: ArrayLike | None = None,
        inertia_second: ArrayLike | None = None,
        foreshortening: ArrayLike | None = None,
        foreshortening_moment: ArrayLike | None = None,
        node_names: tuple[str, ...] = ("base",),
        node_position: ArrayLike | None = None,
        node_translation: ArrayLike | None = None,
        node_rotation: ArrayLike | None = None,
        node_foreshortening: ArrayLike | None = None,
        level: Level | None = None,
    ) -> FlexibleBody:
        """From the modal integrals themselves, by the names, shapes and units of the fields; what is left out is zero.

        `level` is by default `"consistent"` where any foreshortening is given, and else `"full"`. Raises
        `dx.ModelError` for shapes that do not fit, and for numbers that no body has unless they are traced.
        """
        m = np.shape(modal_mass)[-1] if np.ndim(modal_mass) >= 2 else 0
        p = len(node_names)
        if len({*node_names}) < p:
            raise ModelError(f"`node_names` are not all different: {node_names}", element="flexible body")
        given = dict(locals())
        bending = ("foreshortening", "foreshortening_moment", "node_foreshortening")
        known = "consistent" if any(given[name] is not None for name in bending) else "full"
        leaves = {}
        for name, shape in leaf_shapes(m, p).items():
            value = np.zeros(shape) if given[name] is None else given[name]
            leaves[name] = jnp.asarray(value, None if isinstance(value, jax.Array) else float)
            if leaves[name].shape != shape:
                raise ModelError(
                    f"`{name}` has shape {leaves[name].shape}, expected {shape}",
                    element="flexible body",
                    hint=f"there are {m} modes, by `modal_mass`, and {p} nodes, by `node_names`",
                )
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves.values()):
            refuse_impossible({name: np.asarray(leaf, np.float64) for name, leaf in leaves.items()})
        body = FlexibleBody(**leaves, node_names=tuple(node_names), level="full")
        return body.at_level(level or known)

    @property
    def num_modes(self) -> int:
        return self.modal_mass.shape[1]

    def node_index(self, name: str) -> int:
        """The row of an attachment node."""
        if name not in self.node_names:
            raise KeyError(f"no node named {name!r}; there are: {', '.join(map(repr, self.node_names))}")
        return self.node_names.index(name)

    def at_level(self, level: Level) -> FlexibleBody:
        """The same body with its inertia at another `level`."""
        if level not in get_args(Level):
            raise ValueError(f"`level` must be one of {', '.join(map(repr, get_args(Level)))}, got {level!r}")
        return replace(self, level=level)

    # Arrays may have trailing batch axes, the same number on all leaves and arguments.

    @property
    def polynomials(self) -> Polynomials:
        """Its inertia and its gyroscopic force as its level has them, all that is constant worked out."""
        return Polynomials.of(self)

    def mass_matrix(self, eta: jax.Array) -> jax.Array:
        """`M(eta)` over `[eta rate; omega; v]`, shape `(m + 6, m + 6)` (Jain and Rodriguez, equation 23)."""
        here = self.polynomials.at(eta)
        skew = _skew(here.first_moment)
        inertia = jnp.stack([jnp.stack([here.inertia[k] for k in row]) for row in ENTRY])
        eye = jnp.eye(3, dtype=skew.dtype).reshape(3, 3, *(1,) * (skew.ndim - 2))
        rows = [
            [self.modal_mass, jnp.swapaxes(here.rotation, 0, 1), jnp.swapaxes(here.translation, 0, 1)],
            [here.rotation, inertia, skew],
            [here.translation, -skew, self.mass * eye],
        ]
        return _blocks(rows)

    def gyroscopic_force(self, eta: jax.Array, etad: jax.Array, omega: jax.Array, velocity: jax.Array) -> jax.Array:
        """`b` with `M dV/dt + b` the force, shape `(m + 6,)` (Jain and Rodriguez, equation 33).

        **Arguments:** the modes and their rates, `(m,)`; the frame's angular and linear velocity in the body's axes,
        `(3,)`. `dV/dt` is the derivative of the entries of `V`, so that its last three are a spatial acceleration.
        """
        own = self.polynomials
        modal, angular, linear = own.gyroscopic(own.at(eta), etad, tuple(omega), tuple(velocity))
        return jnp.concatenate([modal, jnp.stack(angular), jnp.stack(linear)])

    def geometric_stiffness(
        self, omega: jax.Array, angular_acceleration: jax.Array, acceleration: jax.Array
    ) -> jax.Array:
        """The stiffness that the loads of a given motion of the frame add, shape `(m, m)`: `sum m a(r0) . g_rs`.

        **Arguments:** the frame's angular velocity and acceleration and the classical acceleration of its origin less
        that of gravity, body axes, each `(3,)`. `mass_matrix` and `gyroscopic_force` contain it at the level
        `"consistent"`; it is for those who want to see it, or to add it to a linear model.
        """
        skew = _skew(omega)
        field = _skew(angular_acceleration) + _times(skew, skew)  # a(r0) = acceleration + field r0
        moment = jnp.swapaxes(field, 0, 1) * self.foreshortening_moment
        return jnp.sum(moment, axis=(2, 3)) + jnp.sum(self.foreshortening * acceleration, axis=2)

    def __repr__(self) -> str:
        nodes = ", ".join(map(repr, self.node_names))
        return f"FlexibleBody({self.num_modes} modes, nodes {nodes}, {self.level})"


_LEAVES = [f.name for f in fields(FlexibleBody) if f.name not in ("node_names", "level")]
jax.tree_util.register_dataclass(FlexibleBody, data_fields=_LEAVES, meta_fields=["node_names", "level"])


def leaf_shapes(m: int, p: int) -> dict[str, tuple[int, ...]]:
    """The shape of each leaf that has no batch axes, for `m` modes and `p` nodes."""
    return {
        "node_position": (p, 3),
        "node_translation": (p, 3, m),
        "node_rotation": (p, 3, m),
        "node_foreshortening": (p, m, m, 3),
        "mass": (),
        "first_moment": (3,),
        "inertia": (3, 3),
        "translation_coupling": (3, m),
        "rotation_coupling": (3, m),
        "rotation_coupling_rate": (m, 3, m),
        "inertia_first": (m, 3, 3),
        "inertia_second": (m, m, 3, 3),
        "foreshortening": (m, m, 3),
        "foreshortening_moment": (m, m, 3, 3),
        "modal_mass": (m, m),
        "stiffness": (m, m),
        "damping": (m, m),
    }


SYMMETRIC = (
    ("modal_mass", (0, 1)), ("stiffness", (0, 1)), ("damping", (0, 1)), ("inertia", (0, 1)), ("inertia_first", (1, 2)),
    ("inertia_second", (0, 1)), ("inertia_second", (2, 3)), ("foreshortening", (0, 1)),
    ("foreshortening_moment", (0, 1)), ("node_foreshortening", (1, 2)),
)  # fmt: skip
"""Leaves, and axes that may be exchanged."""


def refuse_impossible(leaves: dict[str, np.ndarray]) -> None:
    """`ModelError` for leaves, in float64 and not batched, that no body has."""
    for name, leaf in leaves.items():
        if not np.all(np.isfinite(leaf)):
            raise ModelError(f"`{name}` is not finite", element="flexible body", hint="all must be numbers")
    for name, axes in SYMMETRIC:
        leaf = leaves[name]
        apart = np.abs(leaf - np.swapaxes(leaf, *axes)).max(initial=0.0)
        if apart > 1e-6 * np.abs(leaf).max(initial=0.0):
            raise ModelError(f"`{name}` is not symmetric, by {apart:g}", element="flexible body")
    if not leaves["mass"] > 0.0:
        raise ModelError(f"`mass` is {leaves['mass']:g}", element="flexible body", hint="it must be positive [kg]")
    for name, least in (("modal_mass", 1e-12), ("stiffness", -1e-6), ("damping", -1e-6)):
        lowest = _lowest(leaves[name])
        if lowest < least:
            kind = "positive definite" if least > 0.0 else "positive semidefinite"
            raise ModelError(
                f"`{name}` is not {kind}: {lowest:.3g} for some motion, its diagonal scaled to one",
                element="flexible body",
            )
    x, y, z = leaves["first_moment"]
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turning, moving = leaves["rotation_coupling"], leaves["translation_coupling"]
    matrix = np.block(
        [
            [leaves["modal_mass"], turning.T, moving.T],
            [turning, leaves["inertia"], skew],
            [moving, -skew, leaves["mass"] * np.eye(3)],
        ]
    )
    lowest = _lowest(matrix)
    if lowest < -1e-5:
        raise ModelError(
            f"has a negative kinetic energy for some motion: {lowest:.3g}, its diagonal scaled to one",
            element="flexible body",
            hint="the couplings are larger than the masses allow; look at their units and at the origin they are about",
        )


def _lowest(matrix: np.ndarray) -> float:
    """The lowest eigenvalue of a symmetric matrix whose diagonal is scaled to one, or to minus one."""
    measure = np.sqrt(np.abs(np.diag(matrix)))
    measure = np.where(measure > 0.0, measure, 1.0)
    return float(np.linalg.eigvalsh(matrix / np.outer(measure, measure)).min(initial=1.0))


def _times(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """A matrix times a vector, or a matrix."""
    return over(jnp.swapaxes(matrix, 0, 1), x) if matrix.ndim > x.ndim else summed(matrix[:, :, None] * x[None])


def _skew(a: jax.Array) -> jax.Array:
    zero = jnp.zeros_like(a[0])
    return jnp.stack([jnp.stack(row) for row in ((zero, -a[2], a[1]), (a[2], zero, -a[0]), (-a[1], a[0], zero))])


def _blocks(rows: list[list[jax.Array]]) -> jax.Array:
    """Blocks put together, their batch axes, which may have length one, made equal."""
    batch = jnp.broadcast_shapes(*(b.shape[2:] for row in rows for b in row))
    full = [[jnp.broadcast_to(b, (*b.shape[:2], *batch)) for b in row] for row in rows]
    return jnp.concatenate([jnp.concatenate(row, axis=1) for row in full])
