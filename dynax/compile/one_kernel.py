"""A whole algorithm as one kernel on a CPU.

XLA on a CPU runs a program kernel by kernel, every sum of two arrays written to memory and read again. For one state to
start a kernel takes longer than what it computes, and the walks along an arm are a thousand of them; for a tile of a
batch it is the memory. Loops that touch less than a kilobyte XLA compiles into one kernel each, by a mark on a call to
them. Here the call of the algorithm gets that mark: a step of an arm's rollout takes a fifth of the time, a batch two
thirds to nine tenths, compilation two thirds.

Only loops of XLA's own making can be in such a kernel: whatever it hands to a library stops the compiler, hence
`LOOPS`. So does an argument that nothing reads: one entry of each is a result, and a barrier keeps constants from being
moved inside. In a kernel an element of a concatenation that is computed on the spot costs a choice of the operand, and
no loop over them is in vectors: large results are put together outside. XLA promises none of this, hence the table of
versions in `versions`; elsewhere the same runs in many kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.gpu import call as on_gpu
from dynax.compile.pieces import in_pieces
from dynax.compile.prepared import Lines, is_large_sum, prepared
from dynax.compile.versions import available

LOOPS = frozenset(
    (
        *("abs", "add", "add_any", "and", "atan2", "broadcast_in_dim", "clamp", "concatenate"),
        *("convert_element_type", "copy", "cos", "div", "dynamic_slice", "dynamic_update_slice", "eq", "exp"),
        *("gather", "ge", "gt", "integer_pow", "iota", "is_finite", "le", "log", "lt", "max", "min"),
        *("mul", "ne", "neg", "not", "or", "pad", "pow", "reduce_and", "reduce_max", "reduce_min", "reduce_or"),
        *("reduce_prod", "reduce_sum", "rem", "reshape", "rev", "round", "rsqrt", "select_n", "sign", "sin", "slice"),
        *("split", "sqrt", "square", "squeeze", "stack", "stop_gradient", "sub", "tan", "tanh", "transpose", "unstack"),
        *("dynax_apart", "dynax_links", "dynax_place", "dynax_rows", "dynax_sum"),
    )
)
"""Primitives of which XLA on a CPU makes loops."""
NEWER = frozenset(("one_minus_square",))
"""Those that JAX 0.10 does not have."""
CALLS = frozenset(("custom_jvp_call", "custom_vjp_call", "jit", "scan", "while"))
"""Those that call others."""


def expected() -> bool:
    """Whether programs that are traced now will be one kernel each, as far as can be told."""
    return on_gpu.available() if jax.default_backend() == "gpu" else jax.default_backend() == "cpu" and available()


def in_one_kernel(
    function: Callable[..., list[jax.Array]],
    arrays: Sequence[jax.Array],
    *,
    lines: Lines = Lines.OWN,
    whole: bool = False,
) -> list[jax.Array]:
    """`function(*arrays)`, in one kernel if that is possible; for what runs on one CPU. `lines`: those that are
    drawn in it; `whole`: however long it is."""
    return marked(function, arrays, lines=lines, whole=whole) if available() else function(*arrays)


def marked(
    function: Callable[..., list[jax.Array]],
    arrays: Sequence[jax.Array],
    *,
    lines: Lines = Lines.OWN,
    whole: bool = False,
) -> list[jax.Array]:
    """`function(*arrays)` in a call with the mark, or some if it is long, unless it holds what a kernel cannot; in any
    version of JAX."""
    traced = prepared(jax.make_jaxpr(function)(*arrays), lines)
    if not all(map(_can_be_inside, equations(traced.jaxpr))):
        return function(*arrays)
    return _called(traced, arrays) if whole else in_pieces(traced, arrays, _called)


def _called(traced: Any, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The results of a program in a call with the mark."""
    # Not at the top of the module: without them dynax runs as well, only slower.
    from jax.experimental.scheduling_groups import xla_metadata_call
    from jax.extend.core import jaxpr_as_fun

    present = [x for x in arrays if x.size]
    types = sorted({str(x.dtype) for x in present})

    def inside(*given: jax.Array) -> list[jax.Array]:
        rest = iter(given)
        whole = [next(rest).reshape(x.shape) if x.size else jnp.zeros(x.shape, x.dtype) for x in arrays]
        first = [lax.slice(x, (0,) * x.ndim, (1,) * x.ndim).reshape(1) for x in given]
        read = [jnp.concatenate([x for x in first if x.dtype == t]) for t in types]
        return [*jaxpr_as_fun(traced)(*whole), *read]

    call: Callable = xla_metadata_call(inside, xla_cpu_small_call="true", inlineable="false")
    # Of axes of length one XLA would make copies, each a kernel; flat, an array is not computed in vectors.
    return call(*lax.optimization_barrier([_without_ones(x) for x in present]))[: len(traced.out_avals)]


def _without_ones(x: jax.Array) -> jax.Array:
    return lax.squeeze(x, [k for k, n in enumerate(x.shape) if isinstance(n, int) and n == 1])


def equations(jaxpr: Any) -> Iterator[Any]:
    """Those of a program and of all programs in it."""
    from jax.extend.core import subjaxprs

    yield from jaxpr.eqns
    for inner in subjaxprs(jaxpr):
        yield from equations(inner)


def _can_be_inside(equation: Any) -> bool:
    return equation.primitive.name in LOOPS | NEWER | CALLS and not is_large_sum(equation)
