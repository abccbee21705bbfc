"""`dynax completion`."""

from __future__ import annotations

import argparse

from dynax.cli.terminal import GOOD

HELP = "print the completion of these commands for a shell"


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    command.epilog = 'For bash: eval "$(dynax completion bash)". Needs pip install "dynax[completion]".'


def run(options: argparse.Namespace) -> int:
    from dynax.cli.main import parser

    try:
        import shtab
    except ImportError:
        raise ModuleNotFoundError('completion needs the shtab package: pip install "dynax[completion]"') from None
    found = parser()
    _offer_files(found, shtab)
    print(shtab.complete(found, options.shell))
    return GOOD


def _offer_files(parser: argparse.ArgumentParser, shtab: object) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _offer_files(command, shtab)
        elif action.dest in ("file", "output", "html", "render"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
