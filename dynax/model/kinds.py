"""Functions of a model that other kinds of model give a meaning of their own, such as models with embedded loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from dynax.model.model import Model

Function = TypeVar("Function", bound=Callable[..., Any])

_MEANINGS: dict[tuple[str, type], Callable[..., Any]] = {}


def for_models(function: Function) -> Function:
    """`function(model, ...)` as it stands for a `Model`; for another kind, what `extend` has given."""

    @wraps(function)
    def call(model: Any, *args: Any, **options: Any) -> Any:
        if isinstance(model, Model):
            return function(model, *args, **options)
        meaning = _MEANINGS.get((function.__name__, type(model)))
        if meaning is None:
            raise TypeError(f"dx.{function.__name__} takes a Model, not {type(model).__name__}: {model!r}")
        return meaning(model, *args, **options)

    return cast(Function, call)


def extend(function: Callable[..., Any], kind: type) -> Callable[[Function], Function]:
    """Say what `function` means for a kind of model."""

    def register(meaning: Function) -> Function:
        _MEANINGS[function.__name__, kind] = meaning
        return meaning

    return register
