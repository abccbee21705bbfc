"""The demonstration's page: nothing that is written on it hides anything else."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dynax.demo.batch import Throughput
from dynax.demo.checks import Checks
from dynax.demo.identify import Masses
from dynax.demo.page import page
from dynax.demo.reach import Reach


@pytest.fixture
def figure(rng):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    time = np.linspace(0.0, 1.0, 100)
    kinetic = 85.0 * np.sin(3.0 * time) ** 2
    path = np.stack([-0.1 + 0.2 * time, 0.0 * time, 0.75 - 0.45 * time], axis=1)
    masses, costs = np.linspace(5.0, 0.6, 7), np.geomspace(120.0, 0.04, 9)
    drawn = page(
        "a_robot_with_a_long_name",
        Checks(1e-14, 3e-07, time, kinetic, 85.0 + 0.0 * time),
        Throughput(1000, 100, 3.0, 0.05, rng.normal(size=(1000, 3))),
        Reach(path[-1], costs, time, rng.normal(size=(100, 7)), path[:1] + 0.0 * path, path, "STALLED"),
        Masses(tuple(f"forearm_link_{k}" for k in range(7)), masses, 1.3 * masses, masses, masses > 0, "CONVERGED", 6),
    )
    drawn.draw_without_rendering()
    yield drawn
    plt.close(drawn)


def test_legends_and_titles_lie_outside_of_what_is_drawn_and_of_each_other(figure):
    assert len(figure.axes) == 6
    boxes = [figure._suptitle.get_window_extent()]
    for axes in figure.axes:
        boxes += [axes.title.get_window_extent(), axes.xaxis.label.get_window_extent(), axes.get_window_extent()]
        boxes += [axes.yaxis.label.get_window_extent()]
        boxes += [axes.get_legend().get_window_extent()] if axes.get_legend() else []
        boxes += [label.get_window_extent() for label in axes.get_yticklabels() if label.get_text()][:1]
    boxes = [box for box in boxes if box.width > 1.0 and box.height > 1.0]
    assert len(boxes) > 25
    for one, other in combinations(boxes, 2):
        assert not one.padded(-1.0).overlaps(other.padded(-1.0))
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    legends = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert len(legends) == 3
    assert min(text.get_fontsize() for legend in legends for text in legend.texts) >= 12  # read at half size
