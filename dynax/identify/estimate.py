"""Linear estimates from a regressor and the forces it should give, and how far they can be trusted.

    tau = Y x + noise        [Y tau] = Q [[R, z], [0, rho]]        x = R^-1 z        cov x = (R' R)^-1

All goes through the triangle of `[Y tau]`, which has the size of the parameters whatever the length of the log, and to
which later samples are added (Gautier 1997; Golub & Van Loan 2013, section 5.3). `Y` must have independent columns:
those of the base, `Compressed.take(found.base)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dynax.compile.tiles import by_tiles
from dynax.linear.cholesky import cholesky
from dynax.linear.matrices import product
from dynax.linear.singular_values import singular_vectors
from dynax.linear.solve import inverse
from dynax.linear.triangle import back_substituted, forward_substituted, triangle

# Of Huber: 95 % of the efficiency of least squares where the noise is normal; and the deviation of such noise by the
# median of its absolute values.
WIDTH, NORMAL = 1.345, 1.4826
ROUNDS = 30
FLOOR = 2.0 / 3.0
"""A power of the rounding: what is added to the size of each column, below all that a log shows, above its rounding."""
TOGETHER = 100
"""Draws whose squares are kept at once."""

Drawn = TypeVar("Drawn")


class Compressed(NamedTuple):
    """What a log says about parameters, whatever its length."""

    triangle: jax.Array
    """`[[R, z], [0, rho]]`, shape `(p + 1, p + 1)`; `rho^2` is the least sum of squares."""
    count: jax.Array
    """How many forces went into it."""

    def take(self, columns: Sequence[int]) -> Compressed:
        """With the parameters of some columns alone, the others zero."""
        kept = np.append(np.asarray(columns, dtype=int), len(self.triangle) - 1)
        return Compressed(triangle(self.triangle[:, kept]), self.count)

    @property
    def regressor(self) -> jax.Array:
        """`R`, with the same sum of squares as all samples but for `rho^2`, shape `(p, p)`; take `target` with it."""
        return self.triangle[:-1, :-1]

    @property
    def target(self) -> jax.Array:
        """`z`, shape `(p,)`."""
        return self.triangle[:-1, -1]

    def squares(self, values: ArrayLike) -> jax.Array:
        """The sum of squares `|Y x - tau|^2` of all samples for parameters `x`, shape `(p,)`."""
        missed = product(self.regressor, jnp.asarray(values)) - self.target
        return jnp.sum(missed**2) + self.triangle[-1, -1] ** 2


class Estimate(NamedTuple):
    """Parameters and their covariance."""

    values: jax.Array
    """Shape `(p,)`."""
    covariance: jax.Array
    """Of normal noise: the inverse of Fisher's information, shape `(p, p)`."""
    noise: jax.Array
    """Deviation of the forces, that of each channel where the estimator tells them apart."""

    @property
    def deviations(self) -> jax.Array:
        """Standard deviation of each parameter, shape `(p,)`."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))


def compress(
    regressor: ArrayLike,
    forces: ArrayLike,
    *,
    noise: ArrayLike = 1.0,
    onto: Compressed | None = None,
    remembered: ArrayLike | None = None,
) -> Compressed:
    """The triangle of `[Y tau]`, under `jit` and `vmap`.

    **Arguments:**

    - `regressor`: `Y`, shape `(..., p)`; `forces`: `tau`, shape `(...)`: samples and channels, in any order.
    - `noise`: deviation of each force, of a shape that broadcasts to that of `forces`, as `(nv,)`: rows are divided by
      it.
    - `onto`: what came before, so that a log longer than the memory goes through in parts, or sample by sample as it
      is recorded: recursive least squares in square roots, without a covariance that loses its digits.
    - `remembered`: the weight that all this keeps, such as 0.99, for parameters that change; left out, one.
    """
    y, tau = jnp.asarray(regressor), jnp.asarray(forces)
    if y.shape[:-1] != tau.shape:
        raise ValueError(f"`forces` has shape {tau.shape}, expected {y.shape[:-1]}, one for each row of `regressor`")
    both = jnp.concatenate([y, tau[..., None]], axis=-1)
    rows = (both / jnp.broadcast_to(jnp.asarray(noise, both.dtype), tau.shape)[..., None]).reshape(-1, both.shape[-1])
    count = jnp.asarray(len(rows))
    if onto is None:
        return Compressed(triangle(rows), count)
    before = onto
    if remembered is not None:
        part = jnp.asarray(remembered, both.dtype)
        before = Compressed(jnp.sqrt(part) * onto.triangle, part * onto.count)
    return Compressed(triangle(jnp.concatenate([before.triangle, rows])), before.count + count)


def least_squares(data: Compressed, *, known_noise: bool = False) -> Estimate:
    """The parameters with the least sum of squares.

    **Arguments:** `known_noise`: the rows were divided by the deviations of their noise, which is therefore one;
    otherwise it is estimated from what is left.
    """
    p = len(data.triangle) - 1
    inverse_r = back_substituted(data.regressor, jnp.eye(p, dtype=data.triangle.dtype))
    left = data.triangle[-1, -1] ** 2 / (data.count - p).astype(data.triangle.dtype)
    noise = jnp.ones_like(left) if known_noise else left
    covariance = noise * product(inverse_r, inverse_r.T)
    return Estimate(back_substituted(data.regressor, data.target), covariance, jnp.sqrt(noise))


def weighted_least_squares(regressor: ArrayLike, forces: ArrayLike) -> Estimate:
    """Least squares with each channel counted by its own noise, both estimated in turn until they rest (Gautier 1997).

    **Arguments:** `regressor`: shape `(T, m, p)`; `forces`: shape `(T, m)`, one column for each joint.
    """

    def noise(missed: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Each channel pays for its share of the parameters.
        degrees = missed.shape[0] - np.shape(regressor)[-1] / missed.shape[1]
        found = jnp.sqrt(jnp.sum(missed**2, axis=0) / degrees)
        return found, found

    return _reweighted(jnp.asarray(regressor), jnp.asarray(forces), noise)


def robust_least_squares(regressor: ArrayLike, forces: ArrayLike) -> Estimate:
    """Huber's estimate, for logs with outliers: squares near the fit and absolute values far from it, by weights that
    are made anew until they rest (Holland & Welsch 1977); the noise of each channel from the median.

    **Arguments:** `regressor`: shape `(T, m, p)`; `forces`: shape `(T, m)`.
    """

    def noise(missed: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = NORMAL * jnp.median(jnp.abs(missed), axis=0)
        return found, found * jnp.sqrt(jnp.maximum(jnp.abs(missed) / (WIDTH * _some(found)), 1.0))

    return _reweighted(jnp.asarray(regressor), jnp.asarray(forces), noise)


def _reweighted(y: jax.Array, tau: jax.Array, noise: Callable[[jax.Array], tuple[jax.Array, jax.Array]]) -> Estimate:
    """`noise` of what a fit misses: of each channel, and what each force is divided by in the next fit."""

    def fit(missed: jax.Array) -> tuple[jax.Array, Estimate]:
        own, by = noise(missed)
        found = least_squares(compress(y, tau, noise=_some(by)), known_noise=True)
        return tau - product(y, found.values), found._replace(noise=own)

    first = tau - product(y, least_squares(compress(y, tau)).values)
    missed, _ = lax.scan(lambda missed, _: (fit(missed)[0], None), first, length=ROUNDS)
    return fit(missed)[1]


def _some(noise: jax.Array) -> jax.Array:
    """Exact data have no noise, and may be divided by none."""
    return jnp.maximum(noise, jnp.finfo(noise.dtype).tiny ** 0.5)


def instrumental_variables(instruments: ArrayLike, regressor: ArrayLike, forces: ArrayLike) -> Estimate:
    """The estimate `(Z' Y)^-1 Z' tau` that noise in the regressor does not bias (Janot, Vandanjon & Gautier 2014).

    **Arguments:** `instruments`: `Z`, the regressor of a motion without that noise, such as a simulated one, of the
    shape of `regressor`: `(..., p)`; `forces`: shape `(...)`.
    """
    y, tau = jnp.asarray(regressor), jnp.asarray(forces).reshape(-1)
    p = y.shape[-1]
    y, z = y.reshape(-1, p), jnp.asarray(instruments).reshape(-1, p)
    mixed = inverse(product(z.T, y))
    values = product(mixed, product(z.T, tau))
    noise = jnp.sum((tau - product(y, values)) ** 2) / (len(tau) - p)
    covariance = noise * product(product(mixed, product(z.T, z)), mixed.T)
    return Estimate(values, covariance, jnp.sqrt(noise))


def total_least_squares(data: Compressed) -> jax.Array:
    """The parameters for which the least change of regressor and forces together makes them fit, shape `(p,)`.

    For noise that is alike in all columns: divide them by its deviations first (Van Huffel & Vandewalle 1991).
    """
    least = singular_vectors(data.triangle).right[-1]
    return -least[:-1] / least[-1]


def bootstrap(
    estimator: Callable[[jax.Array, jax.Array], jax.Array],
    regressor: ArrayLike,
    forces: ArrayLike,
    key: jax.Array,
    *,
    draws: int = 200,
    block: int = 1,
) -> jax.Array:
    """Estimates from logs that are drawn from the samples of one, side by side, shape `(draws, ...)`.

    Their spread is that of the estimate, whatever the noise is. `bootstrap_compressed` is much faster for what needs no
    more than the triangle of a log.

    **Arguments:** `estimator(regressor, forces)`: what is estimated. `regressor`: shape `(T, m, p)`; `forces`: shape
    `(T, m)`. `block`: how many samples on end are drawn together, as long as the noise remembers.
    """
    y, tau = jnp.asarray(regressor), jnp.asarray(forces)
    pieces = -(-len(y) // block)
    starts = jax.random.randint(key, (draws, pieces), 0, len(y) - block + 1)
    rows = (starts[:, :, None] + jnp.arange(block)).reshape(draws, -1)[:, : len(y)]
    return jax.vmap(lambda chosen: estimator(y[chosen], tau[chosen]))(rows)


def bootstrap_compressed(
    estimator: Callable[[Compressed], Drawn],
    regressor: ArrayLike,
    forces: ArrayLike,
    key: jax.Array,
    *,
    noise: ArrayLike = 1.0,
    draws: int = 1000,
    pieces: int = 200,
) -> Drawn:
    """`bootstrap` of estimates from a triangle, such as those of `consistent_fit`, with a leading axis of `draws`.

    What is drawn are `pieces` of the log, each of samples on end (Carlstein 1986). In the coordinates in which the
    squares of the whole log are one, `S`, those of a draw are the sum of its pieces' own, and its triangle Cholesky's
    factor of that sum on the whole log's triangle:

        [Y tau] = Q S          G_i = S^-T [Y tau]_i' [Y tau]_i S^-1          L L' = sum of drawn G_i          L' S

    There the squares of a draw are about as well conditioned as one may wish, and lose no digits; a draw that misses
    what only few pieces show gives NaN. `S` has rows of the rounding below it, so that it has an inverse.

    **Arguments:** `estimator(data)`, of `Compressed`: what is estimated, one draw after another on a CPU. `regressor`:
    shape `(T, m, p)`; `forces`: shape `(T, m)`; `noise`: as for `compress`.
    """
    y, tau = jnp.asarray(regressor), jnp.asarray(forces)
    if y.ndim != 3 or y.shape[:2] != tau.shape:
        raise ValueError(f"expected `regressor` (T, m, p) and `forces` (T, m), got shapes {y.shape} and {tau.shape}")
    if not 1 < pieces <= len(y):
        raise ValueError(f"`pieces` is {pieces}, expected 2 to {len(y)}, the number of samples")
    both = jnp.concatenate([y, tau[..., None]], axis=-1)
    both = both / jnp.broadcast_to(jnp.asarray(noise, both.dtype), tau.shape)[..., None]
    columns, dtype = both.shape[-1], both.dtype
    # Whole samples: the longer pieces first, and a sample of zeros at the end of the others.
    length, longer = -(-len(y) // pieces), len(y) % pieces or pieces
    cut = longer * length
    first = both[:cut].reshape(longer, -1, columns)
    rest = both[cut:].reshape(pieces - longer, (length - 1) * tau.shape[1], columns)
    rest = jnp.pad(rest, ((0, 0), (0, first.shape[1] - rest.shape[1]), (0, 0)))
    counts = tau.shape[1] * jnp.where(jnp.arange(pieces) < longer, length, length - 1)

    rows = both.reshape(-1, columns)
    sizes = jnp.sqrt(jnp.sum(rows**2, axis=0))
    below = jnp.diag(float(jnp.finfo(dtype).eps) ** FLOOR * jnp.where(sizes > 0.0, sizes, 1.0))
    whole = triangle(jnp.concatenate([rows, below]))

    def squares(part: jax.Array) -> jax.Array:
        unit = forward_substituted(whole, part.T)
        return product(unit, unit.T)

    own = lax.map(squares, jnp.concatenate([first, rest])).reshape(pieces, -1)
    least = squares(below)

    def one(drawn: tuple[jax.Array, jax.Array]) -> Drawn:
        gram, count = drawn
        root = cholesky(gram.reshape(columns, columns) + least)
        return estimator(Compressed(jnp.where(sizes > 0.0, product(root.T, whole), 0.0), count))

    def tile(chosen: jax.Array) -> Drawn:
        times = jnp.zeros((len(chosen), pieces), dtype).at[jnp.arange(len(chosen))[:, None], chosen].add(1.0)
        drawn = product(times, own), jnp.sum(counts[chosen], axis=1)
        return lax.map(one, drawn) if jax.default_backend() == "cpu" else jax.vmap(one)(drawn)

    return by_tiles(tile, jax.random.randint(key, (draws, pieces), 0, pieces), min(TOGETHER, draws))
