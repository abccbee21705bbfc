"""The linear-quadratic problem over time, which every solver here calls with other numbers.

    min  sum_k 1/2 x'Qx + x'Su + 1/2 u'Ru + q'x + r'u  (k < N)   +   1/2 x'Qx + q'x  (k = N)
    x_k+1 = A x + B u + c      x_0 given

A value `V_k(x) = 1/2 x'Px + p'x` goes backward through the knots, as articulated inertias go through the bodies of a
chain, and the states forward (Bertsekas 2017, section 3.1; Rawlings, Mayne & Diehl 2017, section 8.8.3):

    G = R + B'PB    H = S' + B'PA    g = r + B'(Pc + p)        u = K x + k = -G^-1 (H x + g)
    P = Q + A'PA + H'K     p = q + A'(Pc + p) + H'k            multiplier of x_k:  P_k x_k + p_k

With dual regularisation `d` a knot may miss its state by `d` times its multiplier, so that the value seen from the knot
before is `P (1 + d P)^-1` (Moreau's envelope; Jallet et al. 2025, "ProxDDP").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.compile.batching import trailing
from dynax.linear.inverse import inverse_cholesky
from dynax.linear.matrices import product, symmetric, turned
from dynax.linear.row_products import batch_leading, batch_trailing
from dynax.linear.solve import solve
from dynax.sweep.associative import prefixes, suffixes
from dynax.sweep.scan import scan


class LQ(NamedTuple):
    """The numbers of a problem of `N` knots, `n` states and `m` controls."""

    A: jax.Array
    """Shape `(N, n, n)`."""
    B: jax.Array
    """Shape `(N, n, m)`."""
    c: jax.Array
    """Shape `(N, n)`."""
    Q: jax.Array
    """The last row is that of the end; shape `(N + 1, n, n)`."""
    S: jax.Array
    """Shape `(N, n, m)`."""
    R: jax.Array
    """Shape `(N, m, m)`."""
    q: jax.Array
    """Shape `(N + 1, n)`."""
    r: jax.Array
    """Shape `(N, m)`."""


class Policy(NamedTuple):
    """What is best from any state."""

    K: jax.Array
    """Gains of `u = K x + k`, shape `(N, m, n)`."""
    k: jax.Array
    """Feed-forward, shape `(N, m)`."""
    P: jax.Array
    """Of the value, shape `(N + 1, n, n)`."""
    p: jax.Array
    """Shape `(N + 1, n)`."""
    convex: jax.Array
    """Whether each knot's `G` was positive definite, so that this is a minimum; booleans `(N,)`."""
    promise: jax.Array
    """`g'k`, by which the cost falls where `x` is zero, to first order in `k`; shape `(N,)`, never positive."""


class LQSolution(NamedTuple):
    """The solution from `x_0`."""

    x: jax.Array
    """Shape `(N + 1, n)`."""
    u: jax.Array
    """Shape `(N, m)`."""
    multipliers: jax.Array
    """Of the dynamics that lead to each knot, the slope of the cost by its `c`; the first of `x_0`; `(N + 1, n)`."""
    policy: Policy


def solve_lqr(lq: LQ, x0: ArrayLike, *, dual: ArrayLike | None = None, parallel: bool = False) -> LQSolution:
    """The solution of a linear-quadratic problem.

    **Arguments:** `lq`: its numbers; `x0`: the first state, shape `(n,)`; `dual`: the dual regularisation `d`, a
    scalar; `parallel`: in logarithmic depth, for one long horizon on an accelerator: some five times the arithmetic,
    and `R` must be positive definite by itself, where otherwise `G` must. For a batch use `jax.vmap`.

    **Returns:** `LQSolution`; not finite where `policy.convex` is false. `ValueError` for shapes that do not fit.
    """
    _check(lq)
    start = jnp.asarray(x0, lq.A.dtype)
    if start.shape != lq.q.shape[1:]:
        raise ValueError(f"`x0` has shape {start.shape}, expected {lq.q.shape[1:]}; for a batch use jax.vmap")
    d = None if dual is None else jnp.asarray(dual, lq.A.dtype)
    policy = parallel_policy(lq, d) if parallel else sequential_policy(lq, d)
    x, u = parallel_motion(lq, policy, start, d) if parallel else motion(lq, policy, start, d)
    return LQSolution(x, u, product(policy.P, x[..., None])[..., 0] + policy.p, policy)


def _check(lq: LQ) -> None:
    if lq.B.ndim != 3:
        raise ValueError(f"`B` has shape {lq.B.shape}, expected (N, n, m); for a batch use jax.vmap")
    N, n, m = lq.B.shape
    shapes = (N, n, n), (N, n, m), (N, n), (N + 1, n, n), (N, n, m), (N, m, m), (N + 1, n), (N, m)
    for name, x, shape in zip(LQ._fields, lq, shapes, strict=True):
        if x.shape != shape:
            raise ValueError(f"`{name}` has shape {x.shape}, expected {shape} for {N} knots, {n} states, {m} controls")


# One knot, with the batch last ---------------------------------------------------------------------------------------


LIBRARY = 24
"""States from which products are those of the library, problem after problem: 100 knots of 20 states and 10 controls
0.9 ms in loops and 1.9 by the library, of 26 and 13 5.8 and 2.8, of 40 and 20 11.4 and 5.1; in a batch of 16 alike."""


def times(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a b` of `(n, k, *batch)` with `(k, m, *batch)` or `(k, *batch)`, in a loop over rows of `a`.

    One kernel holds it, nothing is computed once for every entry that uses it, and a row's sums stay in registers: a
    fifth of the time of a loop over columns, which adds to the whole result. Of many states it is the library's.
    """

    def row(_: None, x: jax.Array) -> tuple[None, jax.Array]:
        return None, sum((x[k] * b[k] for k in range(1, b.shape[0])), x[0] * b[0])

    if not b.shape[0]:
        return jnp.zeros((a.shape[0], *b.shape[1:]), a.dtype)
    if a.ndim == 2 and max(a.shape) >= LIBRARY:
        return product(a, b)
    return scan(row, None, a)[1]


def beside(a: jax.Array, b: jax.Array) -> jax.Array:
    """A vector as the last column of a matrix."""
    return jnp.concatenate([a, b[:, None]], axis=1)


def transposed(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, 0, 1)


def loosened(P: jax.Array, d: jax.Array) -> jax.Array:
    """`(1 + d P)^-1`."""
    eye = jnp.eye(P.shape[0], dtype=P.dtype).reshape(*P.shape[:2], *(1,) * (P.ndim - 2))
    w = half_inverse(eye + d * P)
    return times(transposed(w), w)


def half_inverse(G: jax.Array) -> jax.Array:
    """`W`, lower triangular, with `W G W' = 1`; not finite unless `G` is positive definite."""
    return batch_trailing(inverse_cholesky(batch_leading(G)), G.shape[2:])


class Choice(NamedTuple):
    """What is done at a knot."""

    K: jax.Array
    k: jax.Array
    convex: jax.Array
    promise: jax.Array


def minimum(G: jax.Array, H: jax.Array, g: jax.Array, _: Any = None) -> Choice:
    """The `u = K x + k` that makes `1/2 u'Gu + u'(Hx + g)` least."""
    w = half_inverse(G)
    K = -times(transposed(w), times(w, beside(H, g)))
    K, k = K[:, :-1], K[:, -1]
    return Choice(K, k, jnp.all(jnp.isfinite(w), axis=(0, 1)), jnp.sum(g * k, axis=0))


Minimise = Callable[[jax.Array, jax.Array, jax.Array, Any], Choice]
"""As `minimum`; the last argument is what else is known at the knot, such as limits of the control."""


def knot(
    P: jax.Array, p: jax.Array, row: LQ, d: jax.Array | None, minimise: Minimise, known: Any
) -> tuple[Choice, jax.Array, jax.Array]:
    """The choice at a knot and the value there, from the value at the next."""
    A, B, c, Q, S, R, q, r = row
    n, m = B.shape[:2]
    if d is not None:
        free = times(loosened(P, d), beside(P, p))
        P, p = free[:, :n], free[:, n]
    # Columns side by side: one product for several, in longer vectors and compiled once.
    ahead = times(P, beside(jnp.concatenate([B, A], axis=1), c))
    ahead = lax.dynamic_update_index_in_dim(ahead, ahead[:, -1] + p, n + m, 1)
    by_x, by_u = times(transposed(A), ahead[:, m:]), times(transposed(B), ahead)
    G, H, g = R + by_u[:, :m], transposed(S) + by_u[:, m:-1], r + by_u[:, -1]
    choice = minimise(G, H, g, known)
    # What that choice costs, be it the best or one within limits.
    K = beside(choice.K, choice.k)
    left, right = jnp.concatenate([H, choice.K]), jnp.concatenate([K, beside(H, g) + times(G, K)])
    cost = times(transposed(left), right)
    P, p = Q + by_x[:, :n] + cost[:, :n], q + by_x[:, n] + cost[:, n]
    return choice, 0.5 * (P + transposed(P)), p


# Sequential ----------------------------------------------------------------------------------------------------------


def _stages(lq: LQ) -> LQ:
    return lq._replace(Q=lq.Q[:-1], q=lq.q[:-1])


def backward(lq: LQ, d: jax.Array | None = None, minimise: Minimise = minimum, known: Any = None) -> tuple:
    """The sweep from the end, for trailing batch axes; `known` has a row for each knot.

    Choices, the values that each knot saw ahead, and that of the first: whoever wants rows for all knots puts them
    together outside of the kernel."""

    def step(value: tuple, x: tuple) -> tuple[tuple, tuple]:
        choice, *now = knot(value[0], value[1], x[0], d, minimise, x[1])
        return tuple(now), (choice, *value)

    first, (choice, P, p) = scan(step, (lq.Q[-1], lq.q[-1]), (_stages(lq), known), reverse=True)
    return choice, P, p, first


def forward(lq: LQ, policy: Policy, x0: jax.Array, d: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """States and controls under a policy, for trailing batch axes."""

    def step(x: jax.Array, at: tuple) -> tuple[jax.Array, tuple]:
        A, B, c, K, k, P, p = at
        u = times(K, x) + k
        y = times(A, x) + times(B, u) + c
        y = y if d is None else times(loosened(P, d), y - d * p)
        return y, (y, u)

    _, found = scan(step, x0, (lq.A, lq.B, lq.c, policy.K, policy.k, policy.P[1:], policy.p[1:]))
    return found


class Descent(NamedTuple):
    """The solution from zero, as a solver needs it."""

    x: jax.Array
    """Shape `(N + 1, n)`."""
    u: jax.Array
    """Shape `(N, m)`."""
    K: jax.Array
    k: jax.Array
    multipliers: jax.Array
    """Of the dynamics that lead to each knot after the first, shape `(N, n)`."""
    first: jax.Array
    """That of the first state."""
    by_x: jax.Array
    """`A'` times the multipliers, shape `(N, n)`."""
    by_u: jax.Array
    """`B'` times them, shape `(N, m)`."""
    convex: jax.Array
    promise: jax.Array


def descended(lq: LQ, minimise: Minimise = minimum, known: Any = None) -> Descent:
    """Backward and forward in one kernel, for trailing batch axes: values of knots never leave it."""
    choice, P, p, (_, first) = backward(lq, None, minimise, known)

    def step(x: jax.Array, at: tuple) -> tuple[jax.Array, tuple]:
        A, B, c, K, k, P, p = at
        u = times(K, x) + k
        y = times(A, x) + times(B, u) + c
        ahead = times(P, y) + p
        return y, (x, u, ahead, times(transposed(A), ahead), times(transposed(B), ahead))

    end, found = scan(step, jnp.zeros_like(first), (lq.A, lq.B, lq.c, choice.K, choice.k, P, p))
    x, u, ahead, by_x, by_u = found
    x = jnp.concatenate([x, end[None]])
    return Descent(x, u, choice.K, choice.k, ahead, first, by_x, by_u, choice.convex, choice.promise)


# Problems side by side in a batch on a CPU: few enough that a knot's matrices stay in the cache (14 states, 7 controls:
# 0.41, 0.32 and 0.44 ms for 100 knots of each of 8, 16 and 32).
SIDE_BY_SIDE = 16


def side_by_side(core: Callable[..., Any]) -> Callable[..., Any]:
    """`core(lq, *rest)`, which is written for trailing batch axes, for one problem and for `vmap`: in one kernel, or by
    the library's products where there are many states."""
    in_kernels = trailing(lambda _, *args: core(*args), tile=SIDE_BY_SIDE)

    def chosen(lq: LQ, *rest: Any) -> Any:
        return core(lq, *rest) if lq.q.shape[-1] >= LIBRARY else in_kernels((), lq, *rest)

    return chosen


_backward, _forward = side_by_side(backward), side_by_side(forward)


def sequential_policy(lq: LQ, d: jax.Array | None = None) -> Policy:
    choice, P, p, first = _backward(lq, d)
    P, p = (jnp.concatenate([x[None], xs]) for x, xs in zip(first, (P, p), strict=True))
    return Policy(choice.K, choice.k, P, p, choice.convex, choice.promise)


def motion(lq: LQ, policy: Policy, x0: jax.Array, d: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """States and controls under a policy."""
    x, u = _forward(lq, policy, x0, d)
    return jnp.concatenate([x0[None], x]), u


descent = side_by_side(descended)


# Parallel in time ----------------------------------------------------------------------------------------------------


class Leg(NamedTuple):
    """The cost of going from `x` to `y` over some knots, `max over l of 1/2 x'Jx - eta'x - 1/2 l'Cl - l'(y - Ax - b)`
    (Sarkka & Garcia-Fernandez 2023, "Temporal parallelization of dynamic programming and linear quadratic control").

    Vectors are columns, batch axes lead.
    """

    A: jax.Array
    b: jax.Array
    C: jax.Array
    eta: jax.Array
    J: jax.Array


def joined(i: Leg, j: Leg) -> Leg:
    """First `i`, then `j`: their equation 19, by one elimination."""
    n = i.A.shape[-1]
    right = jnp.concatenate([i.A, i.b + product(i.C, j.eta), i.C], axis=-1)
    A, b, C = jnp.split(solve(jnp.eye(n, dtype=i.A.dtype) + product(i.C, j.J), right), (n, n + 1), axis=-1)
    return Leg(
        A=product(j.A, A),
        b=product(j.A, b) + j.b,
        C=symmetric(product(product(j.A, C), turned(j.A))) + j.C,
        eta=product(turned(A), j.eta - product(j.J, i.b)) + i.eta,
        J=symmetric(product(turned(A), product(j.J, i.A))) + i.J,
    )


def _leg(row: LQ, d: jax.Array | None) -> Leg:
    """Of one knot, its control chosen."""
    A, B, c, Q, S, R, q, r = row
    (K, k, *_), (back, *_) = minimum(R, S.T, r), minimum(R, B.T, r)
    C = -product(B, back)
    C = C if d is None else C + d * jnp.eye(len(A), dtype=A.dtype)
    return Leg(A + product(B, K), (c + product(B, k))[:, None], C, -(q + product(S, k))[:, None], Q + product(S, K))


def parallel_policy(lq: LQ, d: jax.Array | None = None) -> Policy:
    """`backward` for one problem, in logarithmic depth."""
    n = lq.A.shape[-1]
    nothing = Leg(*(jnp.zeros((n, k), lq.A.dtype) for k in (n, 1, n, 1, n)))
    end = nothing._replace(eta=-lq.q[-1][:, None], J=lq.Q[-1])
    legs = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), jax.vmap(lambda x: _leg(x, d))(_stages(lq)), end)
    to_end = suffixes(joined, nothing._replace(A=jnp.eye(n, dtype=lq.A.dtype)), legs)
    ahead = to_end.J[1:], -to_end.eta[1:, :, 0]
    choice, P, p = jax.vmap(lambda P, p, x: knot(P, p, x, d, minimum, None))(*ahead, _stages(lq))
    P, p = (jnp.concatenate([x, end[-1:]]) for x, end in ((P, lq.Q), (p, lq.q)))
    return Policy(choice.K, choice.k, P, p, choice.convex, choice.promise)


def parallel_motion(lq: LQ, policy: Policy, x0: jax.Array, d: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """`forward` for one problem, in logarithmic depth: all products of the closed loop."""
    F, f = lq.A + product(lq.B, policy.K), lq.c + product(lq.B, policy.k[..., None])[..., 0]
    if d is not None:
        free = jax.vmap(lambda P: loosened(P, d))(policy.P[1:])
        F, f = product(free, F), product(free, (f - d * policy.p[1:])[..., None])[..., 0]
    whole = jnp.concatenate([F, f[..., None]], axis=-1)
    unit = jnp.eye(*whole.shape[1:], dtype=whole.dtype)

    def after(near: jax.Array, far: jax.Array) -> jax.Array:
        n = far.shape[-2]
        both = product(far[..., :n], near)
        return both.at[..., n].add(far[..., n])

    ways = prefixes(after, unit, whole)
    x = jnp.concatenate([x0[None], product(ways[..., :-1], x0[:, None])[..., 0] + ways[..., -1]])
    return x, product(policy.K, x[:-1, :, None])[..., 0] + policy.k
