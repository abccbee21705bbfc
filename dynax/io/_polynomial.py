"""A polynomial that a gear may follow, and a file may hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Polynomial:
    """`sum of coefficients[k] (x - center)^k`: static, hashable, and a function of scalars or arrays."""

    coefficients: tuple[float, ...]
    center: float = 0.0

    def __call__(self, x: Any) -> Any:
        total = 0.0 * x
        for coefficient in reversed(self.coefficients):
            total = total * (x - self.center) + coefficient
        return total
