"""Which parameters a regressor shows: its rank, and the combinations that forces depend on (Gautier 1991).

    Y pi = Y_b beta        beta = pi_b + K pi_d        Y_d = Y_b K

Columns that are zero but for rounding are dropped *before* the others are scaled to length one: scaled, their rounding
would count as a parameter. The rank is where the singular values fall the most, and that fall, the gap, is reported,
for it says how far the integer can be trusted: 1e14 where a model is exact, 3e9 where axes in a file have five digits,
nothing where noise or float32 fills it. Which columns stand for the rank is chosen by pivots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dynax.embedding.model import EmbeddedModel
from dynax.identify.regressors import random_regressor
from dynax.identify.terms import Term, parameter_names
from dynax.model import Model

LEAST_GAP = 1e3
Kind = Literal["identifiable", "in combination", "invisible"]


@dataclass(frozen=True)
class Identifiability:
    """What a regressor with `p` columns says about their parameters."""

    names: tuple[str, ...]
    """Of the parameters."""
    gap: float
    """The least singular value that counts by the largest that does not, and the same of the lengths of columns."""
    singular_values: np.ndarray
    """Of the visible columns at length one, the largest first."""
    base: tuple[int, ...]
    """The columns that stand for the combinations, in ascending order; as many as the rank."""
    regrouping: np.ndarray
    """The matrix `B` with `beta = B pi` and `Y = Y[:, base] B`, shape `(rank, p)`; one at its own columns."""

    @property
    def rank(self) -> int:
        return len(self.base)

    @property
    def weakest(self) -> float:
        """The least singular value that counts, as a part of the largest: what is seen so faintly may be no more than
        the rounding of an angle in a file."""
        return float(self.singular_values[self.rank - 1] / self.singular_values[0]) if self.rank else 1.0

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """Of each parameter: whether its value can be found, only a combination that it is in, or nothing."""
        seen = np.any(self.regrouping != 0.0, axis=0)
        alone = np.zeros(len(self.names), dtype=bool)
        alone[list(self.base)] = np.sum(self.regrouping != 0.0, axis=1) == 1
        return tuple(
            "identifiable" if single else "in combination" if some else "invisible"
            for some, single in zip(seen, alone, strict=True)
        )

    @property
    def null_space(self) -> np.ndarray:
        """Changes of the parameters that no force feels, as columns, shape `(p, p - rank)`."""
        p = len(self.names)
        others = np.setdiff1d(np.arange(p), self.base)
        null = np.zeros((p, len(others)))
        null[others, np.arange(len(others))] = 1.0
        null[list(self.base)] = -self.regrouping[:, others]
        return null

    @property
    def combinations(self) -> tuple[str, ...]:
        """The base parameters in words, as `"Iyy of link1 + 0.25 m of link2"`."""
        return tuple(self._in_words(row, own) for row, own in zip(self.regrouping, self.base, strict=True))

    def _in_words(self, row: np.ndarray, own: int) -> str:
        words = self.names[own]
        for k in np.flatnonzero(row):
            if k != own:
                size = f"{abs(row[k]):.4g}"
                words += f" {'-' if row[k] < 0.0 else '+'} {'' if size == '1' else size + ' '}{self.names[k]}"
        return words

    def __str__(self) -> str:
        count = Counter(self.kinds)
        told = ", ".join(f"{count[kind]} {kind}" for kind in ("identifiable", "in combination", "invisible"))
        head = (
            f"rank {self.rank} of {len(self.names)} parameters (gap {self.gap:.1e}, weakest {self.weakest:.1e}): {told}"
        )
        return "\n".join([head, *(f"  {words}" for words in self.combinations)])


def identifiability(
    model: Model | EmbeddedModel,
    *,
    terms: Sequence[Term] = ("inertias",),
    keep: Sequence[str] = (),
    samples: int = 200,
    seed: int = 0,
) -> Identifiability:
    """What any motion can show of a model's parameters, by regressors of random states.

    **Arguments:** `terms`, as for `regressor`; `keep`, as for `identifiability_of`; `samples`: how many states. Give
    more where there are few rows and many parameters.
    """
    matrix = random_regressor(model, samples, terms=terms, seed=seed)
    return identifiability_of(matrix, parameter_names(model, terms), keep=keep)


def identifiability_of(matrix: ArrayLike, names: Sequence[str], *, keep: Sequence[str] = ()) -> Identifiability:
    """What the motion of a stacked regressor shows of the parameters, in NumPy.

    **Arguments:**

    - `matrix`: the regressors of all samples, of any leading shape, with `p` columns.
    - `names`: of the `p` parameters, such as `parameter_names` gives.
    - `keep`: parameters that are to stand for the combinations they are in, as far as they are independent, in the
      order of preference.

    Raises `ValueError` where the singular values fall nowhere by more than a thousand: such a rank would be a guess, in
    float32 above all.
    """
    given = np.asarray(matrix)
    y = given.reshape(-1, given.shape[-1]).astype(np.float64)
    names = tuple(names)
    if len(names) != y.shape[1]:
        raise ValueError(f"`names` has {len(names)} entries, and `matrix` {y.shape[1]} columns")
    if not np.all(np.isfinite(y)):
        column = int(np.argmin(np.all(np.isfinite(y), axis=0)))
        raise ValueError(f"the column of {names[column]!r} is not finite everywhere")
    if len(y) < y.shape[1]:
        raise ValueError(f"`matrix` has {len(y)} rows for {y.shape[1]} columns: take more samples")
    for name in keep:
        if name not in names:
            raise ValueError(f"`keep`: there is no parameter {name!r}")
    eps = float(np.finfo(given.dtype if given.dtype == np.float32 else np.float64).eps)

    lengths = np.linalg.norm(y, axis=0)
    visible = np.flatnonzero(lengths > eps**0.75 * lengths.max(initial=0.0))
    dim = lengths[np.setdiff1d(np.arange(len(names)), visible)].max(initial=0.0)
    nothing = eps * lengths.max(initial=0.0)
    shown = lengths[visible].min(initial=np.inf) / max(dim, nothing) if len(visible) else np.inf

    unit = np.asarray(np.linalg.qr(y[:, visible] / lengths[visible], mode="r"))
    values = np.linalg.svd(unit, compute_uv=False)
    # Below rounding there is only more of it; a matrix of full rank ends there.
    falling = np.append(np.maximum(values, eps * values[0]), eps * values[0]) if len(visible) else np.ones(1)
    falls = falling[:-1] / falling[1:]
    rank = int(np.argmax(falls)) + 1 if len(visible) else 0
    gap = float(min(falls[rank - 1], shown)) if rank else np.inf
    if gap < LEAST_GAP:
        raise ValueError(
            f"the singular values fall nowhere by more than {gap:.1e}, so where the rank ends is not decided: "
            "compute the regressor in float64, or from a motion that excites more"
        )
    preferred = [int(np.flatnonzero(visible == names.index(name))[0]) for name in keep if names.index(name) in visible]
    least = np.sqrt(falling[rank - 1] * falling[rank]) if rank else 0.0
    own = np.sort(_independent(unit, rank, preferred, least))

    regrouping = np.zeros((rank, len(names)))
    shares = np.linalg.lstsq(unit[:, own], unit, rcond=None)[0]
    rounding = np.sqrt(falling[rank] / falling[rank - 1]) if rank else 0.0
    shares[np.abs(shares) < rounding] = 0.0
    shares[:, own] = np.eye(rank)
    regrouping[:, visible] = shares * lengths[visible] / lengths[visible][own][:, None]
    return Identifiability(names, gap, values, tuple(int(k) for k in visible[own]), regrouping)


def _independent(a: np.ndarray, rank: int, preferred: Sequence[int], least: float) -> np.ndarray:
    """`rank` columns that span all, those preferred first, then the longest of what is left beside those chosen."""
    rest, chosen = a.copy(), []
    wanted = list(preferred)
    while len(chosen) < rank:
        left = np.linalg.norm(rest, axis=0)
        k = wanted.pop(0) if wanted else int(np.argmax(left))
        if left[k] <= least or k in chosen:
            continue
        chosen.append(k)
        axis = rest[:, k] / left[k]
        for _ in range(2):
            rest = rest - np.outer(axis, axis @ rest)
    return np.array(chosen, dtype=int)
