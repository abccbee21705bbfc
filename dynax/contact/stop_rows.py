"""How fast limits and other stops close, by the velocity: most are limits of joints, which have a freedom of their own.

Of a quadruped with 12 limits their whole rows took a third of the time of a step.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dynax.linear.sums import combined
from dynax.operators.pytree import pytree_dataclass
from dynax.sweep import take_rows


@pytree_dataclass("freedoms")
class StopRows:
    """`J` of stops, which have a normal alone, `l` rows of `nv`; batch axes trail."""

    freedoms: tuple[int, ...]
    """Of the first `s` stops, each of which moves with one freedom, and no other of them with that."""
    signs: jax.Array
    """1 where such a stop opens with its freedom, -1 where it closes, shape `(s,)`."""
    rows: jax.Array
    """Of the others, shape `(l - s, nv)`."""

    @classmethod
    def none(cls, like: jax.Array) -> StopRows:
        """Of no stops, with the last axis of `like`."""
        return cls((), like[..., :0].reshape(-1)[:0], jnp.zeros((0, like.shape[-1]), like.dtype))

    @classmethod
    def whole(cls, rows: jax.Array) -> StopRows:
        return cls((), jnp.zeros((0, *rows.shape[2:]), rows.dtype), rows)

    def __len__(self) -> int:
        return len(self.freedoms) + len(self.rows)

    def times(self, v: jax.Array) -> jax.Array:
        """`J v`, shape `(l,)`."""
        own = self.signs * take_rows(v, np.array(self.freedoms, int))
        return jnp.concatenate([own, combined(jnp.moveaxis(self.rows, 1, 0), v)]) if len(self.rows) else own

    def push(self, forces: jax.Array) -> jax.Array:
        """`J^T f`."""
        count, n = len(self.freedoms), self.rows.shape[1]
        own = take_rows(self.signs * forces[:count], stops_of(self.freedoms, np.arange(n)))
        return own + combined(self.rows, forces[count:, None]) if len(self.rows) else own

    def by_entries(self, f: jax.Array, x: jax.Array, g: jax.Array, y: jax.Array) -> StopRows:
        """`f x^T + g y^T` where `J` is not zero: the derivative of `f . J x + g . J y`."""
        count, at = len(self.freedoms), np.array(self.freedoms, int)
        signs = f[:count] * take_rows(x, at) + g[:count] * take_rows(y, at)
        return StopRows(self.freedoms, signs, f[count:, None] * x + g[count:, None] * y)

    @property
    def dense(self) -> jax.Array:
        """Shape `(l, nv)`."""
        n = self.rows.shape[1]
        ones = np.eye(n)[np.array(self.freedoms, int)].reshape(len(self.freedoms), n, *[1] * (self.signs.ndim - 1))
        return jnp.concatenate([self.signs[:, None] * ones.astype(self.rows.dtype), self.rows])


def stops_of(of_stops: tuple[int, ...], freedoms: np.ndarray) -> np.ndarray:
    """Which of the stops, each with its one freedom, is that of each of some, -1 for none."""
    places = {freedom: k for k, freedom in enumerate(of_stops)}
    return np.array([places.get(int(k), -1) for k in freedoms.ravel()], int).reshape(freedoms.shape)
