"""Small matrices on the last two axes, behind the batch, as the routes over whole matrices use them.

Columns are matrices of one column.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from dynax.spatial import Vec3
from dynax.spatial.components import stack

# Accelerators would otherwise multiply matrices in fewer digits than asked for.
product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def shifts(offset: Vec3) -> jax.Array:
    """`phi*`, the matrices that shift motions by the offsets."""
    x, y, z = offset.x, offset.y, offset.z
    o, i = jnp.zeros_like(x), jnp.ones_like(x)
    entries = (
        i, o, o, o, o, o,
        o, i, o, o, o, o,
        o, o, i, o, o, o,
        o, z, -y, i, o, o,
        -z, o, x, o, i, o,
        y, -x, o, o, o, i,
    )  # fmt: skip
    return stack(entries, (6, 6))


def turned(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, -1, -2)


def symmetric(a: jax.Array) -> jax.Array:
    return 0.5 * (a + turned(a))
