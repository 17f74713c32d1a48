"""Files by their addresses: a path of this machine, or an address such as s3://bucket/name, through fsspec.

Whatever is written appears whole or not at all. In folders a file is written under a hidden name and renamed; object
stores make an object visible when it is complete, and here refuse one that exists.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pahs.errors import PahsError
from pahs.files import Partial, remove, remove_abandoned, whole


def is_remote(address: str) -> bool:
    """Whether fsspec is needed for it."""
    return "://" in address


def name_of(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2]


def size(address: str) -> int | None:
    """Bytes of a file; None for what is not there, and for a folder."""
    if not is_remote(address):
        local = Path(address)
        return local.stat().st_size if local.is_file() else None
    with _remote(address, "looked at") as (files, path):
        if not files.isfile(path):
            return None
        found = files.info(path).get("size")
        return None if found is None else int(found)


def exists(address: str) -> bool:
    if not is_remote(address):
        return Path(address).exists()
    with _remote(address, "looked at") as (files, path):
        files.invalidate_cache()
        return bool(files.exists(path))


def names_in(folder: str) -> set[str]:
    """Names of the files in a folder; none where there is no such folder."""
    if not is_remote(folder):
        local = Path(folder)
        return {x.name for x in local.iterdir()} if local.is_dir() else set()
    with _remote(folder, "listed") as (files, path):
        files.invalidate_cache()
        with suppress(FileNotFoundError):
            return {name_of(name) for name in files.ls(path, detail=False)}
        return set()


def files_below(address: str) -> list[str]:
    """The files at and below an address of an object store, as addresses."""
    with _remote(address, "listed") as (files, path):
        files.invalidate_cache()
        return [files.unstrip_protocol(name) for name in sorted(files.find(path))]


@contextmanager
def fetched(address: str) -> Iterator[Path]:
    """A file as a path of this machine, for as long as it is needed."""
    if not is_remote(address):
        yield Path(address)
        return
    with scratch() as folder:
        target = folder / name_of(address)
        with _remote(address, "read") as (files, path):
            files.get_file(path, str(target))
        yield target


@contextmanager
def writing(address: str, replace: bool = False) -> Iterator[Path]:
    """A path to write a file under, which gets its address at the end, or is removed on any failure.

    Who writes what another job has written meanwhile keeps the other's, in an object store: both are the same.
    `replace` is for files that are to be written again.
    """
    name = name_of(address)
    if not is_remote(address):
        target = Path(address)
        if target.parent.is_dir():
            remove_abandoned(target.parent)
        with whole(target) as partial:
            inner = partial.with_name(name)
            yield inner
            inner.replace(partial)
        return
    with scratch() as folder:
        yield folder / name
        with _remote(address, "written") as (files, path), suppress(FileExistsError):
            files.put_file(str(folder / name), path, mode="overwrite" if replace else "create")


def delete_folder(folder: str) -> None:
    """Remove a folder with all it holds, if it is there."""
    if not is_remote(folder):
        remove(Path(folder))
        return
    with _remote(folder, "removed") as (files, path), suppress(FileNotFoundError):
        files.invalidate_cache()
        files.rm(path, recursive=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of this machine for files on their way; what killed jobs have left there is removed.

    The folder that holds it stays, empty: others may be about to write there.
    """
    base = Path(tempfile.gettempdir()) / f"pahs-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        if base.is_symlink() or base.stat().st_uid != os.getuid():
            raise PahsError(f"{base}: belongs to another user; set TMPDIR to a folder of your own")
        remove_abandoned(base)
        partial = Partial(base / "work", shared=True)
    except OSError as error:
        raise PahsError(f"{base}: cannot be written ({error.strerror or error}); set TMPDIR") from None
    try:
        yield partial.path.parent
    finally:
        partial.discard()


def tidy() -> None:
    """Remove what killed jobs have left in this machine's folder for files on their way."""
    with scratch():
        pass


@contextmanager
def _remote(address: str, done: str) -> Iterator[tuple[Any, str]]:
    """The file system of an address, and the address without its protocol; its errors in one line."""
    try:
        import fsspec
    except ImportError:
        raise PahsError(f"{address}: addresses need fsspec; pip install 'pahs[s3]' for s3://") from None
    try:
        yield fsspec.core.url_to_fs(address)
    except (PahsError, FileExistsError):
        raise
    except ImportError as error:
        raise PahsError(f"{address}: {error}") from None
    except FileNotFoundError:
        raise PahsError(f"{address}: no such file") from None
    except Exception as error:  # every store has exceptions of its own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PahsError(f"{address}: cannot be {done} ({reason})") from error
