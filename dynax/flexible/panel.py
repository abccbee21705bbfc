"""Flat rectangular panels by finite elements: Kirchhoff's plate and a membrane.

Bending by the rectangle of Adini, Clough and Melosh (twelve freedoms, not conforming: frequencies converge with the
square of the elements' size), stretch by bilinear rectangles, whose turn in the plane is tied weakly to that of the
nodes (Hughes and Brezzi, 1989). Foreshortening is the displacement in the plane for which the membrane stretches least
as the panel bends, the nodes that no mode moves being held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.flexible.beam import beam_axes, gauss, in_body_axes
from dynax.flexible.body import FlexibleBody, Level
from dynax.flexible.elements import FiniteElements, Freedoms, MassPoints

DRILLING = 1e-2
"""Stiffness that ties the nodes' turn in the plane to the membrane's, as a share of its stiffness in shear."""


@dataclass(frozen=True)
class PanelSection:
    """What a panel is made of, the same in all directions of its plane.

    **Arguments:** `bending`: `E h^3 / (12 (1 - poisson^2))` of a plate [N m]; `membrane`: `E h / (1 - poisson^2)`
    [N/m]; `mass_per_area` [kg/m^2]. Of a sandwich, give those of its faces together.
    """

    bending: float
    membrane: float
    mass_per_area: float
    poisson: float = 0.3

    def __post_init__(self):
        for name in ("bending", "membrane", "mass_per_area"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0.0):
                raise ModelError(f"`{name}` is {value}", element="PanelSection", hint="it must be positive and finite")
        if not -1.0 < self.poisson < 0.5:
            raise ModelError(f"`poisson` is {self.poisson}", element="PanelSection", hint="between -1 and 0.5")

    @staticmethod
    def plate(thickness: float, *, E: float, density: float, poisson: float = 0.3) -> PanelSection:
        """A plate of a `thickness` [m]; `E` in [Pa], `density` in [kg/m^3]."""
        membrane = E * thickness / (1.0 - poisson**2)
        return PanelSection(membrane * thickness**2 / 12.0, membrane, density * thickness, poisson)

    @property
    def elasticity(self) -> np.ndarray:
        """Of the strains along x, along y and in shear, for a stiffness of one."""
        nu = self.poisson
        return np.array([[1.0, nu, 0.0], [nu, 1.0, 0.0], [0.0, 0.0, 0.5 * (1.0 - nu)]])


def panel_elements(
    section: PanelSection,
    length: float,
    width: float,
    *,
    elements: tuple[int, int] = (8, 4),
    direction: ArrayLike = (1.0, 0.0, 0.0),
    normal: ArrayLike = (0.0, 0.0, 1.0),
    origin: ArrayLike = (0.0, 0.0, 0.0),
    stations: Mapping[str, tuple[float, float]] | None = None,
) -> FiniteElements:
    """A rectangular panel as finite elements; its nodes have six freedoms.

    **Arguments:**

    - `length`, `width`: along its x, which is `direction`, and its y [m]; `elements`: how many along each.
    - `normal`: its z, body axes.
    - `origin`: the middle of its first edge [m], where x and y are zero.
    - `stations`: names of nodes by their `(x, y)`; `{"root": (0, 0), "tip": (length, 0)}` by default. They must be
      nodes of the grid.

    Sets of nodes are `"root edge"` at x = 0, `"tip edge"`, `"left edge"` at the largest y and `"right edge"`.
    """
    nx, ny = elements
    if nx < 1 or ny < 1 or not (length > 0.0 and width > 0.0 and np.isfinite(length * width)):
        raise ModelError(f"has {nx} by {ny} elements on {length} by {width} m", element="panel")
    axes, at = beam_axes(np.asarray(direction, dtype=float), np.asarray(normal, dtype=float)), np.asarray(origin, float)
    x, y = np.linspace(0.0, length, nx + 1), np.linspace(-0.5 * width, 0.5 * width, ny + 1)
    place = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    grid = np.arange(len(place)).reshape(nx + 1, ny + 1)
    corners = np.stack([grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]], axis=-1).reshape(-1, 4)
    size = np.array([length / nx, width / ny])
    names = {}
    for name, point in ({"root": (0.0, 0.0), "tip": (length, 0.0)} if stations is None else stations).items():
        apart = np.linalg.norm(place - np.asarray(point), axis=1)
        names[name] = int(np.argmin(apart))
        if apart.min() > 1e-6 * (length + width):
            near = ", ".join(f"{c:g}" for c in place[names[name]])
            raise ModelError(
                f"is at {tuple(map(float, point))}, where the panel has no node; the nearest is at ({near})",
                element=f"station {name!r}",
                hint="take another number of `elements`; an even one across has nodes in the middle",
            )
    rows = (6 * corners[:, :, None] + np.arange(6)).reshape(len(corners), 24)
    stiffness = np.zeros((6 * len(place), 6 * len(place)))
    np.add.at(stiffness, (rows[:, :, None], rows[:, None]), _element_stiffness(section, size))
    turned = np.kron(np.eye(2 * len(place)), axes)  # freedoms in body axes from those in the panel's
    points = _mass_points(section, size, place[corners[:, 0]], rows, stiffness, axes, at, turned)
    return FiniteElements(
        points.mass_matrix,
        turned @ stiffness @ turned.T,
        at + place @ axes[:, :2].T,
        node_names=names,
        node_sets={"root edge": grid[0], "tip edge": grid[-1], "left edge": grid[:, -1], "right edge": grid[:, 0]},
        points=points,
    )


def flexible_panel(
    section: PanelSection,
    length: float,
    width: float,
    *,
    modes: int,
    held: Freedoms | None = None,
    boundary: Freedoms | None = None,
    elements: tuple[int, int] = (8, 4),
    direction: ArrayLike = (1.0, 0.0, 0.0),
    normal: ArrayLike = (0.0, 0.0, 1.0),
    origin: ArrayLike = (0.0, 0.0, 0.0),
    stations: Mapping[str, tuple[float, float]] | None = None,
    damping_ratio: ArrayLike = 0.0,
    level: Level | None = None,
) -> FlexibleBody:
    """A rectangular panel as a flexible body with its lowest `modes`; by default its `"root edge"` is held.

    `held` and `boundary` as in `FiniteElements.modes`. The other arguments are those of `panel_elements` and of
    `FiniteElements.body`, where there is more to choose.
    """
    panel = panel_elements(
        section, length, width, elements=elements, direction=direction, normal=normal, origin=origin, stations=stations
    )
    held = {"root edge": "123456"} if held is None else held
    return panel.body(panel.modes(modes, held=held, boundary=boundary), damping_ratio=damping_ratio, level=level)


CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
POWERS = np.array([[0, 0], [1, 0], [0, 1], [2, 0], [1, 1], [0, 2], [3, 0], [2, 1], [1, 2], [0, 3], [3, 1], [1, 3]])
"""Of x and y, in the polynomial of the bending element."""


def _monomials(at: np.ndarray, size: np.ndarray, dx: int, dy: int) -> np.ndarray:
    """Derivatives of the polynomial's terms at shares `(..., 2)` of an element, in lengths: `(..., 12)`."""
    result = 1.0
    for axis, order in ((0, dx), (1, dy)):
        power = POWERS[:, axis]
        factor = np.prod([np.maximum(power - k, 0) for k in range(order)], axis=0)
        result = result * factor * at[..., axis, None] ** np.maximum(power - order, 0) / size[axis] ** order
    return np.asarray(result)


def _bending(at: np.ndarray, size: np.ndarray, dx: int, dy: int) -> np.ndarray:
    """Derivatives of the deflection by the element's `w`, `w_y` and `-w_x` at its corners: `(..., 12)`."""
    nodal = [_monomials(CORNERS, size, 0, 0), _monomials(CORNERS, size, 0, 1), -_monomials(CORNERS, size, 1, 0)]
    return _monomials(at, size, dx, dy) @ np.linalg.inv(np.stack(nodal, axis=1).reshape(12, 12))


def _bilinear(at: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bilinear shapes and their derivatives along x and y: `(..., 4)` each."""
    x, y = at[..., 0, None], at[..., 1, None]
    along, across = np.where(CORNERS[:, 0] > 0, x, 1.0 - x), np.where(CORNERS[:, 1] > 0, y, 1.0 - y)
    return along * across, (2 * CORNERS[:, 0] - 1) / size[0] * across, along * (2 * CORNERS[:, 1] - 1) / size[1]


def _grid(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss points and weights on the unit square."""
    at, weight = gauss(count)
    return np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1).reshape(-1, 2), np.outer(weight, weight).ravel()


def _strain(at: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Strains along x, along y and in shear, and the turn of nodes against the membrane's: `(..., 4, 24)`."""
    value, dx, dy = _bilinear(at, size)
    strain = np.zeros((*at.shape[:-1], 4, 24))
    strain[..., 0, 0::6], strain[..., 1, 1::6] = dx, dy
    strain[..., 2, 0::6], strain[..., 2, 1::6] = dy, dx
    strain[..., 3, 0::6], strain[..., 3, 1::6], strain[..., 3, 5::6] = 0.5 * dy, -0.5 * dx, value
    return strain


BENT = np.add.outer(6 * np.arange(4), np.arange(2, 5)).ravel()
"""Of the 24 freedoms of an element, those that bend it: `w` and the turns about x and y."""


def _element_stiffness(section: PanelSection, size: np.ndarray) -> np.ndarray:
    at, weight = _grid(4)
    area = size[0] * size[1]
    curvature = np.stack([_bending(at, size, 2, 0), _bending(at, size, 0, 2), 2.0 * _bending(at, size, 1, 1)], axis=1)
    k = np.zeros((24, 24))
    bending = np.einsum("g,gif,ij,gjh->fh", weight * area, curvature, section.bending * section.elasticity, curvature)
    k[np.ix_(BENT, BENT)] = bending
    stiff = np.zeros((4, 4))
    stiff[:3, :3] = section.membrane * section.elasticity
    stiff[3, 3] = DRILLING * stiff[2, 2]
    at, weight = _grid(2)
    strain = _strain(at, size)
    return k + np.einsum("g,gif,ij,gjh->fh", weight * area, strain, stiff, strain)


def _mass_points(
    section: PanelSection,
    size: np.ndarray,
    first: np.ndarray,
    rows: np.ndarray,
    stiffness: np.ndarray,
    axes: np.ndarray,
    origin: np.ndarray,
    turned: np.ndarray,
) -> MassPoints:
    """Four Gauss points along each side of an element, which integrate its mass exactly; `first`: their corners."""
    at, weight = _grid(4)
    area, count, freedoms = size[0] * size[1], len(rows), len(turned)
    moved = np.zeros((len(at), 3, 24))
    moved[:, 0, 0::6] = moved[:, 1, 1::6] = _bilinear(at, size)[0]
    moved[:, 2, BENT] = _bending(at, size, 0, 0)
    spread = np.zeros((count, len(at), 3, freedoms))
    for element, own in enumerate(rows):
        spread[element][..., own] = moved
    translation = in_body_axes(spread.reshape(-1, 3, freedoms), axes)
    place = (first[:, None] + at * size).reshape(-1, 2)

    def foreshortening(shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`K g_rs = - int B^T E e_rs` with the strain `e_rs` of the products of slopes, in the plane."""
        own = turned.T @ shapes
        m = own.shape[1]
        slopes = np.stack([_bending(at, size, 1, 0), _bending(at, size, 0, 1)], axis=1)
        bent = np.einsum("gaf,efm->egam", slopes, own[rows[:, BENT]], optimize=True)
        product = np.einsum("egar,egbs->egabrs", bent, bent)
        strain = np.stack([product[:, :, 0, 0], product[:, :, 1, 1], product[:, :, 0, 1] + product[:, :, 1, 0]], axis=2)
        stress = np.einsum("ij,egjrs->egirs", section.membrane * section.elasticity, strain)
        force = np.zeros((freedoms, m, m))
        pushed = np.einsum("g,gif,egirs->efrs", weight * area, _strain(at, size)[:, :3], stress, optimize=True)
        np.add.at(force, rows, -pushed)
        held = np.flatnonzero(~np.any(own.reshape(-1, 6, m)[:, 2:5], axis=(1, 2)))
        free = np.setdiff1d(_in_plane(np.arange(freedoms // 6)), _in_plane(held) if len(held) else [0, 1, 5])
        moved_in = np.zeros((freedoms, m * m))
        moved_in[free] = np.linalg.solve(stiffness[np.ix_(free, free)], force.reshape(freedoms, -1)[free])
        at_nodes = moved_in.reshape(-1, 6, m, m)[:, :2]
        shape = _bilinear(at, size)[0]
        at_points = np.einsum("gn,enars->egars", shape, at_nodes[rows[:, ::6] // 6]).reshape(-1, 2, m, m)
        both = (np.einsum("ia,nars->nrsi", axes[:, :2], a) for a in (at_points, at_nodes))
        return next(both), next(both)

    return MassPoints(
        origin + place @ axes[:, :2].T,
        np.tile(section.mass_per_area * weight * area, count),
        np.zeros((len(place), 3, 3)),
        translation,
        np.zeros_like(translation),
        foreshortening,
    )


def _in_plane(nodes: np.ndarray) -> np.ndarray:
    """Rows of the freedoms in the plane, shifts along x and y and turns about z."""
    return np.add.outer(6 * nodes, [0, 1, 5]).ravel()
