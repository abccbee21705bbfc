"""A bar of progress that counts steps, and not the compilation before them."""

from __future__ import annotations


class Progress:
    """Appears when the first step is about to run, and is full when the last one has, however many there were.

    **Arguments:** `most`: how many steps there may be.
    """

    def __init__(self, most: int):
        self.most = most
        self._bar = None

    def start(self) -> None:
        """Everything is compiled: the clock runs from here."""
        from tqdm import tqdm

        self._bar = tqdm(total=self.most, unit="step", disable=None)  # none where nobody watches, as in a log

    def tick(self, text: str) -> None:
        """One more step, with what it has come to."""
        assert self._bar is not None
        self._bar.set_postfix_str(text)
        self._bar.update()

    def stop(self) -> None:
        """The last step is done; what follows is no part of the time."""
        assert self._bar is not None
        self._bar.total = self._bar.n
        self._bar.refresh()
        self._bar.close()
