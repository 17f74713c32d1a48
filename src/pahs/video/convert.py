"""Between the two kinds of result: the frames of a video as images, and images as an ordinary video."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pahs.video.color import from_rgb, to_rgb
from pahs.video.frames import Frame, FrameSink, PixelLayout, Planes, VideoInfo


def info_of_images(info: VideoInfo) -> VideoInfo:
    """Facts about the frames of a video as RGB images: turned upright, of 8 or 16 bits."""
    width, height = (info.height, info.width) if info.quarter_turns % 2 else (info.width, info.height)
    pixels = PixelLayout("rgb", 8 if info.pixels.depth == 8 else 16, True)
    upright = replace(info, width=width, height=height, display_matrix=None, rotation=0)
    return replace(upright, pixels=pixels, matrix=0, color_range=2)


def info_of_video(info: VideoInfo) -> VideoInfo:
    """Facts about a video that any player shows, made of images: 4:2:0, BT.709, of 8 or 10 bits."""
    pixels = PixelLayout("yuv420", 8 if info.pixels.depth == 8 else 10)
    return replace(info, pixels=pixels, matrix=1, color_range=1, primaries=1, transfer=1)


class _Converting(FrameSink):
    """Writes to another sink what it makes of the frames."""

    def __init__(self, sink: FrameSink, info: VideoInfo) -> None:
        self.sink, self.info = sink, info
        self.warnings = sink.warnings

    def put(self, item: Any) -> None:
        self.sink.put(item)

    def _finish(self) -> None:
        self.sink.close()

    def _discard(self) -> None:
        self.sink.abort()


class AsImages(_Converting):
    """Turns frames into RGB and upright, and numbers those that have no name."""

    def __init__(self, images: FrameSink, info: VideoInfo, suffix: str) -> None:
        super().__init__(images, info)
        self.suffix = suffix
        self.depth = info_of_images(info).pixels.depth
        self.count = 0
        lost = []
        if info.audio_streams:
            lost.append(f"images have no sound; the {info.audio_streams} audio streams are not kept")
        if info.sample_aspect_ratio not in (None, 1):
            lost.append("images have square pixels; the aspect ratio of samples is not kept")
        if info.is_hdr:
            lost.append("the images hold HDR samples, but the mark of HDR is not kept")
        self.warnings += [f"{info.path.name}: {what}" for what in lost]

    def prepare(self, frame: Frame) -> Any:
        self.count += 1
        rgb = torch.rot90(to_rgb(frame.planes, self.info.pixels), self.info.quarter_turns, (1, 2))
        top = 2**self.depth - 1
        levels = (rgb * top).round_().clamp_(0, top).numpy()
        red, green, blue = levels.astype(np.uint8) if top == 255 else levels.astype(np.uint16)
        planes: Planes = (green, blue, red)
        stem = f"{self.count:06d}" if frame.name is None else Path(frame.name).stem
        return self.sink.prepare(replace(frame, planes=planes, name=stem + self.suffix))

    def put(self, item: Any) -> None:
        if isinstance(item, tuple):  # a packet of sound has no place here
            super().put(item)


class AsVideo(_Converting):
    """Turns images into the samples of an ordinary video."""

    def prepare(self, frame: Frame) -> Any:
        image = to_rgb(frame.planes, self.info.pixels)
        return self.sink.prepare(replace(frame, planes=from_rgb(image, info_of_video(self.info).pixels)))
