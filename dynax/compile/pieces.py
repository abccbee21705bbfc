"""A long program in pieces, each a kernel of its own.

The time that LLVM takes to compile a function grows faster than its length, and loops of one kernel are in one
function: in pieces the way back of ten beams of six modes is compiled in two thirds of the time. Each piece is another
call, and what a later one needs is written to memory, so a program is cut where the fewest numbers are still needed,
near equal parts of its equations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal, Var, jaxprs_in_params

LONGEST = 5000
"""Equations of a program up to which it stays whole. Those of arms and humanoids do, and would gain a tenth at most."""
PIECE = 1800
"""Equations of a piece, about."""
NEAR = 0.35
"""How far from equal parts a cut may be, in parts."""
Run = Callable[[Any, Sequence[jax.Array]], list[jax.Array]]


def in_pieces(program: Any, arrays: Sequence[jax.Array], run: Run) -> list[jax.Array]:
    """The results of a program, `run(piece, arrays)` one piece after another; the whole if it is short."""
    if sum(map(_count, _plain(program).eqns)) <= LONGEST:
        return run(program, arrays)
    program, values = _opened(program, arrays)
    plain = _plain(program)
    known = dict(zip(plain.invars, values, strict=True))
    known.update(zip(plain.constvars, program.consts, strict=True))
    for piece, given, found in _pieces(program):
        known.update(zip(found, run(piece, [known[v] for v in given]), strict=True))
    return [v.val if isinstance(v, Literal) else known[v] for v in plain.outvars]


def _plain(program: Any) -> Any:
    """Without its constants; in newer versions of JAX all have them."""
    return getattr(program, "jaxpr", program)


def _count(equation: Any) -> int:
    inner = jaxprs_in_params(equation.params)
    return 1 + sum(_count(own) for program in inner for own in _plain(program).eqns)


def _opened(program: Any, values: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """The program that is called, and its arguments, where to call it is all that is done."""
    plain = _plain(program)
    (only, *rest) = plain.eqns
    if rest or only.primitive.name != "jit" or list(only.outvars) != list(plain.outvars):
        return program, values
    known = dict(zip((*plain.constvars, *plain.invars), (*program.consts, *values), strict=True))
    given = [v.val if isinstance(v, Literal) else known[v] for v in only.invars]
    return _opened(only.params["jaxpr"], given)


def _pieces(program: Any) -> list[tuple[Any, list, list]]:
    """Programs, what each is given and what of its results is needed later."""
    plain = _plain(program)
    last: dict[Any, int] = {v: k for k, own in enumerate(plain.eqns) for v in own.invars if isinstance(v, Var)}
    last.update((v, len(plain.eqns)) for v in plain.outvars if isinstance(v, Var))
    cuts = _cuts(plain.eqns, last)
    constants, found = set(plain.constvars), []
    for start, stop in pairwise(cuts):
        own = plain.eqns[start:stop]
        made = [v for equation in own for v in equation.outvars]
        read = dict.fromkeys(v for equation in own for v in equation.invars if isinstance(v, Var))
        given = [v for v in read if v not in constants.union(made)]
        needed = [v for v in made if last.get(v, -1) >= stop]
        names = plain.debug_info._replace(arg_names=None, result_paths=None)
        piece = plain.replace(eqns=own, invars=given, outvars=needed, debug_info=names)
        found.append((piece if program is plain else program.replace(jaxpr=piece), given, needed))
    return found


def _cuts(equations: Sequence[Any], last: dict[Any, int]) -> list[int]:
    """Where pieces begin, and the end: of the places near equal parts those at which the fewest numbers are needed."""
    change = np.zeros(len(equations) + 1)
    for k, own in enumerate(equations):
        for v in own.outvars:
            if v in last:
                change[k] += v.aval.size
                change[last[v]] -= v.aval.size
    needed, counted = np.cumsum(change[:-1]), np.cumsum([_count(own) for own in equations])
    parts = counted / counted[-1] * round(counted[-1] / PIECE)
    cuts = [0]
    for k in range(1, round(parts[-1])):
        near = np.flatnonzero(np.abs(parts - k) < NEAR)
        cut = near[np.argmin(needed[near])] if len(near) else np.searchsorted(parts, k)
        if cuts[-1] <= cut < len(equations) - 1:
            cuts.append(int(cut) + 1)
    return [*cuts, len(equations)]
