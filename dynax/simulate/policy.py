"""Policies: what they may be, what they say, and when a compiled rollout under one can be used again.

A function is compiled with what it captures. It can be called again as it was compiled if all that is the same, which
can be told where it is immutable: numbers, strings, `jax` arrays and containers of them, modules, and functions for
which the same holds. A `jax.tree_util.Partial`, or any other callable that is a pytree, says itself what changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.typing import ArrayLike

Policy = Callable[..., Any]
"""`controls(t, q, v) -> tau`, or `controls(t, q, v, memory) -> (tau, memory)`; with sensors
`controls(carry, observation, key) -> (carry, command)`."""


@dataclass(frozen=True)
class Known:
    """A function and all it captures, equal to another where all of that is the same."""

    function: Policy = field(compare=False)
    key: tuple
    kept: tuple = field(compare=False)
    """The objects that the key knows by identity, which must not be given to others."""

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def known(policy: Policy) -> Known | None:
    """`None` where what it captures may change unseen."""
    kept: list = []
    try:
        key = tuple(_captured(policy, kept))
    except _Unseen:
        return None
    return Known(policy, key, tuple(kept))


class _Unseen(Exception):
    pass


LIBRARIES = ("jax", "dynax", "numpy", "builtins")
"""Whose functions stay what they are."""


def _captured(x: Any, kept: list) -> Iterator[Any]:
    """Parts of a key."""
    if any(x is y for y in kept):
        yield id(x)
    elif x is None or isinstance(x, bool | int | float | complex | str | bytes):
        yield type(x), repr(x)
    elif isinstance(x, Tracer):
        raise _Unseen
    elif isinstance(x, ModuleType | type | BuiltinFunctionType | jax.Array) or _of_library(x):
        kept.append(x)
        yield id(x)
    elif isinstance(x, FunctionType):
        kept.append(x)
        yield id(x)
        used = {name: x.__globals__[name] for name in _names(x.__code__) if name in x.__globals__}
        cells = [cell.cell_contents for cell in x.__closure__ or ()]
        for part in (*cells, *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values(), *used.values()):
            yield from _captured(part, kept)
    else:
        leaves, structure = jax.tree.flatten(x)
        if any(leaf is x for leaf in leaves):
            raise _Unseen
        yield structure
        for leaf in leaves:
            yield from _captured(leaf, kept)


def _of_library(x: Any) -> bool:
    return callable(x) and str(getattr(x, "__module__", "")).split(".")[0] in LIBRARIES


def _names(code: CodeType) -> set[str]:
    """Global names that a function and those within it may read."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def answer(policy: Policy, time: jax.Array, q: jax.Array, v: jax.Array, size: int) -> jax.Array:
    """What a policy without memory says, checked: `size` forces or commands."""
    return _command(policy(time, q, v), size, q)


def answer_and_memory(policy: Policy, time, q, v, memory: Any, size: int) -> tuple[jax.Array, Any]:
    """What a policy with memory says, checked."""
    said = policy(time, q, v, memory)
    if not isinstance(said, tuple) or len(said) != 2:
        raise ValueError("the policy has a `memory` and must return (tau, memory)")
    tau, new = said
    return _command(tau, size, q), _like(memory, new)


def answer_to_sensors(policy: Policy, carry: Any, observation: Any, key: Any, size: int, q) -> tuple[jax.Array, Any]:
    """What a policy that knows its sensors alone says, checked; in the order of the others."""
    said = policy(carry, observation, key)
    if not isinstance(said, tuple) or len(said) != 2:
        raise ValueError("a policy with sensors must return (carry, command)")
    new, command = said
    return _command(command, size, q), _like(carry, new)


def _like(memory: Any, new: Any) -> Any:
    """What a policy remembers, of the types of what it remembered at the start."""
    if jax.tree.structure(new) != jax.tree.structure(memory):
        raise ValueError(
            f"the policy returned a memory {jax.tree.structure(new)}, expected {jax.tree.structure(memory)} as in "
            "`memory`"
        )
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(x)] for x in (new, memory)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the policy returned a memory of shapes {shapes[0]}, expected {shapes[1]} as in `memory`")
    return jax.tree.map(lambda x, old: jnp.asarray(x).astype(old.dtype), new, memory)


def _command(tau: ArrayLike, size: int, q: jax.Array) -> jax.Array:
    if tau is None:
        raise ValueError(f"the policy returned None, expected shape ({size},)")
    tau = jnp.asarray(tau)
    if tau.shape != (size,):
        raise ValueError(
            f"the policy returned shape {tau.shape}, expected ({size},): a force for each freedom, or a command for "
            "each of the actuators if there are any"
        )
    return tau.astype(q.dtype)
