"""The other end of `benchmarks.peers.worker`: a peer's contenders, timed where they live."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.peers.environment import python_of
from benchmarks.peers.jax_peer import Unsupported
from benchmarks.peers.mujoco_state import mujoco_state
from benchmarks.robots import Robot, States
from benchmarks.timing import Contender, Taken

ROOT = Path(__file__).resolve().parents[2]
ROBOTS = {
    "brax": ("panda", "ur5", "solo12", "talos", "chain8"),
    "jaxsim": ("panda", "ur5", "solo12", "talos", "chain8", "chain32", "chain128", "tree127"),
}  # of others compiling, or in JaxSim's case reading the robot, takes too long or fails


class PeerFailed(RuntimeError):
    """What went wrong in its process."""


class Remote:
    """A peer in its own environment, `"brax"` or `"jaxsim"`; the processes share one core and never run together."""

    def __init__(self, peer: str, folder: Path):
        self.peer, self._folder = peer, folder
        command = [str(python_of(peer)), "-m", "benchmarks.peers.worker", peer, str(folder)]
        log = (folder / f"{peer}.log").open("w")
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        self.versions = self._ask(op="versions")

    def contenders(self, case: Case, robot: Robot, states: States) -> list[Contender]:
        if case.robot not in ROBOTS[self.peer] or not self._takes_part(case, robot):
            return []
        like_mujoco = self.peer == "brax"
        arrays = (states.q, states.v, states.tau)
        if like_mujoco:
            arrays = mujoco_state(robot).to(states, acceleration=case.what == "id")
        file = self._folder / f"{self.peer}-states.npz"
        np.savez(file, q=arrays[0], v=arrays[1], x=arrays[2])
        reply = self._ask(op="prepare", case=case.to_dict(), arrays=str(file), bodies=robot.bodies.to_json())
        found = self._proxies(reply)
        for contender in found:
            if like_mujoco and contender.answer is not None and case.what not in ("dfd", "vjp"):
                contender.answer = mujoco_state(robot).back(case.what, states, contender.answer)
        return found

    def reference(self) -> list[Contender]:
        return self._proxies(self._ask(op="reference"))

    def release(self) -> None:
        self._ask(op="release")

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(timeout=30)

    def _takes_part(self, case: Case, robot: Robot) -> bool:
        match case.what:
            case "compile":
                return self.peer == "jaxsim" and case.of == "fd"
            case "dfd" | "vjp":
                return not robot.bodies.free and not case.double  # a quaternion there, a tangent here
            case "slope" | "rollout":
                return False
            case "fd" | "lone":
                return True
        return case.robot in ("panda", "talos") and not case.double

    def _proxies(self, reply: dict[str, Any]) -> list[Contender]:
        found = []
        for described in reply["contenders"]:
            index, file = described.pop("index"), described.pop("answer")
            answer = None
            if file:
                with np.load(file) as arrays:
                    parts: tuple[Any, ...] = tuple(arrays.values())
                answer = parts if len(parts) > 1 else parts[0]
            found.append(Contender(block=partial(self._block, index), answer=answer, **described))
        return found

    def _block(self, index: int, count: int) -> Taken:
        reply = self._ask(op="block", contender=index, count=count)
        return Taken(reply["cpu"], reply["wall"])

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailed(f"{self.peer}: its process ended; {self._last_words()}")
        reply = json.loads(line)
        if "unsupported" in reply:
            raise Unsupported(reply["unsupported"])
        if "error" in reply:
            raise PeerFailed(reply["error"])
        return reply

    def _last_words(self) -> str:
        lines = (self._folder / f"{self.peer}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
