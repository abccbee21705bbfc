"""What the readers of visual elements hand over."""

from __future__ import annotations

from dataclasses import dataclass, field

from dynax.contact.shapes import Geometry
from dynax.io._mesh import Surface
from dynax.model.structure import Finding
from dynax.spatial import Transform


@dataclass(frozen=True)
class Visual:
    """Something to be seen on a body."""

    on: str
    """A body or frame, or `"world"`."""
    shape: Geometry | Surface
    placement: Transform = field(default_factory=Transform.identity)
    color: tuple[float, ...] | None = None
    """Red, green, blue and opacity from 0 to 1; none where the file does not say."""


@dataclass
class Visuals:
    """What is to be seen of a file, and what not and why."""

    visuals: list[Visual] = field(default_factory=list)
    report: list[Finding] = field(default_factory=list)

    def note(self, element: str, message: str, line: int | None = None) -> None:
        self.report.append(Finding(element, message, line))
