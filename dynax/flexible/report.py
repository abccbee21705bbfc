"""Whether matrices can be those of a structure: what its rigid motions weigh and strain, and how it vibrates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynax.errors import ModelError
from dynax.flexible.elements import FiniteElements
from dynax.flexible.modes import spectrum

STRAIN = 1e-9
"""A rigid motion that strains less than this share of what its freedoms would one by one is free."""
LISTED = 6


@dataclass(frozen=True)
class ElementReport:
    """What `check_elements` found."""

    freedoms: int
    nodes: int
    span: np.ndarray
    """From the first to the last node along x, y and z [m], shape `(3,)`."""
    massless: int
    """How many independent motions have no mass."""
    rigid: int
    """How many motions have neither strain nor frequency."""
    rigid_by_position: int
    """How many of the six rigid motions of the nodes are among them: six for a free structure, none for one held."""
    mass: float
    center: np.ndarray
    """Of mass [m], shape `(3,)`."""
    inertia: np.ndarray
    """Principal, about the centre of mass, shape `(3,)`."""
    frequencies: np.ndarray
    """The lowest ones that are not zero [Hz]."""
    orthogonality: float | None
    """Of mode shapes that came along: the largest coupling of two, as a share of their own mass or stiffness."""

    def __str__(self) -> str:
        def listed(numbers: np.ndarray) -> str:
            return ", ".join(f"{x:.6g}" for x in numbers)

        center = np.where(np.abs(self.center) > 1e-12 * self.span.max(initial=0.0), self.center, 0.0)
        lines = [
            f"{self.nodes} nodes over [{listed(self.span)}] m, {self.freedoms} freedoms, "
            f"{self.massless} motions without mass",
            f"rigid motions: {self.rigid} found, {self.rigid_by_position} of the six that the positions give",
            f"mass {self.mass:.6g} kg, centre [{listed(center)}] m, principal inertias [{listed(self.inertia)}] kg m2",
            f"lowest frequencies [Hz]: {listed(self.frequencies)}",
        ]
        if self.orthogonality is not None:
            lines.append(f"mode shapes are orthogonal to {self.orthogonality:.1e}")
        if self.rigid > self.rigid_by_position:
            lines.append("it is a mechanism: parts move without strain beside the rigid motions")
        if self.rigid_by_position < 6:
            lines.append("it is held: what moves the held freedoms, and their mass, is not in the matrices")
        return "\n".join(lines)


def check_elements(elements: FiniteElements) -> ElementReport:
    """What matrices say about their structure; `dx.ModelError` for those that no structure has.

    Refused are a mass or a stiffness that is negative for some motion, a mass that is not the same in all directions,
    and positions about which turns strain a structure that shifts freely: they are in another unit, or another order.
    """
    for name, matrix in (("mass matrix", elements.mass), ("stiffness matrix", elements.stiffness)):
        _refuse_negative(name, matrix)
    rigid, inertia = elements.rigid_motions, elements.rigid_inertia
    mass = inertia[5, 5]
    center = np.array([inertia[2, 4], inertia[0, 5], inertia[1, 3]]) / mass
    about = inertia[:3, :3] - mass * (center @ center * np.eye(3) - np.outer(center, center))
    free = _strain_free(elements.stiffness, rigid)
    if free < 6 and _strain_free(elements.stiffness, rigid[:, 3:]) == 3:
        raise ModelError(
            "do not fit the stiffness matrix: the structure shifts without strain, and does not turn so",
            element="node positions",
            hint="look at their unit and that of shifts, at their order, and at the order of the freedoms",
        )
    values, _ = spectrum(elements.mass, elements.stiffness)
    elastic = values[values > 0.0]
    return ElementReport(
        len(elements.mass),
        len(elements.position),
        np.ptp(elements.position, axis=0),
        len(elements.mass) - len(values),
        len(values) - len(elastic),
        free,
        float(mass),
        center,
        np.linalg.eigvalsh(about),
        np.sqrt(elastic[:LISTED]) / (2.0 * np.pi),
        None if elements.shapes is None else _coupling(elements, elements.shapes),
    )


def _refuse_negative(name: str, matrix: np.ndarray) -> None:
    """`ModelError` for a matrix that is negative for some motion, each freedom in its own measure."""
    diagonal = np.diag(matrix)
    if np.any(diagonal < 0.0):
        row = int(np.argmin(diagonal))
        raise ModelError(f"is negative on its diagonal, {diagonal[row]:g} in row {row + 1}", element=name)
    empty = diagonal == 0.0
    if np.any(matrix[empty]):
        row = int(np.flatnonzero(empty)[np.argmax(np.any(matrix[empty] != 0.0, axis=1))])
        raise ModelError(f"has a zero on its diagonal in row {row + 1}, and entries beside it", element=name)
    measure = np.sqrt(np.where(empty, 1.0, diagonal))
    lowest = np.linalg.eigvalsh(matrix / np.outer(measure, measure))[0] if len(matrix) else 0.0
    if lowest < -1e-10 * len(matrix):
        raise ModelError(
            f"is negative for some motion: {lowest:.3g} with its diagonal scaled to one",
            element=name,
            hint="energy is never negative; look for a wrong sign, a lost entry or the wrong triangle",
        )


def _strain_free(stiffness: np.ndarray, motions: np.ndarray) -> int:
    """How many independent motions of a set strain nothing, by what their freedoms would strain one by one."""
    strain = motions.T @ stiffness @ motions
    alone = motions.T @ (np.diag(stiffness)[:, None] * motions)
    values, vectors = np.linalg.eigh(alone)
    moving = values > 1e-12 * values[-1]
    half = vectors[:, moving] / np.sqrt(values[moving])
    return int(np.sum(np.linalg.eigvalsh(half.T @ strain @ half) < STRAIN)) + int(np.sum(~moving))


def _coupling(elements: FiniteElements, shapes: np.ndarray) -> float:
    modes, worst = elements.modes_of(shapes), 0.0
    for matrix in (modes.mass, modes.stiffness):
        own = np.sqrt(np.maximum(np.diag(matrix), 0.0))
        share = np.divide(matrix, np.outer(own, own), out=np.zeros_like(matrix), where=np.outer(own, own) > 0.0)
        worst = max(worst, float(np.abs(share - np.diag(np.diag(share))).max(initial=0.0)))
    return worst
