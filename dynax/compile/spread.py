"""A function of one sample for many, with the batch axes last: its program is read, and each step done for all.

`vmap` puts a batch in front. The innermost loops are then over the three numbers of a vector, products of small
matrices are a library's calls, and nothing of it is in one kernel with the rest. Here the axes of a sample stay where
they are, in front, and every step is over vectors of samples. What has no rule here is left to `vmap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from dynax.sweep.sums import summed

Rule = Callable[[Any, list[jax.Array], int], Any]
"""Of an equation: it, its arguments, and how many batch axes they have, each of length one where it is the same for
all samples."""

BY_ELEMENTS = (
    *("abs", "add", "add_any", "and", "atan2", "clamp", "convert_element_type", "copy", "cos", "div", "eq", "exp"),
    *("ge", "gt", "integer_pow", "is_finite", "le", "log", "lt", "max", "min", "mul", "ne", "neg", "not", "or"),
    *("pow", "rem", "round", "rsqrt", "select_n", "sign", "sin", "sqrt", "square", "stop_gradient", "sub", "tan"),
    *("tanh", "xor"),
)
BY_AXES_IN_FRONT = (
    *("argmax", "argmin", "dynax_apart", "dynax_rows", "dynax_sum", "expand_dims", "reduce_and", "reduce_max"),
    *("reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "rev", "split", "squeeze", "unstack"),
)
"""Those that say which axes they take, counted from the front."""
FEW = 8
"""Terms up to which a product of matrices is written out; of more it is a library's."""
RULES: dict[str, Rule] = {}


def spread(function: Callable, leaves: Sequence[jax.Array], batch: tuple[int, ...]) -> Any:
    """`function(*leaves)` of samples, each leaf with trailing axes of the lengths of `batch`, or of length one where
    it is the same for all; so are the results."""
    if not batch:
        return function(*leaves)
    count = len(batch)
    samples = [jax.ShapeDtypeStruct(x.shape[: x.ndim - count], x.dtype) for x in leaves]
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*samples)
    found = _read(program, list(leaves), count)
    whole = [jnp.broadcast_to(x, (*x.shape[: x.ndim - count], *batch)) for x in found]
    return jax.tree.structure(shapes).unflatten(whole)


def rule(*names: str) -> Callable[[Rule], Rule]:
    def added(own: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, own))
        return own

    return added


def _read(program: Any, leaves: list[jax.Array], count: int) -> list[jax.Array]:
    """The results of a program, closed over its constants."""

    def constant(x: Any) -> jax.Array:
        x = jnp.asarray(x)
        return x.reshape(*x.shape, *(1,) * count)

    jaxpr = getattr(program, "jaxpr", program)
    known = dict(zip(jaxpr.constvars, map(constant, getattr(program, "consts", ())), strict=True))
    known.update(zip(jaxpr.invars, leaves, strict=True))

    def value(atom: Any) -> jax.Array:
        if not isinstance(atom, Literal):
            return known[atom]
        kind: Any = atom.aval
        return constant(np.asarray(atom.val, kind.dtype))

    for equation in jaxpr.eqns:
        found = RULES.get(equation.primitive.name, _by_vmap)(equation, list(map(value, equation.invars)), count)
        known.update(zip(equation.outvars, found if isinstance(found, list | tuple) else [found], strict=True))
    return list(map(value, jaxpr.outvars))


def _bound(equation: Any, args: Sequence[jax.Array]) -> Any:
    return equation.primitive.bind(*args, **equation.primitive.get_bind_params(equation.params))


def _by_vmap(equation: Any, args: list[jax.Array], count: int) -> Any:
    if not args:
        found = _bound(equation, [])
        return jax.tree.map(lambda x: x.reshape(*x.shape, *(1,) * count), found)
    if not count:
        return _bound(equation, args)
    axes = [-1 if x.shape[-1] != 1 else None for x in args]
    given = [x if axis else x[..., 0] for x, axis in zip(args, axes, strict=True)]
    if not any(axes):
        found = _by_vmap(equation, given, count - 1)
        return jax.tree.map(lambda x: x[..., None], found)
    return jax.vmap(lambda *own: _by_vmap(equation, list(own), count - 1), in_axes=axes, out_axes=-1)(*given)


def _lengths(args: Sequence[jax.Array], count: int) -> tuple[int, ...]:
    return jnp.broadcast_shapes(*(x.shape[x.ndim - count :] for x in args))


def _alike(args: Sequence[jax.Array], count: int) -> list[jax.Array]:
    """With the same batch axes, and as many of their own."""
    lengths, own = _lengths(args, count), max(x.ndim - count for x in args)
    heads = [x.shape[: x.ndim - count] for x in args]
    head = jnp.broadcast_shapes(*((1,) * (own - len(x)) + x for x in heads))
    every = [x.reshape(*(1,) * (own + count - x.ndim), *x.shape) for x in args]
    return [jnp.broadcast_to(x, (*head, *lengths)) for x in every]


@rule(*BY_ELEMENTS)
def _by_elements(equation: Any, args: list[jax.Array], count: int) -> Any:
    return _bound(equation, _alike(args, count))


@rule(*BY_AXES_IN_FRONT)
def _by_axes(equation: Any, args: list[jax.Array], count: int) -> Any:
    return _bound(equation, args)


@rule("concatenate", "stack")
def _together(equation: Any, args: list[jax.Array], count: int) -> Any:
    lengths = _lengths(args, count)
    return _bound(equation, [jnp.broadcast_to(x, (*x.shape[: x.ndim - count], *lengths)) for x in args])


@rule("broadcast_in_dim")
def _broadcast(equation: Any, args: list[jax.Array], count: int) -> jax.Array:
    x, *_ = args
    shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
    ends = range(len(shape), len(shape) + count)
    return lax.broadcast_in_dim(x, (*shape, *_lengths(args, count)), (*axes, *ends))


@rule("reshape")
def _reshaped(equation: Any, args: list[jax.Array], count: int) -> jax.Array:
    return args[0].reshape(*equation.params["new_sizes"], *_lengths(args, count))


@rule("transpose")
def _transposed(equation: Any, args: list[jax.Array], count: int) -> jax.Array:
    (x,), order = args, equation.params["permutation"]
    return jnp.transpose(x, (*order, *range(len(order), x.ndim)))


@rule("slice")
def _sliced(equation: Any, args: list[jax.Array], count: int) -> jax.Array:
    (x,), p = args, equation.params
    steps = p["strides"] or (1,) * len(p["start_indices"])
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], steps))]


@rule("pad")
def _padded(equation: Any, args: list[jax.Array], count: int) -> jax.Array:
    x, filling = args
    if any(n != 1 for n in filling.shape):
        return _by_vmap(equation, args, count)
    return lax.pad(x, filling.reshape(()), (*equation.params["padding_config"], *((0, 0, 0),) * count))


@rule("dot_general")
def _product(equation: Any, args: list[jax.Array], count: int) -> jax.Array:
    summed_axes, same_axes = equation.params["dimension_numbers"]
    terms = math.prod(args[0].shape[k] for k in summed_axes[0])
    if terms > FEW:
        return _by_vmap(equation, args, count)
    own = []
    for x, over, same in zip(args, summed_axes, same_axes, strict=True):
        ends = range(x.ndim - count, x.ndim)
        free = [k for k in range(x.ndim - count) if k not in (*over, *same)]
        shape = [x.shape[k] for k in (*same, *free)]
        x = jnp.transpose(x, (*same, *free, *over, *ends)).reshape(*shape, terms, *(x.shape[k] for k in ends))
        own.append((x, len(same), len(free)))
    (left, same, first), (right, _, second) = own
    left = left.reshape(*left.shape[: same + first], *(1,) * second, *left.shape[same + first :])
    right = right.reshape(*right.shape[:same], *(1,) * first, *right.shape[same:])
    every = jnp.multiply(*_alike([left, right], count))
    return summed(every, same + first + second).astype(equation.outvars[0].aval.dtype)


@rule("jit", "pjit")
def _called(equation: Any, args: list[jax.Array], count: int) -> Any:
    return _read(equation.params["jaxpr"], args, count)


@rule("scan")
def _loop(equation: Any, args: list[jax.Array], count: int) -> Any:
    p, lengths = equation.params, _lengths(args, count)
    body = p["jaxpr"]
    inner = getattr(body, "jaxpr", body)
    # What is carried has the same axes inside and outside; versions of JAX count it in different ways.
    carried = sum(x.aval.ndim == y.aval.ndim for x, y in zip(equation.outvars, inner.outvars, strict=True))
    sliced = sum(x.aval.ndim > y.aval.ndim for x, y in zip(equation.invars, inner.invars, strict=True))
    fixed = len(args) - carried - sliced

    def whole(every: Sequence[jax.Array]) -> list[jax.Array]:
        return [jnp.broadcast_to(x, (*x.shape[: x.ndim - count], *lengths)) for x in every]

    def step(carry: list, own: list) -> tuple[list, list]:
        found = whole(_read(body, [*args[:fixed], *carry, *own], count))
        return found[:carried], found[carried:]

    start, xs = whole(args[fixed : fixed + carried]), args[fixed + carried :]
    carry, rows = lax.scan(step, start, xs, length=p["length"], reverse=p["reverse"])
    return [*carry, *rows]
