"""One video that holds the pictures before and after above each other, so that a page shows both in step.

Two players in a page drift apart; one picture cut in two by the page cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pahs.errors import PahsError
from pahs.files import whole
from pahs.progress import Stop
from pahs.video.cut import PartReader, part_of
from pahs.video.frames import PixelLayout
from pahs.video.pixels import frame_of
from pahs.video.reader import VideoReader
from pahs.web.jobs import Preview

if TYPE_CHECKING:
    from av import VideoCodecContext, VideoFrame

Planes = tuple[NDArray[np.uint8], ...]

LARGEST = 1920 * 1088
"""Pixels of one picture; larger ones are made smaller, for browsers that decode without a GPU."""
LONGEST = 3000
"""Frames; longer videos are compared by their beginning."""
_KEY_FRAMES = 12
"""Frames between two that a player can jump to."""

_READY = ("yuv420p", "yuvj420p")
"""Layouts whose samples are taken as they are."""


def stack(
    before: Path,
    after: Path,
    target: Path,
    kind: Literal["first", "whole"] = "whole",
    start: float = 0.0,
    stop: Stop | None = None,
) -> Preview:
    """Write the preview of a result whose first frame is the one shown at `start` seconds of the source."""
    import av

    try:
        # The reader of the job itself: what it leaves out, and where it enters the file, is the same here.
        with whole(target) as partial, _reader(before, start) as old, VideoReader(after) as new:
            rate = new.info.rate.limit_denominator(1001)
            aspect = float(new.info.sample_aspect_ratio or 1)
            pairs = zip(old.pictures(), new.pictures(), strict=False)
            return _encode(pairs, rate, aspect, partial, target.name, kind, start, stop)
    except av.FFmpegError as error:
        raise PahsError(f"{before}: no comparison can be made of it ({error.strerror})") from None


def _encode(
    pairs: Iterator[tuple[VideoFrame, VideoFrame]],
    rate: Fraction,
    aspect: float,
    partial: Path,
    name: str,
    kind: Literal["first", "whole"],
    start: float,
    stop: Stop | None,
) -> Preview:
    import av

    frames, width, height, slot = 0, 0, 0, 0
    options = {"preset": "veryfast", "crf": "16", "bf": "0"}
    with av.open(str(partial), "w", container_options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=rate, options=options)
        context = stream.codec_context
        context.gop_size, context.pix_fmt, context.time_base = _KEY_FRAMES, "yuv420p", 1 / rate
        for pair in islice(pairs, LONGEST):
            if stop is not None and stop.is_set():
                break
            if not frames:
                width, height = _size(pair[0], aspect)
            upper, lower = (_picture(frame, width, height) for frame in pair)
            if not frames:
                height, width = upper[0].shape
                slot = -(-height // 16) * 16 + 16
                context.width, context.height = width, 2 * slot
                _set_colors(context, pair[1])
            picture = frame_of(_stacked(upper, lower, slot), PixelLayout("yuv420"))
            picture.pts, picture.time_base = frames, 1 / rate
            _set_colors(picture, pair[1])
            container.mux(stream.encode(picture))
            frames += 1
        if not frames:
            raise PahsError("no frame of the result could be compared with its source")
        container.mux(stream.encode(None))
    return Preview(name, kind, frames, float(rate), width, height, slot, start)


def _reader(source: Path, start: float) -> VideoReader:
    part = part_of(start, None)
    return VideoReader(source) if part is None else PartReader(source, part)


def _size(frame: VideoFrame, aspect: float) -> tuple[int, int]:
    """Width and height to bring a stored picture to: square pixels, even, not too many."""
    width, height = frame.width * aspect, float(frame.height)
    scale = min(1.0, (LARGEST / (width * height)) ** 0.5)
    return max(2, round(width * scale / 2) * 2), max(2, round(height * scale / 2) * 2)


def _picture(frame: VideoFrame, width: int, height: int) -> Planes:
    """Planes of a frame as it is shown: 8 bits, 4:2:0, turned upright."""
    same = frame
    if frame.format.name not in _READY or (frame.width, frame.height) != (width, height):
        same = frame.reformat(width, height, "yuv420p")
    planes = (
        np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]
        for plane in same.planes
    )
    return tuple(np.rot90(plane, frame.rotation // 90 % 4) for plane in planes)


def _set_colors(target: VideoFrame | VideoCodecContext, frame: VideoFrame) -> None:
    """Say what the samples mean; where the file does not, what players assume from its size, which is other here."""
    large = frame.width >= 1280 or frame.height > 576
    known = frame.colorspace not in (0, 2)
    target.colorspace = frame.colorspace if known else 1 if large else 6
    target.color_range = 2 if frame.color_range == 2 and frame.format.name in _READY else 1
    target.color_primaries, target.color_trc = frame.color_primaries, frame.color_trc


def _stacked(upper: Planes, lower: Planes, slot: int) -> Planes:
    """Both pictures, each with its last row repeated below it: the codec's filter mixes neighbours."""
    rows = (slot, slot // 2, slot // 2)
    return tuple(
        np.ascontiguousarray(
            np.concatenate([np.pad(plane, ((0, high - len(plane)), (0, 0)), "edge") for plane in pair])
        )
        for high, pair in zip(rows, zip(upper, lower, strict=True), strict=True)
    )
