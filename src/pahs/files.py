"""Files that appear under their name only when they are complete, and the folder for what can be made again."""

from __future__ import annotations

import os
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


def cache_folder() -> Path:
    """Where measured speeds and compiled kernels are kept: $XDG_CACHE_HOME/pahs or ~/.cache/pahs; it need not exist."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(chosen) if chosen else Path.home() / ".cache") / "pahs"
    except RuntimeError:
        raise PahsError("no cache folder: this user has no home; set XDG_CACHE_HOME") from None
