"""Functions of a model that other kinds of model give a meaning of their own, such as models with embedded loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch, wraps
from importlib import import_module
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import jax

from dynax.model.model import Model

Rest = ParamSpec("Rest")
Result = TypeVar("Result")
Meaning = TypeVar("Meaning", bound=Callable[..., Any])


class AnyModel(Protocol):
    """A `Model`, or another kind that `extend` has given meanings for."""

    @property
    def nq(self) -> int: ...

    @property
    def nv(self) -> int: ...

    @property
    def num_bodies(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def mass(self) -> jax.Array: ...


def for_models(function: Callable[Concatenate[Model, Rest], Result]) -> Callable[Concatenate[AnyModel, Rest], Result]:
    """`function(model, ...)` as it stands for a `Model`; for another kind, what `extend` has given."""

    @singledispatch
    def meaning(model: Any, *args: Any, **options: Any) -> Any:
        # A kind may say by name where its meanings stand; they are read when the first of them is asked for.
        where = getattr(type(model), "meanings", None)
        found = import_module(where) and meaning.dispatch(type(model)) if where else unknown
        if found is unknown:
            raise TypeError(
                f"dx.{call.__name__} takes a Model, not {type(model).__name__}: {getattr(model, 'name', model)!r}"
            )
        return found(model, *args, **options)

    unknown = meaning.dispatch(object)

    @wraps(function)
    def call(model: Any, *args: Any, **options: Any) -> Any:
        try:
            return meaning.dispatch(type(model))(model, *args, **options)
        except TypeError:
            wrong = _misfit(meaning.dispatch(type(model)), model, args, options)
            if wrong is None:
                raise
        # What stands for a kind of model has a name that no user knows.
        raise TypeError(f"dx.{call.__name__} of {type(model).__name__} {getattr(model, 'name', '')!r}: {wrong}")

    meaning.register(Model, function)
    _MEANINGS[call] = meaning
    return cast(Callable[Concatenate[AnyModel, Rest], Result], call)


_MEANINGS: dict[Callable[..., Any], Any] = {}


def _misfit(found: Callable[..., Any], model: Any, args: tuple, options: dict[str, Any]) -> str | None:
    """Why a function cannot be called like that, `None` if it can."""
    try:
        signature(found).bind(model, *args, **options)
    except TypeError as error:
        return str(error)
    return None


def extend(function: Callable[..., Any], kind: type) -> Callable[[Meaning], Meaning]:
    """Say what `function` means for a kind of model."""
    return _MEANINGS[function].register(kind)
