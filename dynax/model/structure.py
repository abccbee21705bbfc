"""What is static about a model: its topology, its names and what was odd about its source."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from dynax.joints import AbstractClosure
from dynax.topology import Topology

WORLD = "world"
"""The name of the inertial frame."""
LONGEST_TYPED = 200


class Finding(NamedTuple):
    """Something odd that was loaded as it is: an entry of `model.report`."""

    element: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f" (line {self.line})"
        return f"{self.element}{place}: {self.message}"


class Loop(NamedTuple):
    """A loop: what holds a frame of one body (`successor`) to a frame of another (`predecessor`), -1 for the world."""

    name: str
    predecessor: int
    successor: int
    closure: AbstractClosure


class Condition(NamedTuple):
    """A user's own condition `function(model, q) == 0` of `size` entries."""

    name: str
    function: Callable
    size: int


@dataclass(frozen=True, eq=False)
class Structure:
    """Names and topology, hashable, shared by all models that differ only in numbers."""

    name: str
    topology: Topology
    body_names: tuple[str, ...]
    joint_names: tuple[str, ...]
    frame_names: tuple[str, ...]
    frame_bodies: tuple[int, ...]
    """The body each frame is fixed to, -1 for the world."""
    loops: tuple[Loop, ...] = ()
    couplings: tuple[tuple[str, ...], ...] = ()
    """Gears: joints `(follower, *sources)` whose coordinates are tied."""
    coupling_functions: tuple[Callable | None, ...] = ()
    """For each gear the function of its sources, `None` for a linear one."""
    conditions: tuple[Condition, ...] = ()
    report: tuple[Finding, ...] = ()
    _hash: int = field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "_hash", hash(self._key))

    @property
    def _key(self) -> tuple:
        return (
            self.name,
            self.topology,
            self.body_names,
            self.joint_names,
            self.frame_names,
            self.frame_bodies,
            self.loops,
            self.couplings,
            self.coupling_functions,
            self.conditions,
            self.report,
        )

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Structure) and self._hash == other._hash and self._key == other._key

    @cached_property
    def geared(self) -> bool:
        """Whether linear gears tie joints together and nothing else does, and no joint follows itself, be it through
        others: then their conditions are constant and independent."""
        follows = {follower: sources for follower, *sources in self.couplings}
        linear = all(function is None for function in self.coupling_functions)
        repeated = any(len(set(sources)) < len(sources) for sources in follows.values())
        if self.loops or self.conditions or not follows or not linear or repeated:
            return False
        while follows:
            free = [joint for joint, sources in follows.items() if not any(source in follows for source in sources)]
            if not free:
                return False
            for joint in free:
                del follows[joint]
        return True

    @property
    def loop_names(self) -> tuple[str, ...]:
        return tuple(loop.name for loop in self.loops)

    @cached_property
    def body_index(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.body_names)}

    @cached_property
    def joint_index(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.joint_names)}

    @cached_property
    def frame_index(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.frame_names)}


def close_names(name: str, known: Iterable[str], what: str) -> str:
    """The text of an error about an unknown name, with the nearest known ones."""
    known = tuple(known)
    if not isinstance(name, str):
        return f"a {what} goes by its name, a text, not by {name!r}"
    near = nearest_names(name, known, 3) or list(known[:3])
    listed = ", ".join(repr(n) for n in near) if near else "none"
    return f"no {what} named {name!r}; did you mean one of: {listed}?"


def nearest_names(name: str, known: Iterable[str], count: int) -> list[str]:
    """The names most like one; none for what nobody has typed, since to compare takes the square of the length."""
    if len(name) > LONGEST_TYPED:
        return []
    return difflib.get_close_matches(name, [other for other in known if len(other) <= LONGEST_TYPED], n=count)
