"""Sets of modes of a structure from its mass and stiffness matrices, for any boundary condition.

A mode is a vector over the freedoms of the structure. Eigenmodes solve `K x = lambda M x`. With `K + s M = L L^T` that
is the symmetric problem `L^-1 M L^-T y = y / (lambda + s)`, whose largest eigenvalues, the best known ones, are the
lowest frequencies; freedoms without mass have eigenvalue zero there, and drop out. `s` is of the size of the lowest
`lambda`, so that a structure may be free. Static modes are those of Craig and Bampton, "Coupling
of substructures for dynamic analyses" (1968), and the attachment modes of Craig, "Structural dynamics" (1981).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError

Rows = ArrayLike
"""Indices of freedoms."""

ZERO = 1e-11
"""Eigenvalues below this share of the scale of the others belong to rigid or massless motions."""
SAME = 1e-7
"""Eigenvalues that differ by less than this, relatively, count as one, and span what they have in common."""


@dataclass(frozen=True, eq=False)
class Modes:
    """A set of `m` modes over the `N` freedoms of a structure."""

    shapes: np.ndarray
    """One mode a column, shape `(N, m)`."""
    mass: np.ndarray
    """`shapes^T M shapes`, shape `(m, m)`."""
    stiffness: np.ndarray
    """`shapes^T K shapes`, shape `(m, m)`."""
    rigid: int = 0
    """How many rigid motions, which are not in the set, the structure was found to have as it is held."""

    @property
    def frequencies(self) -> np.ndarray:
        """The circular frequencies of a structure that moves by these modes alone [rad/s], shape `(m,)`."""
        return np.sqrt(spectrum(self.mass, self.stiffness, free=False)[0])

    def damping(self, ratio: ArrayLike) -> np.ndarray:
        """The matrix that damps each of these frequencies by a share of the critical damping, shape `(m, m)`."""
        values, vectors = spectrum(self.mass, self.stiffness, free=False)
        momenta = self.mass @ vectors
        return (momenta * (2.0 * np.broadcast_to(ratio, values.shape) * np.sqrt(values))) @ momenta.T


def eigenmodes(mass: ArrayLike, stiffness: ArrayLike, count: int, held: Rows = ()) -> Modes:
    """The lowest eigenmodes of a structure some of whose freedoms are held.

    **Arguments:**

    - `mass`, `stiffness`: symmetric, positive semidefinite, shape `(N, N)`; freedoms may be without mass.
    - `count`: how many modes; rigid motions do not count and are left out.
    - `held`: the freedoms that do not move: those of one node for a cantilever, none for a free structure.

    Modal masses are one, frequencies ascend, and the first of the largest entries of each shape is positive; modes of
    equal frequency are turned among themselves so that each has entries in which those after it are zero. Raises
    `dx.ModelError` where a matrix is not as it must be, where a motion has neither mass nor stiffness, and where there
    are fewer modes than asked for.
    """
    m, k = checked_matrices(mass, stiffness)
    free = _others(len(m), held)
    values, vectors = spectrum(m[np.ix_(free, free)], k[np.ix_(free, free)])
    rigid = int(np.sum(values == 0.0))
    values, vectors = values[rigid:], vectors[:, rigid:]
    if not 0 <= count <= len(values):
        raise ModelError(
            f"has {len(values)} modes that are neither rigid nor massless, and {count} are asked for",
            element="structure",
            hint="ask for fewer, or give more freedoms a mass",
        )
    shapes = np.zeros((len(m), count))
    shapes[free] = _oriented(values, vectors)[:, :count]
    return Modes(shapes, np.eye(count), np.diag(values[:count]), rigid)


def craig_bampton(mass: ArrayLike, stiffness: ArrayLike, boundary: Rows, count: int, held: Rows = ()) -> Modes:
    """Static modes of a boundary, in its order, and then the eigenmodes of the structure held there too.

    **Arguments:** those of `eigenmodes`, and `boundary`: freedoms each of which moves by one in its static mode, while
    the others of the boundary are at rest. `held` must keep the structure from moving freely: a flexible body's frame
    carries its rigid motions already, and static modes must not repeat them.
    """
    m, k = checked_matrices(mass, stiffness)
    moved = np.asarray(boundary, dtype=int)
    fixed = np.union1d(np.asarray(held, dtype=int), moved)
    inner = eigenmodes(m, k, count, fixed)
    rest, size = _others(len(m), fixed), len(moved)
    static = np.zeros((len(m), size))
    static[moved, np.arange(size)] = 1.0
    static[rest] = -_statically(k[np.ix_(rest, rest)], k[np.ix_(rest, moved)])
    shapes = np.concatenate([static, inner.shapes], axis=1)
    reduced = np.zeros((size + count, size + count))
    reduced[:size, :size] = _symmetric(static.T @ k @ static)
    reduced[size:, size:] = inner.stiffness  # static and inner modes share no strain energy
    lowest = np.linalg.eigvalsh(reduced[:size, :size])[0] if size else 1.0
    if lowest <= 1e-9 * np.max(np.abs(np.diag(k)[moved]), initial=0.0):
        raise ModelError(
            "moves freely by the static modes of its boundary",
            element="structure",
            hint="hold six of the freedoms, such as all of the node that carries the body, and leave them out of it",
        )
    return Modes(shapes, _symmetric(shapes.T @ m @ shapes), reduced)


def attachment_modes(mass: ArrayLike, stiffness: ArrayLike, loaded: Rows, held: Rows = ()) -> Modes:
    """The static displacement for a unit force on each of some freedoms.

    A structure that `held` leaves free accelerates under the force, and the modes hold what its own inertia then bends
    (inertia relief). Arguments otherwise as those of `eigenmodes`.
    """
    m, k = checked_matrices(mass, stiffness)
    free = _others(len(m), held)
    m_free, k_free = m[np.ix_(free, free)], k[np.ix_(free, free)]
    force = np.eye(len(m))[:, np.asarray(loaded, dtype=int)]
    values, vectors = spectrum(m_free, k_free)
    rigid = vectors[:, values == 0.0]
    momenta = m_free @ rigid
    balanced = force[free] - momenta @ (rigid.T @ force[free])
    # Momenta of rigid motions stand in for the stiffness that those do not have.
    scale = values[values > 0.0][0] if np.any(values > 0.0) else 1.0
    shapes = np.zeros(force.shape)
    shapes[free] = _statically(k_free + scale * momenta @ momenta.T, balanced)
    return Modes(shapes, _symmetric(shapes.T @ m @ shapes), _symmetric(shapes.T @ k @ shapes), rigid.shape[1])


def orthonormal_modes(mass: ArrayLike, stiffness: ArrayLike, shapes: ArrayLike) -> Modes:
    """The same span with modal masses of one and no coupling, as `eigenmodes` gives them (Rayleigh and Ritz)."""
    m, k = checked_matrices(mass, stiffness)
    given = np.asarray(shapes, dtype=np.float64)
    given = given / np.linalg.norm(given, axis=0)
    values, vectors = np.zeros(0), np.zeros((given.shape[1], 0))
    if np.linalg.matrix_rank(given, tol=1e-10) == given.shape[1]:
        values, vectors = spectrum(_symmetric(given.T @ m @ given), _symmetric(given.T @ k @ given))
    if len(values) < given.shape[1]:
        raise ModelError("are linearly dependent, or move no mass", element="mode shapes", hint="leave one out")
    return Modes(_oriented(values, given @ vectors), np.eye(len(values)), np.diag(values), int(np.sum(values == 0.0)))


def checked_matrices(mass: ArrayLike, stiffness: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both as symmetric arrays; `ModelError` where they are not square, finite, symmetric and of equal size."""
    matrices = []
    for name, given in (("mass matrix", mass), ("stiffness matrix", stiffness)):
        a = np.asarray(given, dtype=np.float64)
        if a.ndim != 2 or a.shape[0] != a.shape[1]:
            raise ModelError(f"has shape {a.shape}", element=name, hint="it must be square")
        if not np.all(np.isfinite(a)):
            row, column = np.argwhere(~np.isfinite(a))[0]
            raise ModelError(f"is not finite in row {row + 1}, column {column + 1}", element=name)
        apart = np.abs(a - a.T)
        if a.size and np.max(apart) > 1e-8 * np.max(np.abs(a)):
            row, column = np.unravel_index(np.argmax(apart), apart.shape)
            raise ModelError(
                f"is not symmetric: {a[row, column]:g} in row {row + 1}, column {column + 1}, and "
                f"{a[column, row]:g} across the diagonal, which is {np.max(apart) / np.max(np.abs(a)):.1g} of the "
                "largest entry apart",
                element=name,
                hint="damping and gyroscopic terms do not belong in it; a file that holds one triangle says so",
            )
        matrices.append(_symmetric(a))
    m, k = matrices
    if m.shape != k.shape:
        raise ModelError(
            f"has {len(k)} rows, and the mass matrix has {len(m)}",
            element="stiffness matrix",
            hint="both must be over the same freedoms",
        )
    return m, k


def _others(count: int, rows: Rows) -> np.ndarray:
    return np.setdiff1d(np.arange(count), np.asarray(rows, dtype=int))


def _symmetric(a: np.ndarray) -> np.ndarray:
    return 0.5 * (a + a.T)


def _statically(stiffness: np.ndarray, force: np.ndarray) -> np.ndarray:
    """`K^-1 f`; `ModelError` where the structure is not held."""
    root = _cholesky(stiffness, "structure", "moves without strain while its boundary is held")
    return np.linalg.solve(root.T, np.linalg.solve(root, force))


def _cholesky(a: np.ndarray, element: str, reason: str) -> np.ndarray:
    """`L` of `a = L L^T`, its diagonal scaled to one on the way; `ModelError` that names a freedom at fault."""
    diagonal = np.diag(a)
    if np.all(diagonal > 0.0):
        scale = np.sqrt(diagonal)
        scaled = a / np.outer(scale, scale)
        try:
            root = np.linalg.cholesky(scaled)
            # A pivot of rounding errors alone means that the matrix is singular.
            if np.min(np.diag(root), initial=1.0) ** 2 > 4.0 * len(a) * np.finfo(float).eps:
                return scale[:, None] * root
        except np.linalg.LinAlgError:
            pass
        worst = np.argmax(np.abs(np.linalg.eigh(scaled)[1][:, 0]))
    else:
        worst = np.argmin(diagonal)
    raise ModelError(reason, element=element, hint=f"look at freedom {worst + 1} of the {len(a)} that are not held")


def spectrum(mass: np.ndarray, stiffness: np.ndarray, *, free: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """`lambda`, ascending, and vectors of unit modal mass, of all motions with mass; rigid ones have exactly zero.

    `free` is whether there may be rigid motions. Raises `dx.ModelError` where a matrix is negative for some motion.
    """
    if not len(mass):
        return np.zeros(0), np.zeros((0, 0))
    total = np.trace(mass)
    if not total > 0.0:
        raise ModelError("has no mass", element="structure", hint="the trace of the mass matrix must be positive")
    shift = 0.0
    if free:  # first a rough shift, then one of the size of the lowest frequency
        rough = np.trace(stiffness) / total or 1.0
        values = _eigenvalues(np.linalg.eigvalsh(_flexibility(mass, stiffness, rough)[0])) - rough
        elastic = values[values > ZERO * rough]
        shift = 2.0 ** np.round(np.log2(elastic[0] if len(elastic) else rough))  # whatever the rounding of these
    values, vectors = _shifted(mass, stiffness, shift)
    if np.any(values < -1e-6 * max(shift, ZERO)):
        raise ModelError(
            f"has a negative eigenvalue, {values[0]:g} with unit modal mass",
            element="stiffness matrix",
            hint="that of a structure at rest is positive semidefinite; leave loads and buckling out",
        )
    return np.where(values < 1e-6 * shift, 0.0, values), vectors


def _shifted(mass: np.ndarray, stiffness: np.ndarray, shift: float) -> tuple[np.ndarray, np.ndarray]:
    flexibility, root = _flexibility(mass, stiffness, shift)
    inverse, vectors = np.linalg.eigh(flexibility)
    values = _eigenvalues(inverse)
    vectors = vectors[:, : -len(values) - 1 : -1]
    return values - shift, np.linalg.solve(root.T, vectors) * np.sqrt(values)


def _flexibility(mass: np.ndarray, stiffness: np.ndarray, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """`L^-1 M L^-T`, and `L`."""
    root = _cholesky(
        stiffness + shift * mass,
        "structure",
        "has a motion with neither mass nor stiffness, or one of them is negative",
    )
    half = np.linalg.solve(root, mass)
    return _symmetric(np.linalg.solve(root, half.T)), root


def _eigenvalues(inverse: np.ndarray) -> np.ndarray:
    """Those of motions with mass, ascending, from those of the flexibility."""
    inverse = inverse[::-1]
    if inverse[-1] < -1e-9 * inverse[0]:
        raise ModelError("has a negative eigenvalue", element="mass matrix", hint="mass is positive or zero")
    return 1.0 / inverse[inverse > 1e-13 * inverse[0]]


def _oriented(values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors with a sign, and within equal eigenvalues with directions, that do not depend on the solver."""
    result, start = vectors.copy(), 0
    for k in range(len(values)):
        if k + 1 < len(values) and values[k + 1] - values[k] <= SAME * values[k + 1]:
            continue
        block = result[:, start : k + 1]
        for first in range(block.shape[1]):
            rest = block[:, first:]
            size = np.linalg.norm(rest, axis=1)
            row = int(np.argmax(size >= (1.0 - 1e-6) * np.max(size, initial=0.0)))
            # A reflection that takes the row of what is left to its first vector.
            axis = rest[row] / size[row]
            axis[0] += np.copysign(1.0, axis[0])
            rest -= np.outer(rest @ axis, axis) * (2.0 / (axis @ axis))
            rest[:, 0] *= np.copysign(1.0, rest[row, 0])
        start = k + 1
    return result
