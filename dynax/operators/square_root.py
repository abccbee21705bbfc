"""What every square root of a mass matrix can do, whatever recursion makes it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from dynax.operators.recursions import mul


class SquareRoot(abc.ABC):
    """`M = L L^T` at one configuration, armature included; made by `innovations_factor`, a pytree.

    Every method takes a vector `(nv,)`, or a matrix `(nv, m)` of `m` at once, and costs O(n) for each.
    """

    root: jax.Array
    """The roots of the free bases' articulated inertias, in their own axes, shape `(k, 6, 6)`."""

    @property
    @abc.abstractmethod
    def nv(self) -> int:
        """The length of a velocity."""

    @abc.abstractmethod
    def logdet(self) -> jax.Array:
        """`log det M`, the sum of `log det D`."""

    @abc.abstractmethod
    def _apply(self, x: jax.Array) -> jax.Array: ...

    @abc.abstractmethod
    def _apply_transpose(self, x: jax.Array) -> jax.Array: ...

    @abc.abstractmethod
    def _solve_root(self, x: jax.Array) -> jax.Array: ...

    @abc.abstractmethod
    def _solve_root_transpose(self, x: jax.Array) -> jax.Array: ...

    def apply(self, x) -> jax.Array:
        """`L x`."""
        return self._apply(self._checked(x))

    def apply_transpose(self, x) -> jax.Array:
        """`L^T x`: of a velocity, the rates in which the kinetic energy is half the sum of squares."""
        return self._apply_transpose(self._checked(x))

    def solve_root(self, x) -> jax.Array:
        """`L^-1 x`: of joint forces, the whitened innovations."""
        return self._solve_root(self._checked(x))

    def solve_root_transpose(self, x) -> jax.Array:
        """`L^-T x`."""
        return self._solve_root_transpose(self._checked(x))

    def solve(self, x) -> jax.Array:
        """`M^-1 x`."""
        return self.solve_root_transpose(self.solve_root(x))

    def mass_product(self, x) -> jax.Array:
        """`M x`."""
        return self.apply(self.apply_transpose(x))

    def inverse(self) -> jax.Array:
        """`M^-1`, shape `(nv, nv)`, exactly symmetric; O(n) for each column."""
        root = self.solve_root(jnp.eye(self.nv, dtype=self.root.dtype))
        inverse = mul(root.T, root)
        return 0.5 * (inverse + inverse.T)

    def sample(self, key: jax.Array, kt=1.0) -> jax.Array:
        """Thermal velocities `(nv,)`: normal, with mean zero and covariance `kt M^-1` (equipartition).

        **Arguments:**

        - `key`: a key of `jax.random`; `jax.vmap` over keys for many samples.
        - `kt`: the temperature as an energy [J].
        """
        noise = jax.random.normal(key, (self.nv,), self.root.dtype)
        return self.solve_root_transpose(jnp.sqrt(jnp.asarray(kt, noise.dtype)) * noise)

    def _checked(self, x) -> jax.Array:
        array = jnp.asarray(x, self.root.dtype)
        if array.ndim not in (1, 2) or array.shape[0] != self.nv:
            raise ValueError(
                f"a factor of this model takes vectors ({self.nv},) or matrices ({self.nv}, m), got {array.shape}"
            )
        return array

    def __repr__(self) -> str:
        return f"{type(self).__name__}(nv={self.nv})"


Factor = TypeVar("Factor", bound=SquareRoot)


def by_columns(method: Callable[[Factor, jax.Array], jax.Array]) -> Callable[[Factor, jax.Array], jax.Array]:
    """A function of matrices `(nv, m)` for vectors too, compiled when called outside of `jit`."""
    return jax.jit(lambda f, x: method(f, x) if x.ndim == 2 else method(f, x[:, None])[:, 0])
