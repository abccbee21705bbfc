"""What is measured: a quantity of a robot, in a type of number, for a batch. Needs the standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

QUANTITIES = {
    "fd": "forward dynamics",
    "id": "inverse dynamics",
    "mass": "mass matrix",
    "jac": "Jacobian of the body farthest out",
    "dfd": "derivative Jacobian of forward dynamics",
    "vjp": "reverse-mode derivative of forward dynamics",
    "rollout": "rollout of 100 steps and its gradient",
    "compile": "compile time",
    "lone": "latency of a lone call",
    "slope": "cost over the number of bodies",
    "loops": "forward dynamics of closed mechanisms",
}


@dataclass(frozen=True)
class Case:
    what: str
    """A key of `QUANTITIES`, or `"reference"`."""
    robot: str
    dtype: str
    """`"float32"` or `"float64"`."""
    batch: int = 1
    of: str = ""
    """What is compiled, where that is what is measured: another key of `QUANTITIES`."""

    @property
    def double(self) -> bool:
        return self.dtype == "float64"

    def __str__(self) -> str:
        return " ".join(filter(None, [self.what, self.of, self.robot, self.dtype, f"x{self.batch}"]))

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)


ROBOTS = (
    "panda", "ur5", "solo12", "talos", "chain8", "chain32", "chain128", "chain512", "tree127", "mixed"
)  # fmt: skip
DTYPES = ("float32", "float64")
SLOPE_SIZES = (50, 150, 500, 2000)
LOOP_SIZES = (4, 8, 16, 32)
SMOKE_BATCH = 8


def cases(what: str) -> Iterator[list[Case]]:
    """Groups of cases that are measured in one alternation."""
    match what:
        case "fd":
            for robot in ROBOTS:
                yield from ([Case(what, robot, dtype, 4096)] for dtype in DTYPES)
        case "id" | "mass" | "jac":
            for robot in ("panda", "ur5", "solo12", "talos", "chain32", "tree127", "mixed"):
                batch = 512 if robot == "tree127" else 4096
                yield from ([Case(what, robot, dtype, batch)] for dtype in DTYPES)
        case "dfd":
            for robot in ("panda", "solo12", "talos", "mixed", "chain128"):
                batch = 128 if robot == "chain128" else 1024
                yield from ([Case(what, robot, dtype, batch)] for dtype in DTYPES)
        case "vjp":
            yield from ([Case(what, robot, "float32", 1024)] for robot in ("panda", "talos"))
        case "rollout":
            yield [Case(what, "panda", "float32")]
        case "compile":
            kinds = {"panda": ("fd", "dfd"), "talos": ("fd", "dfd"), "chain1000": ("fd",)}
            yield [Case(what, robot, "float32", of=of) for robot, all_of in kinds.items() for of in all_of]
        case "lone":
            yield from ([Case(what, robot, "float32")] for robot in ("panda", "talos"))
        case "slope":
            for shape in ("chain", "tree"):
                yield from ([Case(what, f"{shape}{size}", "float32", 64)] for size in SLOPE_SIZES)
        case "loops":
            yield from ([Case(what, "legs8", dtype, 1024)] for dtype in DTYPES)
            yield [Case(what, f"four-bars{size}", "float64", 64) for size in LOOP_SIZES]
        case _:
            raise ValueError(f"{what!r} is not one of {list(QUANTITIES)}")


def smoke_cases(what: str) -> list[Case]:
    """One small group of each kind."""
    match what:
        case "rollout" | "lone":
            return [Case(what, "panda", "float32")]
        case "compile":
            return [Case(what, "panda", "float32", of="fd")]
        case "slope":
            return [Case(what, "chain8", "float32", SMOKE_BATCH)]
        case "loops":
            return [Case(what, "four-bars2", "float64", SMOKE_BATCH)]
    return [Case(what, "panda", "float64", SMOKE_BATCH)]
