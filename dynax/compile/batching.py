"""Plain `vmap` on the fast layout: batch axes last.

Algorithms are written for trailing batch axes, which keep the innermost loops contiguous; `jax.vmap` puts the new axis
first, which halves the speed. A function made here is a primitive of its own, whose batching rule moves the axis to
the end and back and whose derivative is such a function again, and its transpose another one: what JAX would make of a
derivative, equation by equation, has the batch in front. So every composition of `vmap`, `grad`, `jvp`, `jacfwd`,
`jacrev` and `hessian` works, inside loops too.

On one CPU a large batch is computed a tile at a time, so that what is in work stays in the cache, and a tile, or one
state, in one kernel where that is possible.

It is a primitive, and not `custom_vmap` in `custom_jvp`, because JAX inlines those in places (a scan's loop invariants
in reverse mode) and then finds a batching rule which it cannot differentiate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from dynax.compile.lowering import in_many_kernels, on_cpus, on_gpus, without_mesh
from dynax.compile.prepared import Lines
from dynax.compile.spread import rule, spread
from dynax.compile.zeros import along_moving, is_zero

Result = TypeVar("Result")
KEPT = "dynax_kept"
"""The name of few numbers that took most of the time of a step: kept with the states of a rollout, they are not found
twice when its derivative goes back."""
Rule = Callable[[tuple, tuple], tuple[Any, Any]]
"""`(primals, tangents) -> (value, tangent)`, where `is_zero` knows the tangents that are zero."""

Tangent = Callable[[tuple, Any, tuple], Any]
"""`(primals, value, tangents) -> tangent`, where `is_zero` knows the tangents that are zero."""


def trailing(
    core: Callable[..., Result],
    rule: Rule | None = None,
    *,
    tangent: Tangent | None = None,
    differentiated_as: Callable[..., Result] | None = None,
    like: Callable[..., Result] | None = None,
    tile: int | None = None,
    lines: Lines = Lines.OWN,
) -> Callable[..., Result]:
    """`core(tree, *arrays)`, which accepts trailing batch axes on arrays and leaves, under `vmap`.

    Arrays may be trees of them, or `None`. Results are arrays, or trees of them, with the batch axes last. The
    derivative is that of `core` itself, a function of the same kind; or that of `differentiated_as`, which has the same
    value; or `tangent`, of a value that rollouts then keep; or `rule`, which stays as it is written. `like` has results
    of the same shapes and costs nothing: without it `core` is traced for them, and again for a batch. `tile`: how many
    samples a CPU takes at a time, by default as many as shapes suggest. `lines`: those that are drawn in its
    program (`Lines.DERIVATIVE` where `core` is itself the derivative of something).
    """
    compiled = jax.jit(core)  # traced once for all that ask for it: shapes, code, derivatives
    function = _Batched(compiled, rule, tile)
    function.lines = lines
    function.tangent, function.plain, function.like = tangent, differentiated_as or core, like or compiled
    return wraps(core)(lambda *args: function(*args))


def known(rule: Rule) -> Callable[..., jax.Array]:
    """The function `(tree, *arrays)` whose value is the last array, which was found before, with the derivatives of
    `rule`. It costs nothing where no derivative is taken."""
    function = _Batched(jax.jit(lambda *args: args[-1]), rule)
    function.known = True
    return lambda *args: function(*args)


def alone(
    core: Callable[..., Result], plain: Callable[..., Result], like: Callable[..., Result]
) -> Callable[..., Result]:
    """`core(tree, *arrays)` of one state; of a batch, and where a derivative is taken, `plain`, which has the same
    value and says the same in JAX's own terms. `like` has results of the same shapes and costs nothing: `core` is not
    traced but where it is run."""
    function = _Batched(jax.jit(core), partial(along_moving, plain))
    function.like, function.in_batch = like, plain
    return lambda *args: function(*args)


def batch_last(core: Callable[..., Result], rule: Rule | None = None, **options: Any) -> Callable[..., Result]:
    """`trailing`, compiled when it is called outside of `jit`."""
    return jax.jit(trailing(core, rule, **options))


def batch_last_vectors(core: Callable[..., Any], rule: Rule | None = None, **options: Any) -> Callable[..., jax.Array]:
    """`batch_last` of a function whose result has components and an `array` of them, which is put together outside:
    inside one kernel each of its elements would choose between them."""
    components = trailing(core, rule, **options)
    return jax.jit(lambda *args: components(*args).array)


def walking(made: Callable[..., Callable]) -> Callable[[Callable], Callable]:
    """`trailing`, `batch_last` or `batch_last_vectors` of a function with a keyword `execution`: that which is best in
    one kernel, and levels for the derivative. Only for what takes and gives nothing in rows."""

    def decorated(core: Callable) -> Callable:
        by_levels = partial(core, execution="levels")
        return wraps(core)(made(partial(core, execution="automatic"), differentiated_as=by_levels))

    return decorated


def linear(
    core: Callable[..., Result],
    transpose: Callable,
    exact: Callable,
    like: Callable[..., Result],
    exact_transpose: Callable | None = None,
    seen: Callable[[tuple], tuple] = tuple,
    like_transpose: Callable[..., Any] | None = None,
) -> tuple[Callable[..., Result], Callable]:
    """`core(tree, *arrays, x)`, linear in `x`, and `transpose(tree, *arrays, y)` as functions like those of `trailing`:
    each is the other's transpose, written and not derived, and neither is traced before it is needed.

    `exact(tree, *arrays, x)` has the value of `core`, and its derivatives are those of both: they are asked for where a
    derivative is differentiated again; so does `exact_transpose(tree, *arrays, y)`, where it can be had for less than
    that of `exact`. `like(tree, *arrays, x)` has the shape of `core`, and costs nothing. `seen((tree, *arrays))` is
    what `transpose` is given of these, where it finds again what would be long to keep. `like_transpose(tree, *arrays,
    y)` has the shapes of `transpose`, which is traced for them otherwise.
    """

    def transposed(*args: Any) -> Any:
        *given, y = args
        leaves, structure = jax.tree.flatten(args)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), back.shapes(structure, leaves))
        return jax.vjp(lambda x: exact(*given, x), nothing)[1](y)[0]

    # Second derivatives are those of what is written, in many kernels: what a derivative knows is not batched in part.
    there, back = (
        _Batched(jax.jit(one), partial(along_moving, true))
        for one, true in ((core, exact), (transpose, exact_transpose or transposed))
    )
    _are_transposes(there, back, like)
    there.seen = seen
    back.like = like_transpose or back.like
    return there, back


def by_samples(
    function: Callable[..., Result],
    rule: Rule | None = None,
    *,
    again: Callable[..., Result] | None = None,
    tile: int | None = None,
) -> Callable[..., Result]:
    """`trailing` of a function of one sample, which is read with the batch last (`spread`); the first array is a
    vector.

    For loops that run until all samples are done: those of one tile, on one device, do not wait for others. And for
    many kernels in a row: a tile goes through all of them, and finds what the last one left in the cache.

    `again(value, tree, *arrays)` has the results of `function` where they are known, which rollouts then keep: its
    derivative is taken.
    """

    def core(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        return spread(lambda *own: function(*structure.unflatten(own)), leaves, _batch_of(args))

    def tangent(args: tuple, value: Any, tangents: tuple) -> list:
        leaves, structure = jax.tree.flatten(args)
        found, made = jax.tree.flatten(lax.stop_gradient(value))
        rates = jax.tree.leaves(tangents, is_leaf=is_zero)
        moving = [k for k, rate in enumerate(rates) if not is_zero(rate)]
        real = [k for k, x in enumerate(found) if jnp.issubdtype(x.dtype, jnp.inexact)]
        ends = len(leaves), len(leaves) + len(found)

        def one(*own: jax.Array) -> list:
            current, value, along = list(own[: ends[0]]), made.unflatten(own[ends[0] : ends[1]]), own[ends[1] :]

            def results(*values: jax.Array) -> list:
                for k, x in zip(moving, values, strict=True):
                    current[k] = x
                assert again is not None
                every = jax.tree.leaves(again(value, *structure.unflatten(current)))
                return [every[k] for k in real]

            return jax.jvp(results, tuple(current[k] for k in moving), along)[1]

        along = spread(one, [*leaves, *found, *(rates[k] for k in moving)], _batch_of(args))
        change = dict(zip(real, along, strict=True))
        return [change.get(k, ad.Zero(jax.typeof(x).to_tangent_aval())) for k, x in enumerate(found)]

    return trailing(core, rule, tangent=tangent if again else None, tile=tile)


def samplewise(axes: int) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """The same of what is one kernel; `axes`: of its first array."""

    def decorated(function: Callable[..., Result]) -> Callable[..., Result]:
        def core(*args: Any) -> Any:
            leaves, structure = jax.tree.flatten(args)
            batch = jax.tree.leaves(args[1:])[0].shape[axes:]
            return spread(lambda *own: function(*structure.unflatten(own)), leaves, batch)

        found = _Batched(jax.jit(core))
        found.in_kernels = True
        return wraps(function)(lambda *args: found(*args))

    return decorated


def _batch_of(args: tuple) -> tuple[int, ...]:
    return jax.tree.leaves(args[1:])[0].shape[1:]


class _Batched:
    """A function on trees as a call of the primitive on their leaves."""

    def __init__(self, core: Callable, rule: Rule | None = None, tile: int | None = None) -> None:
        self.core, self.rule, self.tile = core, rule, tile
        self.tangent: Tangent | None = None
        self.plain: Callable = core
        """What is differentiated where there is neither."""
        self.transpose: _Batched | None = None
        """Of what is linear in its last argument."""
        self.like: Callable = core
        """A function with results of the same shapes."""
        self.lines = Lines.OWN
        """Those drawn in its program."""
        self.seen: Callable[[tuple], tuple] = tuple
        """What its transpose takes of all arguments but the last."""
        self.parted = False
        """Whether its transpose takes a list with `None` for what is zero."""
        self.known = False
        """Whether its value is its last leaf."""
        self.in_kernels = False
        """Whether a GPU takes it kernel by kernel: it may be as long as a scene has shapes."""
        self.in_batch: Callable | None = None
        """What a batch is of instead, by plain `vmap`."""
        self._made: dict[tuple, _Batched] = {}

    def __call__(self, *args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        results = jax.tree.structure(self.shapes(structure, leaves))
        found = _primitive.bind(*leaves, function=self, structure=structure, batch=())
        return results.unflatten(found)

    def shapes(self, structure: Any, leaves: Any) -> Any:
        """Of the results, whatever devices the leaves vary over: traced as when it is lowered, and so only once."""
        plain = [jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) for x in leaves]
        with jax.numpy_rank_promotion("allow"), without_mesh():  # inside, arrays have batch axes or none
            return jax.eval_shape(self.like, *structure.unflatten(plain))

    def on_leaves(self, structure: Any, leaves: Any) -> list:
        with jax.numpy_rank_promotion("allow"):
            return jax.tree.leaves(self.core(*structure.unflatten(leaves)))

    def linearized(self, structure: Any, moving: tuple[int, ...], real: tuple[int, ...]) -> _Batched:
        """As `_linearized`, traced once for all who ask for it."""
        key = structure, moving, real
        if key not in self._made:
            self._made[key] = self._linearized(*key)
        return self._made[key]

    def _linearized(self, structure: Any, moving: tuple[int, ...], real: tuple[int, ...]) -> _Batched:
        """The tangents of the results `real` from those of the leaves `moving`, a function of

        - `still`: the other leaves of the first argument, and `rest`, of all others, `None` where one moves,
        - `values`: the leaves that move, with the full batch,
        - `found`: the results, where the tangent needs them,

        and of the tangents of `values`.
        """

        def at(still: tuple, rest: tuple, values: list, others: Callable[[Any], Any] = lambda x: x) -> Any:
            every = [None if x is None else others(x) for x in (*still, *rest)]
            for k, value in zip(moving, values, strict=True):
                every[k] = value
            return structure.unflatten(every)

        def results(of: Callable, still: tuple, rest: tuple, values: list) -> list:
            every = jax.tree.leaves(of(*at(still, rest, values)))
            return [every[k] for k in real]

        def there(still: tuple, rest: tuple, values: list, found: list | None, along: list) -> list:
            if self.tangent is None:
                return jax.jvp(partial(results, self.plain, still, rest), (values,), (along,))[1]
            args, zeros = at(still, rest, values), at(still, rest, along, lambda x: ad.Zero(jax.typeof(x)))
            value = jax.tree.structure(self.shapes(structure, jax.tree.leaves(args))).unflatten(found)
            rates = jax.tree.leaves(self.tangent(args, value, zeros), is_leaf=is_zero)
            return [ad.instantiate_zeros(rates[k]) for k in real]

        def back(still: tuple, rest: tuple, values: list, found: list | None, bars: list) -> list:
            def present(of: Callable, *args: Any) -> list:
                return [x for x, bar in zip(of(*args), bars, strict=True) if bar is not None]

            bars_of_present = [bar for bar in bars if bar is not None]
            if self.tangent is None:
                along = partial(present, partial(results, self.plain, still, rest))
                return jax.vjp(along, values)[1](bars_of_present)[0]
            along = partial(present, partial(there, still, rest, values, found))
            return jax.linear_transpose(along, values)(bars_of_present)[0]

        tile = self.tile if self.tangent is None else None  # what is known takes no loop that others wait for
        found = _Batched(jax.jit(there), tile=tile), _Batched(jax.jit(back), tile=tile)
        _are_transposes(*found, lambda still, rest, values, *_: results(self.like, still, rest, values))
        found[1].like = lambda still, rest, values, found, bars: values
        found[0].parted = True
        for own in found:
            own.in_kernels = self.in_kernels
        return found[0]


def _are_transposes(there: _Batched, back: _Batched, like: Callable) -> None:
    there.transpose, back.transpose, there.like = back, there, like
    there.lines = back.lines = Lines.DERIVATIVE


_primitive = Primitive("dynax_batch_last")
_primitive.multiple_results = True


# Parameters of the primitive: `structure` of the arguments, and the lengths of their batch axes, `batch`.


@_primitive.def_impl
def _evaluated(*leaves: jax.Array, function: _Batched, structure: Any, batch: tuple[int, ...]) -> list:
    if 0 in batch:  # as when it is lowered
        shapes = _shapes(*map(jax.typeof, leaves), function=function, structure=structure, batch=batch)
        return [jnp.zeros(x.shape, x.dtype) for x in shapes]
    return function.on_leaves(structure, leaves)


@_primitive.def_abstract_eval
def _shapes(*leaves: Any, function: _Batched, structure: Any, batch: tuple[int, ...]) -> list:
    # Those of one sample, which are known: to trace the whole batch would take as long again.
    samples = [jax.core.ShapedArray(x.shape[: x.ndim - len(batch)], x.dtype) for x in leaves]
    found = [x.update(shape=(*x.shape, *batch)) for x in jax.tree.leaves(function.shapes(structure, samples))]
    if all(x == jax.core.ShapedArray(x.shape, x.dtype, x.weak_type) for x in leaves):
        return [jax.core.ShapedArray(x.shape, x.dtype) for x in found]
    # Over the devices of a `shard_map` results vary as the sum of all arguments does; and where the mesh is in the
    # types, their batch axes lie as those of the arguments do.
    like = jax.make_jaxpr(lambda *xs: sum(jnp.sum(x, dtype=jnp.float32) for x in xs))(*leaves).out_avals[0]
    axes = [next((s for x in leaves if (s := x.sharding.spec[k])), None) for k in range(-len(batch), 0)]
    mesh = next((x.sharding.mesh for x in leaves if any(x.sharding.spec)), like.sharding.mesh)
    placed = [NamedSharding(mesh, PartitionSpec(*(None,) * (len(x.shape) - len(axes)), *axes)) for x in found]
    return [
        like.update(shape=x.shape, dtype=x.dtype, weak_type=False, sharding=sharding)
        for x, sharding in zip(found, placed, strict=True)
    ]


def _batched(leaves: tuple, axes: tuple, *, function: _Batched, structure: Any, batch: tuple[int, ...]) -> tuple:
    if (plain := function.in_batch) is not None:
        found = jax.vmap(lambda *own: jax.tree.leaves(plain(*structure.unflatten(own))), tuple(axes))(*leaves)
        return found, [0] * len(found)
    size = next(leaf.shape[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None)
    # Every leaf gets the axis, of length one where it is the same for all, so that a second `vmap` finds its place.
    moved = [
        leaf[..., None] if axis is None else jnp.moveaxis(leaf, axis, -1)
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    tree, *arrays = structure.unflatten(moved)
    arrays = jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[:-1], size)), arrays)
    every = jax.tree.leaves((tree, *arrays))
    found = _primitive.bind(*every, function=function, structure=structure, batch=(*batch, size))
    return found, [x.ndim - 1 for x in found]


def _differentiated(
    leaves: tuple, rates: tuple, *, function: _Batched, structure: Any, batch: tuple[int, ...]
) -> tuple:
    if function.rule is not None:
        value, rate = function.rule(structure.unflatten(leaves), structure.unflatten(rates))
        return jax.tree.leaves(value), jax.tree.leaves(rate)
    found = _primitive.bind(*leaves, function=function, structure=structure, batch=batch)
    if function.tangent is not None:
        found = [checkpoint_name(x, KEPT) for x in found]
    real = tuple(k for k, x in enumerate(found) if jnp.issubdtype(x.dtype, jnp.inexact))
    moving = tuple(k for k, rate in enumerate(rates) if not is_zero(rate))

    def full(x: jax.Array) -> jax.Array:
        return jnp.broadcast_to(x, (*x.shape[: x.ndim - len(batch)], *batch))

    still = tuple(None if k in moving else x for k, x in enumerate(leaves))
    first = len(jax.tree.leaves(structure.unflatten(range(len(leaves)))[0]))
    values, along = ([full(x[k]) for k in moving] for x in (leaves, rates))
    args, whole = jax.tree.flatten((still[:first], still[first:], values, function.tangent and found, along))
    linear = function.linearized(structure, moving, real)
    change = dict(zip(real, _primitive.bind(*args, function=linear, structure=whole, batch=batch), strict=True))
    return found, [change.get(k, ad.Zero(jax.typeof(x).to_tangent_aval())) for k, x in enumerate(found)]


batching.primitive_batchers[_primitive] = _batched


@rule("dynax_batch_last")
def _spread(equation: Any, leaves: list, count: int) -> list:
    """Of a program that is read with the batch last."""
    function, structure, batch = (equation.params[name] for name in ("function", "structure", "batch"))
    lengths: Any = jnp.broadcast_shapes(*(x.shape[x.ndim - count :] for x in leaves))
    if (plain := function.in_batch) is not None:
        return spread(lambda *own: jax.tree.leaves(plain(*structure.unflatten(own))), leaves, lengths)
    tree, *arrays = structure.unflatten(leaves)
    arrays = jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[: x.ndim - count], *lengths)), arrays)
    every = jax.tree.leaves((tree, *arrays))
    return _primitive.bind(*every, function=function, structure=structure, batch=(*batch, *lengths))


ad.primitive_jvps[_primitive] = _differentiated
mlir.register_lowering(_primitive, in_many_kernels)
mlir.register_lowering(_primitive, on_cpus, platform="cpu")
mlir.register_lowering(_primitive, on_gpus, platform="cuda")


def _transposed(
    cotangents: list, *leaves: Any, function: _Batched, structure: Any, batch: tuple[int, ...]
) -> list[jax.Array | None]:
    """Of what is linear in some arguments, by its derivative, which does not depend on where they are."""
    if function.transpose is not None:
        return _transposed_as_given(cotangents, leaves, function, structure, batch)
    unknown = [k for k, x in enumerate(leaves) if ad.is_undefined_primal(x)]

    def along(*values: jax.Array) -> list:
        given = list(leaves)
        for k, value in zip(unknown, values, strict=True):
            given[k] = value
        return _primitive.bind(*given, function=function, structure=structure, batch=batch)

    zeros = [ad.instantiate_zeros(ad.Zero(leaves[k].aval)) for k in unknown]
    found, pull = jax.vjp(along, *zeros)
    rates = pull([jnp.zeros_like(x) if is_zero(c) else c for x, c in zip(found, cotangents, strict=True)])
    result: list[jax.Array | None] = [None] * len(leaves)
    for k, rate in zip(unknown, rates, strict=True):
        result[k] = rate
    return result


def _transposed_as_given(
    cotangents: list, leaves: tuple, function: _Batched, structure: Any, batch: tuple[int, ...]
) -> list[jax.Array | None]:
    """Of what is linear in its last argument; entries of that which are known are zeros."""
    assert function.transpose is not None
    *given, last = structure.unflatten(leaves)
    given = function.seen(tuple(given))
    if function.parted:
        bar = [None if is_zero(c) else c for c in cotangents]
    else:
        bars = [ad.instantiate_zeros(c) if is_zero(c) else c for c in cotangents]
        avals = [x.aval if ad.is_undefined_primal(x) else x for x in leaves]
        bar = jax.tree.structure(function.shapes(structure, avals)).unflatten(bars)
    every, turned = jax.tree.flatten((*given, bar))
    found = _primitive.bind(*every, function=function.transpose, structure=turned, batch=batch)
    if function.transpose.parted:
        found = [x for x, own in zip(found, last, strict=True) if own is not None]
    rest = len(leaves) - len(found)
    return [
        *(None,) * rest,
        *(r if ad.is_undefined_primal(x) else None for x, r in zip(leaves[rest:], found, strict=True)),
    ]


ad.primitive_transposes[_primitive] = _transposed
