"""A bar of progress: how many stages are done, and what is being done."""

from __future__ import annotations

import sys

WIDTH = 24
"""Of the bar, in letters."""


class Progress:
    """On the last line of a terminal, by standard error; a log is no place for it.

    **Arguments:** `stages`: how many there will be.
    """

    def __init__(self, stages: int):
        self.stages = stages
        self.done = -1

    def stage(self, text: str) -> None:
        """The one before is done, and `text` begins."""
        self.done += 1
        full = WIDTH * self.done // self.stages
        self._show(f"[{'#' * full}{'.' * (WIDTH - full)}] {self.done}/{self.stages} {text}")

    def clear(self) -> None:
        """Makes room for what is printed."""
        self._show("")

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
