"""A plan as data: what every unit of work must know, in a file of JSON lines.

The first line holds the settings, and the checksum of the model. Then comes a line for each video, with its segments:
parts that are restored alone, and joined. A video without segments is one unit of work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pahs import configs
from pahs.choices import EncodeOptions
from pahs.cluster import store
from pahs.errors import PahsError

Format = Literal["pahs-plan-1"]
NAME = "plan.jsonl"
"""The manifest's name in the folder of the results."""


@dataclass(frozen=True)
class Settings:
    """What all units of a plan have in common."""

    model: str
    """A name of a bundled network, or where its weights file lies."""
    sha256: str
    """The checksum of the weights."""
    device: Literal["cpu", "cuda"]
    precision: Literal["fp32", "bf16", "fp16"]
    chunk: int
    """Frames that one backward sweep restores: segments are cut at multiples of it."""
    look_ahead: int
    """Frames that are read after a segment, because its last frame sees as many."""
    warm_up: int
    """Frames that are read before a segment, for the forward state that it begins with."""
    length: int
    """Frames of a segment, about; 0 for videos in one piece."""
    scene_cuts: bool = True
    strength: float = 1.0
    deinterlace: bool = False
    encode: EncodeOptions = field(default_factory=EncodeOptions)
    format: Format = "pahs-plan-1"


@dataclass(frozen=True)
class Segment:
    """Frames `begin` to `end` of a video, as one unit of work; `first` to `last` are read for it."""

    number: int
    """In the video, from 0 on."""
    first: int
    begin: int
    end: int
    last: int
    pts: int
    """The time of frame `first` in units of the video's time base: the frame is found by it."""
    last_pts: int
    """The time of the last frame that is read."""
    cuts: tuple[int, ...] = ()
    """Frames with which scenes begin, of those that are read."""

    @property
    def frames(self) -> int:
        return self.end - self.begin

    @property
    def file(self) -> str:
        return f"{self.begin:08d}-{self.end:08d}.packets"


@dataclass(frozen=True)
class Video:
    """A source and its result."""

    source: str
    target: str
    size: int | None
    """Bytes of the source, by which a changed one is known; None for a folder of images."""
    frames: int | None = None
    """How many it has; an estimate where it is not cut into segments, None where even that is not known."""
    lost: int = 0
    """Frames that could not be decoded, where it is cut into segments."""
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Unit:
    """One unit of work: a segment of a video, or a video in one piece."""

    video: Video
    segment: Segment | None


@dataclass(frozen=True)
class Plan:
    """A whole manifest."""

    settings: Settings
    videos: tuple[Video, ...]

    @property
    def units(self) -> list[Unit]:
        """In the order by which `pahs run --segment` counts them."""
        return [Unit(video, segment) for video in self.videos for segment in (video.segments or (None,))]


def segment_folder(settings: Settings, video: Video) -> str:
    """Where the segments of a video lie until they are joined; other settings, or another source, have another."""
    facts = json.dumps([asdict(settings), video.source, video.size], sort_keys=True)
    folder, _, name = video.target.rpartition("/")
    return f"{folder}/.{name}.{hashlib.sha256(facts.encode()).hexdigest()[:12]}.segments"


def write(plan: Plan, path: str) -> None:
    """Write a manifest, all or nothing."""
    lines = [_line("settings", plan.settings), *(_line("video", video) for video in plan.videos)]
    with store.writing(path, replace=True) as file:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: str) -> Plan:
    """Read and check a manifest."""
    try:
        with store.fetched(path) as file:
            found = list(_parsed(file.read_text(encoding="utf-8")))
        (settings, *videos) = found
        if not isinstance(settings, Settings) or not all(isinstance(video, Video) for video in videos):
            raise ValueError("the first line must be the settings, the others videos")
    except OSError as error:
        raise PahsError(f"{path}: cannot be read ({error.strerror}); run pahs plan") from None
    except (ValueError, RecursionError) as error:
        raise PahsError(
            f"{path}: is no plan of this version of pahs ({error}); run pahs plan again"
        ) from None
    return Plan(settings, tuple(video for video in videos if isinstance(video, Video)))


def _line(kind: str, content: Settings | Video) -> str:
    return json.dumps({kind: asdict(content)}, separators=(",", ":"))


def _parsed(text: str) -> Iterator[Settings | Video]:
    kinds: dict[str, type[Settings] | type[Video]] = {"settings": Settings, "video": Video}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            data: Any = json.loads(line)
            ((kind, values),) = data.items()
            yield configs.build(kinds[kind], values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number}: {error}") from None
    if not text.strip():
        raise ValueError("it is empty")
