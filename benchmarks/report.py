"""Write `docs/benchmarks.md` from the rows of a run.

python -m benchmarks.report [ROWS.jsonl] [--page PAGE.md]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from benchmarks.case import LOOP_SIZES, SLOPE_SIZES
from benchmarks.tables import MISSING, Rows, microseconds, over, ratio, table

ROOT = Path(__file__).resolve().parent.parent
PEERS = {"pinocchio": "Pinocchio", "mujoco": "MuJoCo C", "mjx": "MJX", "brax": "Brax", "jaxsim": "JaxSim"}
INTRODUCTION = """\
# Speed beside other engines

Measured by `python -m benchmarks`, written by `python -m benchmarks.report`. One core, one thread; the engines of a row
take turns in one run, block by block, and each cell is the median of the processor time an evaluation takes, in
microseconds where nothing else is said. Results were compared with Pinocchio's before they were timed, rollouts with
MuJoCo's. Both compute in float64 always: the type of a row is then that of the states. Ratios in bold meet their
target.
"""
METHOD = """\
dynax is timed as a user calls it: under `jax.jit`, the model an argument whose leaves are traced. Pinocchio's batches
are its own (`abaInParallel`, `rneaInParallel`, one thread); what it has no batch call for, and MuJoCo C, run in a loop
of Python over 64 states, less the time of the same calls on an empty model. XLA's flags are untouched, with one
exception: MJX is compiled without XLA's fusion emitters, with which it takes up to thousands of times longer on a CPU.
Brax and JaxSim run in processes of their own, on the same core, while the others wait."""
FORWARD = "A batch of states; target: Pinocchio's time over that of `dx.batch`."
MASS = f"""\
{FORWARD} Into the last result: the memory of one call is
given back to the next ([batches.md](batches.md)), as Pinocchio and MuJoCo keep theirs; to get new memory of more than
32 MB takes longer than the matrices. Whether a call gets new memory also depends on what its process did before: where
the two columns agree, it did not, and in another process `dx.batch` may take more than twice as long."""
DERIVATIVE = """\
With respect to the tangent of q, v and tau, all `(nv, nv)` entries; target: the time of `dx.batch` over Pinocchio's
`computeABADerivatives`. The peers in JAX have no such function: theirs is `jax.jacfwd`, on robots without quaternions,
for which that is the same matrix."""
REVERSE = """\
What `jax.grad` costs, batch of 1024, forward pass included; target: over the engine's own forward dynamics."""
ROLLOUT = """\
100 steps of semi-implicit Euler, one panda, and the gradient of a sum of squares of the last configuration with respect
to the initial state and all controls. Target: MJX's gradient over dynax's. The method is MuJoCo's; dynax's default
stepper, which gains no energy from what spins, evaluates forward dynamics three times a step and takes two to four
times as long."""
COMPILE = """\
Tracing, lowering and compiling, seconds of processor time, one state, float32. Target: over JaxSim's forward dynamics
of the same robot; for the chain and for the Jacobians over JaxSim's of talos."""
LONE = """\
One state, one call from Python, float32: what a control loop sees. Target: over an empty jitted call of the same
arguments. Pinocchio's is one call of `aba` from Python. For the peers in JAX the model is a constant: as an argument
those of MJX and Brax cost some 200 us a call before anything is computed."""
SLOPE = """\
Forward dynamics, float32, batch of 64, microseconds an evaluation. Target: the exponent of the number of bodies, fitted
to all sizes; 1 is linear."""
LOOPS = """\
A floating robot on eight legs with a four-bar each (33 bodies, 38 freedoms, of which 22 are independent), through
`dx.batch`: embedded (`dx.embed`), and by the methods of `dx.constrained_dynamics`. And four-bars in a row, each on the
one before, embedded, with the exponent of their number: 1 is linear. Microseconds an evaluation."""

OTHER_ROUTES = {"jax.vmap": "`jax.vmap`", "dx.batch, into the last result": "into the last result"}

Section = Callable[[Rows], str]


def side_by_side(what: str) -> Section:
    """Robots down, engines across, and Pinocchio's time over dynax's."""

    def section(rows: Rows) -> str:
        others = {r: name for r, name in OTHER_ROUTES.items() if rows.find(what=what, engine="dynax", route=r)}
        head = ["robot", "type", "batch", "`dx.batch`", *others.values(), *PEERS.values()]
        lines = []
        for row in rows.find(what=what, engine="dynax", route="dx.batch"):
            key = {k: row[k] for k in ("what", "robot", "dtype", "batch")}
            cells = [row["robot"], row["dtype"], str(row["batch"]), microseconds(row["cpu"])]
            cells += [microseconds(rows.cpu(**key, engine="dynax", route=route)) for route in others]
            for engine, name in PEERS.items():
                theirs = rows.cpu(**key, engine=engine)
                cells.append(microseconds(theirs))
                if theirs is not None and theirs < row["cpu"]:
                    rows.slower.setdefault((what, row["robot"], row["dtype"]), {})[name] = row["cpu"] / theirs
            pin = rows.cpu(**key, engine="pinocchio")
            value = over(row["cpu"], pin) if what == "dfd" else over(pin, row["cpu"])
            lines.append([*cells, *rows.judged(what, row["robot"], row["dtype"], value)])
        return table([*head, "over Pinocchio" if what == "dfd" else "Pinocchio over", "target"], lines)

    return section


def reverse(rows: Rows) -> str:
    lines = []
    for row in rows.find(what="vjp"):
        if row["route"] == "forward":
            continue
        key = {k: row[k] for k in ("what", "robot", "dtype", "engine")}
        forward = rows.cpu(**key, route="forward")
        value = over(row["cpu"], forward)
        judged = (
            rows.judged(row["route"], row["robot"], row["dtype"], value)
            if row["engine"] == "dynax"
            else [ratio(value), ""]
        )
        lines.append(
            [row["robot"], row["engine"], row["route"], microseconds(forward), microseconds(row["cpu"]), *judged]
        )
    return table(["robot", "engine", "derivative", "forward", "derivative's time", "ratio", "target"], lines)


def rollout(rows: Rows) -> str:
    ours = rows.cpu(what="rollout", engine="dynax", route="gradient")
    lines = []
    for engine in ("dynax", *PEERS):
        forward = rows.cpu(what="rollout", engine=engine, route="rollout")
        gradient = rows.cpu(what="rollout", engine=engine, route="gradient")
        if forward is None and gradient is None:
            continue
        value = over(gradient, ours)
        judged = rows.judged("rollout gradient", "panda", "float32", value) if engine == "mjx" else [ratio(value), ""]
        lines.append([engine, microseconds(forward), microseconds(gradient), *judged])
    return table(["engine", "rollout", "gradient", "gradient over dynax's", "target"], lines)


def compiling(rows: Rows) -> str:
    lines = []
    for row in rows.find(what="compile"):
        key = {"what": "compile", "engine": "jaxsim", "of": "fd"}
        same = row["of"] == "fd" and rows.cpu(**key, robot=row["robot"]) is not None
        other = rows.cpu(**key, robot=row["robot"] if same else "talos")
        value = over(row["cpu"], other)
        judged = (
            rows.judged(f"compile {row['of']}", row["robot"], row["dtype"], value)
            if row["engine"] == "dynax"
            else [MISSING, ""]
        )
        what = {"fd": "forward dynamics", "dfd": "its derivative Jacobian"}[row["of"]]
        lines.append([row["robot"], what, row["engine"], f"{row['cpu']:.2f} s", *judged])
    return table(["robot", "of", "engine", "time", "over JaxSim", "target"], lines)


def lone(rows: Rows) -> str:
    lines = []
    for row in rows.find(what="lone"):
        if row["route"].startswith("empty"):
            continue
        key = {k: row[k] for k in ("what", "robot", "engine")}
        closed = row["route"] == "model a constant"
        empty = rows.cpu(**key, route="empty" if closed else "empty, model an argument")
        value = over(row["cpu"], empty)
        judged = (
            rows.judged("lone", row["robot"], row["dtype"], value) if row["engine"] == "dynax" else [ratio(value), ""]
        )
        lines.append(
            [row["robot"], row["engine"], row["route"], microseconds(row["cpu"]), microseconds(empty), *judged]
        )
    return table(["robot", "engine", "call", "time", "empty call", "ratio", "target"], lines)


def slope(rows: Rows) -> str:
    lines = []
    for shape in ("chain", "tree"):
        for engine in ("dynax", "pinocchio"):
            times = {n: rows.cpu(what="slope", robot=f"{shape}{n}", engine=engine) for n in SLOPE_SIZES}
            points = [(math.log(n), math.log(t)) for n, t in times.items() if t is not None]
            value = exponent(points)
            judged = rows.judged("slope", shape, "float32", value) if engine == "dynax" else [ratio(value), ""]
            lines.append([shape, engine, *(microseconds(t) for t in times.values()), *judged])
    return table(["shape", "engine", *(f"{n} bodies" for n in SLOPE_SIZES), "exponent", "target"], lines)


def closed(rows: Rows) -> str:
    lines = []
    for row in rows.find(what="loops"):
        if row["robot"].startswith("legs"):
            embedded = rows.cpu(what="loops", robot=row["robot"], dtype=row["dtype"], route="embedded")
            value = ratio(over(row["cpu"], embedded))
            lines.append([row["robot"], row["dtype"], str(row["batch"]), row["route"], microseconds(row["cpu"]), value])
    legs = table(["robot", "type", "batch", "route", "time", "over embedded"], lines)
    times = {n: rows.cpu(what="loops", robot=f"four-bars{n}", route="embedded") for n in LOOP_SIZES}
    value = exponent([(math.log(n), math.log(t)) for n, t in times.items() if t is not None])
    row = [*(microseconds(t) for t in times.values()), ratio(value)]
    return f"{legs}\n\n{table([*(f'{n} four-bars' for n in LOOP_SIZES), 'exponent'], [row])}"


def newest(rows: Rows) -> str:
    """What is measured beside Pinocchio, with another version of JAX."""
    lines = []
    for what in ("fd", "id", "mass", "jac", "dfd"):
        for row in rows.find(what=what, engine="dynax", route="dx.batch"):
            key = {k: row[k] for k in ("what", "robot", "dtype", "batch")}
            pin = rows.cpu(**key, engine="pinocchio")
            value = over(row["cpu"], pin) if what == "dfd" else over(pin, row["cpu"])
            cells = [what, row["robot"], row["dtype"], str(row["batch"]), microseconds(row["cpu"]), microseconds(pin)]
            lines.append([*cells, *rows.judged(what, row["robot"], row["dtype"], value)])
    header = rows.headers[0]
    versions = {"Python": header["python"], **{name: header["versions"][name] for name in ("jax", "jaxlib", "pin")}}
    with_what = ", ".join(f"{name} {number}" for name, number in versions.items())
    text = f"{with_what}; {header['date']}, load {header['load']} at the start. Of `dfd` the ratio is over Pinocchio."
    head = ["what", "robot", "type", "batch", "`dx.batch`", "Pinocchio", "Pinocchio over", "target"]
    return f"{text}\n\n{table(head, lines)}"


def exponent(points: list[tuple[float, float]]) -> float | None:
    """The slope of the line that fits best, least squares."""
    if len(points) < 2:
        return None
    x0, y0 = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - x0) * (y - y0) for x, y in points) / sum((x - x0) ** 2 for x, _ in points)


def machine(rows: Rows) -> str:
    header = rows.headers[0]
    runs = [(run, rows.quantities(run)) for run in rows.headers]
    facts = [
        *(
            f"* {', '.join(measured)}: {run['date']}, load average at the start {run['load']}."
            for run, measured in runs
            if measured
        ),
        f"* {header['cpu']}; core {header['core']}.",
        f"* Python {header['python']}, {header['system']}.",
        "* " + ", ".join(f"{name} {number}" for name, number in header["versions"].items()) + ".",
        *(
            f"* {PEERS[peer]}, in an environment of its own: "
            + ", ".join(f"{name} {number}" for name, number in versions.items())
            + "."
            for peer, versions in header["peers"].items()
        ),
        *(f"* {PEERS[peer]} is missing: {reason}." for peer, reason in header["missing"].items()),
        *([f"* `XLA_FLAGS={header['XLA_FLAGS']}`."] if header["XLA_FLAGS"] else []),
    ]
    if header["quick"]:
        facts.insert(0, "* **Quick runs on a shared machine, few repetitions: good to some ten percent.**")
    references = [
        [row["process"], row["engine"], row["route"], microseconds(row["cpu"])] for row in rows.find(what="reference")
    ]
    text = "The same work in every process, so that their numbers can be compared:"
    return "\n".join([METHOD, "", *facts, "", text, "", table(["process", "engine", "work", "time"], references)])


SECTIONS: dict[str, tuple[str, str, Section]] = {
    "fd": ("Forward dynamics", FORWARD, side_by_side("fd")),
    "id": ("Inverse dynamics", FORWARD, side_by_side("id")),
    "mass": ("Mass matrix", MASS, side_by_side("mass")),
    "jac": ("Jacobian of the body farthest out", FORWARD, side_by_side("jac")),
    "dfd": ("Derivatives of forward dynamics", DERIVATIVE, side_by_side("dfd")),
    "vjp": ("Reverse-mode derivatives", REVERSE, reverse),
    "rollout": ("Rollouts", ROLLOUT, rollout),
    "lone": ("A lone call", LONE, lone),
    "compile": ("Compiling", COMPILE, compiling),
    "slope": ("Cost over the number of bodies", SLOPE, slope),
    "loops": ("Closed loops", LOOPS, closed),
}


def page(rows: Rows, other: Rows | None = None) -> str:
    measured = {row["what"] for row in rows.rows if "cpu" in row}
    parts = [
        f"## {title}\n\n{text}\n\n{section(rows)}\n"
        for what, (title, text, section) in SECTIONS.items()
        if what in measured
    ]
    if other:
        parts.append(f"## With the newest JAX\n\n{newest(other)}\n")
        rows.missed += [f"{line}, with the newest JAX" for line in other.missed]
    losses = ["## Where dynax loses\n", "Targets missed:\n", *(_list(rows.missed)), ""]
    losses += ["Where a peer is faster than `dx.batch`, and how many times:\n", _slower(rows), ""]
    failures = [
        f"{row['what']} of {row['robot']}, {row['dtype']}: {row['engine']}: {row['failure']}"
        for row in rows.failures()
        if "robot" in row
    ]
    if failures:
        losses += ["Not timed:\n", *_list(failures), ""]
    return "\n".join([INTRODUCTION, "\n".join(losses), *parts, f"## How and where\n\n{machine(rows)}\n"])


def _slower(rows: Rows) -> str:
    peers = [name for name in PEERS.values() if any(name in found for found in rows.slower.values())]
    lines = [[*case, *(ratio(found.get(name)) for name in peers)] for case, found in rows.slower.items()]
    return table(["what", "robot", "type", *peers], lines) if lines else "* nowhere"


def _list(lines: list[str]) -> list[str]:
    return [f"* {line}" for line in lines] or ["* none"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="Write docs/benchmarks.md.")
    # Beside them, `newest.jsonl`: rows with the newest JAX, if there are any.
    parser.add_argument("rows", nargs="?", type=Path, default=ROOT / "benchmarks" / "results" / "latest.jsonl")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    options = parser.parse_args()
    other = options.rows.with_name("newest.jsonl")
    options.page.write_text(
        page(Rows.read(options.rows), Rows.read(other) if other.exists() else None), encoding="utf-8"
    )
    print(f"written: {options.page}")


if __name__ == "__main__":
    main()
