"""What dynax set out to reach. A target that is missed stays in the table."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return f">= {self.low:g}" if self.low is not None else f"<= {self.high:g}"

    def met(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def _pair(quantity: str, robot: str, double: Target, single: Target) -> dict[tuple[str, str, str], Target]:
    return {(quantity, robot, "float64"): double, (quantity, robot, "float32"): single}


TARGETS: dict[tuple[str, str, str], Target] = {
    # Pinocchio's time over dynax's
    **_pair("fd", "panda", Target(low=1.6), Target(low=3.0)),
    **_pair("fd", "talos", Target(low=1.1), Target(low=2.0)),
    **_pair("fd", "solo12", Target(low=1.5), Target(low=2.7)),
    **_pair("fd", "chain32", Target(low=1.5), Target(low=2.7)),
    **_pair("fd", "tree127", Target(low=0.85), Target(low=1.7)),
    **_pair("fd", "mixed", Target(low=0.7), Target(low=1.4)),
    ("id", "panda", "float32"): Target(low=1.0),
    ("id", "talos", "float32"): Target(low=1.0),
    ("mass", "panda", "float32"): Target(low=1.0),
    ("mass", "talos", "float32"): Target(low=1.0),
    # dynax's time over Pinocchio's
    **_pair("dfd", "panda", Target(high=0.75), Target(high=0.45)),
    **_pair("dfd", "talos", Target(high=1.6), Target(high=0.9)),
    **_pair("dfd", "chain128", Target(high=1.0), Target(high=0.5)),
    # over dynax's own forward dynamics
    ("vjp", "panda", "float32"): Target(high=2.0),
    ("vjp", "talos", "float32"): Target(high=3.0),
    ("vjp, masses and inertias too", "panda", "float32"): Target(high=5.0),
    ("vjp, masses and inertias too", "talos", "float32"): Target(high=5.0),
    # over an empty jitted call
    ("lone", "panda", "float32"): Target(high=4.5),
    ("lone", "talos", "float32"): Target(high=7.0),
    # MJX's time over dynax's
    ("rollout gradient", "panda", "float32"): Target(low=10.0),
    # over what JaxSim's forward dynamics takes to compile
    ("compile fd", "panda", "float32"): Target(high=1.3),
    ("compile fd", "talos", "float32"): Target(high=2.0),
    ("compile fd", "chain1000", "float32"): Target(high=2.0),
    ("compile dfd", "panda", "float32"): Target(high=3.0),
    ("compile dfd", "talos", "float32"): Target(high=3.0),
    # the exponent of the number of bodies
    ("slope", "chain", "float32"): Target(0.85, 1.15),
    ("slope", "tree", "float32"): Target(0.85, 1.15),
}
