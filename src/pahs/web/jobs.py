"""What the queue holds: one job, what its user asked for, and what is known about its files."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from dataclasses import asdict, dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Any, Literal, Self

from pahs.choices import Codec, EncodeOptions, check_choice
from pahs.deblur import DeblurOptions
from pahs.errors import PahsError

State = Literal["uploading", "queued", "running", "done", "failed", "cancelled"]
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")

LONGEST_NAME = 200
# Separators, control characters, and marks that make a name read differently from what it is.
_BAD_CHARACTERS = re.compile(
    r"[/\\\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


@dataclass(frozen=True)
class JobOptions:
    """What the user chose for one video."""

    model: str = "auto"
    """A name that the server offers; never a path."""
    codec: Codec = "auto"
    """How the result is compressed."""
    strength: float = 1.0
    """Share of the restored change that is made."""
    start: float | None = None
    """Seconds where the result begins."""
    end: float | None = None
    """Seconds where it ends."""

    def __post_init__(self) -> None:
        check_choice("codec", self.codec, Codec)
        DeblurOptions(start=self.start, end=self.end, strength=self.strength)  # checks them

    def share(self, seconds: float | None) -> float:
        """How much of a video of so many seconds is restored."""
        if not seconds:
            return 1.0
        return max(0.0, min(self.end or seconds, seconds) - (self.start or 0.0)) / seconds

    def encode(self) -> EncodeOptions:
        return EncodeOptions(codec=self.codec)

    @classmethod
    def parse(cls, values: Any, base: Self | None = None) -> Self:
        """Options from JSON or from a query; those that are missing are taken from `base`."""
        if not isinstance(values, dict):
            raise PahsError("options: give an object of names and values")
        kinds = {field.name: field.type for field in fields(cls)}
        chosen = asdict(base) if base else {}
        for name, value in values.items():
            if name not in kinds:
                raise PahsError(f"option {name!r} is unknown; choose among {', '.join(kinds)}")
            chosen[name] = _number(name, value) if "float" in str(kinds[name]) else str(value)
        if chosen.get("strength", 1.0) is None:
            del chosen["strength"]
        return cls(**chosen)


def _number(name: str, value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
    except (TypeError, ValueError):
        raise PahsError(f"{name} {value!r}: give a number") from None
    return number


@dataclass(frozen=True)
class Preview:
    """A video with the pictures before and after above each other, for the page's viewer."""

    file: str
    """Its name in the job's folder."""
    kind: Literal["first", "whole"]
    """A first look, or all of the result (its beginning, where that is very long)."""
    frames: int
    rate: float
    """Frames per second; constant, so that a time names a frame."""
    width: int
    height: int
    """Size of one picture."""
    offset: int
    """Rows from the top of the first picture to the top of the second one."""
    start: float = 0.0
    """Seconds of the source before its first frame."""

    def moved(self, file: str) -> Self:
        """The same under another name."""
        return replace(self, file=file)


@dataclass(frozen=True)
class Job:
    """One row of the queue."""

    id: str
    name: str
    """The file's name as the user gave it: shown and offered for download, never used as a path."""
    state: State
    held: bool
    """Waits for the user: not claimed while queued, paused while running."""
    cancel: bool
    """The user wants it to end."""
    position: float
    """Where it stands among the queued ones."""
    options: JobOptions
    size: int | None
    """Bytes of the source, as declared or as received."""
    received: int
    """Bytes of the source that are on disk, while it is uploaded."""
    facts: dict[str, Any] | None
    """What the inspection found; None until then."""
    stage: str
    done: int
    expected: int | None
    read: int
    rate: float | None
    """Frames per second of this run so far."""
    error: str | None
    warnings: tuple[str, ...]
    claim: str | None
    """Names this run of the job; what another run reports is refused."""
    worker: str | None
    created: float
    started: float | None
    finished: float | None
    result: str | None
    """Path of the result in the job's folder."""
    result_bytes: int | None
    preview: Preview | None
    revision: int
    """Grows with every change of any job."""

    @classmethod
    def of(cls, row: sqlite3.Row) -> Self:
        values = dict(row)
        values["held"], values["cancel"] = bool(values["held"]), bool(values["cancel"])
        values["options"] = JobOptions(**json.loads(values["options"]))
        values["facts"] = json.loads(values["facts"]) if values["facts"] else None
        values["warnings"] = tuple(json.loads(values["warnings"]))
        values["preview"] = Preview(**json.loads(values["preview"])) if values["preview"] else None
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    @property
    def source(self) -> str:
        """Name of the source in the job's folder."""
        return f"source{suffix_of(self.name)}"

    @property
    def result_name(self) -> str | None:
        """What a browser calls the downloaded result."""
        if self.result is None:
            return None
        return f"{PurePosixPath(self.name).stem}-deblurred{PurePosixPath(self.result).suffix}"


def suffix_of(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def check_name(name: str) -> str:
    """Refuse a file name that could be taken for a path, or that shows itself as another one."""
    if not name or name.strip(" .") == "":
        raise PahsError("name: is missing; give the name of the video file, such as name=clip.mp4")
    if len(name) > LONGEST_NAME:
        raise PahsError(f"name: is longer than {LONGEST_NAME} characters; shorten it")
    if _BAD_CHARACTERS.search(name):
        raise PahsError("name: holds characters that are not allowed in a file name; rename the file")
    return name
