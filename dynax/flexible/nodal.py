"""Modal integrals of a body made of nodes: point masses with rotational inertia, which move and turn by the modes.

The kinetic energy of a node, of second order in `theta = psi eta` and its rate together, is that of an inertia `J` that
turns with the node, `R J R^T` with `R = exp(theta)`, at the angular velocity `omega + theta' + theta x theta' / 2`.
Those are Jain and Rodriguez's integrals (1992), equations 23 to 25, with the terms of rotation that they leave out; an
inertia that stays behind while its node turns would not keep energy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.flexible.body import FlexibleBody, Level


def flexible_body_from_nodes(
    position: ArrayLike,
    mass: ArrayLike,
    *,
    translation: ArrayLike,
    stiffness: ArrayLike,
    rotation: ArrayLike | None = None,
    inertia: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    foreshortening: ArrayLike | None = None,
    damping: ArrayLike | None = None,
    nodes: Mapping[str, int],
    level: Level | None = None,
) -> FlexibleBody:
    """A flexible body from `n` nodes and `m` mode shapes.

    **Arguments:** all in the body's axes.

    - `position`: of the nodes [m], shape `(n, 3)`.
    - `mass`: of the nodes [kg], shape `(n,)`; zero for nodes that only mark a place.
    - `translation`, `rotation`: how each mode moves and turns each node, shape `(n, 3, m)`; rotations are zero by
      default.
    - `stiffness`, `damping`: of the modes, shape `(m, m)`; no damping by default.
    - `inertia`: rotational inertia of each node about its centre of mass [kg m^2], shape `(n, 3, 3)`; zero by default.
    - `offset`: from each node to its centre of mass [m], shape `(n, 3)`; zero by default.
    - `foreshortening`: second-order displacement of each node, `r0 + sum eta_r phi_r + 1/2 sum eta_r eta_s g_rs`,
      shape `(n, m, m, 3)`. Without it the body has no geometric stiffness.
    - `nodes`: names of the attachment nodes and their rows; the first is where the body's joint holds it.
    - `level`: how much of the deformation the inertia sees, see `FlexibleBody.level`.

    JAX arrays among them may be traced: the result is differentiable by every number. Raises `dx.ModelError`.
    """
    names = {
        "position": position,
        "mass": mass,
        "translation": translation,
        "stiffness": stiffness,
        "rotation": rotation,
        "inertia": inertia,
        "offset": offset,
        "foreshortening": foreshortening,
    }
    given: dict[str, Any] = {name: value for name, value in names.items() if value is not None}
    n, m = np.shape(position)[0], np.shape(stiffness)[-1]
    shapes = {
        "position": (n, 3),
        "mass": (n,),
        "translation": (n, 3, m),
        "stiffness": (m, m),
        "rotation": (n, 3, m),
        "inertia": (n, 3, 3),
        "offset": (n, 3),
        "foreshortening": (n, m, m, 3),
    }
    for name, value in given.items():
        if np.shape(value) != shapes[name]:
            raise ModelError(
                f"`{name}` has shape {np.shape(value)}, expected {shapes[name]}",
                element="flexible body",
                hint=f"there are {n} nodes, by `position`, and {m} modes, by `stiffness`",
            )
    xp = jnp if any(isinstance(value, jax.Array) for value in given.values()) else np
    arrays: list[Any] = [
        xp.asarray(given.get(name, np.zeros(shape)), dtype=None if xp is jnp else np.float64)
        for name, shape in shapes.items()
    ]
    r, w, phi, k, psi, j, c, g = arrays
    rows = attachment_rows(nodes, n)
    ends = {
        "node_position": r[rows],
        "node_translation": phi[rows],
        "node_rotation": psi[rows],
        "node_foreshortening": g[rows],
    }
    if "offset" in given:  # the centre of mass of a node turns about it, which is a displacement of second order too
        turns = xp.swapaxes(psi, 1, 2)
        arm: Any = xp.cross(turns, c[:, None])  # psi x c, (n, m, 3)
        twice: Any = xp.cross(turns[:, :, None], arm[:, None])
        r, phi, g = r + c, phi + xp.swapaxes(arm, 1, 2), g + 0.5 * (twice + xp.swapaxes(twice, 1, 2))
    shortened = "foreshortening" in given or "offset" in given
    return FlexibleBody.from_integrals(
        **modal_integrals(r, w, phi, psi, j, g),
        stiffness=k,
        damping=damping,
        node_names=tuple(nodes),
        **ends,
        level=level or ("consistent" if shortened else "full"),
    )


def attachment_rows(nodes: Mapping[str, int], count: int) -> np.ndarray:
    """The rows that names stand for; `ModelError` for what is no row."""
    if not nodes:
        raise ModelError("has no attachment node", element="flexible body", hint="name at least where it is held")
    for name, row in nodes.items():
        if not 0 <= row < count:
            raise ModelError(f"is row {row}, and there are {count} nodes", element=f"attachment node {name!r}")
    return np.array(list(nodes.values()), dtype=int)


def modal_integrals(r: Any, w: Any, phi: Any, psi: Any, j: Any, g: Any) -> dict[str, Any]:
    """The integrals by their names in `FlexibleBody`, of nodes at their centres of mass; NumPy or JAX arrays."""
    xp = jnp if any(isinstance(x, jax.Array) for x in (r, w, phi, psi, j, g)) else np
    eye, outer = np.eye(3), xp.einsum
    moment = outer("n,ni,njr->rij", w, r, phi)  # sum m r0 phi^T
    square = outer("n,nir,njs->rsij", w, phi, phi)
    turned = outer("ijk,nkr->nrji", _LEVI_CIVITA, psi)  # the matrix of psi_r x
    spin = outer("nrij,njk->nrik", turned, j)
    spin = spin + xp.swapaxes(spin, 2, 3)  # psi~ J - J psi~
    # Of second order in the rotation: psi~ J psi~^T, and half of psi~ psi~ J and its transpose, both symmetric in r, s.
    middle = outer("nrij,njk,nslk->rsil", turned, j, turned)
    outside = outer("nrij,nsjk,nkl->rsil", turned, turned, j)
    second = middle + 0.5 * (outside + xp.swapaxes(outside, 2, 3))
    twist = outer("nrij,njs->nris", turned, psi)  # psi_r x psi_s
    return {
        "mass": xp.sum(w),
        "first_moment": w @ r,
        "inertia": _inertia(outer("n,ni,nj->ij", w, r, r), eye) + xp.sum(j, axis=0),
        "translation_coupling": outer("n,nir->ir", w, phi),
        "rotation_coupling": outer("ijk,rjk->ir", _LEVI_CIVITA, moment) + outer("nij,njr->ir", j, psi),
        "rotation_coupling_rate": outer("ijk,rsjk->ris", _LEVI_CIVITA, square)
        + outer("nrij,njs->ris", spin, psi)
        + 0.5 * outer("nij,nrjs->ris", j, twist),
        "inertia_first": _inertia(moment + xp.swapaxes(moment, 1, 2), eye) + xp.sum(spin, axis=0),
        "inertia_second": _inertia(square + xp.swapaxes(square, 2, 3), eye) + second + xp.swapaxes(second, 0, 1),
        "foreshortening": outer("n,nrsi->rsi", w, g),
        "foreshortening_moment": outer("n,ni,nrsj->rsij", w, r, g),
        "modal_mass": outer("n,nir,nis->rs", w, phi, phi) + outer("nir,nij,njs->rs", psi, j, psi),
    }


def _inertia(second_moment: Any, eye: np.ndarray) -> Any:
    """`tr(S) 1 - S` of the last two axes."""
    return second_moment.trace(axis1=-2, axis2=-1)[..., None, None] * eye - second_moment


_LEVI_CIVITA = np.cross(np.eye(3)[:, None], np.eye(3)[None]).transpose(2, 0, 1)
"""`[i, j, k]`: component `i` of `e_j x e_k`."""
