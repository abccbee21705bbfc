"""Where the text of a model comes from."""

from __future__ import annotations

import os
from pathlib import Path

from dynax.errors import ModelError


def read_source(source: str | os.PathLike) -> tuple[str | bytes, str | None]:
    """The text a user means, and the file it came from: `None` where the text itself was given."""
    if isinstance(source, str) and ("<" in source or source.lstrip().startswith("{")):
        return source, None
    path = Path(source)
    try:
        return path.read_bytes(), str(path)
    except (OSError, ValueError) as error:  # a ValueError for a path that no file can have
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = "check the path; XML text must contain a '<'"
        raise ModelError(f"cannot be read: {reason}", file=str(path).replace("\0", "\\0"), hint=hint) from None
