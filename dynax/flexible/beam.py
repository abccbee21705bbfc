"""Straight beams of Euler and Bernoulli by finite elements: cubic bending, linear stretch and twist.

The mass stands at four Gauss points an element, which integrate the consistent mass matrix exactly, and all modal
integrals with it. A beam that bends without stretching draws its points in by half the integral of the squared slopes
from its first node on (Kane, Ryan and Banerjee, "Dynamics of a cantilever beam attached to a moving base", 1987).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.flexible.body import FlexibleBody, Level
from dynax.flexible.elements import FiniteElements, Freedoms, MassPoints


@dataclass(frozen=True)
class BeamSection:
    """The cross-section of a beam, about its centre; y and z are its principal axes.

    **Arguments:**

    - `EA`: stiffness in stretch [N]; `EIy`, `EIz`: in bending about y (along z) and about z (along y) [N m^2]; `GJ`: in
      twist [N m^2].
    - `mass_per_length`: [kg/m].
    - `inertia_per_length`: rotational inertia about x, y and z [kg m]; zero leaves twist without mass, and bending to
      Euler and Bernoulli.
    """

    EA: float
    EIy: float
    EIz: float
    GJ: float
    mass_per_length: float
    inertia_per_length: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self):
        for name in ("EA", "EIy", "EIz", "GJ", "mass_per_length"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0.0):
                raise ModelError(f"`{name}` is {value}", element="BeamSection", hint="it must be positive and finite")
        if not np.all(np.asarray(self.inertia_per_length) >= 0.0):
            raise ModelError("`inertia_per_length` has negative entries", element="BeamSection")

    @staticmethod
    def rectangle(width: float, height: float, *, E: float, density: float, poisson: float = 0.3) -> BeamSection:
        """Full, `width` along y and `height` along z [m]; `E` in [Pa], `density` in [kg/m^3].

        Twist by the series of Saint-Venant.
        """
        a, b = max(width, height), min(width, height)
        odd = np.arange(1.0, 40.0, 2.0)
        torsion = a * b**3 / 3.0 * (1.0 - 192.0 / np.pi**5 * b / a * np.sum(np.tanh(odd * np.pi * a / 2 / b) / odd**5))
        return _section(
            width * height, width * height**3 / 12.0, height * width**3 / 12.0, torsion, E, density, poisson
        )

    @staticmethod
    def tube(
        radius: float, thickness: float | None = None, *, E: float, density: float, poisson: float = 0.3
    ) -> BeamSection:
        """Round, of an outer `radius`; full without a wall's `thickness` [m]."""
        if thickness is not None and not 0.0 < thickness <= radius:
            raise ModelError(f"a wall of {thickness:g} m in a radius of {radius:g} m", element="BeamSection.tube")
        inner = 0.0 if thickness is None else radius - thickness
        bending = 0.25 * np.pi * (radius**4 - inner**4)
        return _section(np.pi * (radius**2 - inner**2), bending, bending, 2.0 * bending, E, density, poisson)


def _section(
    area: float, Iy: float, Iz: float, torsion: float, E: float, density: float, poisson: float
) -> BeamSection:
    turning = (density * (Iy + Iz), density * Iy, density * Iz)
    return BeamSection(E * area, E * Iy, E * Iz, 0.5 * E / (1.0 + poisson) * torsion, density * area, turning)


def beam_elements(
    section: BeamSection,
    length: float,
    *,
    elements: int = 20,
    direction: ArrayLike = (1.0, 0.0, 0.0),
    up: ArrayLike = (0.0, 0.0, 1.0),
    origin: ArrayLike = (0.0, 0.0, 0.0),
    stations: Mapping[str, float] | None = None,
    lumped: bool = False,
) -> FiniteElements:
    """A straight beam as finite elements; its nodes have six freedoms.

    **Arguments:**

    - `length`: [m]; `elements`: of equal length, but for those that `stations` cut.
    - `direction`, `up`: of the beam and of the z axis of its section, body axes; `up` need not be at right angles.
    - `origin`: where its first node is [m].
    - `stations`: names of nodes by their distance from the first [m]; `{"base": 0, "tip": length}` by default.
    - `lumped`: mass at the nodes instead of spread.
    """
    stations = {"base": 0.0, "tip": length} if stations is None else stations
    if not (np.isfinite(length) and length > 0.0) or elements < 1:
        raise ModelError(f"has {elements} elements on a length of {length}", element="beam")
    for name, x in stations.items():
        if not 0.0 <= x <= length:
            raise ModelError(f"is at {x:g}, outside of the beam's {length:g} m", element=f"station {name!r}")
    x = _stations(length, elements, np.array(list(stations.values()), dtype=float))
    axes = beam_axes(np.asarray(direction, dtype=float), np.asarray(up, dtype=float))
    freedoms = 6 * len(x)
    turned = np.kron(np.eye(2 * len(x)), axes)  # freedoms in body axes from those in the beam's
    stiffness = np.zeros((freedoms, freedoms))
    for k, h in enumerate(np.diff(x)):
        stiffness[6 * k : 6 * k + 12, 6 * k : 6 * k + 12] += _element_stiffness(section, h)
    at = np.asarray(origin, dtype=float)
    points = _mass_points(section, x, axes, at, turned, lumped)
    return FiniteElements(
        points.mass_matrix,
        turned @ stiffness @ turned.T,
        at + x[:, None] * axes[:, 0],
        node_names={name: int(np.argmin(np.abs(x - s))) for name, s in stations.items()},
        points=points,
    )


def flexible_beam(
    section: BeamSection,
    length: float,
    *,
    modes: int,
    held: Freedoms | None = None,
    boundary: Freedoms | None = None,
    elements: int = 20,
    direction: ArrayLike = (1.0, 0.0, 0.0),
    up: ArrayLike = (0.0, 0.0, 1.0),
    origin: ArrayLike = (0.0, 0.0, 0.0),
    stations: Mapping[str, float] | None = None,
    damping_ratio: ArrayLike = 0.0,
    level: Level | None = None,
) -> FlexibleBody:
    """A straight beam as a flexible body with its lowest `modes`.

    `held` and `boundary` as in `FiniteElements.modes`; by default a cantilever, whose first station is held. The other
    arguments are those of `beam_elements` and of `FiniteElements.body`, where there is more to choose.
    """
    beam = beam_elements(
        section, length, elements=elements, direction=direction, up=up, origin=origin, stations=stations
    )
    held = {next(iter(beam.node_names)): "123456"} if held is None else held
    return beam.body(beam.modes(modes, held=held, boundary=boundary), damping_ratio=damping_ratio, level=level)


def _stations(length: float, elements: int, given: np.ndarray) -> np.ndarray:
    """Where the nodes stand: evenly, and at what is given unless that is a node already."""
    even = np.linspace(0.0, length, elements + 1)
    apart = np.min(np.abs(given[:, None] - even), axis=1, initial=np.inf)
    return np.union1d(even, given[apart > 1e-9 * length])


def beam_axes(direction: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The beam's axes as columns, in the body's."""
    x = direction / np.linalg.norm(direction) if np.any(direction) else direction
    across = up - (up @ x) * x
    if not np.linalg.norm(across) > 1e-6 * np.linalg.norm(up):
        raise ModelError("`direction` and `up` must not be parallel, nor zero", element="beam")
    z = across / np.linalg.norm(across)
    return np.stack([x, np.cross(z, x), z], axis=1)


def _element_stiffness(section: BeamSection, h: float) -> np.ndarray:
    """Over `[u v w, turns about x y z]` of both ends, in the beam's axes."""
    k = np.zeros((12, 12))
    for row, value in ((0, section.EA / h), (3, section.GJ / h)):
        k[np.ix_((row, row + 6), (row, row + 6))] = value * np.array([[1.0, -1.0], [-1.0, 1.0]])
    bending = np.array([[12, 6, -12, 6], [6, 4, -6, 2], [-12, -6, 12, -6], [6, 2, -6, 4]], dtype=float)
    for rows, stiff, sign in (((1, 5, 7, 11), section.EIz, 1.0), ((2, 4, 8, 10), section.EIy, -1.0)):
        scale = np.array([1.0, sign * h, 1.0, sign * h])  # w' is a turn about y the other way
        k[np.ix_(rows, rows)] = stiff / h**3 * bending * np.outer(scale, scale)
    return k


def _interpolated(s: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Displacement and turn at the share `s` of elements of length `h`, in the beam's axes, each `(..., 3, 12)`."""
    s, h = np.broadcast_arrays(s, h)
    one = np.ones_like(s)
    moved, turned = np.zeros((*s.shape, 3, 12)), np.zeros((*s.shape, 3, 12))
    moved[..., 0, 0], moved[..., 0, 6] = 1.0 - s, s
    turned[..., 0, 3], turned[..., 0, 9] = 1.0 - s, s
    cubic = (1 - 3 * s**2 + 2 * s**3, h * (s - 2 * s**2 + s**3), 3 * s**2 - 2 * s**3, h * (s**3 - s**2))
    slope = ((6 * s**2 - 6 * s) / h, 1 - 4 * s + 3 * s**2, (6 * s - 6 * s**2) / h, 3 * s**2 - 2 * s)
    for k, (value, rate, sign) in enumerate(zip(cubic, slope, (one, -one, one, -one), strict=True)):
        along_y, along_z = (1, 5, 7, 11)[k], (2, 4, 8, 10)[k]
        moved[..., 1, along_y], turned[..., 2, along_y] = value, rate
        moved[..., 2, along_z], turned[..., 1, along_z] = sign * value, -sign * rate
    return moved, turned


def _mass_points(
    section: BeamSection, x: np.ndarray, axes: np.ndarray, origin: np.ndarray, turned: np.ndarray, lumped: bool
) -> MassPoints:
    h, count = np.diff(x), len(x) - 1
    if lumped:  # half of an element at each of its ends
        share, weight, element = np.array([0.0, 1.0]), np.array([0.5, 0.5]), np.repeat(np.arange(count), 2)
    else:
        share, weight = gauss(4)
        element = np.repeat(np.arange(count), 4)
    s, w = np.tile(share, count), np.tile(weight, count) * h[element]
    local = _interpolated(s, h[element])
    rows = 6 * element[:, None] + np.arange(12)
    spread = [np.zeros((len(s), 3, 6 * len(x))) for _ in local]
    for whole, part in zip(spread, local, strict=True):
        np.put_along_axis(whole, np.broadcast_to(rows[:, None], part.shape), part, axis=2)
    translation, rotation = (in_body_axes(a, axes) for a in spread)
    inertia = axes @ np.diag(section.inertia_per_length) @ axes.T

    def foreshortening(shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Minus the integral of the products of slopes along the beam, from its first node."""
        own = (turned.T @ shapes).reshape(len(x), 6, -1)
        ends = np.concatenate([own[:-1], own[1:]], axis=1)  # (elements, 12, m)
        inner, inner_weight = gauss(3)  # slopes are quadratic, their products of the fourth degree
        upto = np.append(share, 1.0)
        places = upto[:, None] * inner  # (points and the end, inner points)
        slopes = _interpolated(places[None], h[:, None, None])[1][..., 1:, :]
        bent = np.einsum("epqif,efm->epqim", slopes, ends, optimize=True)
        parts = -np.einsum("e,p,q,epqir,epqis->eprs", h, upto, inner_weight, bent, bent, optimize=True)
        before = np.concatenate([np.zeros_like(parts[:1, -1]), np.cumsum(parts[:, -1], axis=0)])
        at_points = (before[:-1, None] + parts[:, :-1]).reshape(len(s), *before.shape[1:])
        return at_points[..., None] * axes[:, 0], before[..., None] * axes[:, 0]

    return MassPoints(
        origin + (x[element] + s * h[element])[:, None] * axes[:, 0],
        section.mass_per_length * w,
        w[:, None, None] * inertia,
        translation,
        rotation,
        foreshortening,
    )


def in_body_axes(moved: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """How freedoms move points, `(g, 3, N)`, both in the beam's axes, with both in the body's."""
    turned = np.einsum("ij,gjf->gif", axes, moved).reshape(-1, 3) @ axes.T
    return turned.reshape(moved.shape)


def gauss(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights on the unit interval."""
    at, weight = np.polynomial.legendre.leggauss(count)
    return 0.5 * (1.0 + at), 0.5 * weight
