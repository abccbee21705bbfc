"""A function of a batch as a call of one kernel, in a program for an NVIDIA GPU.

XLA on a GPU runs such a function as tens to hundreds of kernels which pass every number through memory, and a loop
until all samples are done asks the host after each round. Here a thread computes one sample and keeps what it can in
registers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile import versions
from dynax.compile.gpu import nvrtc
from dynax.compile.gpu.reading import NotReadError, read
from dynax.compile.gpu.scalars import Scalars, TooLargeError
from dynax.compile.gpu.source import BLOCKS, Entry, ahead, kernel

TARGET = "__gpu$xla.gpu.ptx"
"""XLA's own call of a kernel that a program brings along."""
LONGEST = 45_000
"""Lines of a kernel. CUDA's assembler takes 3 s for 25,000, 11 s for 43,000 and 37 s for 51,000; what is longer goes
by the functions that it is made of, or in many kernels."""
MANY = 64
"""Numbers that are the same for all samples from which on they are computed before, by a kernel of their own: of an
arm's forward dynamics a third of all operations."""
_LOG = logging.getLogger(__name__)


def threads(samples: int) -> int:
    """In a block: few where there are few samples, so that all processors have some."""
    return 32 if samples <= 1 << 14 else 64 if samples <= 1 << 16 else 128


class Texts(NamedTuple):
    """The kernels of a function."""

    walk: str
    """A thread for each sample."""
    results: list[jax.ShapeDtypeStruct]
    ahead: str
    """What is the same for all samples, empty where that is little."""
    given: list[jax.ShapeDtypeStruct]
    """Its results, the last arguments of `walk`."""


def texts(
    function: Callable[[Sequence[jax.Array]], list], leaves: Sequence[Any], batch: tuple[int, ...], bounds: str = ""
) -> Texts:
    """The kernels of `function(leaves)`; the last axes of leaves are those of the batch, or one."""
    heads = [x.shape[: x.ndim - len(batch)] for x in leaves]
    samples = [jax.ShapeDtypeStruct(head, x.dtype) for head, x in zip(heads, leaves, strict=True)]
    program = jax.make_jaxpr(lambda *own: function(own))(*samples)
    scalars = Scalars()
    place = {k: j for j, k in enumerate(k for k, x in enumerate(leaves) if x.size)}
    arguments = [
        np.array([scalars.load(x.dtype, place[k], e) for e in range(math.prod(head))], np.int64).reshape(head)
        if k in place
        else np.zeros(head, np.int64)
        for k, (x, head) in enumerate(zip(leaves, heads, strict=True))
    ]
    found = read(program, scalars, arguments)
    results = [jax.ShapeDtypeStruct((*x.shape, *batch), x.dtype) for x in program.out_avals]
    inputs = [_entry(leaves[k], len(batch)) for k in place]
    outputs = [
        (_entry(x, len(batch)), [int(n) for n in own.reshape(-1)])
        for x, own in zip(results, found, strict=True)
        if x.size
    ]
    fixed = {k for k, entry in enumerate(inputs) if not any(entry.along)} if math.prod(batch) > 1 else set()
    wanted = [number for _, numbers in outputs for number in numbers]
    same = scalars.same_for_all(wanted, fixed)
    before, given, places = "", [], {}
    if len(same) >= MANY:
        before, shared, places = ahead(scalars, inputs, same)
        given = [jax.ShapeDtypeStruct((len(own),), entry.dtype) for entry, own in shared]
        places = {x: (k + len(inputs), row) for x, (k, row) in places.items()}
        inputs = [*inputs, *(entry for entry, _ in shared)]
    walk = kernel(scalars, inputs, outputs, batch, bounds, places)
    if walk.count("\n") > LONGEST:
        raise TooLargeError(f"its kernel would have more than {LONGEST} lines")
    return Texts(walk, results, before, given)


def _entry(x: Any, axes: int) -> Entry:
    own = x.shape[x.ndim - axes :]
    along = tuple(math.prod(own[k + 1 :]) if n > 1 else 0 for k, n in enumerate(own))
    return Entry(np.dtype(x.dtype), math.prod(own), along)


def available() -> bool:
    """Whether programs for a GPU can have such kernels."""
    return answer().works


@lru_cache(maxsize=1)
def answer() -> versions.Answer:
    """Whether there is an NVIDIA GPU, CUDA's compiler, and a version of JAX with a call of kernels."""
    try:
        jax.devices("cuda")
    except RuntimeError:
        return versions.Answer(False, "there is no NVIDIA GPU")
    missing = nvrtc.present()
    return versions.Answer(False, missing) if missing else versions.answer("cuda")


def called(
    function: Callable[[Sequence[jax.Array]], list], leaves: Sequence[jax.Array], batch: tuple[int, ...]
) -> list[jax.Array]:
    """`function(leaves)` by one kernel if that is possible, and in many otherwise."""
    if available():
        try:
            return in_one_kernel(function, leaves, batch)
        except (NotReadError, TooLargeError, nvrtc.CompilerError) as error:
            _LOG.info("a function runs in many kernels: %s", error)
    return function(leaves)


def in_one_kernel(
    function: Callable[[Sequence[jax.Array]], list], leaves: Sequence[jax.Array], batch: tuple[int, ...]
) -> list[jax.Array]:
    """`function(leaves)` by one kernel.

    **Raises:** `NotReadError`, `TooLargeError` or `nvrtc.CompilerError` where it cannot be.
    """
    samples = math.prod(batch)
    block = threads(samples)
    own = texts(function, leaves, batch, f"__launch_bounds__({block})")
    present = [x for x in leaves if x.size]
    given = _launched(own.ahead, present, own.given, BLOCKS, 1) if own.ahead else []
    full = [x for x in own.results if x.size]
    found = iter(_launched(own.walk, [*present, *given], full, -(-samples // block), block))
    return [next(found) if x.size else jnp.zeros(x.shape, x.dtype) for x in own.results]


def _launched(
    text: str, arguments: Sequence[jax.Array], results: Sequence[jax.ShapeDtypeStruct], blocks: int, block: int
) -> Sequence[jax.Array]:
    numbers = {
        "grid_x": blocks, "grid_y": 1, "grid_z": 1,
        "block_x": block, "block_y": 1, "block_z": 1, "shared_mem_bytes": 0,
    }  # fmt: skip
    return jax.ffi.ffi_call(TARGET, results)(
        *arguments,
        name="walk",
        kernel_type="ptx",
        kernel_data=nvrtc.ptx(text, _architecture()),
        **{name: np.int32(value) for name, value in numbers.items()},
    )


def _architecture() -> str:
    device = next(iter(jax.devices("cuda")))
    return f"compute_{str(device.compute_capability).replace('.', '')}"
