"""`dynax COMMAND`."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

from dynax.cli import bench, check, completion, convert, demo, info, view
from dynax.cli.terminal import REFUSED, complain, note

COMMANDS = (view, check, info, bench, demo, convert, completion)
CODES = "exit codes: 0 all is well; 1 something was found that should not be; 2 it cannot be done, and why is said"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="dynax", description="Differentiable multibody dynamics in JAX.", epilog=CODES)
    commands = found.add_subparsers(dest="command", required=True)
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, help=module.HELP, description=f"{module.HELP[0].upper()}{module.HELP[1:]}.")
        module.arguments(command)
        command.set_defaults(run=module.run)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = parser().parse_args(arguments)
    from dynax.errors import ModelError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = note
            return options.run(options)
    except (ModelError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name:
            raise  # not one of ours, which say what to install
        return complain(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has seen enough
        return REFUSED
