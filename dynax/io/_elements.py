"""What the readers of collision elements hand over."""

from __future__ import annotations

from dataclasses import dataclass, field

from dynax.contact.ends import Stop
from dynax.contact.material import Material
from dynax.contact.scene import Collider
from dynax.model.structure import Finding


class LeftOut(Exception):
    """Why an element is left out; what is wrong with a file is a `ModelError`."""


@dataclass
class Elements:
    """The collision elements of a file."""

    colliders: list[Collider] = field(default_factory=list)
    still: set[str] = field(default_factory=set)
    """Names of those that belong to the world and not to a robot."""
    pairs: dict[tuple[str, str], Material] = field(default_factory=dict)
    """That may touch, by names of colliders, and what holds between them."""
    limits: dict[str, Material] = field(default_factory=dict)
    """What of limits of joints the file says, by their names."""
    limited: bool = True
    """Whether joints stop at their limits."""
    stops: list[Stop] = field(default_factory=list)
    report: list[Finding] = field(default_factory=list)

    def note(self, element: str, message: str, line: int | None = None) -> None:
        self.report.append(Finding(element, message, line))

    def add(self, collider: Collider) -> Collider:
        """With a name of its own."""
        taken, name, k = {c.name for c in self.colliders}, collider.name, 1
        while name in taken:
            name, k = f"{collider.name}_{k}", k + 1
        named = Collider(collider.on, collider.geometry, collider.placement, collider.material, name)
        self.colliders.append(named)
        return named
