"""A structure as finite elements know it: nodes, freedoms, a mass and a stiffness matrix; and the body it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.flexible.body import FlexibleBody, Level
from dynax.flexible.modes import Modes, attachment_modes, checked_matrices, craig_bampton, eigenmodes
from dynax.flexible.nodal import attachment_rows, flexible_body_from_nodes

Freedoms = Mapping[str | int, str]
"""Freedoms by node, or set of nodes, and digits: `{"root": "123456", 7: "3"}`; 1 to 3 are shifts, 4 to 6 turns."""

NodeSets = Mapping[str, ArrayLike]
"""Rows of nodes by the name of their set."""


@dataclass(frozen=True, eq=False)
class MassPoints:
    """Where the mass of elements stands: the points of their quadrature, and how the freedoms move them."""

    position: np.ndarray
    """Shape `(g, 3)`."""
    mass: np.ndarray
    """Shape `(g,)`."""
    inertia: np.ndarray
    """Shape `(g, 3, 3)`."""
    translation: np.ndarray
    """Shape `(g, 3, N)`."""
    rotation: np.ndarray
    """Shape `(g, 3, N)`."""
    foreshortening: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    """From mode shapes `(N, m)` to the second-order displacements of these points and of the nodes."""

    @property
    def mass_matrix(self) -> np.ndarray:
        """The consistent mass matrix, `sum m N^T N + N_r^T J N_r`."""
        moved, turned = (a.reshape(-1, a.shape[-1]) for a in (self.translation, self.rotation))
        mass = moved.T @ (np.repeat(self.mass, 3)[:, None] * moved)
        if not np.any(self.inertia):
            return mass
        return mass + turned.T @ np.einsum("gij,gjf->gif", self.inertia, self.rotation).reshape(turned.shape)


@dataclass(frozen=True, eq=False)
class FiniteElements:
    """Nodes, freedoms and matrices of a structure, and the flexible body that modes make of it.

    **Arguments:** all in the body's axes.

    - `mass`, `stiffness`: symmetric, shape `(N, N)`.
    - `position`: of the nodes, undeformed [m], shape `(n, 3)`.
    - `freedoms`: node and direction of each row of the matrices, shape `(N, 2)`; directions 0 to 2 are shifts along x,
      y, z and 3 to 5 turns about them. A row whose node is -1 is a generalised freedom, such as the amplitude of an
      internal mode in a Craig-Bampton set. By default node by node, six freedoms each, or three where `N = 3 n`.
    - `node_names`: names of some nodes, and their rows.
    - `shapes`: mode shapes that come with the matrices, `(N, m)`, if any.
    - `node_sets`: names of sets of nodes, such as those of an edge, and their rows.
    - `points`: where elements know it, how their mass is spread.

    Raises `dx.ModelError` for what does not fit together, and for matrices that are not symmetric or not finite.
    """

    mass: np.ndarray
    stiffness: np.ndarray
    position: np.ndarray
    freedoms: np.ndarray = None  # type: ignore[assignment]
    node_names: Mapping[str, int] = field(default_factory=dict)
    shapes: np.ndarray | None = None
    node_sets: NodeSets = field(default_factory=dict)
    points: MassPoints | None = None

    def __post_init__(self):
        m, k = checked_matrices(self.mass, self.stiffness)
        position = np.asarray(self.position, dtype=np.float64)
        if position.ndim != 2 or position.shape[1] != 3 or not np.all(np.isfinite(position)):
            raise ModelError(
                f"have shape {position.shape}" if position.shape[1:] != (3,) else "are not all finite",
                element="node positions",
                hint="one row of three coordinates [m] for each node",
            )
        for name, value in (("mass", m), ("stiffness", k), ("position", position)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "freedoms", self._checked_freedoms())
        if self.shapes is not None:
            object.__setattr__(self, "shapes", self.modes_of(self.shapes).shapes)
        attachment_rows(self.node_names or {"": 0}, len(position))

    def _checked_freedoms(self) -> np.ndarray:
        size, n = len(self.mass), len(self.position)
        if self.freedoms is None:
            each = size // n if n else 0
            if each not in (3, 6) or each * n != size:
                raise ModelError(
                    f"have {size} rows, which is neither 3 nor 6 for each of {n} nodes",
                    element="matrices",
                    hint="give `freedoms`: the node and the direction of each row",
                )
            return np.stack([np.repeat(np.arange(n), each), np.tile(np.arange(each), n)], axis=1)
        freedoms = np.asarray(self.freedoms)
        if freedoms.shape != (size, 2):
            raise ModelError(f"have shape {freedoms.shape}, expected {(size, 2)}", element="freedoms")
        whole = np.where(np.isfinite(freedoms) & (freedoms % 1 == 0), freedoms, -2).astype(int)
        node, direction = whole.T
        wrong = (node < -1) | (node >= n) | (direction < 0) | (direction > 5)
        if np.any(wrong):
            row = int(np.argmax(wrong))
            raise ModelError(
                f"are {freedoms[row].tolist()} in row {row + 1}",
                element="freedoms",
                hint=f"a node from 0 to {n - 1}, or -1, and a direction from 0 to 5",
            )
        nodal = freedoms[node >= 0]
        if len(np.unique(nodal, axis=0)) < len(nodal):
            raise ModelError("name the same direction of the same node twice", element="freedoms")
        return freedoms.astype(int)

    # Modes -------------------------------------------------------------------------------------------------------

    def select(self, which: Freedoms) -> np.ndarray:
        """The rows of the matrices that nodes and digits stand for."""
        rows = []
        single = [
            (key, node, digits)
            for key, digits in which.items()
            for node in np.ravel(self.node_sets.get(str(key), ()) if key in self.node_sets else self.node_row(key))
        ]
        for key, node, digits in single:
            if not isinstance(digits, str):
                hint = "digits in a text, such as '123456'"
                raise ModelError(f"its freedoms are {digits!r}", element=f"node {key!r}", hint=hint)
            for digit in digits:
                match = np.flatnonzero((self.freedoms == (node, "123456".find(digit))).all(axis=1))
                if not len(match):
                    own = "".join(str(d + 1) for i, d in self.freedoms if i == node)
                    raise ModelError(
                        f"has no freedom {digit!r}",
                        element=f"node {key!r}",
                        hint=f"it has {own or 'none'}: 1 to 3 are shifts along x, y, z and 4 to 6 turns",
                    )
                rows.append(int(match[0]))
        return np.array(rows, dtype=int)

    def node_row(self, node: str | int) -> int:
        """The row of a node, by its name or by itself."""
        if isinstance(node, str):
            if node not in self.node_names:
                known = ", ".join(map(repr, [*self.node_names, *self.node_sets])) or "none"
                raise ModelError("there is none", element=f"node {node!r}", hint=f"names there are: {known}")
            return self.node_names[node]
        if not 0 <= node < len(self.position):
            raise ModelError(f"there are {len(self.position)} nodes", element=f"node {node}")
        return int(node)

    def modes(
        self,
        count: int,
        *,
        held: Freedoms | None = None,
        boundary: Freedoms | None = None,
        loaded: Freedoms | None = None,
    ) -> Modes:
        """Modes of the structure, in the order static, attachment, eigenmodes.

        **Arguments:**

        - `count`: how many eigenmodes.
        - `held`: freedoms at rest in all modes; none by default, which is a free structure.
        - `boundary`: freedoms with a static mode each, and held in the eigenmodes (Craig and Bampton).
        - `loaded`: freedoms with the static displacement under a unit force each; not together with `boundary`.
        """
        at_rest = self.select(held or {})
        if boundary:
            if loaded:
                raise ValueError("`boundary` and `loaded` are two ways to the same: give one of them")
            return craig_bampton(self.mass, self.stiffness, self.select(boundary), count, at_rest)
        eigen = eigenmodes(self.mass, self.stiffness, count, at_rest)
        if not loaded:
            return eigen
        static = attachment_modes(self.mass, self.stiffness, self.select(loaded), at_rest)
        return replace(self.modes_of(np.concatenate([static.shapes, eigen.shapes], axis=1)), rigid=eigen.rigid)

    def modes_of(self, shapes: ArrayLike) -> Modes:
        """Any shapes over the freedoms, `(N, m)`, such as those of a file, with their mass and stiffness."""
        shapes = np.asarray(shapes, dtype=np.float64)
        if shapes.ndim != 2 or len(shapes) != len(self.mass):
            raise ModelError(f"have shape {shapes.shape}, expected {(len(self.mass), 'm')}", element="mode shapes")
        for wrong, what in ((~np.isfinite(shapes).all(axis=0), "not finite"), (~shapes.any(axis=0), "zero")):
            if wrong.any():
                raise ModelError(f"are {what} in column {np.argmax(wrong) + 1}", element="mode shapes")
        m, k = (shapes.T @ a @ shapes for a in (self.mass, self.stiffness))
        return Modes(shapes, 0.5 * (m + m.T), 0.5 * (k + k.T))

    # The body ----------------------------------------------------------------------------------------------------

    def at_nodes(self, shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How columns over the freedoms move and turn the nodes, each `(n, 3, m)`."""
        table = np.zeros((len(self.position), 6, shapes.shape[1]))
        nodal = self.freedoms[:, 0] >= 0
        table[tuple(self.freedoms[nodal].T)] = shapes[nodal]
        return table[:, :3], table[:, 3:]

    @property
    def rigid_motions(self) -> np.ndarray:
        """Turns about and shifts along the body's axes, over the freedoms: shape `(N, 6)`."""
        node, direction = self.freedoms.T
        turns = np.cross(np.eye(3)[None], self.position[:, None])  # e x r, (n, 3, 3)
        each = np.zeros((len(self.position) + 1, 6, 6))  # the last for freedoms without a node
        each[:-1, :3, :3] = np.swapaxes(turns, 1, 2)
        each[:-1, :3, 3:] = np.eye(3)
        each[:-1, 3:, :3] = np.eye(3)
        return each[node, direction]

    @property
    def rigid_inertia(self) -> np.ndarray:
        """The `6 x 6` inertia of the undeformed structure about the origin; `dx.ModelError` if no body has it."""
        rigid = self.rigid_motions
        inertia = rigid.T @ self.mass @ rigid
        masses = inertia[3:, 3:]
        if not np.trace(masses) > 0.0:
            raise ModelError("has no mass that moves with its nodes", element="mass matrix")
        if np.abs(masses - np.trace(masses) / 3.0 * np.eye(3)).max() > 1e-6 * np.trace(masses):
            recovered = ", ".join(f"{x:.6g}" for x in np.diag(masses))
            raise ModelError(
                f"is not the same in all directions: {recovered} along x, y, z",
                element="mass matrix",
                hint="each mass needs its three shifts; held freedoms, and planar structures, must have theirs as well",
            )
        return inertia

    def body(
        self,
        modes: Modes,
        *,
        nodes: Sequence[str] | None = None,
        damping: ArrayLike | None = None,
        damping_ratio: ArrayLike = 0.0,
        level: Level | None = None,
    ) -> FlexibleBody:
        """The flexible body that moves by some modes of the structure.

        **Arguments:**

        - `modes`: from `modes`, or `modes_of`.
        - `nodes`: names of the attachment nodes; by default all names there are. The body's joint holds the first.
        - `damping`: of the modes, shape `(m, m)`; or `damping_ratio`, a share of critical damping, one for all or one
          for each frequency.
        - `level`: see `FlexibleBody.level`; by default the best there are data for.

        Of elements that know how their mass is spread, the integrals are exact. A mass matrix without coupling between
        nodes is taken for rigid nodes, which turn. Of any other one, the terms of order zero are exact, and those of
        higher order as good as the elements are small, but for rotational inertia, which does not turn with its nodes;
        foreshortening is not in it. A set with generalised
        freedoms says nothing about inner nodes: its `level` is `"ruthless"`.
        """
        if np.any(np.asarray(damping_ratio)):
            if damping is not None:
                raise ValueError("`damping` and `damping_ratio` are two ways to the same: give one of them")
            damping = modes.damping(damping_ratio)
        names = list(self.node_names) if nodes is None else list(nodes)
        ends = {name: self.node_row(name) for name in names}
        if self.points is not None:
            return self._from_points(self.points, modes, ends, damping, level)
        lumps = self._lumps()
        if lumps is not None:
            translation, rotation = self.at_nodes(modes.shapes)
            return flexible_body_from_nodes(
                self.position, lumps[0], offset=lumps[1] if np.any(lumps[1]) else None, inertia=lumps[2],
                translation=translation, rotation=rotation, stiffness=modes.stiffness, damping=damping,
                nodes=ends, level=level,
            )  # fmt: skip
        return self._from_matrix(modes, ends, damping, level)

    def _from_points(self, points: MassPoints, modes: Modes, ends: dict, damping: Any, level: Any) -> FlexibleBody:
        """Quadrature points have the mass, nodes are massless ones behind them."""
        g, n, shapes = len(points.mass), len(self.position), modes.shapes
        at_points = [np.einsum("gif,fm->gim", a, shapes, optimize=True) for a in (points.translation, points.rotation)]
        translation, rotation = (np.concatenate(both) for both in zip(at_points, self.at_nodes(shapes), strict=True))
        shortened = None if points.foreshortening is None else np.concatenate(points.foreshortening(shapes))
        return flexible_body_from_nodes(
            np.concatenate([points.position, self.position]),
            np.concatenate([points.mass, np.zeros(n)]),
            inertia=np.concatenate([points.inertia, np.zeros((n, 3, 3))]),
            translation=translation,
            rotation=rotation,
            stiffness=modes.stiffness,
            foreshortening=shortened,
            damping=damping,
            nodes={name: g + row for name, row in ends.items()},
            level=level,
        )

    def _lumps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Masses, centres and inertias of the nodes if the mass matrix is one of rigid nodes, else `None`."""
        n = len(self.position)
        node, direction = self.freedoms.T
        if np.any(node < 0) or np.any(self.mass[node[:, None] != node[None]]):
            return None
        blocks = np.zeros((n, 6, 6))
        pairs = np.argwhere(self.mass)
        blocks[node[pairs[:, 0]], direction[pairs[:, 0]], direction[pairs[:, 1]]] = self.mass[tuple(pairs.T)]
        mass = np.trace(blocks[:, :3, :3], axis1=1, axis2=2) / 3.0
        skew = -blocks[:, :3, 3:]  # m c~
        moment = np.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], axis=1)
        arm = np.divide(moment, mass[:, None], out=np.zeros((n, 3)), where=mass[:, None] > 0.0)
        inertia = blocks[:, 3:, 3:] - mass[:, None, None] * (
            np.sum(arm * arm, axis=1)[:, None, None] * np.eye(3) - arm[:, :, None] * arm[:, None]
        )
        # Rigid nodes have a mass that is the same in all directions, and a skew first moment.
        apart = np.abs(blocks[:, :3, :3] - mass[:, None, None] * np.eye(3)), np.abs(skew + np.swapaxes(skew, 1, 2))
        if any(np.any(a > 1e-9 * np.abs(b).max()) for a, b in zip(apart, (mass, skew), strict=True)):
            return None
        return mass, arm, inertia

    def _from_matrix(self, modes: Modes, ends: dict, damping: Any, level: Any) -> FlexibleBody:
        """From a mass matrix that couples nodes (Jain and Rodriguez 1992, equation 23)."""
        rigid, inertia = self.rigid_motions, self.rigid_inertia
        shapes, moved = modes.shapes, self.mass @ modes.shapes
        translation, rotation = self.at_nodes(shapes)
        rows = list(ends.values())
        integrals: dict[str, Any] = {
            "mass": np.trace(inertia[3:, 3:]) / 3.0,
            "first_moment": np.array([inertia[2, 4], inertia[0, 5], inertia[1, 3]]),
            "inertia": inertia[:3, :3],
            "rotation_coupling": rigid[:, :3].T @ moved,
            "translation_coupling": rigid[:, 3:].T @ moved,
            "modal_mass": modes.mass,
        }
        if np.any(self.freedoms[:, 0] < 0):
            if level not in (None, "ruthless"):
                raise ModelError(
                    f"cannot be at the level {level!r}: a reduced set says nothing of how its inner nodes move",
                    element="flexible body",
                    hint="use level='ruthless', or the matrices before the reduction",
                )
            level = "ruthless"
        else:
            integrals |= self._deformed(translation, rotation, moved, rigid)
        return FlexibleBody.from_integrals(
            **integrals,
            stiffness=modes.stiffness,
            damping=damping,
            node_names=tuple(ends),
            node_position=self.position[rows],
            node_translation=translation[rows],
            node_rotation=rotation[rows],
            level=level,
        )

    def _deformed(
        self, phi: np.ndarray, psi: np.ndarray, moved: np.ndarray, rigid: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The integrals that come with the deformation."""
        # Each mode turned about each axis, as a column over the freedoms: shifts and turns of nodes turn alike.
        node, direction = self.freedoms.T
        turned = np.einsum("ikj,nqjr->nqirk", _LEVI_CIVITA, np.stack([phi, psi], axis=1))  # e_k x phi_r, e_k x psi_r
        columns = turned[node, direction // 3, direction % 3]
        first = np.einsum("frk,fl->rkl", columns, self.mass @ rigid[:, :3])
        flat = columns.reshape(len(node), -1)
        m = phi.shape[2]
        second = (flat.T @ self.mass @ flat).reshape(m, 3, m, 3).transpose(0, 2, 1, 3)
        return {
            "rotation_coupling_rate": np.einsum("frk,fs->rks", columns, moved),
            "inertia_first": first + np.swapaxes(first, 1, 2),
            "inertia_second": second + np.swapaxes(second, 2, 3),
        }


_LEVI_CIVITA = np.cross(np.eye(3)[:, None], np.eye(3)[None]).transpose(2, 0, 1)
