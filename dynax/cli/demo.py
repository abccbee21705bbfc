"""`dynax demo`."""

from __future__ import annotations

import argparse

from dynax.cli.terminal import FOUND, GOOD, add_robot

HELP = "check, roll out, optimise and identify a robot, and draw a page of figures"


def arguments(command: argparse.ArgumentParser) -> None:
    add_robot(command, optional=True)
    command.add_argument("--output", default="dynax_demo.png", help="where the figures go (default: %(default)s)")
    command.add_argument("--quick", action="store_true", help="fewer steps, for a smoke test")


def run(options: argparse.Namespace) -> int:
    try:
        from dynax.demo import run as demonstrate

        good = demonstrate(options.file, root=options.root, output=options.output, quick=options.quick)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("matplotlib", "mujoco"):
            raise
        raise ModuleNotFoundError(f'the demo needs {error.name}: pip install "dynax[demo]"') from None
    return GOOD if good else FOUND
