"""XML from strangers, as a small tree that knows its lines and reads its numbers strictly.

`parse` wraps the standard library's expat. What it guarantees beyond well-formedness:

- No document type is accepted, so no entity can be declared: expansion attacks and reads of outside files cannot start.
- No recursion anywhere: the depth of a file costs memory only.
- A failure is a `ModelError` with file, line, element and remedy.
- A number is plain decimal, ASCII, finite. `nan`, `inf`, `0x1p3`, `1_000`, `0,5` and `0.1 abc` are errors.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TypeVar
from xml.parsers import expat

from dynax.errors import ModelError

# One way to match each digit: where two share the digits between them, a long word is tried in every split.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPACE = " \t\r\n"
_NOT_FINITE = {"nan", "inf", "infinity"}
_Default = TypeVar("_Default")


@dataclass(eq=False, slots=True)
class Element:
    """One XML element, with its place in the file.

    `owner` is the nearest element around it that has a name, such as `"joint 'elbow'"`: errors speak in these terms.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    file: str | None = None
    owner: str = ""
    children: list[Element] = field(default_factory=list, repr=False)
    pieces: list[str] = field(default_factory=list, repr=False)
    """What stands between its tags, as the parser found it."""

    @property
    def label(self) -> str:
        """How the user would point at this element: `joint 'elbow'`, or `joint 'elbow' <axis>` for a nameless part."""
        name = self.attributes.get("name")
        return f"{self.tag} '{name}'" if name else f"{self.owner} <{self.tag}>".lstrip()

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def error(self, reason: str, *, hint: str | None = None) -> ModelError:
        """A `ModelError` that points here; the caller raises it."""
        return ModelError(reason, element=self.label, file=self.file, line=self.line, hint=hint)

    def all(self, tag: str) -> list[Element]:
        """The children with this tag, in file order."""
        return [child for child in self.children if child.tag == tag]

    def child(self, tag: str) -> Element | None:
        """The only child with this tag, or `None`; two are an error, because either could be the one meant."""
        found = self.all(tag)
        if len(found) > 1:
            raise found[1].error(
                f"<{tag}> is given {len(found)} times, first in line {found[0].line}", hint=f"keep one <{tag}>"
            )
        return found[0] if found else None

    def required_child(self, tag: str) -> Element:
        found = self.child(tag)
        if found is None:
            raise self.error(f"<{tag}> is missing", hint=f"add <{tag} .../> inside <{self.tag}>")
        return found

    def attribute(self, name: str) -> str:
        """The text of a required attribute; blank counts as missing."""
        value = self.attributes.get(name, "")
        if not value.strip(_SPACE):
            content = self.text.strip(_SPACE)
            value = content if content and len(content) < 40 else "..."
            raise self.error(f"attribute '{name}' is missing or empty", hint=f'write <{self.tag} {name}="{value}"/>')
        return value

    def number(self, name: str) -> float:
        """A required number."""
        return self._numbers(name, self.attribute(name), 1)[0]

    def number_or(self, name: str, default: _Default) -> float | _Default:
        """A number, or `default` where the attribute is absent."""
        return self._numbers(name, self.attributes[name], 1)[0] if name in self.attributes else default

    def vector_or(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """As many numbers as `default` has, or `default` where the attribute is absent."""
        return self._numbers(name, self.attributes[name], len(default)) if name in self.attributes else default

    def _numbers(self, name: str, text: str, count: int) -> tuple[float, ...]:
        words = re.findall(rf"[^{_SPACE}]+", text)
        values = tuple(float(word) if _NUMBER.fullmatch(word) else math.nan for word in words)
        shown = f'{name}="{text}"'
        for word, value in zip(words, values, strict=True):
            if not math.isfinite(value):
                raise self.error(f"{shown}: {_number_fault(word)}", hint=_number_remedy(word))
        if len(values) != count:
            raise self.error(
                f"{shown} has {len(values)} numbers instead of {count}", hint=f"write {count}, with spaces"
            )
        return values


def parse(text: str | bytes, file: str | None) -> Element:
    """The root element of an XML document.

    **Arguments:**

    - `text`: the document. A `str` is taken as it is, whatever encoding its declaration names; `bytes` are decoded as
      declared. White space or a byte order mark before the first tag is forgiven.
    - `file`: where it came from, for the errors.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    # expat wants the declaration first, so leading space is cut; lines are still counted from the file's start.
    body = data.lstrip(b"\xef\xbb\xbf" + _SPACE.encode())
    skipped = data[: len(data) - len(body)].count(b"\n")
    parser = expat.ParserCreate("utf-8" if isinstance(text, str) else None)
    parser.buffer_text = True
    document = Element("", {}, 0, file)
    open_elements = [document]

    def start(tag: str, attributes: dict[str, str]) -> None:
        around = open_elements[-1]
        owner = around.label if around.attributes.get("name") else around.owner
        element = Element(tag, attributes, parser.CurrentLineNumber + skipped, file, owner)
        around.children.append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        open_elements.pop()

    def characters(data: str) -> None:
        open_elements[-1].pieces.append(data)

    def doctype(*_: object) -> None:
        raise ModelError(
            "document types and entities are refused",
            element="<!DOCTYPE>",
            file=file,
            line=parser.CurrentLineNumber + skipped,
            hint="remove the <!DOCTYPE ...> declaration and write the entities out",
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(body, True)
    except ModelError:
        raise
    except (expat.ExpatError, ValueError, LookupError) as fault:  # the last two: an encoding that Python cannot read
        inside = open_elements[-1].label
        raise ModelError(
            f"not well-formed XML: {expat.ErrorString(fault.code) if isinstance(fault, expat.ExpatError) else fault}",
            element=f"inside {inside}" if len(open_elements) > 1 else None,
            file=file,
            line=parser.CurrentLineNumber + skipped,
            hint="mend the text near this line; an XML editor or xmllint shows the place",
        ) from None
    return document.children[0]


def _number_fault(word: str) -> str:
    if word.lower().lstrip("+-") in _NOT_FINITE or _NUMBER.fullmatch(word):
        return f"{word!r} is not finite"
    return f"{word!r} is not a number"


def _number_remedy(word: str) -> str:
    if "," in word:
        return "write a point for the decimal sign and spaces between numbers"
    if word.lower().lstrip("+-") in _NOT_FINITE or _NUMBER.fullmatch(word):
        return "write a finite number; leave an optional attribute out where there is none"
    return "write plain decimal numbers such as 0.5 or -1e-3"
