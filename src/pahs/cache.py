"""The folder for what can be made again: measured speeds and compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path

from pahs.errors import PahsError


def folder() -> Path:
    """$XDG_CACHE_HOME/pahs or ~/.cache/pahs; it need not exist."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(chosen) if chosen else Path.home() / ".cache") / "pahs"
    except RuntimeError:
        raise PahsError("no cache folder: this user has no home; set XDG_CACHE_HOME") from None
