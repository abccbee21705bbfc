"""The form of inverse dynamics: accelerations are chosen, and forces are what they take.

    as many controls as freedoms    a = w                                 u = B^-1 (M a + b)
    fewer                           a = R w + N y    N'(M a + b) = 0      u = B^+ (M a + b)

`B` are the joint forces per control, `R` spans what they drive and `N` the rest (`N'B = 0`). The equality
`B u = inverse_dynamics(q, v, a)` is kept by elimination: of its rows `B^+` gives the controls and `N'` the `y`, whose
matrix `N'M N` is positive wherever the robot is, so that as many numbers are chosen as there are controls and no
constraint is left (the null space of the equality; partial feedback linearisation, Spong 1994; Katayama & Ohtsuka
2021, "Efficient solution method based on inverse dynamics for optimal control problems of rigid body systems").
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.algorithms.crba import mass_matrix
from dynax.linear.matrices import product
from dynax.linear.solve import solve as solve_linear
from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.dynamics import joint_force
from dynax.optimize.plant import ClosedFormEuler, ModelPlant, refuse_scene
from dynax.simulate.stepper import refuse_closed


@pytree_dataclass()
class InversePlant:
    """Made by `inverse_plant`: states `[q, v]`, tangents of `2 nv`, and what is chosen of the accelerations, `w`."""

    base: ModelPlant
    """The same robot with controls, whose states and tangents these are."""
    driven: jax.Array
    """`R`, shape `(nv, nu)`."""
    undriven: jax.Array
    """`N`, shape `(nv, nv - nu)`."""
    inverse: jax.Array
    """`B^+`, shape `(nu, nv)`."""

    @property
    def nx(self) -> int:
        return self.base.nx

    @property
    def ndx(self) -> int:
        return self.base.ndx

    @property
    def nu(self) -> int:
        return self.driven.shape[-1]

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        return self.base.integrate(x, dx)

    def rates(self, x: jax.Array) -> jax.Array:
        return self.base.rates(x)

    def pulled(self, x: jax.Array, slope: jax.Array) -> jax.Array:
        return self.base.pulled(x, slope)

    def landed(self, x: jax.Array, dx: jax.Array, after: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return self.base.landed(x, dx, after)

    def bracket(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.base.bracket(a, b)

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        return self.base.difference(x0, x1)

    def acceleration(self, x: jax.Array, w: jax.Array) -> jax.Array:
        """Of all joints, shape `(nv,)`."""
        a = product(self.driven.astype(w.dtype), w)
        if not self.undriven.shape[-1]:
            return a
        N, q = self.undriven.astype(w.dtype), x[: self.base.model.nq]
        missing = product(N.T, self._forces(x, a))
        return a - product(N, solve_linear(product(N.T, product(mass_matrix(self.base.model, q), N)), missing))

    def controls(self, x: jax.Array, w: jax.Array) -> jax.Array:
        """What drives the robot so, shape `(nu,)`: for costs, limits, and to apply."""
        return product(self.inverse.astype(w.dtype), self._forces(x, self.acceleration(x, w)))

    def _forces(self, x: jax.Array, a: jax.Array) -> jax.Array:
        nq = self.base.model.nq
        return joint_force(self.base.model, x[:nq], x[nq:], a)

    def step(self, x: jax.Array, w: jax.Array, params: Any, dt: jax.Array) -> jax.Array:
        """Of `ClosedFormEuler`: `v+ = v + dt a`, `q+ = integrate(q, dt v+)`."""
        nq = self.base.model.nq
        v = x[nq:] + dt * self.acceleration(x, w)
        return self.integrate(jnp.concatenate([x[:nq], v]), jnp.concatenate([dt * v, jnp.zeros_like(v)]))


def inverse_plant(model: Any, *, actuation: ArrayLike | None = None) -> InversePlant:
    """A plant whose controls are accelerations: of all joints, or of what `actuation` drives.

    **Arguments:** `model`: of rigid bodies, a tree or with its loops embedded (`dx.embed`); `actuation`: joint forces
    per control, shape `(nv, nu)`, of full rank and known numbers, by default the identity.

    **Returns:** a plant for `o.problem`, which steps as `o.ClosedFormEuler()` does, and for `o.collocation`; both have
    the optima of `o.plant(model, actuation=)`. Costs and limits of forces are functions of `plant.controls(x, w)`,
    where `x = [q, v]` and `w` has `nu` entries; the plant is a pytree, take it from `params` to differentiate by the
    model.
    """
    refuse_scene(model, "inverse_plant")
    refuse_closed(model, ClosedFormEuler())
    nv = model.nv
    B = np.eye(nv) if actuation is None else np.asarray(actuation, float)
    if B.ndim != 2 or B.shape[0] != nv:
        raise ValueError(f"`actuation` has shape {B.shape}, expected ({nv}, controls)")
    U, sizes, Vt = np.linalg.svd(B)
    if B.shape[1] > nv or sizes.min() <= 1e-9 * sizes.max():
        raise ValueError(f"`actuation` of shape {B.shape} has columns that depend on each other")
    nu = B.shape[1]
    driven = np.eye(nv) if nu == nv else U[:, :nu] @ Vt
    base = ModelPlant(model, None if actuation is None else jnp.asarray(B), ClosedFormEuler())
    return InversePlant(base, jnp.asarray(driven), jnp.asarray(U[:, nu:]), jnp.asarray(np.linalg.pinv(B)))
