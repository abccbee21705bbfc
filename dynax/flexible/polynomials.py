"""The inertia of a body that bends as polynomials of its modes, and the gyroscopic force that goes with it.

What a level leaves out is absent, and what is constant is worked out once. Symmetric matrices are their six entries:
sums over two modes are most of the work. Jain and Rodriguez (1992), equations 23 to 39, as `dynax.flexible.body` writes
them. Arrays may have trailing batch axes, the same number on all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from dynax.compile.fence import apart
from dynax.sweep.sums import summed

if TYPE_CHECKING:
    from dynax.flexible.body import FlexibleBody

Three = Sequence[jax.Array]

SIX = ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (0, 2))
"""The entries of a symmetric matrix, in the order of `Sym3`."""
ENTRY = ((0, 3, 5), (3, 1, 4), (5, 4, 2))
"""Which of these each entry of the matrix is."""


class Deformed(NamedTuple):
    """Of a body at some amplitudes."""

    first_moment: jax.Array
    """`sum m l`, shape `(3,)`."""
    inertia: jax.Array
    """About the origin, its six entries."""
    inertia_slope: jax.Array
    """Derivatives of these by each mode, shape `(m, 6)`."""
    rotation: jax.Array
    """`sum l x phi + J psi`, shape `(3, m)`."""
    translation: jax.Array
    """`sum m phi`, shape `(3, m)`."""


class Polynomials(NamedTuple):
    """The coefficients: leaves of `FlexibleBody`, symmetric matrices by their six entries; absent ones are zero."""

    mass: jax.Array
    first_moment: jax.Array
    inertia: jax.Array
    inertia_first: jax.Array
    inertia_second: jax.Array | None
    rotation: jax.Array
    rotation_rate: jax.Array | None
    translation: jax.Array
    foreshortening: jax.Array | None
    twist: jax.Array | None
    """`rotation_rate` less its transpose over modes, shape `(3, m, m)`."""

    @staticmethod
    def of(body: FlexibleBody) -> Polynomials:
        second, rate, drawn = _six(body.inertia_second, 2), body.rotation_coupling_rate, None
        if body.level == "consistent":
            # Of the moments of foreshortening: sum m r0 x g_rs, symmetric in its modes, and -sum m (r0~ g~ + g~ r0~).
            s, drawn = body.foreshortening_moment, body.foreshortening
            turned = [s[:, :, i, j] - s[:, :, j, i] for i, j in ((1, 2), (2, 0), (0, 1))]
            trace = s[:, :, 0, 0] + s[:, :, 1, 1] + s[:, :, 2, 2]
            six = [(2.0 * trace if i == j else 0.0) - s[:, :, i, j] - s[:, :, j, i] for i, j in SIX]
            second, rate = second + jnp.stack(six, axis=2), rate + jnp.stack(turned, axis=1)
        frozen = body.level == "ruthless"
        return Polynomials(
            mass=body.mass,
            first_moment=body.first_moment,
            inertia=_six(body.inertia, 0),
            inertia_first=_six(body.inertia_first, 1),
            inertia_second=None if frozen else second,
            rotation=body.rotation_coupling,
            rotation_rate=None if frozen else rate,
            translation=body.translation_coupling,
            foreshortening=drawn,
            twist=None if frozen else jnp.swapaxes(rate, 0, 1) - jnp.moveaxis(rate, 0, 2),
        )

    def at(self, eta: jax.Array) -> Deformed:
        """For modes `(m,)`."""
        moment, translation = self.first_moment, self.translation
        if self.inertia_second is None or self.rotation_rate is None:
            return Deformed(moment, self.inertia, self.inertia_first, self.rotation, translation)
        slope = apart(self.inertia_first + over(self.inertia_second, eta))
        inertia = apart(self.inertia + 0.5 * over(self.inertia_first + slope, eta))
        rotation = apart(self.rotation + over(self.rotation_rate, eta))
        moment = moment + over(jnp.swapaxes(translation, 0, 1), eta)
        if self.foreshortening is not None:
            drawn = apart(over(self.foreshortening, eta))  # (m, 3)
            moment, translation = moment + 0.5 * over(drawn, eta), translation + jnp.swapaxes(drawn, 0, 1)
        return Deformed(apart(moment), inertia, slope, rotation, apart(translation))

    def gyroscopic(
        self, here: Deformed, etad: jax.Array, omega: Three, velocity: Three
    ) -> tuple[jax.Array, Three, Three]:
        """What is not acceleration, on modes, angular and linear, for the body `here`, at `eta`."""
        inertia, moment = here.inertia, tuple(here.first_moment)
        rotation, translation = here.rotation, (here.translation[0], here.translation[1], here.translation[2])
        turning = _apart(cross(omega, velocity))  # classical acceleration less the spatial one
        x, y, z = omega
        squares = apart(jnp.stack([x * x, y * y, z * z, 2.0 * (x * y), 2.0 * (y * z), 2.0 * (x * z)]))
        modal = _dot(translation, turning) - 0.5 * summed(here.inertia_slope * squares[None])
        spin, moving = _turned(inertia, omega), cross(omega, moment)
        if self.rotation_rate is not None:
            spin = tuple(a + summed(rotation[k] * etad, 0) for k, a in enumerate(spin))
            moving = tuple(a + 2.0 * summed(b * etad, 0) for a, b in zip(moving, translation, strict=True))
        spin, moving = _apart(spin), _apart(moving)
        linear = tuple(a + self.mass * b for a, b in zip(cross(omega, moving), turning, strict=True))
        angular = tuple(a + b for a, b in zip(cross(omega, spin), cross(moment, turning), strict=True))
        if self.rotation_rate is not None and self.twist is not None:
            swung = _turned(apart(over(here.inertia_slope, etad)), omega)
            turned = tuple(apart(over(self.rotation_rate, etad)))  # three of (m,)
            angular = tuple(a + b + summed(c * etad, 0) for a, b, c in zip(angular, swung, turned, strict=True))
            modal = modal + over(apart(_dot(tuple(self.twist), omega)), etad)
        if self.foreshortening is not None:
            drawn = apart(over(self.foreshortening, etad))  # (m, 3)
            linear = tuple(a + summed(drawn[:, k] * etad, 0) for k, a in enumerate(linear))
        return modal, angular, linear


def _apart(a: Three) -> Three:
    return tuple(map(apart, a))


def _dot(a: Three, b: Three) -> jax.Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _turned(six: jax.Array, omega: Three) -> Three:
    """A symmetric matrix times a vector."""
    return tuple(_dot([six[k] for k in row], omega) for row in ENTRY)


def _six(matrices: jax.Array, axis: int) -> jax.Array:
    """The entries of symmetric matrices, on one axis instead of two."""
    front = (slice(None),) * axis
    return jnp.stack([matrices[(*front, i, j)] for i, j in SIX], axis=axis)


def over(tensor: jax.Array, x: jax.Array) -> jax.Array:
    """The sum over the first axis of a tensor, weighted by a vector; written out, since the batch is last."""
    own = tensor.ndim - x.ndim  # axes of the tensor beside the first and those of the batch
    return summed(tensor * x.reshape(x.shape[0], *(1,) * own, *x.shape[1:]), axis=0)


def cross(a: Three, b: Three) -> Three:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
