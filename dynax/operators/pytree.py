"""Classes that are pytrees with a static part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import dataclass_transform

import jax


@dataclass_transform(frozen_default=True, eq_default=False)
def pytree_dataclass(*static: str) -> Callable[[type], type]:
    """A frozen dataclass that is a pytree; the fields named in `static` are part of its structure.

    (Structures of classes in `jax.tree_util.register_dataclass` may compare equal; these do not.)
    """

    def register(cls: type) -> type:
        cls = dataclass(frozen=True, eq=False, repr=False)(cls)
        names = [field.name for field in fields(cls)]
        leaves = [name for name in names if name not in static]
        keys = [jax.tree_util.GetAttrKey(name) for name in leaves]

        def flatten(x):
            return [getattr(x, name) for name in leaves], tuple(getattr(x, name) for name in static)

        def flatten_with_keys(x):
            children, rest = flatten(x)
            return list(zip(keys, children, strict=True)), rest

        def unflatten(rest, children):
            return cls(**dict(zip(static, rest, strict=True)), **dict(zip(leaves, children, strict=True)))

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
        return cls

    return register
