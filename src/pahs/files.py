"""Files and folders that appear under their name only when they are complete, and the folder of what can be remade."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pahs.errors import PahsError

_LOCK = ".lock"
_PARTIAL = re.compile(r"\..*\.[0-9a-f]{8}\.partial", re.DOTALL)
_STEM = 40
"""Characters of the result's name in the name of its hidden folder: file systems allow 255 bytes."""
_TRIES, _PAUSE = 20, 0.05
"""A job that tidies up holds another's lock for a moment, so a locked folder is tried again for a second."""


class Partial:
    """Where a result is written before it is complete: in a hidden folder next to it that this job has locked.

    The operating system drops the lock when the process ends, however it ends: a folder without one is what a killed
    job left, and the next job that writes there removes it. Where the file system knows no locks, nothing is removed.
    """

    path: Path
    """The file or folder to write, with the ending of the result."""

    def __init__(self, target: Path, shared: bool = False) -> None:
        """`shared` lets several jobs write the same result, of which the last one wins; otherwise one may."""
        self._target = target
        token = secrets.token_hex(4) if shared else hashlib.sha256(os.fsencode(target.name)).hexdigest()[:8]
        self._folder = target.with_name(f".{target.name[:_STEM]}.{token}.partial")
        self.path = self._folder / f"result{target.suffix}"
        if not shared:
            remove_abandoned(target.parent)
        lock = _claim(self._folder)
        if lock is None:
            raise PahsError(
                f"{target}: another job is writing it, in {self._folder.name}; "
                "wait for it or choose another output"
            )
        self._lock: int | None = lock

    def finish(self) -> None:
        """Give the result its name."""
        self.path.replace(self._target)
        self.discard()

    def discard(self) -> None:
        """Remove whatever has not got its name."""
        if self._lock is not None:
            remove(self._folder)
            os.close(self._lock)
            self._lock = None
            with suppress(OSError):
                self._folder.rmdir()  # a network drive keeps a removed file until it is closed


def _claim(folder: Path) -> int | None:
    """Make a folder, or take over an abandoned one: the descriptor that locks it, or None while another job does."""
    for _ in range(_TRIES):
        try:
            folder.mkdir()
            new = True
        except FileExistsError:
            new = False
        # Another job may remove the folder before it is locked: then there is nothing to lock, and we start again.
        with suppress(FileNotFoundError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            locked = _locked(lock)
            if (locked or (locked is None and new)) and _is_at(lock, folder / _LOCK):
                for path in folder.iterdir():
                    if path.name != _LOCK:
                        remove(path)
                return lock
            os.close(lock)
            time.sleep(_PAUSE)
    return None


def remove_abandoned(folder: Path) -> None:
    """Remove what killed jobs left in a folder."""
    with suppress(OSError):
        for path in [p for p in folder.iterdir() if _PARTIAL.fullmatch(p.name)]:
            with suppress(OSError):
                lock = os.open(path / _LOCK, os.O_RDWR)
                if _locked(lock):
                    remove(path)
                os.close(lock)


def _locked(descriptor: int) -> bool | None:
    """Lock a file until its descriptor is closed; False if it is locked, None if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a path still names the open file."""
    return os.path.samestat(os.fstat(descriptor), path.stat())


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
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Partial(path, shared=True)
        yield partial.path
        partial.finish()
    except OSError as error:
        raise PahsError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        if partial is not None:
            partial.discard()


@contextmanager
def os_errors(what: str, advice: str = "") -> Iterator[None]:
    """What the system refuses, in words for the user: what failed, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise PahsError(f"{what} ({error.strerror}){advice}") from None


def write_text(path: Path, text: str) -> None:
    """Write a text: all or nothing."""
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, content: object, allow_nan: bool = True) -> None:
    """Write plain data as JSON: all or nothing."""
    write_text(path, json.dumps(content, indent=1, allow_nan=allow_nan) + "\n")


def cache_folder() -> Path:
    """Where measured speeds and compiled kernels are kept: $XDG_CACHE_HOME/pahs or ~/.cache/pahs; it need not exist."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(chosen) if chosen else Path.home() / ".cache") / "pahs"
    except RuntimeError:
        raise PahsError("no cache folder: this user has no home; set XDG_CACHE_HOME") from None
