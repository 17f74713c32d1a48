"""Conversion between FFmpeg's frames and arrays, bit for bit where the layout allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pahs.video.frames import DEPTHS, Family, PixelLayout, Plane, Planes, luma_weights

if TYPE_CHECKING:
    from av import VideoFormat, VideoFrame

FULL_RANGE = 2
# In these codecs a chroma sample lies in the centre of the luma samples it covers.
_CENTER_SITED = {"mjpeg", "mpeg1video", "jpegls", "webp", "jpeg2000", "png", "tiff", "bmp"}


def layout_of(frame: VideoFrame, codec: str) -> PixelLayout:
    """The nearest layout that arrays can hold without losing depth or chroma samples."""
    family = _family(frame.format)
    bits = max((c.bits for c in frame.format.components if not c.is_alpha), default=8)
    if frame.format.has_palette:
        bits = 8
    depth = next((d for d in DEPTHS if d >= bits), DEPTHS[-1])
    tagged_full = frame.color_range == FULL_RANGE or frame.format.name.startswith("yuvj")
    # FFmpeg's own convention: gray pictures that do not say otherwise use all codes.
    full = tagged_full or (family == "gray" and frame.color_range == 0) or family == "rgb"
    weights = luma_weights(frame.colorspace, frame.width, frame.height)
    return PixelLayout(family, depth, full, weights, "center" if codec in _CENTER_SITED else "left")


def repacked(format: VideoFormat, pixels: PixelLayout) -> str | None:
    """What becomes of samples that arrays hold only in a deeper or finer layout, for the user."""
    if format.has_palette:
        return None
    stored = PixelLayout(_family(format), pixels.depth)
    bits = {c.bits for c in format.components if not c.is_alpha}
    ratio = (64 // format.chroma_height(64), 64 // format.chroma_width(64))
    subsampled = stored.family.startswith("yuv")
    if bits == {pixels.depth} and (not subsampled or ratio == stored.subsampling):
        return None
    return f"samples of {format.name} are stored as {pixels.name}"


def has_alpha(format: VideoFormat) -> bool:
    return any(c.is_alpha for c in format.components)


def planes_of(frame: VideoFrame, pixels: PixelLayout) -> Planes:
    """Copy the samples out; formats that are only packed differently are unpacked, all others converted."""
    if frame.format.name.replace("yuvj", "yuv") != pixels.name:
        # Stating one range for both sides keeps the sample values as they are.
        frame = frame.reformat(
            format=pixels.name, src_color_range=frame.color_range, dst_color_range=frame.color_range
        )
    return tuple(_view(p, pixels.dtype).copy() for p in frame.planes)


def frame_of(planes: Planes, pixels: PixelLayout) -> VideoFrame:
    """A new frame of FFmpeg that holds these samples."""
    import av

    height, width = planes[0].shape
    frame = av.VideoFrame(width, height, pixels.name)
    for target, plane in zip(frame.planes, planes, strict=True):
        _view(target, pixels.dtype)[:] = plane
    return frame


def _view(plane: Any, dtype: type[np.uint8] | type[np.uint16]) -> Plane:
    rows: Plane = np.frombuffer(plane, dtype).reshape(plane.height, -1)  # type: ignore[assignment]
    return rows[:: -1 if plane.line_size < 0 else 1, : plane.width]


def _family(format: VideoFormat) -> Family:
    if format.is_rgb or format.has_palette or format.is_bayer:
        return "rgb"
    if sum(not c.is_alpha for c in format.components) < 3:
        return "gray"
    # Odd sizes would blur the ratio, so it is read off a size that every subsampling divides.
    vertical = 64 // format.chroma_height(64)
    horizontal = 64 // format.chroma_width(64)
    if horizontal == 1:
        return "yuv444"
    return "yuv422" if vertical == 1 else "yuv420"
