"""`dynax bench`."""

from __future__ import annotations

import argparse
import sys

from dynax.cli.terminal import FOUND, GOOD, add_json, add_robot, paint, plain, print_json, robot_of, table

HELP = "time dynamics of a robot on this machine, beside Pinocchio and MuJoCo where they are installed"
AGREEMENT = 1e-6
"""What answers may differ by, as a part of the largest number."""


def arguments(command: argparse.ArgumentParser) -> None:
    add_robot(command, optional=True)
    command.add_argument("--batch", type=int, default=1024, help="states at once (default: %(default)s)")
    command.add_argument("--seconds", type=float, default=1.0, help="for each row of the table (default: %(default)s)")
    add_json(command)


def run(options: argparse.Namespace) -> int:
    import jax

    jax.config.update("jax_enable_x64", True)  # as the peers; this process is the command's own
    from dynax.cli.contenders import measure
    from dynax.errors import ModelError
    from dynax.io import load

    if options.batch < 1 or options.seconds <= 0.0:
        raise ModelError("--batch and --seconds must be more than 0")
    model = load(robot_of(options), root=options.root)

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    rows, absent = measure(model, options.batch, options.seconds, progress)
    progress("")
    wrong = [row for row in rows if row.difference is not None and not row.difference < AGREEMENT]
    if options.json:
        found = [row.__dict__ for row in rows]
        print_json({"robot": model.name, "nv": model.nv, "batch": options.batch, "rows": found, "absent": absent})
        return FOUND if wrong else GOOD
    print(
        f"{plain(model.name)}: {model.nv} freedoms, float64, {jax.default_backend()}; "
        "microseconds for each state, medians\n"
    )
    cells = [
        [
            row.what, row.engine, f"{1e6 * row.seconds:.3g}", f"{row.ratio:.2g}",
            "-" if row.compile_seconds is None else f"{row.compile_seconds:.1f} s",
            "-" if row.difference is None else f"{row.difference:.0e}",
        ]
        for row in rows
    ]  # fmt: skip
    print(table(cells, ["", "engine", "us", "of dynax", "compiling", "difference"]))
    for engine, why in absent.items():
        print(f"{engine}: {why}")
    print("\nWithout friction, springs and armature. Peers are called from Python, a state at a time, in turns.")
    for row in wrong:
        print(f"{paint('differs:', '31', sys.stdout)} {row.what}, {row.engine}: {row.difference:.1e}")
    return FOUND if wrong else GOOD
