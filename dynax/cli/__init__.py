"""The command line: one file for each command, and `terminal` for what they share."""

from dynax.cli.main import main as main
