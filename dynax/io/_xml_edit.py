"""XML changed in places: what is not changed stays as it was written, comments, order and spaces included."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

_QUOTED = rb"\"[^\"]*\"|'[^']*'"
_START_TAG = re.compile(rb"<[^\"'>]*(?:(?:" + _QUOTED + rb")[^\"'>]*)*>")


@dataclass(eq=False)
class Piece:
    """An element and the bytes it takes."""

    tag: str
    attributes: dict[str, str]
    start: int
    opened: int
    """Where its first tag ends."""
    end: int = 0
    children: list[Piece] = field(default_factory=list)

    def all(self, tag: str) -> list[Piece]:
        return [child for child in self.children if child.tag == tag]


class Edited:
    """A document in UTF-8 and the changes to it; well-formed, as a reader has found before."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._changes: list[tuple[int, int, bytes]] = []
        parser, around = expat.ParserCreate(), [Piece("", {}, 0, 0)]

        def start(tag: str, attributes: dict[str, str]) -> None:
            at = parser.CurrentByteIndex
            found = _START_TAG.match(text, at)
            assert found is not None
            around[-1].children.append(Piece(tag, attributes, at, found.end()))
            around.append(around[-1].children[-1])

        def end(_tag: str) -> None:
            piece = around.pop()
            alone = text[piece.opened - 2 : piece.opened] == b"/>"
            piece.end = piece.opened if alone else text.index(b">", parser.CurrentByteIndex) + 1

        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.Parse(text, True)
        self.root = around[0].children[0]

    def set(self, piece: Piece, attributes: dict[str, str]) -> None:
        """Give an element attributes, in the place of its own of these names; once for each element."""
        tag = self.text[piece.start : piece.opened]
        for name, value in attributes.items():
            own = re.compile(rb"(\s" + name.encode() + rb"\s*=\s*)(?:" + _QUOTED + rb")")
            word = f'"{value}"'.encode()
            if own.search(tag):
                tag = own.sub(lambda m, word=word: m[1] + word, tag, count=1)
            else:
                close = re.search(rb"\s*/?>$", tag)
                assert close is not None
                tag = tag[: close.start()] + b" " + name.encode() + b"=" + word + tag[close.start() :]
        self._changes.append((piece.start, piece.opened, tag))

    def put(self, parent: Piece, tag: str, element: str | None) -> None:
        """An element in the place of those of its tag, as the first of its kind; `None` for none of them."""
        present = parent.all(tag)
        for piece in present[1:] if element else present:
            self._changes.append((piece.start, piece.end, b""))
        if not element:
            return
        if present:
            self._changes.append((present[0].start, present[0].end, element.encode()))
        elif parent.end == parent.opened:
            tags = re.sub(rb"\s*/>$", b">", self.text[parent.start : parent.opened])
            closing = f"{element}</{parent.tag}>".encode()
            self._changes.append((parent.start, parent.end, tags + closing))
        else:
            self._changes.append((parent.opened, parent.opened, self._indent(parent) + element.encode()))

    def _indent(self, parent: Piece) -> bytes:
        """What stands before the first child, if that is on a line of its own."""
        found = re.match(rb"\r?\n[ \t]*", self.text[parent.opened :])
        return found[0] if found else b""

    def result(self) -> str:
        text = self.text
        for start, end, new in sorted(self._changes, reverse=True):
            text = text[:start] + new + text[end:]
        return text.decode("utf-8")
