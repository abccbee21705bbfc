"""Upsilon: how much a body gives way to a force on it, a 6x6 map from forces to accelerations for each body.

It is the dual of the articulated inertia: that one holds everything a body carries, found inwards, this one everything
that carries it, found outwards (Jain, UPS; a scatter, so that trees need nothing special).

    outward   Y = phi* Upsilon of the parent phi      Upsilon = (1 - s G^T) Y (1 - G s^T) + s s^T / D      G = P s / D
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.bodies.base import RootInertia
from dynax.bodies.hinge import Hinge, HingeGains
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.spatial import ArticulatedInertia, Force, Mat3, Motion, Scalar, Sym3, Vec3
from dynax.spatial.components import component_dataclass
from dynax.tree.layout import Layout


@component_dataclass
class Compliance:
    """A symmetric map from forces to motions, `[[A, B], [B^T, C]]`: 21 numbers."""

    angular: Sym3
    coupling: Mat3
    linear: Sym3

    @staticmethod
    def zero(like: Scalar) -> Compliance:
        zero = jnp.zeros_like(like)
        return Compliance(Sym3.zero(zero), Mat3(*(zero,) * 9), Sym3.zero(zero))

    def __matmul__(self, force: Force) -> Motion:
        n, f = force.angular, force.linear
        return Motion(self.angular @ n + self.coupling @ f, self.coupling.transpose_apply(n) + self.linear @ f)

    def rotate(self, r: Mat3) -> Compliance:
        return Compliance(self.angular.congruence(r), r @ self.coupling @ r.T, self.linear.congruence(r))

    def shift(self, offset: Vec3) -> Compliance:
        """`phi* Y phi`: the same map about an origin displaced by `offset`."""
        # With its halves exchanged it moves as an inertia does, the other way.
        moved = ArticulatedInertia(self.linear, self.coupling.T, self.angular).shift_to_parent(-offset)
        return Compliance(moved.mass, moved.coupling.T, moved.inertia)

    def plus(self, a: Motion, b: Motion) -> Compliance:
        """`Y + a b^T + b a^T`."""
        coupling = self.coupling + a.angular.outer(b.linear) + b.angular.outer(a.linear)
        return Compliance(
            self.angular + _twice_symmetric(a.angular, b.angular),
            coupling,
            self.linear + _twice_symmetric(a.linear, b.linear),
        )


def _twice_symmetric(a: Vec3, b: Vec3) -> Sym3:
    """`a b^T + b a^T`."""
    return Sym3(
        2.0 * a.x * b.x,
        2.0 * a.y * b.y,
        2.0 * a.z * b.z,
        a.x * b.y + a.y * b.x,
        a.y * b.z + a.z * b.y,
        a.x * b.z + a.z * b.x,
    )


def compliances(plan: Layout, rotation: Mat3, slots: Hinge, gains: HingeGains, roots: RootInertia) -> Compliance:
    """`Y` in slot rows, world axes about the joints: the compliance of what each slot hangs on.

    `rotation` is that of the free roots.
    """

    def outward(above: Compliance, x: tuple[Hinge, HingeGains]) -> tuple[Compliance, Compliance]:
        slot, gain = x
        y = above.shift(slot.offset)
        column, given = slot.column.motion(), y @ gain.gain / gain.root
        # (1 - s G^T) Y (1 - G s^T) + s s^T / D = Y - s t^T - t s^T
        half = 0.5 * (1.0 / gain.root + gain.gain.dot(given)) / gain.root
        return y.plus(column, column * half - given), y

    return plan.slots.scatter(outward, _bases(rotation, roots), (slots, gains))


def _bases(rotation: Mat3, roots: RootInertia) -> Compliance:
    """Of the world, which does not give way, and of the free roots."""
    size, batch = roots.matrix.shape[0], roots.matrix.shape[3:]
    eye = jnp.eye(size, dtype=roots.matrix.dtype).reshape((size, size) + (1,) * (1 + len(batch)))
    y = jnp.moveaxis(gauss_jordan(roots.matrix, eye), (0, 1), (-2, -1))
    own = Compliance(Sym3.from_array(y[..., :3, :3]), Mat3.from_array(y[..., :3, 3:]), Sym3.from_array(y[..., 3:, 3:]))
    world = Compliance.zero(jnp.zeros((1, *batch), y.dtype))
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), world, own.rotate(rotation))
