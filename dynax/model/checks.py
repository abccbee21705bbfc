"""What every public function does with its arrays first: one floating type, the right shapes, or a readable error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.model.model import Model


def as_state(model: Model, **arrays: Any) -> list[Any]:
    """The named arrays in one floating type; `None` passes through.

    The type is that of the arrays, so float32 states give float32 results whatever the model holds. Names decide the
    shape: `q...` is `(nq,)`, `external` is `(n, 6)`, everything else `(nv,)`.
    """
    given = {name: value for name, value in arrays.items() if value is not None}
    dtype = jnp.result_type(*(_kind(value) for value in given.values()))
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = model.mass.dtype
    results = []
    for name, value in arrays.items():
        if value is None:
            results.append(None)
            continue
        array = jnp.asarray(value, dtype)
        shape, meaning = _expected(model, name)
        if array.shape != shape:
            raise ValueError(
                f"`{name}` has shape {array.shape}, expected {shape} ({meaning} of model {model.name!r}); "
                "for a batch use jax.vmap"
            )
        results.append(array)
    return results


def _kind(value: Any):
    return value.dtype if isinstance(value, jax.Array | np.ndarray | np.generic) else jnp.asarray(value).dtype


def _expected(model: Model, name: str) -> tuple[tuple[int, ...], str]:
    if name == "external":
        return (model.num_bodies, 6), "one wrench [moment; force] for each body"
    if name.startswith("q"):
        return (model.nq,), "nq"
    return (model.nv,), "nv"
