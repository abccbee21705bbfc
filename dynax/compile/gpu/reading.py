"""A program of JAX for one sample, read as a program of scalars, by the rules of all modules beside this one."""

from __future__ import annotations

from dynax.compile.gpu import calls, entries, moving, places, solves, sums
from dynax.compile.gpu.rules import NotReadError, read

__all__ = ["NotReadError", "calls", "entries", "moving", "places", "read", "solves", "sums"]
