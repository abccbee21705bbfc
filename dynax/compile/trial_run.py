"""What the trial of an unknown version of JAX runs: everything that may be in one kernel, compared with many kernels.

    python -c "from dynax.compile.trial_run import main; main()"        # on a CPU; main_on_gpu on a GPU

It fails, by an exception or by the end of the process, where such kernels cannot be had.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.fence import apart
from dynax.compile.gpu import call as on_gpu
from dynax.compile.one_kernel import marked
from dynax.sweep.links import linked
from dynax.sweep.rows import read_place, take_rows
from dynax.sweep.sums import summed

MARK = "xla_cpu_small_call"


def every_loop(x: jax.Array) -> list[jax.Array]:
    """Each primitive of `one_kernel.LOOPS` and `NEWER` at least once, of a vector of 12 numbers between 0.1 and 0.9."""
    m, whole, yes = x.reshape(3, 4), jnp.arange(12) % 5 + 1, x > 0.5
    picked = m[np.array([2, 0, 2, 1])]
    looked_up = take_rows(m, np.array([1, -1, 1])), read_place(m, whole[0]), apart(m + 1.0), apart(x[:1])
    linked_up = linked(m, jnp.array([[1, 3, 0], [2, 3, 1]]), jnp.array([[2, 0, 0], [3, 2, 3]]))
    moved = lax.dynamic_update_slice(x, lax.dynamic_slice(x, (whole[0],), (3,)), (whole[1],))
    walked = lax.scan(lambda c, y: (c * y + 1.0, c), x[0], x)
    looped = lax.while_loop(lambda c: c[0] < 3.0, lambda c: (c[0] + c[1], c[1]), (x[0], x[1] + 0.5))
    slope = jax.grad(lambda x: jnp.sum(jnp.sin(x) * jnp.cos(x) * jnp.tanh(x)))(x)
    numbers = (
        *(jnp.abs(-x), x + x, jnp.arctan2(x, x[::-1]), lax.clamp(x[1], x, x[8]), jnp.concatenate([x, -x]), jnp.cos(x)),
        *(x / (x + 1.0), jnp.exp(x), picked, x**3, lax.log(x), jnp.maximum(x, 0.4), jnp.minimum(x, 0.4), x * x, -x),
        *(lax.pad(x, x[0], [(1, 2, 1)]), x ** x[0], lax.rem(x, x[0]), lax.rsqrt(x), jnp.where(yes, x, -x), jnp.sign(x)),
        *(jnp.sin(x), x[2:7], *jnp.split(x, 3), jnp.sqrt(x), lax.square(x), jnp.stack([x, -x]), x - 1.0, jnp.tan(x)),
        *(jnp.tanh(x), m.T, m.max(0), m.min(1), jnp.prod(m, 0), m.sum(0), m.sum(1), moved, *walked, *looped),
        *(lax.expand_dims(x, (1,)), jnp.broadcast_to(x, (2, 12)), lax.convert_element_type(x, jnp.int32)),
        *(slope, *jnp.unstack(m), lax.rev(m, (0, 1)), jnp.copy(x), jnp.squeeze(m[:1]), lax.stop_gradient(x)),
        *(*looked_up, linked_up, summed(m, 0), lax.round(8.0 * x, lax.RoundingMethod.TO_NEAREST_EVEN)),
    )
    answers = (
        *(yes, x >= 0.5, x < 0.5, x <= 0.5, x == x[0], x != x[0], yes & (x < 0.8), yes | (x < 0.3), ~yes),
        *(jnp.isfinite(x), m.max(0) > m.min(0), yes.reshape(3, 4).all(0), yes.reshape(3, 4).any(1), whole > 2),
    )
    return [*numbers, *answers]


def unread(x: jax.Array, never: jax.Array, none: jax.Array, whole: jax.Array) -> list[jax.Array]:
    """Arguments that nothing reads, and an empty one, which stop the compiler where it meets them."""
    return [2.0 * x, jnp.ones(4, x.dtype), none + 1.0]


def with_constants(x: jax.Array) -> list[jax.Array]:
    """A call whose other argument is known: XLA moves it inside, unless something keeps it out."""
    known = jnp.asarray(np.arange(12.0), x.dtype)
    return marked(lambda x, known: [jnp.sin(x) * known, known[::-1] + 1.0], [x, known])


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    for dtype in (jnp.float32, jnp.float64):
        x = jnp.linspace(0.1, 0.9, 12, dtype=dtype)
        single = jax.jit(lambda x: marked(every_loop, [x]))
        assert MARK in single.lower(x).as_text(), "the call lost its mark"
        rounding = 20 * float(jnp.finfo(dtype).eps)
        given = (x, x + 3.0, jnp.zeros((0, 2), dtype), jnp.arange(2))
        pairs = (
            (single(x), jax.jit(every_loop)(x)),
            (jax.jit(lambda *xs: marked(unread, xs))(*given), unread(*given)),
            (jax.jit(with_constants)(x), with_constants(x)),
            (
                jax.jit(lambda x: lax.map(lambda row: with_constants(row)[0], jnp.stack([x, x])))(x),
                [with_constants(x)[0]] * 2,
            ),
        )
        for found, expected in pairs:
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rounding)


def main_on_gpu() -> None:
    """The same by kernels of threads: a batch of three, and one without a batch."""
    jax.config.update("jax_enable_x64", True)
    for dtype in (jnp.float32, jnp.float64):
        x = jnp.linspace(0.1, 0.9, 12, dtype=dtype)
        batch = jnp.stack([x, x[::-1], x * x], axis=-1)
        pairs = (
            (on_gpu.in_one_kernel(lambda xs: every_loop(*xs), [x], ()), every_loop(x)),
            (on_gpu.in_one_kernel(lambda xs: every_loop(*xs), [batch], (3,)), jax.vmap(every_loop, -1, -1)(batch)),
        )
        for found, expected in pairs:
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=100 * float(jnp.finfo(dtype).eps))


if __name__ == "__main__":
    main()
