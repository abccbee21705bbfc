"""Measuring a group of cases: every engine's contenders are made, checked, then timed in turns; rows come out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import loops
from benchmarks.case import Case
from benchmarks.check import Mismatch, check, check_equal, check_same_robot
from benchmarks.jax_calls import no_cache
from benchmarks.ours import UNOPTIMISED, Ours, empty
from benchmarks.peers.jax_peer import Unsupported
from benchmarks.peers.mjx import Mjx
from benchmarks.peers.mujoco import Mujoco
from benchmarks.peers.pinocchio import Pinocchio
from benchmarks.peers.reference import reference
from benchmarks.peers.remote import Remote
from benchmarks.robots import Robot, States, robot, states
from benchmarks.timing import Contender, Pace, alternate

REMOTE = ("brax", "jaxsim")
PEERS = ("pinocchio", "mujoco", "mjx", *REMOTE)

Row = dict[str, Any]
Maker = Callable[[Case, Robot, States], list[Contender]]
Judged = tuple[Case, Contender, float | Mismatch | None]


@dataclass
class Session:
    """The engines of a run, dynax first."""

    peers: Sequence[str]
    pace: Pace
    rehearsal: bool = False
    """Nobody reads its times: it compiles without optimising."""
    makers: dict[str, Maker] = field(default_factory=dict)
    remotes: dict[str, Remote] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Peers that could not be started, and why."""

    def __enter__(self) -> Session:
        no_cache()
        self._stack = ExitStack()
        local: dict[str, Maker] = {
            "pinocchio": Pinocchio().contenders,
            "mujoco": Mujoco().contenders,
            "mjx": Mjx(UNOPTIMISED if self.rehearsal else None).contenders_of,
        }
        self.makers["dynax"] = Ours(self.rehearsal).contenders
        self.makers |= {name: local[name] for name in self.peers if name in local}
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="dynax-benchmarks-")))
        for name in (name for name in self.peers if name in REMOTE):
            try:
                remote = Remote(name, folder)
            except Exception as error:  # a table without this peer is worth having, and says why
                self.missing[name] = f"{type(error).__name__}: {error}"
                continue
            self._stack.callback(remote.close)
            self.remotes[name], self.makers[name] = remote, remote.contenders
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def references(self) -> list[Row]:
        """What every process makes of the same work, so that their numbers can be compared."""
        found = [(name, c) for name, remote in self.remotes.items() for c in remote.reference()]
        own = [("dynax", empty(False)), ("dynax", reference()), *found]
        samples = alternate([contender for _, contender in own], self.pace)
        rows = [
            {"what": "reference", "process": process, "engine": c.engine, "route": c.route, **sample.row()}
            for (process, c), sample in zip(own, samples, strict=True)
        ]
        self._release()
        absent = [
            {"what": "reference", "process": name, "engine": name, "failure": reason}
            for name, reason in self.missing.items()
        ]
        return rows + absent

    def measure(self, group: Sequence[Case]) -> Iterator[Row]:
        """A row per contender, or per engine that failed."""
        pairs: list[tuple[Case, Contender]] = []
        for case in group:
            if case.what == "loops":  # of dynax alone: its routes are compared with one another
                pairs += [(case, c) for c in loops.contenders(case, UNOPTIMISED if self.rehearsal else None)]
                continue
            which = robot(case.robot)
            check_same_robot(which)
            batch = states(which, case)
            for engine, make in self.makers.items():
                try:
                    pairs += [(case, contender) for contender in make(case, which, batch)]
                except Exception as error:  # the other engines go on
                    kind = "" if isinstance(error, Unsupported) else f"{type(error).__name__}: "
                    yield _row(case, engine, failure=f"{kind}{error}"[:300])
        checked = []
        for case, contender, result in _checked(pairs):
            if isinstance(result, Mismatch):
                yield _row(case, contender.engine, route=contender.route, failure=str(result))
            else:
                checked.append((case, contender, result))
        if checked:
            pace = self.pace.compiling() if group[0].what == "compile" else self.pace
            samples = alternate([contender for _, contender, _ in checked], pace)
            for (case, c, error), sample in zip(checked, samples, strict=True):
                extra = {"first": c.first, "note": c.note, "overhead": c.overhead, "error": error}
                yield _row(case, c.engine, route=c.route, **sample.row(), **{k: v for k, v in extra.items() if v})
        self._release()

    def _release(self) -> None:
        """Compiled programs of one group are of no use to the next, and they add up to gigabytes."""
        jax.clear_caches()
        for remote in self.remotes.values():
            remote.release()


def _row(case: Case, engine: str, **rest: Any) -> Row:
    return {**{k: v for k, v in case.to_dict().items() if v}, "engine": engine, **rest}


def _checked(pairs: Sequence[tuple[Case, Contender]]) -> Iterator[Judged]:
    """With each contender its error, `None` where there is nothing to compare with."""
    if pairs and pairs[0][0].what == "rollout":  # no oracle: the engines that roll out are compared with each other
        yield from _compared(pairs)
        return
    for case, contender in pairs:
        result: float | Mismatch | None = None
        if contender.answer is not None:
            which = robot(case.robot)
            try:
                result = check(case, which, states(which, case), contender.answer)
            except Exception as error:  # the other engines go on
                result = error if isinstance(error, Mismatch) else Mismatch(f"{type(error).__name__}: {error}"[:300])
        yield case, contender, result


def _compared(pairs: Sequence[tuple[Case, Contender]]) -> Iterator[Judged]:
    for route in dict.fromkeys(contender.route for _, contender in pairs):
        same = [(case, contender) for case, contender in pairs if contender.route == route]
        answers = [c.answer if isinstance(c.answer, tuple) else (np.asarray(c.answer),) for _, c in same]
        result: float | Mismatch | None = None
        try:
            result = check_equal(same[0][0], answers) if len(same) > 1 else None
        except Mismatch as mismatch:
            result = mismatch
        yield from ((case, contender, result) for case, contender in same)
