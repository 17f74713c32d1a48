"""Files that appear under their name only when they are complete."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pahs.errors import PahsError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then rename it: all or nothing."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        partial.replace(path)
    except OSError as error:
        raise PahsError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
