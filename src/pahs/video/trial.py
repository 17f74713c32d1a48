"""Before the work: the output's first moments, written to a trial file, finished, and opened again.

What the muxer, the encoder or the disk refuses is refused before the first frame is restored, and what the container
drops without a word is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.choices import EncodeOptions
from pahs.errors import PahsError
from pahs.video.copies import STALE_TAGS, clone
from pahs.video.frames import UNSPECIFIED, Frame, VideoInfo
from pahs.video.opening import open_video
from pahs.video.output import OutputFile
from pahs.video.reader import VideoReader
from pahs.video.writer import VideoWriter

if TYPE_CHECKING:
    from av import VideoFrame, VideoStream
    from av.container import InputContainer
    from av.stream import Stream

_FRAMES = 2
"""Frames that the trial file gets, by the fastest preset: what is refused is refused in about a second."""
_NAMES = ("language", "title")
"""Tags of sound and subtitles that people choose them by."""
# Tags about how a file is stored; another container says it in another way.
_TECHNICAL = {"handler_name", "vendor_id", "language", "timecode", "creation_time", "filename", "mimetype"}


def try_output(
    source: VideoReader, path: Path, options: EncodeOptions | None
) -> tuple[OutputFile, tuple[str, ...]]:
    """Write the start of the source to a trial file as the job will, or refuse.

    Returns the output, which tells what the job will write, and what the container drops without a word, each in one
    line. The trial file is gone.
    """
    options = replace(options or EncodeOptions(), preset="ultrafast")
    writer = VideoWriter(path, source.info, options, source)
    output = writer.output
    try:
        frames = 0
        for item in source.ahead():
            if not isinstance(item, Frame):
                output.copy(clone(item))
            elif frames < _FRAMES:
                output.encode(output.picture(item))
                frames += 1
        output.finish()
        return output, tuple(_read_back(writer.partial.path, path, source, output.kept))
    finally:
        writer.abort()


def _read_back(file: Path, path: Path, source: VideoReader, kept: frozenset[int]) -> list[str]:
    import av

    try:
        with open_video(file) as back:
            video = back.streams.best("video")
            if not isinstance(video, av.VideoStream):
                raise PahsError(
                    f"{path}: players find no video in what this container holds; use an .mkv output"
                )
            frame = next(back.decode(video), None)
            if frame is None or (frame.width, frame.height) != (source.info.width, source.info.height):
                raise PahsError(
                    f"{path}: players cannot decode what this container holds; use an .mkv output"
                )
            losses = [*_lost_tags(source, back, video), *_lost_facts(source.info, video, frame)]
            losses += _lost_names([s for s in source.container.streams if s.index in kept], back)
            if source.chapters() and not back.chapters():
                losses.append("chapters are not kept")
            return [f"{path.name}: {loss}" for loss in losses]
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PahsError(
            f"{path}: what is written here cannot be opened again ({reason}); use an .mkv output"
        ) from None


def _lost_tags(source: VideoReader, back: InputContainer, video: VideoStream) -> Iterator[str]:
    before, after = _tags(source.container.metadata), _tags(back.metadata)
    lost = [key for key, value in before.items() if after.get(key) != value]
    if lost:
        yield f"tags are not kept: {', '.join(sorted(lost))}"
    timecode = source.stream.metadata.get("timecode", source.container.metadata.get("timecode"))
    if timecode and timecode not in (_lower(x.metadata).get("timecode") for x in (video, back)):
        yield f"the time code {timecode} is not kept"


def _lost_names(kept: list[Stream], back: InputContainer) -> Iterator[str]:
    from av.stream import Disposition

    for kind in ("audio", "subtitle"):
        before, after = ([s for s in streams if s.type == kind] for streams in (kept, back.streams))
        if len(before) != len(after):
            continue  # a stream of which no packet lies at the start may be missing in the trial file alone
        for mine, theirs in zip(before, after, strict=True):
            wanted, found = _lower(mine.metadata), _lower(theirs.metadata)
            lost = [k for k in _NAMES if wanted.get(k, "und") not in ("und", found.get(k, found.get("name")))]
            marks = mine.disposition & ~theirs.disposition & ~Disposition.default
            lost += [mark.name for mark in Disposition if mark & marks and mark.name]
            if lost:
                yield f"of stream {mine.index} ({kind}) is not kept: {', '.join(lost)}"


def _lost_facts(info: VideoInfo, video: VideoStream, frame: VideoFrame) -> Iterator[str]:
    aspect = video.sample_aspect_ratio or Fraction(1)
    if (info.sample_aspect_ratio or 1) != aspect:
        yield f"the sample aspect ratio {info.sample_aspect_ratio or 1} is not kept"
    described = {
        "matrix": (info.matrix, frame.colorspace),
        "primaries": (info.primaries, frame.color_primaries),
        "transfer": (info.transfer, frame.color_trc),
    }
    lost = [name for name, (before, after) in described.items() if before not in (UNSPECIFIED, 0, after)]
    if lost:
        yield f"colour description is not kept: {', '.join(lost)}"


def _tags(metadata: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in _lower(metadata).items() if k not in STALE_TAGS | _TECHNICAL}


def _lower(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in metadata.items()}
