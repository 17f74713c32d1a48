"""`reproduction.json`: what a folder reproduces. Every later call reads it, on any machine."""

from __future__ import annotations

import json
from pathlib import Path

from pahs.errors import PahsError
from pahs.files import write_json

RECORD = "reproduction.json"


def read_scale(out: Path) -> str:
    """The scale of the reproduction in a folder."""
    path = out / RECORD
    try:
        return str(json.loads(path.read_text())["scale"])
    except FileNotFoundError:
        raise PahsError(
            f"{out}: holds no reproduction ({RECORD} is missing); run it without --report-only first, "
            "or copy that file along"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PahsError(f"{path}: cannot be read ({error})") from None


def check(out: Path, scale: str) -> None:
    """Refuse a folder that holds another scale."""
    if (out / RECORD).exists() and read_scale(out) != scale:
        raise PahsError(f"{out}: holds a reproduction at scale {read_scale(out)}; name another --output")


def claim(out: Path, scale: str) -> None:
    """Mark the folder as a reproduction of this scale, once it is known that one can begin."""
    check(out, scale)
    if not (out / RECORD).exists():
        write_json(out / RECORD, {"scale": scale})
