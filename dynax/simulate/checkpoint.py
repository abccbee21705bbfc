"""A scan whose reverse-mode derivative needs little memory.

The derivative of a plain scan keeps every intermediate result of every step. With each step under `jax.checkpoint` it
keeps the states between steps, and what a step names `KEPT`, and computes the rest again; with runs of steps under it
as well, it keeps the states between runs, and those of one run at a time: `O(sqrt(T))` states for one more forward
pass. Values are those of the plain scan: no step is padded, masked or added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dynax.compile.batching import KEPT

ONE_LEVEL = 1024
"""Up to this many steps the states between them are kept, which are few beside what one step needs: a second level
costs a third more time, and one more copy of the step to compile."""


def checkpointed_scan(step: Callable, carry: Any, xs: Any, length: int) -> tuple[Any, Any]:
    """`jax.lax.scan(step, carry, xs, length)`, with two levels of checkpoints for its reverse-mode derivative."""
    step = jax.checkpoint(step, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(KEPT))
    run = run_length(length)
    if run == length:
        return jax.lax.scan(step, carry, xs, length)
    runs = length // run

    def steps(carry: Any, xs: Any) -> tuple[Any, Any]:
        return jax.lax.scan(step, carry, xs, run)

    whole = jax.tree.map(lambda x: x[: runs * run].reshape(runs, run, *x.shape[1:]), xs)
    carry, ys = jax.lax.scan(jax.checkpoint(steps, prevent_cse=False), carry, whole, runs)
    ys = jax.tree.map(lambda y: y.reshape(runs * run, *y.shape[2:]), ys)
    if runs * run == length:
        return carry, ys
    carry, rest = jax.lax.scan(step, carry, jax.tree.map(lambda x: x[runs * run :], xs), length - runs * run)
    return carry, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), ys, rest)


def run_length(length: int) -> int:
    """How many steps make a run: about the root of `length`, a divisor where one is near (one body less to compile)."""
    if length <= ONE_LEVEL:
        return length
    root = math.isqrt(length)
    near = [k for k in range(root // 2 + 1, 2 * root) if length % k == 0]
    return min(near, key=lambda k: k + length // k) if near else root
