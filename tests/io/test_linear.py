"""Every reader takes time in proportion to its file: four times as much text four times the time, not sixteen."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable

import pytest

import dynax as dx

INERTIA = '<mass value="{}"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'
ROBOT = '<robot name="r">{}</robot>'


def number(size: int) -> str:
    return ROBOT.format('<link name="a"><inertial>' + INERTIA.format("1" * size + "x") + "</inertial></link>")


def comments(size: int) -> str:
    return "<!--" * size


def declarations(size: int) -> str:
    return "<? <!" * size


def lines(size: int) -> str:
    return ROBOT.format('<link name="a"><x>' + ("y" * 79 + "\n") * size + "</x></link>")


def long_names(size: int) -> str:
    joint = f'<joint name="j" type="fixed"><parent link="{"ab" * size}"/><child link="{"ba" * size}"/></joint>'
    return ROBOT.format(f'<link name="{"ba" * size}"/>{joint}')


def links(size: int) -> str:
    parts = [f'<link name="l{k}"><inertial>{INERTIA.format(1)}</inertial></link>' for k in range(size)]
    joint = '<joint name="j{0}" type="continuous"><parent link="l{1}"/><child link="l{0}"/></joint>'
    return ROBOT.format("".join(parts + [joint.format(k, k - 1) for k in range(1, size)]))


def sites(size: int) -> str:
    body = "<joint/><joint axis='1 0 0'/><geom size='.1'/>" + "".join(f"<site name='s{k}'/>" for k in range(size))
    return f"<mujoco><worldbody><body name='b'>{body}</body></worldbody></mujoco>"


def several_joints(size: int) -> str:
    body = "<body><joint/><joint axis='1 0 0'/><geom size='.1'/></body>"
    return f"<mujoco><worldbody>{body * size}</worldbody></mujoco>"


def seconds(text: str) -> float:
    start = time.process_time()
    with contextlib.suppress(dx.ModelError):
        dx.load(text)
    return time.process_time() - start


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (number, 4000),
        (comments, 8000),
        (declarations, 8000),
        (lines, 100_000),
        (long_names, 2000),
        (links, 200),
        (sites, 1000),
        (several_joints, 100),
    ],
)
def test_time_grows_with_the_size_of_the_file(make: Callable[[int], str], size: int):
    small, large = make(size), make(4 * size)
    seconds(make(2))  # what only the first file pays
    gc.collect()
    short, long = (min(seconds(text) for _ in range(3)) for text in (small, large))
    # Half a millisecond: below it, clocks and collectors count.
    assert long < 9.0 * max(short, 5e-4), f"{short:.3f} s, then {long:.3f} s for four times as much"
