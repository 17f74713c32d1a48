"""A comparison of each frame before and after, written next to the result, frame by frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pahs.choices import Compare
from pahs.video.copies import clone
from pahs.video.frames import Frame, FrameSink, PixelLayout, Plane, Planes, VideoInfo

LABELS = ("original", "deblurred")
LABEL_SHARE, SMALLEST = 1 / 20, 10
"""Height of the labels as a share of the frame's, and their smallest height in pixels."""
_LINE = 2
"""Columns of the line between the halves of a frame that is split: as many as a chroma sample covers."""


@dataclass(frozen=True)
class Label:
    """White text with a dark outline, as what is added to samples and what is left of them."""

    top: int
    left: int
    cover: NDArray[np.float32]
    """Share of each pixel that is text or outline."""
    white: NDArray[np.float32]
    """Share that is text."""


class Joiner:
    """Puts a frame and its restored version into one picture, upright as the video is shown."""

    def __init__(self, info: VideoInfo, mode: Compare) -> None:
        self.pixels, self.mode = info.pixels, mode
        # Samples are stored unrotated; labels and halves are for those who watch.
        self.turns = info.quarter_turns
        height, width = (info.width, info.height) if self.turns % 2 else (info.height, info.width)
        vertical, horizontal = self.pixels.subsampling
        self.subsampling = (horizontal, vertical) if self.turns % 2 else (vertical, horizontal)
        self.middle = width // 2 // 2 * 2
        self.width = width // 2 * 2 if mode == "side" else width
        self.labels = _labels(height, self.width, mode)
        if mode == "side":
            width = 2 * self.width
        if self.turns % 2:
            height, width = width, height
        self.info = replace(info, width=width, height=height)

    def join(self, before: Planes, after: Planes) -> Planes:
        return tuple(
            self._join(i, np.rot90(a, self.turns), np.rot90(b, self.turns))
            for i, (a, b) in enumerate(zip(before, after, strict=True))
        )

    def _join(self, number: int, before: Plane, after: Plane) -> Plane:
        down, across = self.subsampling if number else (1, 1)
        black, white = _levels(self.pixels, number)
        if self.mode == "side":
            columns = self.width // across
            joined = np.concatenate([before[:, :columns], after[:, :columns]], 1)
        else:
            joined, middle = before.copy(), self.middle // across
            joined[:, middle:] = after[:, middle:]
            joined[:, middle : middle + _LINE // across] = white
        for label in self.labels:
            cover, text = label.cover[::down, ::across], label.white[::down, ::across]
            rows = slice(label.top // down, label.top // down + cover.shape[0])
            place = joined[rows, label.left // across : label.left // across + cover.shape[1]]
            cover, text = (x[: place.shape[0], : place.shape[1]] for x in (cover, text))
            place[:] = np.rint(place * (1 - cover) + text * white + (cover - text) * black)
        return np.ascontiguousarray(np.rot90(joined, -self.turns))


def _levels(pixels: PixelLayout, number: int) -> tuple[int, int]:
    """The samples of black and white in a plane."""
    top = 2**pixels.depth - 1
    if number and pixels.family != "rgb":
        return (top + 1) // 2, (top + 1) // 2
    step = 2 ** (pixels.depth - 8)
    return (0, top) if pixels.full_range else (16 * step, 235 * step)


def _labels(height: int, width: int, mode: Compare) -> list[Label]:
    """One at the top left of each half of a pair; at both outer edges of a frame that is split."""
    size = max(SMALLEST, round(height * LABEL_SHARE))
    margin = size // 4 * 2
    drawn = [_draw(text, size) for text in LABELS]
    right = width + margin if mode == "side" else width - margin - drawn[1][0].shape[1]
    lefts = (margin, max(0, right // 2 * 2))
    return [
        Label(margin, left, cover, white)
        for left, (cover, white) in zip(lefts, drawn, strict=True)
        if margin + cover.shape[0] <= height and cover.shape[1] + margin <= width // 2
    ]


def _draw(text: str, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The shares of pixels that text with its outline, and text alone, cover; even numbers of rows and columns."""
    font = ImageFont.load_default(size)
    outline = max(1, size // 10)
    left, top, right, bottom = font.getbbox(text, stroke_width=outline)
    shape = (int(right - left + 3) // 2 * 2, int(bottom - top + 3) // 2 * 2)
    cover, white = Image.new("L", shape), Image.new("L", shape)
    ImageDraw.Draw(cover).text((-left, -top), text, 255, font, stroke_width=outline, stroke_fill=255)
    ImageDraw.Draw(white).text((-left, -top), text, 255, font)
    return tuple(np.asarray(x, np.float32) / 255 for x in (cover, white))  # type: ignore[return-value]


class ComparedSink(FrameSink):
    """Writes a result, and next to it the comparison with its source. Both appear, or neither."""

    def __init__(self, result: FrameSink, comparison: FrameSink, joiner: Joiner) -> None:
        self.result, self.comparison, self.joiner = result, comparison, joiner

    @property
    def warnings(self) -> list[str]:  # type: ignore[override]
        return self.result.warnings

    def prepare(self, frame: Frame) -> tuple[Any, Any]:
        assert frame.before is not None
        joined = replace(frame, planes=self.joiner.join(frame.before, frame.planes))
        return self.result.prepare(frame), self.comparison.prepare(joined)

    def put(self, item: Any) -> None:
        if isinstance(item, tuple):
            self.result.put(item[0])
            self.comparison.put(item[1])
            return
        self.result.put(clone(item))  # a muxer changes the packet that it takes
        self.comparison.put(item)

    def _finish(self) -> None:
        self.comparison.close()
        self.result.close()

    def _discard(self) -> None:
        self.result.abort()
        self.comparison.abort()
