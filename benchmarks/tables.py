"""Rows looked up and set in Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.case import ROBOTS
from benchmarks.targets import TARGETS

Row = dict[str, Any]
MISSING = "-"


@dataclass
class Rows:
    """The rows of a file, and what the tables found in them."""

    rows: list[Row]
    missed: list[str] = field(default_factory=list)
    """Targets, in words."""
    slower: dict[tuple[str, str, str], dict[str, float]] = field(default_factory=dict)
    """Of a quantity, a robot and a type, the peers that are faster than dynax, and how many times."""

    @classmethod
    def read(cls, path: Path) -> Rows:
        """A file holds one run or several, each after its header: what was measured again counts as it was last."""
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        run, last = 0, {}
        for row in rows:
            run += row["what"] == "header"
            row["run"] = run
            last[_cell(row)] = run
        order = {robot: place for place, robot in enumerate(ROBOTS)}
        kept = [row for row in rows if last[_cell(row)] == row["run"]]
        return cls(sorted(kept, key=lambda row: order.get(row.get("robot", ""), len(order))))

    @property
    def headers(self) -> list[Row]:
        """Of the runs, the last first."""
        return sorted((row for row in self.rows if row["what"] == "header"), key=lambda row: -row["run"])

    def quantities(self, header: Row) -> list[str]:
        """What counts of a run."""
        return list(dict.fromkeys(row["what"] for row in self.find(run=header["run"]) if "robot" in row))

    def find(self, **wanted: Any) -> list[Row]:
        """Those that have times and these values."""
        return [row for row in self.rows if "cpu" in row and all(row.get(k) == v for k, v in wanted.items())]

    def cpu(self, **wanted: Any) -> float | None:
        """The processor seconds of the first of them."""
        found = self.find(**wanted)
        return found[0]["cpu"] if found else None

    def failures(self) -> list[Row]:
        return [row for row in self.rows if "failure" in row]

    def judged(self, quantity: str, robot: str, dtype: str, value: float | None) -> list[str]:
        """The value and its target, two cells."""
        target = TARGETS.get((quantity, robot, dtype))
        if value is None:
            return [MISSING, f"{target}" if target else ""]
        if target is None:
            return [ratio(value), ""]
        if target.met(value):
            return [f"**{ratio(value)}**", f"{target}"]
        self.missed.append(f"{quantity} of {robot}, {dtype}: {ratio(value)}, target {target}")
        return [f"{ratio(value)}", f"{target}: missed"]


def _cell(row: Row) -> tuple:
    """What one run measures side by side."""
    if row["what"] == "header":
        return row["run"], "header"
    return tuple(row.get(key) for key in ("what", "of", "robot", "dtype", "batch"))


def over(numerator: float | None, denominator: float | None) -> float | None:
    return None if numerator is None or denominator is None else numerator / denominator


def ratio(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def microseconds(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    value = 1e6 * seconds
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
