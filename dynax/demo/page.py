"""The page of figures."""

from __future__ import annotations

import os
from pathlib import Path

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
    """Six panels: energy, batch, hand path, distance, torques, masses."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10})
    figure = plt.figure(figsize=(13, 7.5), layout="constrained")
    figure.suptitle(f"dynax on {name}", fontsize=13)

    axes = figure.add_subplot(2, 3, 1)
    axes.plot(checks.time, checks.kinetic, color=AFTER, lw=1, label="kinetic")
    axes.plot(checks.time, checks.energy - checks.kinetic, color=BEFORE, lw=1, label="potential")
    axes.plot(checks.time, checks.energy, color=TARGET, lw=1.5, label=f"total, drift {checks.energy_drift:.0e}")
    axes.set(title="energy of a free motion", xlabel="s", ylabel="J")
    axes.legend(frameon=False)

    axes = figure.add_subplot(2, 3, 2, projection="3d")
    axes.scatter(*batch.hands.T, s=3, color=AFTER, alpha=0.5)
    _few_ticks(axes)
    axes.set_title(f"hands of {batch.robots} robots, {batch.steps_per_second:,.0f} steps/s")

    axes = figure.add_subplot(2, 3, 3, projection="3d")
    axes.plot(*reached.path_before.T, color=BEFORE, marker="o", ms=3, label="before: holding still")
    axes.plot(*reached.path_after.T, color=AFTER, label="after")
    axes.scatter(*reached.target, color=TARGET, label="target")
    axes.set_aspect("equal")
    _few_ticks(axes)
    axes.set_title("path of the hand [m]")
    axes.legend(frameon=False, loc="upper left")

    axes = figure.add_subplot(2, 3, 4)
    axes.semilogy(1e3 * reached.distances, color=AFTER)
    axes.set(title="hand to target", xlabel="gradient step", ylabel="mm")

    axes = figure.add_subplot(2, 3, 5)
    axes.plot(reached.time[:-1], reached.torques, lw=1)
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
    axes.set(title="link masses from a motion", ylabel="kg")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _few_ticks(axes) -> None:
    """Labels that have room: some four on the longest side of a box in perspective, fewer on its short ones."""
    from matplotlib.ticker import MaxNLocator

    sizes = axes.get_box_aspect()
    for axis, size in zip((axes.xaxis, axes.yaxis, axes.zaxis), sizes, strict=True):
        axis.set_major_locator(MaxNLocator(max(1, round(4 * size / max(sizes)))))
    axes.tick_params(labelsize=7, pad=0)
