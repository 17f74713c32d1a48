"""`reproduction.json`: what a folder reproduces, and in how many steps. Every later call reads it, on any machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pahs.errors import PahsError
from pahs.files import write_json

FILE = "reproduction.json"


@dataclass(frozen=True)
class Calibration:
    """What `--calibrate` chose."""

    steps: int
    together: int
    gain: float
    """Time of a step of several arms at the same time, as a fraction of that one after the other; 1: no faster."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Expected seconds of a training by arm."""
    machine: str = ""


@dataclass(frozen=True)
class Record:
    """The whole file."""

    scale: str
    steps: int | None = None
    """Of the longest training, if they were chosen; None: those of the scale."""
    calibration: Calibration | None = None


def read_record(out: Path) -> Record:
    path = out / FILE
    try:
        data = json.loads(path.read_text())
        found = data.get("calibration")
        return Record(data["scale"], data.get("steps"), None if found is None else Calibration(**found))
    except FileNotFoundError:
        raise PahsError(
            f"{out}: holds no reproduction ({FILE} is missing); run it without --report-only first, or copy that "
            "file along"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PahsError(f"{path}: cannot be read ({error})") from None


def check(out: Path, scale: str) -> Record:
    """What a folder holds so far; one of another scale is refused."""
    if not (out / FILE).exists():
        return Record(scale)
    record = read_record(out)
    if record.scale != scale:
        raise PahsError(f"{out}: holds a reproduction at scale {record.scale}; name another --output")
    return record


def write_record(out: Path, record: Record) -> None:
    """Keep it for all later calls."""
    if not (out / FILE).exists() or record != read_record(out):
        write_json(out / FILE, asdict(record))
