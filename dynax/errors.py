"""The one error a model can raise: it names the thing as the user named it, says what is wrong and what to do."""

from __future__ import annotations


class ModelError(ValueError):
    """A model that cannot be built, with everything a user needs to mend it.

    **Arguments:**

    - `reason`: what is wrong, in one sentence.
    - `element`: the thing at fault, as the user named it, such as `"joint 'elbow'"`.
    - `file`, `line`: where it stands, when it came from a file.
    - `hint`: what to do about it.
    """

    def __init__(
        self,
        reason: str,
        *,
        element: str | None = None,
        file: str | None = None,
        line: int | None = None,
        hint: str | None = None,
    ):
        self.reason = reason
        self.element = element
        self.file = file
        self.line = line
        self.hint = hint
        place = file or ("" if line is None else "line")
        if line is not None:
            place = f"{place}:{line}" if file else f"line {line}"
        parts = [part for part in (place, element, reason) if part]
        super().__init__(": ".join(parts) + (f" ({hint})" if hint else ""))
