"""Side data of frames: rotation, brightness of the mastering display, captions and more."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from av import VideoFrame
    from av.sidedata.sidedata import SideData

# Per-frame data that PyAV cannot hand to an encoder, in words for the user.
_NOT_KEPT = {
    "A53_CC": "closed captions inside the pictures are",
    "DOVI_METADATA": "the Dolby Vision layer is",
    "DYNAMIC_HDR_PLUS": "HDR10+ data is",
    "SPHERICAL": "the mark of a 360-degree video is",
    "STEREO3D": "the mark of a stereoscopic video is",
}


def _entries(frame: VideoFrame) -> dict[str, bytes]:
    try:
        return {data.type.name: bytes(data) for data in cast("Iterable[SideData]", frame.side_data)}
    except ValueError:
        return {}  # PyAV gives none at all where it has no name for one, such as the EXIF of Motion JPEG


def display_matrix(frame: VideoFrame) -> tuple[int, ...] | None:
    """FFmpeg's nine numbers that turn the stored picture into the shown one."""
    data = _entries(frame).get("DISPLAYMATRIX")
    if data:
        return struct.unpack("=9i", data)
    if not frame.rotation:
        return None
    angle = math.radians(frame.rotation)
    cos, sin = round(math.cos(angle) * 65536), round(math.sin(angle) * 65536)
    return (cos, -sin, 0, sin, cos, 0, 0, 0, 1 << 30)


def hdr10(frame: VideoFrame) -> str | None:
    """Mastering display and light level in x265's notation."""
    entries = _entries(frame)
    parts = []
    master = entries.get("MASTERING_DISPLAY_METADATA")
    if master:
        numbers = struct.unpack("=22i", master[:88])
        if all(numbers[1:20:2]) and all(numbers[20:22]):
            values = [Fraction(a, b) for a, b in zip(numbers[0:20:2], numbers[1:20:2], strict=True)]
            red, green, blue, white = (
                f"({round(x * 50000)},{round(y * 50000)})"
                for x, y in zip(values[0:8:2], values[1:8:2], strict=True)
            )
            low, high = (round(v * 10000) for v in values[8:])
            parts.append(f"master-display=G{green}B{blue}R{red}WP{white}L({high},{low})")
    light = entries.get("CONTENT_LIGHT_LEVEL")
    if light:
        parts.append("max-cll={},{}".format(*struct.unpack("=2I", light[:8])))
    return ":".join(parts) or None


def not_kept(frame: VideoFrame) -> list[str]:
    """One phrase for each kind of data on this frame that the result will not have."""
    entries = _entries(frame)
    return [f"{phrase} not kept" for name, phrase in _NOT_KEPT.items() if name in entries]
