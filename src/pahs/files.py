"""Files and folders that appear under their name only when they are complete, and the folder of what can be remade."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pahs.errors import PahsError


def unfinished(path: Path) -> Path:
    """A hidden name in the folder of `path`, with its ending, that no other process, machine or job uses."""
    return path.with_name(f".{path.stem}.{secrets.token_hex(4)}.partial{path.suffix}")


def remove(path: Path) -> None:
    """Remove a file or a folder with all it holds, if it is there and can be removed."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed jobs left in a folder and below; only for the one job that owns the folder."""
    for path in list(folder.rglob(".*.partial*")):
        remove(path)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write a file or a folder under; it becomes `path` at the end, or is removed on any failure."""
    partial = unfinished(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise PahsError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        remove(partial)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill the file or folder that becomes `path`: all or nothing."""
    with whole(path) as partial:
        write(partial)


def cache_folder() -> Path:
    """Where measured speeds and compiled kernels are kept: $XDG_CACHE_HOME/pahs or ~/.cache/pahs; it need not exist."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(chosen) if chosen else Path.home() / ".cache") / "pahs"
    except RuntimeError:
        raise PahsError("no cache folder: this user has no home; set XDG_CACHE_HOME") from None
