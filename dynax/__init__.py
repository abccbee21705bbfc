"""dynax: differentiable multibody dynamics in JAX.

`import dynax` takes the time of nothing: a name is imported where it is first asked for, with what it needs. The names
and where they come from stand in `__init__.pyi`, which type checkers read as well.
"""

import ast as _ast
from importlib import import_module as _import_module
from importlib.metadata import version as _version
from pkgutil import get_data as _get_data
from typing import Any as _Any

__version__ = _version("dynax")


def _names() -> dict[str, tuple[str, str]]:
    """For each public name the module it comes from, and its name there."""
    stub = _ast.parse(_get_data(__name__, "__init__.pyi") or b"")
    imports = [node for node in stub.body if isinstance(node, _ast.ImportFrom)]
    return {alias.asname or alias.name: (node.module or "", alias.name) for node in imports for alias in node.names}


_WHERE = _names()
__all__ = list(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> _Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dynax' has no attribute {name!r}")
    module, there = _WHERE[name]
    # `from dynax import contact` names a module, all others something in one.
    value = _import_module(f"dynax.{there}") if module == "dynax" else getattr(_import_module(module), there)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
