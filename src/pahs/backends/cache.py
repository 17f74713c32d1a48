"""Graphs that were exported on this machine, in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from pahs.backends import graphs
from pahs.choices import ExportPrecision
from pahs.errors import PahsError
from pahs.export.folder import describe, export_network
from pahs.files import cache_folder, remove
from pahs.networks import Deblurrer


def cached(network: Deblurrer, precision: ExportPrecision, quiet: bool = True) -> Path:
    """A folder with the graphs of a network in float32 on the CPU; they are exported when it is asked for first."""
    about = describe(network, "cached", "onnx", precision)
    name = f"{about.architecture}-{about.weights_sha256[:20]}-{precision}"
    # What writes them is part of the name: another version may write them better.
    folder = cache_folder() / "graphs" / f"{name}-{about.pahs}-{graphs.FORMAT}-torch-{torch.__version__}"
    if not _usable(folder):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)  # now, not after an export of minutes
        except OSError as error:
            raise PahsError(
                f"{folder.parent}: cannot be written ({error.strerror}); free it, or use --backend torch"
            ) from None
        remove(folder)
        try:
            export_network(network, name, folder, "onnx", precision, quiet)
        except PahsError:
            if not _usable(folder):  # another process may have been first
                raise
    return folder


def writable() -> bool:
    """Whether anything can be kept: without it, every run would measure and export again."""
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, PahsError):
        return False
    return os.access(folder, os.W_OK)


def _usable(folder: Path) -> bool:
    try:
        graphs.read(folder)
    except PahsError:
        return False
    return True
