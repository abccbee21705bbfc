"""Rigid inertias in 10 numbers, articulated inertias in 21 (Featherstone 2008, sections 2.13 and 7.1, appendix A.3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.spatial.components import (
    Mat3,
    Scalar,
    Sym3,
    Vec3,
    component_dataclass,
    outer_square,
    self_outer,
    stack,
)
from dynax.spatial.motion import Force, Motion


@component_dataclass
class RigidInertia:
    """The inertia of a rigid body about an origin: mass, first moment `h = m c`, rotational inertia about it."""

    mass: Scalar
    moment: Vec3
    inertia: Sym3

    @staticmethod
    def from_com(mass: Scalar, com: Vec3, inertia: Sym3) -> RigidInertia:
        """From the rotational inertia about the centre of mass (eq. 2.63)."""
        return RigidInertia(mass, com * mass, inertia + outer_square(com, com) * mass)

    @staticmethod
    def from_parameters(parameters: ArrayLike) -> RigidInertia:
        """From the linear parameters `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the origin, on the last axis."""
        p = jnp.asarray(parameters)
        return RigidInertia(p[..., 0], Vec3.from_array(p[..., 1:4]), Sym3.from_six(p[..., 4:]))

    @property
    def parameters(self) -> jax.Array:
        h, i = self.moment, self.inertia
        return stack((self.mass, h.x, h.y, h.z, *i.components))

    @property
    def matrix(self) -> jax.Array:
        """The 6x6 matrix, on two new last axes (eq. 2.63)."""
        return self.articulated().matrix

    def articulated(self) -> ArticulatedInertia:
        return ArticulatedInertia(self.inertia, self.moment.skew(), Sym3.diagonal(self.mass, self.mass, self.mass))

    def __add__(self, other: RigidInertia) -> RigidInertia:
        if not isinstance(other, RigidInertia):
            return NotImplemented
        return RigidInertia(self.mass + other.mass, self.moment + other.moment, self.inertia + other.inertia)

    def __mul__(self, scale: Scalar) -> RigidInertia:
        return RigidInertia(self.mass * scale, self.moment * scale, self.inertia * scale)

    __rmul__ = __mul__

    def __matmul__(self, motion: Motion) -> Force:
        """`I v`: momentum of a velocity (24 multiplications, 18 additions)."""
        if not isinstance(motion, Motion):
            raise TypeError(f"an inertia maps a Motion to a Force, not a {type(motion).__name__}")
        w, v = motion.angular, motion.linear
        return Force(self.inertia @ w + self.moment.cross(v), v * self.mass - self.moment.cross(w))

    def rotate(self, r: Mat3) -> RigidInertia:
        """The inertia in axes turned by `r` (vectors become `r @ v`)."""
        return RigidInertia(self.mass, r @ self.moment, self.inertia.congruence(r))

    def shift_to_parent(self, offset: Vec3) -> RigidInertia:
        """The inertia about the origin `offset` leads away from, axes unchanged (parallel axes)."""
        moved = offset * self.mass
        inertia = self.inertia + outer_square(self.moment * 2.0 + moved, offset)
        return RigidInertia(self.mass, self.moment + moved, inertia)

    def kinetic_energy(self, velocity: Motion) -> Scalar:
        """`v . I v / 2` (eq. 2.67)."""
        return 0.5 * velocity.dot(self @ velocity)


@component_dataclass
class ArticulatedInertia:
    """A symmetric 6x6 map from motions to forces, `[[I, H], [H^T, M]]`: 21 numbers, in general no centre of mass."""

    inertia: Sym3
    coupling: Mat3
    mass: Sym3

    @staticmethod
    def zero(like: Scalar = 0.0) -> ArticulatedInertia:
        zero = jnp.zeros_like(like)
        return ArticulatedInertia(Sym3.zero(zero), Mat3(*(zero,) * 9), Sym3.zero(zero))

    @staticmethod
    def from_matrix(a: ArrayLike) -> ArticulatedInertia:
        a = jnp.asarray(a)
        coupling = 0.5 * (a[..., :3, 3:] + jnp.swapaxes(a[..., 3:, :3], -1, -2))
        return ArticulatedInertia(
            Sym3.from_array(a[..., :3, :3]), Mat3.from_array(coupling), Sym3.from_array(a[..., 3:, 3:])
        )

    @property
    def rows(self) -> list[list[Scalar]]:
        """The entries of the 6x6 matrix, row by row."""
        i, h, m = self.inertia.matrix, self.coupling, self.mass.matrix
        top = [[*vec3(a), *vec3(b)] for a, b in zip(i.rows, h.rows, strict=True)]
        return top + [[*vec3(a), *vec3(b)] for a, b in zip(h.T.rows, m.rows, strict=True)]

    @property
    def matrix(self) -> jax.Array:
        return stack([entry for row in self.rows for entry in row], (6, 6))

    def __add__(self, other: ArticulatedInertia | RigidInertia) -> ArticulatedInertia:
        if isinstance(other, RigidInertia):
            h, c, m = other.moment, self.coupling, self.mass
            # Fifteen additions: the mass block of a rigid inertia is diagonal and its coupling is skew.
            coupling = Mat3(
                c.xx, c.xy - h.z, c.xz + h.y,
                c.yx + h.z, c.yy, c.yz - h.x,
                c.zx - h.y, c.zy + h.x, c.zz,
            )  # fmt: skip
            mass = Sym3(m.xx + other.mass, m.yy + other.mass, m.zz + other.mass, m.xy, m.yz, m.xz)
            return ArticulatedInertia(self.inertia + other.inertia, coupling, mass)
        if not isinstance(other, ArticulatedInertia):
            return NotImplemented
        return ArticulatedInertia(self.inertia + other.inertia, self.coupling + other.coupling, self.mass + other.mass)

    __radd__ = __add__

    def __mul__(self, scale: Scalar) -> ArticulatedInertia:
        return ArticulatedInertia(self.inertia * scale, self.coupling * scale, self.mass * scale)

    __rmul__ = __mul__

    def __matmul__(self, motion: Motion) -> Force:
        """`I^A v` (36 multiplications, 30 additions)."""
        if not isinstance(motion, Motion):
            raise TypeError(f"an inertia maps a Motion to a Force, not a {type(motion).__name__}")
        w, v = motion.angular, motion.linear
        return Force(self.inertia @ w + self.coupling @ v, self.coupling.transpose_apply(w) + self.mass @ v)

    def downdate(self, gain: Force) -> ArticulatedInertia:
        """`P - g g^T`: the update of a Kalman filter, symmetric by construction."""
        n, f = gain.angular, gain.linear
        return ArticulatedInertia(self.inertia - self_outer(n), self.coupling - n.outer(f), self.mass - self_outer(f))

    def rotate(self, r: Mat3) -> ArticulatedInertia:
        return ArticulatedInertia(self.inertia.congruence(r), r @ self.coupling @ r.T, self.mass.congruence(r))

    def shift_to_parent(self, offset: Vec3) -> ArticulatedInertia:
        """`phi P phi*`: the same map about the origin `offset` leads away from, axes unchanged."""
        # With d the offset and [d] its matrix: H' = H + [d] M, and I' = I + [d] H'^T - H [d], which is symmetric.
        columns = tuple(offset.cross(column) for column in self.mass.matrix.columns)
        coupling = self.coupling + Mat3.from_columns(*columns)
        left = tuple(offset.cross(row) for row in coupling.rows)  # columns of [d] H'^T
        right = tuple(row.cross(offset) for row in self.coupling.rows)  # rows of H [d]
        i = self.inertia
        inertia = Sym3(
            i.xx + left[0].x - right[0].x,
            i.yy + left[1].y - right[1].y,
            i.zz + left[2].z - right[2].z,
            i.xy + left[1].x - right[0].y,
            i.yz + left[2].y - right[1].z,
            i.xz + left[2].x - right[0].z,
        )
        return ArticulatedInertia(inertia, coupling, self.mass)


def vec3(v: Vec3) -> tuple[Scalar, Scalar, Scalar]:
    return v.x, v.y, v.z


class SpatialInertia:
    """The inertia of a body as a user gives it: mass [kg], centre of mass [m] and rotational inertia about it [kg m^2].

    **Arguments:**

    - `mass`: the mass.
    - `com`: the centre of mass in the body's axes, from the body's origin, shape `(3,)`.
    - `inertia`: the rotational inertia about the centre of mass in the body's axes, shape `(3, 3)`; a vector of
      length 3 is a diagonal.
    - `first_moment`: mass times centre of mass [kg m], from `com`, shape `(3,)`. It is zero, unless a fit gave a body
      first moments that its mass cannot account for: `com` is then the point that the inertia refers to.

    A plain record in NumPy: builders read it, algorithms use `RigidInertia`.
    """

    def __init__(
        self,
        mass: ArrayLike,
        com: ArrayLike = (0.0, 0.0, 0.0),
        inertia: ArrayLike = (0.0, 0.0, 0.0),
        first_moment: ArrayLike = (0.0, 0.0, 0.0),
    ):
        self.mass = float(np.asarray(mass))
        self.com = np.asarray(com, dtype=np.float64)
        self.first_moment = np.asarray(first_moment, dtype=np.float64)
        tensor = np.asarray(inertia, dtype=np.float64)
        self.inertia = np.diag(tensor) if tensor.shape == (3,) else tensor
        for name in ("com", "first_moment"):
            if getattr(self, name).shape != (3,):
                raise ValueError(f"SpatialInertia: `{name}` must have shape (3,), got {getattr(self, name).shape}")
        if self.inertia.shape != (3, 3):
            raise ValueError(f"SpatialInertia: `inertia` must have shape (3, 3) or (3,), got {tensor.shape}")

    @staticmethod
    def zero() -> SpatialInertia:
        return SpatialInertia(0.0)

    # Solids of even density, axes along those of the body. `mass` [kg] or `density` [kg/m^3]: one of them.

    @staticmethod
    def box(
        size: ArrayLike,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0.0, 0.0, 0.0),
    ) -> SpatialInertia:
        """A box with edges `size`, shape `(3,)` [m], its centre at `com`; give `mass` or `density`."""
        x, y, z = _lengths("box", "size", size, 3)
        m = _mass_of("box", x * y * z, mass, density)
        return SpatialInertia(m, com, m / 12.0 * np.array([y * y + z * z, x * x + z * z, x * x + y * y]))

    @staticmethod
    def ellipsoid(
        radii: ArrayLike,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0.0, 0.0, 0.0),
    ) -> SpatialInertia:
        """An ellipsoid with semi-axes `radii`, shape `(3,)` [m], its centre at `com`; give `mass` or `density`."""
        x, y, z = _lengths("ellipsoid", "radii", radii, 3)
        m = _mass_of("ellipsoid", 4.0 / 3.0 * np.pi * x * y * z, mass, density)
        return SpatialInertia(m, com, m / 5.0 * np.array([y * y + z * z, x * x + z * z, x * x + y * y]))

    @staticmethod
    def sphere(
        radius: float,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0.0, 0.0, 0.0),
    ) -> SpatialInertia:
        """A ball of a `radius` [m], its centre at `com`; give `mass` or `density`."""
        (r,) = _lengths("sphere", "radius", radius, 1)
        m = _mass_of("sphere", 4.0 / 3.0 * np.pi * r**3, mass, density)
        return SpatialInertia(m, com, np.full(3, 0.4 * m * r * r))

    @staticmethod
    def cylinder(
        radius: float,
        length: float,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0.0, 0.0, 0.0),
    ) -> SpatialInertia:
        """A cylinder along z of a `radius` and a `length` [m], its centre at `com`; give `mass` or `density`.

        `dx.Transform(rotation) @ inertia` turns it to another axis.
        """
        r, h = *_lengths("cylinder", "radius", radius, 1), *_lengths("cylinder", "length", length, 1)
        m = _mass_of("cylinder", np.pi * r * r * h, mass, density)
        across = m / 12.0 * (3.0 * r * r + h * h)
        return SpatialInertia(m, com, (across, across, 0.5 * m * r * r))

    @staticmethod
    def capsule(
        radius: float,
        length: float,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0.0, 0.0, 0.0),
    ) -> SpatialInertia:
        """A cylinder along z with half a ball on each end; `length` [m] is that of the cylinder alone.

        Its centre is at `com`; give `mass` or `density`.
        """
        r, h = *_lengths("capsule", "radius", radius, 1), *_lengths("capsule", "length", length, 1)
        middle, ends = np.pi * r * r * h, 4.0 / 3.0 * np.pi * r**3
        m = _mass_of("capsule", middle + ends, mass, density)
        middle, ends = m * middle / (middle + ends), m * ends / (middle + ends)
        # The centre of half a ball is 3/8 of the radius beyond its flat side.
        across = middle / 12.0 * (3.0 * r * r + h * h) + ends * (0.4 * r * r + 0.25 * h * h + 0.375 * h * r)
        return SpatialInertia(m, com, (across, across, (0.5 * middle + 0.4 * ends) * r * r))

    @staticmethod
    def from_parameters(parameters: ArrayLike) -> SpatialInertia:
        """From `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the origin; about the centre of mass if there is one."""
        p = np.asarray(parameters, dtype=np.float64)
        xx, yy, zz, xy, yz, xz = p[4:]
        about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        return SpatialInertia(p[0], np.zeros(3), about_origin, p[1:4]).centered

    @property
    @np.errstate(over="ignore")
    def centered(self) -> SpatialInertia:
        """The same with `com` the centre of mass; as it is if the first moment is more than its mass can explain."""
        h = self.first_moment
        # The moments of inertia of a body add up to `2 m |c|^2` at least; if not, `h / m` would cancel their digits.
        if not h.any() or h @ h > self.mass * np.trace(self.inertia):
            return self
        com = h / self.mass
        return SpatialInertia(self.mass, self.com + com, self.inertia - _about_origin(h, com))

    @property
    def parameters(self) -> np.ndarray:
        """The ten linear parameters about the origin."""
        moment, tensor = self._seen_from(self.com)
        return np.concatenate([[self.mass], moment, tensor[[0, 1, 2, 0, 1, 0], [0, 1, 2, 1, 2, 2]]])

    @property
    def matrix(self) -> np.ndarray:
        """The 6x6 matrix about the origin."""
        (x, y, z), tensor = self._seen_from(self.com)
        skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        return np.block([[tensor, skew], [skew.T, self.mass * np.eye(3)]])

    def _seen_from(self, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First moment and rotational inertia about the point from which `offset` leads to `com`."""
        moved = self.mass * offset
        return self.first_moment + moved, self.inertia + _about_origin(2.0 * self.first_moment + moved, offset)

    def __add__(self, other: SpatialInertia) -> SpatialInertia:
        """Both together, about the common centre: far from the origin its distance squared would cost digits."""
        light, heavy = sorted((self, other), key=lambda body: abs(body.mass))
        mass = light.mass + heavy.mass
        apart = light.com - heavy.com
        centre = (light.mass / mass if mass else 0.0) * apart  # from the heavy one; a mass less itself has none
        (a, one), (b, two) = light._seen_from(apart - centre), heavy._seen_from(-centre)
        left = light.first_moment + heavy.first_moment if mass else a + b
        return SpatialInertia(mass, heavy.com + centre, one + two, left)

    def __repr__(self) -> str:
        left = f", first_moment={self.first_moment.tolist()}" if self.first_moment.any() else ""
        return f"SpatialInertia(mass={self.mass:g}, com={self.com.tolist()}, inertia={self.inertia.tolist()}{left})"


def _about_origin(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`(a.b) 1 - (a b^T + b a^T) / 2`: with `a = m b`, the rotational inertia of a mass at `b`."""
    return a @ b * np.eye(3) - 0.5 * (np.outer(a, b) + np.outer(b, a))


def _lengths(shape: str, what: str, given: ArrayLike, count: int) -> tuple[float, ...]:
    """Lengths of a solid [m], positive."""
    lengths = np.asarray(given, dtype=np.float64)
    if lengths.shape != ((count,) if count > 1 else ()):
        wanted = f"{count} lengths" if count > 1 else "one length"
        raise ValueError(f"SpatialInertia.{shape}: `{what}` must be {wanted}, got {given!r}")
    if not np.all(np.isfinite(lengths) & (lengths > 0.0)):
        raise ValueError(f"SpatialInertia.{shape}: `{what}` must be positive and finite, got {given!r}")
    return tuple(float(x) for x in np.atleast_1d(lengths))


def _mass_of(shape: str, volume: float, mass: float | None, density: float | None) -> float:
    """The mass of a solid of which either the mass or the density is known."""
    if (mass is None) == (density is None):
        raise ValueError(f"SpatialInertia.{shape}: give either `mass` [kg] or `density` [kg/m^3]")
    name, value = ("mass", mass) if density is None else ("density", density)
    number = float(np.asarray(value))
    if not (np.isfinite(number) and number >= 0.0):
        raise ValueError(f"SpatialInertia.{shape}: `{name}` must be zero or positive, got {value!r}")
    return number if density is None else number * float(volume)
