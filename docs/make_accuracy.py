"""Measure and write `docs/accuracy.md`: residuals against Pinocchio, what float32 costs, and compile times.

    python docs/make_accuracy.py                       all sections; takes some minutes
    python docs/make_accuracy.py pinocchio compiling   these sections, the others stay
    python docs/make_accuracy.py --budgets float32     also writes the budgets of tests/oracles/test_float32.py

The tests in `tests/oracles` measure the same and hold the bounds; this page is for reading.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "accuracy.md"
HEADER = """\
# Accuracy and compile time

Measured and written by `make_accuracy.py`; the tests in `tests/oracles` hold the bounds. Residuals are the largest over
20 random states of each robot, as the tests define them.
"""
PINOCCHIO = """\
float64, {count} URDFs of `example-robot-data`, Pinocchio {version}. The error of each entry is over the size that entry
has in any of the states, or over a thousandth of the largest entry's where that is more, so that fingers are not lost
beside a trunk. The bound is 1e-9, and 1e-12 times the condition number of the mass matrix M for what solves with it."""
FLOAT32 = """\
float32 against float64, states rounded to float32 before: the largest error of an entry over the largest entry of the
state's own result, and in brackets the budget in `tests/oracles/float32_budgets.toml`. One unit in the last place of a
float32 is 1.2e-07. The error of forward dynamics grows with the condition number of the mass matrix, which for a chain
grows with the fourth power of its length."""
COMPILING = """\
Tracing, lowering and compiling `forward_dynamics` of one state in a process that has compiled before, on a CPU with JAX
{version}. The time does not depend on the tree, and other values of the parameters compile nothing anew."""


def pinocchio() -> str:
    import pinocchio as pin
    from oracles import test_pinocchio as t

    roots = dict(robot for group in t.FORESTS.values() for robot in group)
    worst: dict[str, tuple[float, str]] = {}
    rows = []
    for group in t.FORESTS:
        found = t.compare(t.together(group))
        t.check(found)
        for robot, (residuals, condition, singular) in found.items():
            for key, residual in residuals.items():
                worst[key] = max(worst.get(key, (0.0, "")), (residual, Path(robot).stem if robot in roots else group))
            if robot not in roots:
                continue
            plain = max((residual, key) for key, residual in residuals.items() if key not in t.SOLVES)
            solved = " | ".join("singular" if singular else f"{residuals[key]:.0e}" for key in t.SOLVES[:2])
            size = "singular" if singular else f"{condition:.0e}"
            rows.append(f"| `{robot}` | {roots[robot]} | {plain[0]:.0e} ({plain[1]}) | {size} | {solved} |")
    quantities = [f"| {key} | {residual:.0e} | {robot} |" for key, (residual, robot) in worst.items()]
    return "\n".join(
        [
            PINOCCHIO.format(count=len(rows), version=pin.__version__),
            "",
            "| quantity | largest residual | of |",
            "|---|---|---|",
            *quantities,
            "",
            "Where nothing resists a joint M is singular: all but its inverse and forward dynamics is compared.",
            "",
            "| file | root | largest residual | condition of M | inverse of M | forward dynamics |",
            "|---|---|---|---|---|---|",
            *rows,
        ]
    )


def float32(write_budgets: bool) -> str:
    import tomllib

    from oracles import test_float32 as t

    errors = t.measure()
    if write_budgets:
        t.BUDGETS.write_text(t.budget_file(errors), encoding="utf-8")
    budgets = tomllib.loads(t.BUDGETS.read_text(encoding="utf-8"))
    rows = [
        f"| {name} | " + " | ".join(f"{row[key]:.1e} ({budgets[name][key]:.0e})" for key in t.QUANTITIES) + " |"
        for name, row in errors.items()
    ]
    return "\n".join(
        [
            FLOAT32,
            "",
            "| robot | " + " | ".join(t.QUANTITIES) + " |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def compiling() -> str:
    from oracles import test_compile_time as t
    from oracles.robots import example_robots

    import dynax as dx

    rows = [f"| chain of {links} | {links} | {taken:.1f} |" for links, taken in t.chain_seconds().items()]
    humanoid = dx.load(example_robots()[t.HUMANOID], root="free")
    rows.append(f"| `{t.HUMANOID}`, free | {humanoid.nv} | {t.compile_seconds(humanoid):.1f} |")
    return "\n".join(
        [
            COMPILING.format(version=jax.__version__),
            "",
            "| robot | freedoms | seconds |",
            "|---|---|---|",
            *rows,
        ]
    )


SOLVERS = """\
What solvers of `dx.optimize` come to in float32, beside float64, from the same guess and with tolerances as they are by
default: how far the cost is off, as a part of it; how far the last state is from where the controls lead in float64,
without the gains that answer what rounding does on the way; iterations. In float32 gaps are below {gap:.0e} and
violations below {tight:.0e} where it says CONVERGED; a test holds that."""


def solvers() -> str:
    import jax.numpy as jnp
    from optimize import in_float32 as t

    import dynax as dx

    rows = []
    for name, case in t.CASES.items():
        exact = {row.solver: row.result for row in t.solved(case(), jnp.float64)}
        for row in t.solved(case(), jnp.float32):
            true, found = exact[row.solver], row.result
            names = (dx.optimize.Status(int(result.status)).name for result in (true, found))
            off = float(found.cost) / float(true.cost) - 1.0
            counts = f"{int(true.iterations)} and {int(found.iterations)}"
            status = " | ".join(names)
            leads = t.leads_off(row)
            rows.append(f"| {name} | {row.solver} | {status} | {off:+.0e} | {leads:.0e} | {counts} |")
    model, guess = t.panda(), jnp.array([0.0, -0.7, 0.0, -2.3, 0.0, 1.5, 0.7])
    for solver in ("inverse kinematics", "equilibrium"):
        found = []
        for q in (guess, guess.astype(jnp.float32)):
            if solver == "equilibrium":
                found.append(dx.find_equilibrium(model, q, hold=model.joint_names))
            else:
                target = dx.optimize.position_target("panda_hand", (0.3, 0.4, 0.6))
                found.append(dx.inverse_kinematics(model, target, q))
        status = " | ".join(dx.optimize.Status(int(one.status)).name for one in found)
        off = float(jnp.max(jnp.abs(found[1].q - found[0].q)))
        counts = f"{int(found[0].iterations)} and {int(found[1].iterations)}"
        rows.append(f"| panda | {solver} | {status} | error {float(found[1].error):.0e} | {off:.0e} | {counts} |")
    gap, tight = t.tolerances(jnp.float32)
    return "\n".join(
        [
            SOLVERS.format(gap=gap, tight=tight),
            "",
            "| problem | solver | float64 | float32 | cost off by | leads off by | iterations |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )


TITLES = {
    "pinocchio": "Against Pinocchio",
    "float32": "float32",
    "solvers": "Solvers in float32",
    "compiling": "Compile time",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure and write docs/accuracy.md.")
    parser.add_argument("sections", nargs="*", choices=[*TITLES, []], help="all of them if none is given")
    parser.add_argument("--budgets", action="store_true", help="write the budgets of float32 anew")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    jax.config.update("jax_enable_x64", True)

    _, *parts = PAGE.read_text(encoding="utf-8").split("\n## ") if PAGE.exists() else [""]
    texts = {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}
    measures = {
        "pinocchio": pinocchio,
        "float32": lambda: float32(options.budgets),
        "solvers": solvers,
        "compiling": compiling,
    }
    for section in options.sections or TITLES:
        texts[TITLES[section]] = measures[section]()
    written = [f"## {title}\n\n{texts[title]}\n" for title in TITLES.values() if title in texts]
    PAGE.write_text("\n".join([HEADER, *written]), encoding="utf-8")


if __name__ == "__main__":
    main()
