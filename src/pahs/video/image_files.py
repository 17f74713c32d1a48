"""One image file -> a frame of FFmpeg, and samples -> the bytes of an image file."""

from __future__ import annotations

import io
import warnings
from collections.abc import Hashable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pahs.video.color import from_rgb, to_rgb
from pahs.video.frames import PixelLayout, Planes
from pahs.video.image_tags import compression_of_tiff, is_cut
from pahs.video.pixels import frame_of, has_alpha, layout_of, planes_of

if TYPE_CHECKING:
    from av import VideoFrame

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp"}
# Encoder and its layouts, best first, by file ending.
_ENCODERS: dict[str, tuple[str, tuple[str, ...]]] = {
    ".png": ("png", ("gray", "gray16be", "rgb24", "rgb48be")),
    ".tif": ("tiff", ("gray", "gray16le", "rgb24", "rgb48le")),
    ".tiff": ("tiff", ("gray", "gray16le", "rgb24", "rgb48le")),
    ".bmp": ("bmp", ("gray", "bgr24")),
    ".webp": ("libwebp", ("bgra",)),
    ".jpg": ("mjpeg", ("yuv420p", "yuv422p", "yuv444p")),
    ".jpeg": ("mjpeg", ("yuv420p", "yuv422p", "yuv444p")),
}
_BT601 = (0.299, 0.114)
_JPEG_IN_TIFF = {6, 7}
"""Codes of compression that FFmpeg decodes to black."""


def kind_of(file: Path) -> Hashable:
    """Images of one kind have the same layout and size; only the header is read."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(file) as image:
            detail = None
            if image.format == "TIFF":
                detail = image.tag_v2.get(258)  # type: ignore[attr-defined]
            elif image.format == "PNG":
                detail = image.tile[0][3]
            elif image.format == "JPEG":
                detail = str(image.layer)  # type: ignore[attr-defined]
            return image.format, image.mode, image.size, str(detail)
    except Exception:  # damaged headers make Pillow raise errors of many types
        return None


def is_animated(file: Path) -> bool:
    """Whether a PNG or WebP file holds several pictures."""
    try:
        with file.open("rb") as opened:
            head = opened.read(1 << 16)
    except OSError:
        return False
    return b"acTL" in head[: head.find(b"IDAT")] if head.startswith(b"\x89PNG") else head[30:34] == b"ANIM"


def read_image(file: Path) -> tuple[VideoFrame, str] | None:
    """The picture and the name of its codec; None for a file that is damaged or incomplete."""
    import av

    # Decoded from memory: FFmpeg would take some names for patterns or URLs.
    try:
        data = file.read_bytes()
        if is_cut(data):
            return None
        if data[:4] in (b"II*\0", b"MM\0*") and compression_of_tiff(data) in _JPEG_IN_TIFF:
            return _by_pillow(data), "tiff"
        with av.open(io.BytesIO(data), "r") as container:
            stream = container.streams.video[0]
            frame = next(iter(container.decode(stream)), None)
            return None if frame is None else (frame, stream.codec_context.name)
    except (av.FFmpegError, OSError, ValueError, IndexError):
        return None


def _by_pillow(data: bytes) -> VideoFrame:
    import av
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data)) as image:
            # Pillow would turn the samples; the result keeps the tag instead.
            image.getexif().pop(0x0112, None)
            picture = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except Exception as error:
        raise ValueError(str(error)) from None
    return av.VideoFrame.from_ndarray(picture, format="gray" if picture.ndim == 2 else "rgb24")


def is_transparent(frame: VideoFrame) -> bool:
    """Whether any of it is; opaque WebP pictures come with transparency too."""
    return has_alpha(frame.format) and bool(frame.reformat(format="rgba").to_ndarray()[..., 3].min() < 255)


def samples_of(frame: VideoFrame, codec: str, pixels: PixelLayout) -> Planes:
    """The samples in a layout that may be another than the image's own."""
    own = layout_of(frame, codec)
    return converted(planes_of(frame, own), own, pixels)


def converted(planes: Planes, own: PixelLayout, wanted: PixelLayout) -> Planes:
    """Exact to half a step; FFmpeg's own conversion takes the nearest chroma sample and rounds down."""
    same_matrix = own.family in ("gray", "rgb") or own.luma_weights == wanted.luma_weights
    if (own.name, own.full_range) == (wanted.name, wanted.full_range) and same_matrix:
        return planes
    return from_rgb(to_rgb(planes, own), wanted)


def encode_image(planes: Planes, pixels: PixelLayout, suffix: str) -> bytes:
    """The contents of a file, in the encoder's layout that is nearest to `pixels`."""
    import av

    encoder, layouts = _ENCODERS[suffix]
    layout = _image_layout(pixels, layouts)
    stored = _planar(layout)
    picture = frame_of(converted(planes, pixels, stored), stored)
    if layout != stored.name:
        picture = picture.reformat(format=layout)  # only packed differently
    context = av.CodecContext.create(encoder, "w")
    assert isinstance(context, av.VideoCodecContext)
    context.height, context.width = planes[0].shape
    context.pix_fmt = layout
    context.time_base = Fraction(1, 25)
    if encoder == "mjpeg":
        context.color_range = 2
        context.qmin = context.qmax = 1
    if encoder == "libwebp":
        context.options = {"lossless": "1"}
    picture.color_range = 2
    picture.pts = 0
    return b"".join(bytes(p) for p in [*context.encode(picture), *context.encode(None)])


def _planar(layout: str) -> PixelLayout:
    """An encoder's layout as arrays hold it. Pictures use all codes, and JPEG's matrix is that of BT.601."""
    depth = 16 if "16" in layout or "48" in layout else 8
    if layout.startswith("gray"):
        return PixelLayout("gray", depth, True, _BT601)
    if layout.startswith("yuv4"):
        return PixelLayout(f"yuv{layout[3:6]}", depth, True, _BT601, "center")  # type: ignore[arg-type]
    return PixelLayout("rgb", depth, True, _BT601)


def _image_layout(pixels: PixelLayout, layouts: tuple[str, ...]) -> str:
    """The encoder's layout that holds these samples, with the same or the nearest depth."""
    if pixels.name in layouts:
        return pixels.name
    gray = [name for name in layouts if name.startswith("gray")]
    color = [name for name in layouts if name not in gray]
    fitting = gray if gray and pixels.family == "gray" else color
    deep = [name for name in fitting if "16" in name or "48" in name]
    fitting = (deep if pixels.depth > 8 else []) or [name for name in fitting if name not in deep]
    own = next((name for name in fitting if name.startswith(pixels.family)), None)
    return own or fitting[0 if pixels.family == "gray" else -1]
