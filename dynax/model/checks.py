"""What every public function does with its arrays first: one floating type, the right shapes, or a readable error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.model.kinds import AnyModel
from dynax.model.model import Model
from dynax.model.numbers import POSES


def as_state(model: AnyModel, *, optional: tuple[str, ...] = (), **arrays: Any) -> list[jax.Array]:
    """The named arrays in one floating type; `None` passes through for `external` and what is `optional`.

    The type is that of the arrays, so float32 states give float32 results whatever the model holds. Names decide the
    shape: `q...` is `(nq,)`, `external` is `(n, 6)`, everything else `(nv,)`. What is missing, complex, no array of
    numbers or shorter than float32 is a `TypeError`, another shape a `ValueError`.
    """
    refuse_batched(model)
    for name, value in arrays.items():
        if value is None and name not in ("external", *optional):
            shape, meaning = _expected(model, name)
            raise TypeError(f"`{name}` is None, expected an array of shape {shape} ({meaning} of model {model.name!r})")
    kinds = {name: real_type(name, value) for name, value in arrays.items() if value is not None}
    dtype = jnp.result_type(*kinds.values())
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = model.mass.dtype
    if jnp.finfo(dtype).bits < 32:
        what = next((f"`{name}`" for name, kind in kinds.items() if kind == dtype), f"model {model.name!r}")
        raise TypeError(f"{what} is {dtype}, too short for dynamics: give it as float32 or float64")
    results: list[Any] = []
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


# The axes of each leaf when it is not batched.
_NDIM = {
    "gravity": 1, "time": 0, "joint_parameters": 1, "mass": 1, "com": 2, "first_moment": 2, "inertia": 2,
    "armature": 1, "damping": 1, "friction_loss": 1, "friction_velocity": 0, "stiffness": 1, "spring_reference": 1,
    "loop_parameters": 1, "coupling_ratio": 1, "coupling_offset": 1,
}  # fmt: skip


def refuse_batched(model: AnyModel) -> None:
    """`ValueError` for a model whose leaves have batch axes: functions take one model, `jax.vmap` takes many apart."""
    if not isinstance(model, Model):
        return
    for name, ndim in _NDIM.items():
        leaf = getattr(model, name)
        if getattr(leaf, "ndim", ndim) != ndim:
            _refuse(name, leaf.shape[: leaf.ndim - ndim])
    for name in POSES:
        leaf = getattr(model, name).translation
        if getattr(leaf, "ndim", 2) != 2:
            _refuse(name, leaf.shape[:-2])


def _refuse(name: str, batch: tuple[int, ...]) -> None:
    raise ValueError(
        f"the model's leaf `{name}` has batch axes {batch}, and a function takes one model: "
        "for a batch use jax.vmap over the leaf, as in jax.vmap(lambda x: f(model.replace("
        f"{name}=x), q))"
    )


def real_type(name: str, value: Any):
    """The type of what was given as `name`, which must be real numbers: `TypeError` otherwise."""
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        dtype = value.dtype
    else:
        try:
            dtype = jnp.asarray(value).dtype
        except (TypeError, ValueError) as error:
            raise TypeError(f"`{name}` is no array of numbers: {error}") from None
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(f"`{name}` is complex ({dtype}), expected real numbers")
    return dtype


def _expected(model: AnyModel, name: str) -> tuple[tuple[int, ...], str]:
    if name == "external":
        return (model.num_bodies, 6), "one wrench [moment; force] for each body"
    if name.startswith("q"):
        return (model.nq,), "nq"
    return (model.nv,), "nv"
