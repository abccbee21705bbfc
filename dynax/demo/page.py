"""The page of figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import dynax as dx
from dynax.demo.batch import Throughput
from dynax.demo.checks import Checks
from dynax.demo.identify import Masses
from dynax.demo.reach import Reach

BEFORE, AFTER, TARGET = "#b0b7c3", "#2563eb", "#dc2626"


def check_output(path: Path) -> None:
    """`ModelError` where the page could not be written: known before the work, not after it."""
    from matplotlib.backend_bases import FigureCanvasBase

    kinds, hint = sorted(FigureCanvasBase.get_supported_filetypes()), "choose another --output"
    if not path.parent.is_dir():
        raise dx.ModelError("its folder does not exist", file=str(path), hint=f"make the folder, or {hint}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise dx.ModelError("cannot be written", file=str(path), hint=hint)
    if path.suffix and path.suffix[1:].lower() not in kinds:
        raise dx.ModelError(f"no such kind of picture, of {', '.join(kinds)}", file=str(path), hint=hint)


def draw(path: Path, name: str, checks: Checks, batch: Throughput, reached: Reach, masses: Masses) -> None:
    """Write the page, without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style: Any = {"font.size": 13, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 14}
    with plt.rc_context(style):
        figure = page(name, checks, batch, reached, masses)
        figure.savefig(path, dpi=110)
    plt.close(figure)


def page(name: str, checks: Checks, batch: Throughput, reached: Reach, masses: Masses) -> Any:
    """Six panels: energy, batch, hand path, distance, torques, masses; what lines mean stands above them."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(13, 7.5), layout="constrained")
    figure.suptitle(f"dynax on {name}", fontsize=17)

    axes = figure.add_subplot(2, 3, 1)
    axes.plot(checks.time, checks.kinetic, color=AFTER, lw=1.5, label="kinetic")
    axes.plot(checks.time, checks.energy - checks.kinetic, color=BEFORE, lw=1.5, label="potential")
    axes.plot(checks.time, checks.energy, color=TARGET, lw=1.5, label=f"total, drift {checks.energy_drift:.0e}")
    axes.set(xlabel="s", ylabel="J")
    _titled(axes, "energy of a free motion")

    across = _towards(reached)
    axes = figure.add_subplot(2, 3, 2)
    axes.scatter(batch.hands @ across, batch.hands[:, 2], s=6, color=AFTER, alpha=0.5, linewidths=0)
    title = f"hands of {batch.robots} robots\n{batch.steps_per_second:,.0f} steps/s"
    axes.set(xlabel="m", ylabel="height [m]", aspect="equal", title=title)

    axes = figure.add_subplot(2, 3, 3)
    before, after = reached.path_before, reached.path_after
    axes.plot(before @ across, before[:, 2], color=BEFORE, marker="o", ms=7, label="held still")
    axes.plot(after @ across, after[:, 2], color=AFTER, lw=2, label="found")
    axes.plot(reached.target @ across, reached.target[2], color=TARGET, marker="*", ms=16, ls="", label="target")
    axes.set(xlabel="towards the target [m]", ylabel="height [m]")
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.15)
    _titled(axes, "path of the hand")

    axes = figure.add_subplot(2, 3, 4)
    axes.semilogy(reached.costs, color=AFTER, marker="o", ms=5)
    axes.set(title="cost of the motion", xlabel="iteration")

    axes = figure.add_subplot(2, 3, 5)
    axes.plot(reached.time, reached.torques, lw=1)
    axes.set(title="optimised joint forces", xlabel="s", ylabel="N m or N")

    axes = figure.add_subplot(2, 3, 6)
    shown = np.argsort(masses.true)[::-1][:12]
    place = np.arange(len(shown))
    for k, (values, colour, label) in enumerate(
        (
            (masses.perturbed, BEFORE, "first guess"),
            (masses.recovered, AFTER, "recovered"),
            (masses.true, TARGET, "true"),
        )
    ):
        axes.bar(place + 0.27 * (k - 1), values[shown], 0.25, color=colour, label=label)
    axes.set_xticks(place, [masses.names[i][-14:] for i in shown], rotation=45, ha="right")
    axes.set(ylabel="kg")
    _titled(axes, "link masses from a motion")
    return figure


def _titled(axes: Any, title: str) -> None:
    """The title, and below it what the lines mean: in the axes a legend would hide some of them."""
    axes.set_title(title, pad=26)
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=12,
        handlelength=1.2, columnspacing=1.0, handletextpad=0.4, borderaxespad=0.1,
    )  # fmt: skip


def _towards(reached: Reach) -> np.ndarray:
    """The horizontal direction from where the hand was to the target: with the height, all of what matters."""
    way = (np.asarray(reached.target) - np.asarray(reached.path_before)[0]) * [1.0, 1.0, 0.0]
    length = np.linalg.norm(way)
    return way / length if length > 1e-9 else np.eye(3)[0]
