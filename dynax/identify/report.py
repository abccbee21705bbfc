"""What an identification has found, as a person reads it: text by `print`, a figure by `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from dynax.identify.identifiability import Identifiability

WIDEST = 60
"""Characters of a combination in the text; `found.combinations` has them whole."""


@dataclass(frozen=True)
class Report:
    """Made by `report`; `print` it."""

    found: Identifiability
    values: np.ndarray
    """Of the base parameters, shape `(rank,)`."""
    deviations: np.ndarray | None
    """Their standard deviations."""
    channels: tuple[str, ...]
    """The names of the joints."""
    forces: np.ndarray
    """Measured, of the log that is kept for the check where there is one, shape `(T, m)`."""
    said: np.ndarray
    """The same by the parameters."""
    missed: np.ndarray
    """What each channel misses of the log, root mean square by that of the force, shape `(m,)`."""
    held_out: np.ndarray | None
    """The same of the log that was kept."""

    def __str__(self) -> str:
        kinds, names = self.found.kinds, self.found.names
        lines = [f"{self.found.rank} of {len(names)} parameters can be told, in these combinations:"]
        words = [word if len(word) <= WIDEST else word[: WIDEST - 3] + "..." for word in self.found.combinations]
        width = max(map(len, words), default=0)
        for k, (word, value) in enumerate(zip(words, self.values, strict=True)):
            line = f"  {word:{width}}  {value: .5g}"
            if self.deviations is not None:
                part = self.deviations[k] / max(abs(value), np.finfo(float).tiny)
                line += f" +- {self.deviations[k]:.1g}" + (f" ({part:.1%})" if part < 10.0 else " (not known)")
            lines.append(line)
        hidden = [name for name, kind in zip(names, kinds, strict=True) if kind == "invisible"]
        if hidden:
            lines.append(f"not seen: {', '.join(hidden)}")
        lines.append("forces are missed, by root mean square, by")
        for k, name in enumerate(self.channels):
            line = f"  {self.missed[k]:6.1%}  of {name}"
            lines.append(line if self.held_out is None else f"{line}, {self.held_out[k]:.1%} in the log kept")
        return "\n".join(lines)


def report(
    found: Identifiability,
    estimate: Any,
    regressor: ArrayLike,
    forces: ArrayLike,
    *,
    channels: Sequence[str],
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
) -> Report:
    """The report of an identification.

    **Arguments:**

    - `found`: from `identifiability` or `identifiability_of`, what the columns of the regressor can tell.
    - `estimate`: an `Estimate` of the base parameters, with deviations, or a `ConsistentFit` of all, without.
    - `regressor`, `forces`: the log, `(T, m, p)` with all columns and `(T, m)`.
    - `channels`: the names of the `m` forces, such as those of the joints.
    - `held_out`: regressor and forces of a log that no estimate has seen.
    """
    values = np.asarray(estimate.values, float)
    if values.shape == (len(found.names),):
        values = found.regrouping @ values
    if values.shape != (found.rank,):
        raise ValueError(
            f"`estimate` has values of shape {values.shape}, expected {(found.rank,)}, of the base, or all"
        )
    log = _compared(found, values, regressor, forces, channels, "regressor")
    kept = None if held_out is None else _compared(found, values, *held_out, channels, "held_out")
    deviations = getattr(estimate, "deviations", None)
    shown = log if kept is None else kept
    return Report(
        found,
        values,
        None if deviations is None else np.asarray(deviations),
        tuple(channels),
        shown[0],
        shown[1],
        log[2],
        None if kept is None else kept[2],
    )


def _compared(
    found: Identifiability, values: np.ndarray, regressor: Any, forces: Any, channels: Sequence[str], name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The forces, what parameters say of them, and by what part they miss them."""
    y, tau = np.asarray(regressor, float), np.asarray(forces, float)
    wanted = (*tau.shape, len(found.names))
    if tau.ndim != 2 or tau.shape[1] != len(channels) or y.shape != wanted:
        raise ValueError(
            f"`{name}` has shape {y.shape} and its forces {tau.shape}, expected (T, m, {len(found.names)}) and (T, m) "
            f"with a channel for each of the {len(channels)} names"
        )
    said = y[..., list(found.base)] @ values
    size = np.sqrt(np.mean(tau**2, axis=0))
    return tau, said, np.sqrt(np.mean((said - tau) ** 2, axis=0)) / np.maximum(size, np.finfo(float).tiny)


def plot(shown: Report) -> Any:
    """The measured forces with what the parameters say of them, joint by joint: a Matplotlib figure.

    It is of the log that was kept, if one was. Needs `pip install "dynax[figures]"`.
    """
    from matplotlib.figure import Figure

    count = len(shown.channels)
    figure = Figure(figsize=(8.0, 1.4 * count + 0.6), layout="constrained")
    missed = shown.missed if shown.held_out is None else shown.held_out
    for k, axes in enumerate(np.ravel(figure.subplots(count, 1, sharex=True, squeeze=False))):
        axes.plot(shown.forces[:, k], color="#b0b7c3", lw=1.5, label="measured")
        axes.plot(shown.said[:, k], color="#2563eb", lw=1.0, label="by the parameters")
        axes.set_title(f"{shown.channels[k]}: {missed[k]:.1%} missed", fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), ncols=2, fontsize=9, loc="outside upper right")
    figure.supylabel("N m or N", fontsize=9)
    figure.axes[-1].set_xlabel("sample", fontsize=9)
    return figure
