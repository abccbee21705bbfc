"""What functions of a user take from elsewhere than their arguments: solutions have no derivative by that.

Solvers know functions as part of the structure of their programs. A value of an outer `grad` that a function closes
over is a constant there, whose rate would be lost. So such values are kept beside the problem, where the rules of
derivatives see whether they move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from dynax.compile.zeros import is_zero

Elsewhere = dict[str, list[jax.Array]]
"""By the part of a problem whose function takes it."""


def taken(function: Callable, *args: Any) -> tuple[list[jax.Array], Any]:
    """The traced numbers that `function(*args)` takes from elsewhere, and the shapes of what it gives."""
    traced, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    return [x for x in traced.consts if isinstance(x, Tracer) and jnp.issubdtype(x.dtype, jnp.inexact)], shape


def refuse_change(change: Elsewhere, remedy: str) -> None:
    """`ValueError` where one of them moves."""
    for part, rates in change.items():
        if not all(map(is_zero, rates)):
            raise ValueError(
                f"no derivative of a solution by what {part} takes from elsewhere than its arguments: {remedy}"
            )
