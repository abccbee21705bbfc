"""A peer in a process of its own: reads requests, one JSON a line, and answers each with one.

python -m benchmarks.peers.worker brax
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bodies import Bodies
from benchmarks.case import Case
from benchmarks.jax_calls import Call, no_cache
from benchmarks.peers.jax_peer import JaxPeer, Unsupported
from benchmarks.peers.reference import reference
from benchmarks.timing import Contender


class Worker:
    def __init__(self, peer: str, folder: Path):
        self._name, self._folder = peer, folder
        self._peer: JaxPeer = importlib.import_module(f"benchmarks.peers.{peer}").Peer()
        self._contenders: list[Contender] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "versions":
                names = [self._name, "jax", "jaxlib", "numpy"]
                return {"python": platform.python_version(), **{name: version(name) for name in names}}
            case "reference":
                x = jnp.zeros(7, jnp.float32)
                empty = Call(lambda q, v, tau: tau, (x, x, x), False)
                return self._keep([Contender(self._peer.engine, "empty jitted call", empty.block()), reference()])
            case "prepare":
                case = Case(**request["case"])
                arrays = np.load(request["arrays"])
                bodies = Bodies.from_json(request["bodies"])
                return self._keep(self._peer.contenders(case, bodies, tuple(arrays[k] for k in ("q", "v", "x"))))
            case "block":
                cpu, wall = self._contenders[request["contender"]].block(request["count"])
                return {"cpu": cpu, "wall": wall}
            case "release":
                self._contenders.clear()
                jax.clear_caches()
                return {}
        raise ValueError(request["op"])

    def _keep(self, contenders: list[Contender]) -> dict[str, Any]:
        described = []
        for contender in contenders:
            index = len(self._contenders)
            self._contenders.append(contender)
            file = None
            if contender.answer is not None:
                answer = contender.answer if isinstance(contender.answer, tuple) else (contender.answer,)
                file = self._folder / f"{self._name}-{index}.npz"
                np.savez(file, *answer)
            fields = ("engine", "route", "evaluations", "overhead", "first", "note")
            described.append(
                {"index": index, "answer": str(file) if file else None, **{f: getattr(contender, f) for f in fields}}
            )
        return {"contenders": described}


def main(peer: str, folder: str) -> None:
    # What libraries print goes elsewhere: the pipe carries answers only.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    no_cache()
    worker = Worker(peer, Path(folder))
    for line in sys.stdin:
        try:
            reply = worker.answer(json.loads(line))
        except Unsupported as reason:
            reply = {"unsupported": str(reason)}
        except Exception as error:  # the other engines go on without this one
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(reply), file=pipe, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
