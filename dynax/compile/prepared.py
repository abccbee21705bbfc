"""Programs as one kernel wants them.

Five things are done to a program before it becomes a kernel:

- What nothing comes of is left out.
- Sums over so many elements that XLA hands them to a library are written out, since a library's call is in no kernel.
- In derivatives, a result of many operations that several others use is computed once. XLA on a CPU would compute it
  again in every loop that needs it, and the transpose of a formula in components is full of these: here a batch of
  gradients of a loop takes two fifths of the time. Algorithms themselves have their lines where they were seen to pay.
- In derivatives, and in algorithms that ask for it, parts of what is put together, which are long formulas, are
  computed by themselves: in one loop, that chooses among them for each element, none would be in vectors.
- Lines (`fence`) become calls; elsewhere each would be a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Literal, Var

from dynax.compile.fence import line

LARGEST_SUM = 2048
"""Elements that are summed: from 4096 on XLA hands them to a library; half of it, not to depend on the last one."""
COMBINED = {
    "reduce_sum": jnp.add, "reduce_prod": jnp.multiply, "reduce_max": jnp.maximum, "reduce_min": jnp.minimum,
    "reduce_or": jnp.logical_or, "reduce_and": jnp.logical_and,
}  # fmt: skip
LONG = 32
"""Operations from which a result that several others use is computed once. Of 16 and 8 the derivatives of arms, which
are made of short formulas, take up to a fifth longer, from 64 on those of loops twice as long."""
SHAPING = frozenset(
    (
        *("broadcast_in_dim", "concatenate", "convert_element_type", "copy", "dynamic_slice", "dynamic_update_slice"),
        *("iota", "pad", "reshape", "rev", "slice", "split", "squeeze", "stack", "stop_gradient", "transpose"),
        "unstack",
    )
)
"""Primitives that compute nothing."""
HELD = frozenset(
    ("dynax_apart", "dynax_links", "dynax_place", "dynax_rows", "gather", "scan", "while", "jit", "custom_vjp_call")
)
"""Those whose results XLA does not compute again."""
LOOKED_UP = frozenset(("dynax_links", "dynax_place", "dynax_rows", "gather"))
"""Those of them whose operands it does compute in the same loop, if nothing else uses them."""
JOINING = frozenset(("concatenate", "dynamic_update_slice", "pad", "stack"))
"""Primitives of which each element is one of several operands'."""
KEEPING = SHAPING - {"broadcast_in_dim"}
"""Those of which no element is in many rows."""
BATCH = 16
"""The shortest last axis that is taken for a batch."""
SOME, MUCH = 8, 256
"""Operations for each element, and for each sample, of a part that is computed apart. A loop whose elements are each
computed otherwise, by many operations, is in no vectors: of a humanoid's derivatives of inverse dynamics two fifths
were one loop over velocities, of which the first six are the base's. Of twice as many lines nothing is faster, and they
take a tenth longer to compile."""


class Lines(Enum):
    """Which lines are drawn in a program, besides those that it has."""

    OWN = auto()
    """None."""
    PARTS = auto()
    """Where long parts are put together. Of algorithms that ask for it: in a batch, inverse dynamics take a tenth to a
    third less, a Jacobian through spherical joints half; forward dynamics and steps with contact would take as long as
    without, and a sixth longer to compile."""
    DERIVATIVE = auto()
    """There, and where several use what is long."""


def prepared(program: Any, lines: Lines) -> Any:
    """The program of a kernel."""

    def inner(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(map(inner, value)) if type(value) in (tuple, list) else value
        if not hasattr(value, "eqns"):
            return value
        if getattr(value, "jaxpr", value) is not value:  # closed over its constants; in newer versions of JAX all are
            return value.replace(jaxpr=inner(value.jaxpr))
        own = _with_small_sums(_needed(_inlined(value)))
        own = _with_lines(own) if lines is Lines.DERIVATIVE else own
        own = own if lines is Lines.OWN else _with_parts_apart(own)
        return own.replace(eqns=[_with_programs(x, inner) for x in own.eqns])

    return inner(program)


def _with_programs(equation: Any, inner: Callable[[Any], Any]) -> Any:
    if equation.primitive is line:
        return equation.replace(params={"called": True})
    return equation.replace(params={name: inner(value) for name, value in equation.params.items()})


def _inlined(program: Any) -> Any:
    """Calls of programs without constants of their own replaced by their equations, as XLA will do."""
    equations: list = []

    def reading(known: dict) -> Callable[[Any], Any]:
        return lambda atom: atom if isinstance(atom, Literal) else known.get(atom, atom)

    def told(program: Any, known: dict, fresh: bool) -> list:
        read = reading(known)
        for equation in program.eqns:
            given = list(map(read, equation.invars))
            called = _called(equation)
            if called is None:
                if fresh:  # the same program may be called twice
                    known.update((v, Var(v.aval)) for v in equation.outvars)
                equations.append(equation.replace(invars=given, outvars=[known.get(v, v) for v in equation.outvars]))
            else:
                found = told(called, dict(zip(called.invars, given, strict=True)), True)
                known.update(zip(equation.outvars, found, strict=True))
        return list(map(read, program.outvars))

    results = told(program, {}, False)
    return program.replace(eqns=equations, outvars=results)


def _called(equation: Any) -> Any:
    """The program of a call, if it can be inlined."""
    name = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr"}.get(equation.primitive.name)
    if name is None:
        return None
    given = equation.params[name]
    program = getattr(given, "jaxpr", given)
    return None if getattr(given, "consts", ()) or program.constvars else program


def _needed(program: Any) -> Any:
    """Without equations of whose results nothing comes: XLA would find them too, but a line would be drawn behind what
    one of them uses, and all of them lowered."""
    used, kept = {atom for atom in program.outvars if isinstance(atom, Var)}, []
    for equation in reversed(program.eqns):
        if equation.effects or not used.isdisjoint(equation.outvars):
            kept.append(equation)
            used.update(atom for atom in equation.invars if isinstance(atom, Var))
    return program.replace(eqns=kept[::-1])


def _with_small_sums(program: Any) -> Any:
    return program.replace(eqns=[one for equation in program.eqns for one in _small_sums(equation)])


def _small_sums(equation: Any) -> Iterator[Any]:
    """The equation, or additions in its place where it is a large sum."""
    if not is_large_sum(equation):
        yield equation
        return
    summed, axes = equation.invars[0], equation.params["axes"]
    combine = COMBINED.get(equation.primitive.name)
    if combine is None or not all(isinstance(summed.aval.shape[k], int) for k in axes):
        yield equation
        return

    def total(a: jax.Array) -> jax.Array:
        for axis in sorted(axes, reverse=True):
            a = _by_halves(a, axis, combine)
        return a

    written = jax.make_jaxpr(total)(jax.ShapeDtypeStruct(summed.aval.shape, summed.aval.dtype))
    written = _inlined(getattr(written, "jaxpr", written))
    known: dict = {written.invars[0]: summed, written.outvars[0]: equation.outvars[0]}
    for one in written.eqns:
        known.update((v, Var(v.aval)) for v in one.outvars if v not in known)
        given = [a if isinstance(a, Literal) else known[a] for a in one.invars]
        yield one.replace(invars=given, outvars=[known[v] for v in one.outvars])


def _by_halves(a: jax.Array, axis: int, combine: Callable) -> jax.Array:
    """A few equations, however many terms there are."""
    rest: list = []
    while (size := a.shape[axis]) > 1:
        half = size // 2
        first, second = (lax.slice_in_dim(a, k * half, (k + 1) * half, axis=axis) for k in (0, 1))
        rest += [lax.slice_in_dim(a, 2 * half, size, axis=axis)] * (size % 2)
        a = combine(first, second)
    return lax.squeeze(reduce(combine, rest, a), (axis,))


def is_large_sum(equation: Any) -> bool:
    """Whether a library may sum it; of a batch of any size it may."""
    if not equation.primitive.name.startswith("reduce_"):
        return False
    size = equation.invars[0].aval.size
    return not isinstance(size, int) or size > LARGEST_SUM


def _with_lines(program: Any) -> Any:
    """Results that are long and used by several equations behind a line."""
    users: dict[Any, set[int]] = {}
    for k, equation in enumerate(program.eqns):
        for atom in equation.invars:
            if isinstance(atom, Var):
                users.setdefault(atom, set()).add(k)
    work: dict[Any, int] = {}  # the equations that a result is computed by, one bit each
    drawn: set[Any] = set()
    for k, equation in enumerate(program.eqns):
        if equation.primitive.name in HELD:
            continue
        own = 0 if equation.primitive.name in SHAPING else 1 << k
        for atom in equation.invars:
            own |= work.get(atom, 0) if isinstance(atom, Var) else 0
        for result in equation.outvars:
            if own.bit_count() < LONG or len(users.get(result, ())) < 2 or not _can_be_behind(result.aval):
                work[result] = own
            else:
                drawn.add(result)
    return _drawn_behind(program, drawn)


def _with_parts_apart(program: Any) -> Any:
    """Parts computed before they are put together or spread over rows, and the whole before more is computed with it,
    where that is much for each sample: see `MUCH`."""
    cones: dict[Any, int] = {}  # the operations that a result is computed by, one bit each
    joined: dict[Any, int] = {}  # what is put together in it, one bit each
    wholes: dict[int, Any] = {}
    after: dict[int, int] = {}
    early: set[Any] = set()

    def seen(table: dict, atoms: Sequence) -> int:
        return reduce(int.__or__, (table.get(a, 0) for a in atoms), 0)

    def ends(a: Any) -> None:
        """What XLA computes at once ends here."""
        rest = joined.get(a, 0)
        while rest:
            k = rest.bit_length() - 1
            rest ^= 1 << k
            after[k] = max(after.get(k, 0), (cones[a] & ~cones[wholes[k]]).bit_count() * _rows(a.aval))

    for k, equation in enumerate(program.eqns):
        name, given = equation.primitive.name, [a for a in equation.invars if isinstance(a, Var)]
        if name in HELD - LOOKED_UP or not equation.outvars:
            list(map(ends, given))
            continue
        result = equation.outvars[0]
        joins = name in JOINING and _of_batches(result.aval)
        for a in given:
            rows = _rows(a.aval) if joins else _rows(result.aval) if name not in KEEPING and _spreads(a, result) else 0
            own = cones.get(a, 0).bit_count()
            if own >= SOME and own * rows >= MUCH and _can_be_behind(a.aval):
                ends(a)
                early.add(a)
                cones[a] = joined[a] = 0
        cone, whole = seen(cones, given), seen(joined, given)
        if joins:
            wholes[k], whole = result, whole | 1 << k
        elif name not in SHAPING | LOOKED_UP:
            cone |= 1 << k
        cones.update((r, cone) for r in equation.outvars)
        joined.update((r, whole) for r in equation.outvars)
    list(map(ends, (a for a in program.outvars if isinstance(a, Var))))
    early.update(wholes[k] for k, own in after.items() if own >= MUCH and _can_be_behind(wholes[k].aval))
    return _drawn_behind(program, early)


def _drawn_behind(program: Any, results: set) -> Any:
    """With a line behind these results."""
    behind: dict[Any, Any] = {}
    equations = []

    def read(atom: Any) -> Any:
        return behind.get(atom, atom) if isinstance(atom, Var) else atom

    for equation in program.eqns:
        equations.append(equation.replace(invars=list(map(read, equation.invars))))
        for result in equation.outvars:
            if result in results:
                behind[result] = Var(result.aval)
                drawn = {"primitive": line, "invars": [result], "outvars": [behind[result]], "params": {"called": True}}
                equations.append(equation.replace(**drawn))
    return program.replace(eqns=equations, outvars=list(map(read, program.outvars)))


def _rows(aval: Any) -> int:
    """Each as long as a batch."""
    return aval.size // aval.shape[-1] if _of_batches(aval) else 0


def _of_batches(aval: Any) -> bool:
    """Whether the last axis is that of a batch, which loops are in vectors over; other lengths are known."""
    return aval.ndim > 1 and all(isinstance(n, int) for n in aval.shape) and aval.shape[-1] >= BATCH and aval.size > 0


def _spreads(given: Any, result: Any) -> bool:
    """Whether rows are there more often afterwards."""
    (*_, length), known = given.aval.shape or (0,), _of_batches(result.aval)
    return known and length == result.aval.shape[-1] and result.aval.size >= 2 * given.aval.size


def _can_be_behind(aval: Any) -> bool:
    return bool(aval.ndim and aval.size) and jnp.issubdtype(aval.dtype, jnp.floating)
