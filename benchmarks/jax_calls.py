"""Calling a JAX function so that it can be timed; also for peers in environments of their own, without dynax."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import Block, Taken, timed

CHECKED = 8
"""States of a batch whose results are compared."""


@lru_cache(maxsize=1)
def without_fusion_emitters() -> dict[str, Any]:
    """With XLA's defaults of 2026 MJX takes a hundred times longer on a CPU; a peer is measured at its best. Versions
    of JAX from 0.12 on do not have the option any more."""
    options = {"xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x + 1.0, compiler_options=dict(options)).lower(1.0).compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return options


def use_precision(double: bool) -> None:
    """As a user of that precision would have it: float32 without JAX's x64 mode."""
    jax.config.update("jax_enable_x64", double)


def as_type(tree: Any, dtype: str) -> Any:
    """With all its floating-point leaves in one type."""

    def cast(x: Any) -> jax.Array:
        x = jnp.asarray(x)
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(cast, tree)


class Call:
    """A jitted function of fixed arguments: the seconds its first call took, its results, blocks of further calls."""

    def __init__(
        self,
        function: Callable,
        arguments: Sequence[Any],
        double: bool,
        options: Mapping[str, Any] | None = None,
        **how: Any,
    ):
        use_precision(double)
        self._double, self._arguments = double, tuple(arguments)
        self._jitted = jax.jit(
            function, compiler_options=dict(options) if options else None, keep_unused=bool(how), **how
        )
        start = time.process_time()
        self._result = jax.block_until_ready(self._jitted(*self._arguments))
        self.first = time.process_time() - start

    def answer(self, batch: int) -> Any:
        """As NumPy arrays with a leading axis, no more than a few states of a batch; a batch of one has no axis yet."""
        return jax.tree.map(lambda x: np.asarray(x[:CHECKED] if batch > 1 else x[None]), self._result)

    def block(self) -> Block:
        call = self._again()
        del self._result

        inner = timed(call)

        def block(count: int) -> Taken:
            use_precision(self._double)
            return inner(count)

        return block

    def _again(self) -> Callable[[], None]:
        jitted, arguments = self._jitted, self._arguments

        def call() -> None:
            jax.block_until_ready(jitted(*arguments))

        return call


class Rewriting(Call):
    """Each call puts its results where those of the call before were, as a C++ library does that keeps its matrices."""

    def __init__(self, function: Callable, arguments: Sequence[Any], *rest: Any):
        shapes = jax.eval_shape(function, *arguments)
        last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        super().__init__(lambda last, *args: function(*args), (last, *arguments), *rest, donate_argnums=0)

    def _again(self) -> Callable[[], None]:
        jitted, arguments, last = self._jitted, self._arguments[1:], [self._result]

        def call() -> None:
            last[0] = jax.block_until_ready(jitted(last[0], *arguments))

        return call


def compile_block(
    function: Callable, arguments: Sequence[Any], double: bool, options: Mapping[str, Any] | None = None
) -> Block:
    """A block of compilations: tracing, lowering and compiling, with nothing of it done before."""

    def block(count: int) -> Taken:
        use_precision(double)
        cpu = wall = 0.0
        for _ in range(count):
            jax.clear_caches()
            start = Taken(time.process_time(), time.perf_counter())
            jax.jit(function, compiler_options=dict(options) if options else None).lower(*arguments).compile()
            cpu, wall = cpu + time.process_time() - start.cpu, wall + time.perf_counter() - start.wall
        return Taken(cpu, wall)

    return block


def no_cache() -> None:
    """Compile times are those of a machine that has not seen the function before."""
    jax.config.update("jax_enable_compilation_cache", False)
