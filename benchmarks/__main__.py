"""Measure dynax beside its peers, on one core, in one run.

    python -m benchmarks                             everything; the rows go to benchmarks/results/latest.jsonl
    python -m benchmarks --only panda --what fd,id   a selection; the rows go to benchmarks/results/<time>.jsonl
    python -m benchmarks --quick                     short repetitions: to see that it works
    python -m benchmarks --smoke                     one small case of each kind, checked; writes nothing

`python -m benchmarks.cores` measures what further cores bring.

It needs dynax's `test` extra. Brax and JaxSim are installed into environments of their own, see
`benchmarks.peers.environment`; one that cannot be installed gets a row that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.case import QUANTITIES, Case, cases, smoke_cases
from benchmarks.timing import FULL, QUICK, SMOKE

RESULTS = Path(__file__).resolve().parent / "results"
ALL_PEERS = ("pinocchio", "mujoco", "mjx", "brax", "jaxsim")
SMOKE_PEERS = ("pinocchio", "mujoco", "mjx")
SMOKE_MJX = ("fd",)  # compiling takes MJX longer than all the rest


def main() -> int:
    options = _options()
    if options.smoke:
        return _smoke()
    # Before JAX is imported: it makes as many threads as it finds cores.
    core = max(os.sched_getaffinity(0)) if options.core is None else options.core
    os.sched_setaffinity(0, {core})
    return _run(options, core)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure dynax beside its peers.")
    parser.add_argument("--what", type=_names(QUANTITIES), default=list(QUANTITIES), help=", ".join(QUANTITIES))
    parser.add_argument("--only", type=_names(None), help="these robots, such as panda,talos")
    parser.add_argument("--peers", type=_names(ALL_PEERS), default=list(ALL_PEERS), help=", ".join(ALL_PEERS))
    parser.add_argument("--dtype", type=_names(("float32", "float64")), help="one type of numbers instead of both")
    parser.add_argument("--quick", action="store_true", help="short repetitions")
    parser.add_argument("--smoke", action="store_true", help="one small case of each kind; writes nothing")
    parser.add_argument("--core", type=int, help="the core to run on; default the last one")
    parser.add_argument("--out", type=Path, help="where the rows go")
    return parser.parse_args()


def _names(known: Iterable[str] | None):
    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        unknown = [] if known is None else [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known or ())}")
        return names

    return read


def _selected(options: argparse.Namespace) -> Iterator[list[Case]]:
    for what in options.what:
        for group in cases(what):
            chosen = [
                case
                for case in group
                if (options.only is None or case.robot in options.only)
                and (options.dtype is None or case.dtype in options.dtype)
            ]
            if chosen:
                yield chosen


def _run(options: argparse.Namespace, core: int) -> int:
    from benchmarks.facts import header
    from benchmarks.measure import Session

    whole = options.only is None and options.dtype is None and not options.quick
    whole = whole and options.what == list(QUANTITIES) and options.peers == list(ALL_PEERS)
    name = "latest" if whole else f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    out = options.out or RESULTS / f"{name}.jsonl"
    out.parent.mkdir(exist_ok=True)
    with out.open("w", encoding="utf-8") as file, Session(options.peers, QUICK if options.quick else FULL) as session:

        def write(row: dict) -> None:
            print(json.dumps(row), file=file, flush=True)
            print(_line(row), flush=True)

        write(header(session, core, options.quick))
        for row in session.references():
            write(row)
        for group in _selected(options):
            start = time.perf_counter()
            for row in session.measure(group):
                write(row)
            print(f"    {time.perf_counter() - start:.0f} s", flush=True)
    print(f"rows: {out}\npage: python -m benchmarks.report {out}")
    return 0


def _smoke() -> int:
    """Every kind of row, without the environments of other peers: are the numbers right and does the clock run?"""
    from benchmarks.measure import Session

    bad = 0
    with Session(SMOKE_PEERS, SMOKE, rehearsal=True) as session:
        rows = session.references()
        for what in QUANTITIES:
            session.makers = {k: v for k, v in session.makers.items() if k != "mjx" or what in SMOKE_MJX}
            found = list(session.measure(smoke_cases(what)))
            if not any(row["engine"] == "dynax" and "cpu" in row for row in found):
                found.append({"what": what, "engine": "dynax", "failure": "no row"})
            rows += found
        for row in rows:
            wrong = "failure" in row or not row["wall"] + row.get("overhead", 0.0) > 0.0
            bad += wrong
            print(_line(row))
    print("smoke:", "FAILED" if bad else "passed")
    return 1 if bad else 0


def _line(row: dict) -> str:
    if row["what"] == "header":
        return "\n".join(f"{key}: {value}" for key, value in row.items() if key != "what")
    name = " ".join(str(row[key]) for key in ("what", "of", "robot", "dtype", "batch") if key in row)
    engine = f"{row['engine']} {row.get('route', '')}"
    if "failure" in row:
        return f"{name:36} {engine:48} {row['failure']}"
    error = f"  error {row['error']:.0e}" if "error" in row else ""
    return f"{name:36} {engine:48} {1e6 * row['cpu']:12.3f} us  (wall {1e6 * row['wall']:.3f}){error}"


if __name__ == "__main__":
    sys.exit(main())
