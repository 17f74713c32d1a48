"""Orientation, colour profile, resolution and descriptions of an image file, carried into the file that replaces it."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress

_PNG, _JPEG, _TIFF = b"\x89PNG\r\n\x1a\n", b"\xff\xd8", (b"II*\0", b"MM\0*")
# What is about the picture and not about how its samples are stored.
_PNG_KEPT = {
    b"iCCP", b"sRGB", b"gAMA", b"cHRM", b"cICP", b"mDCV", b"cLLI", b"pHYs", b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME",
}  # fmt: skip
_WEBP_FLAGS = {b"ICCP": 0x20, b"EXIF": 0x08, b"XMP ": 0x04}
_ORIENTATION, _PROFILE = 274, 34675
_TIFF_KEPT = {270, 271, 272, _ORIENTATION, 282, 283, 296, 306, 315, 700, 33432, 33723, _PROFILE}
_TIFF_UNITS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 1, 7: 1, 8: 2, 9: 4, 10: 4, 11: 4, 12: 8}
"""Bytes of what is stored in either byte order, by field type; the two kinds of fractions have two of them."""
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


def carry_tags(source: bytes, result: bytes) -> bytes:
    """`result`, with the tags of `source`; unchanged if the two are of different formats or `source` is damaged."""
    with suppress(struct.error, ValueError, IndexError, KeyError, zlib.error):
        if source.startswith(_PNG) and result.startswith(_PNG):
            return _carry_png(source, result)
        if source.startswith(_JPEG) and result.startswith(_JPEG):
            return _carry_jpeg(source, result)
        if source[8:12] == result[8:12] == b"WEBP":
            return _carry_webp(source, result)
        if source.startswith(_TIFF) and result.startswith(_TIFF[0]):
            return _carry_tiff(source, result)
        if source.startswith(b"BM") and result.startswith(b"BM"):
            return result[:38] + source[38:46] + result[46:]  # samples per metre
    return result


def is_cut(data: bytes) -> bool:
    """Whether a JPEG ends before its end marker, which FFmpeg's decoder fills with grey without a word."""
    if not data.startswith(_JPEG):
        return False
    at = 2
    while found := _MARKER.search(data, at):
        marker, at = found.group()[1], found.end()
        if marker == 0xD9:
            return False
        at += int.from_bytes(data[at : at + 2], "big")
    return True


def _fits(profile: bytes, color: bool) -> bool:
    """Whether a profile, of which the start is enough, is one for the samples of the result."""
    return profile[16:20] == (b"RGB " if color else b"GRAY")


def _carry_png(source: bytes, result: bytes) -> bytes:
    color = bool(result[25] & 2)
    kept = b""
    for kind, chunk in _png_chunks(source):
        if kind == b"iCCP":
            packed = chunk[8:].split(b"\0", 1)[1][1:]
            if not _fits(zlib.decompressobj().decompress(packed, 20), color):
                continue
        if kind in _PNG_KEPT:
            kept += chunk
    header, *others = _png_chunks(result)
    return _PNG + header[1] + kept + b"".join(chunk for kind, chunk in others if kind not in _PNG_KEPT)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_PNG)
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 8], data[at:end]
        at = end


def _carry_jpeg(source: bytes, result: bytes) -> bytes:
    kept, fitting = b"", True
    for marker, segment in _jpeg_segments(source):
        name = segment[4:]
        profile = name.startswith(b"ICC_PROFILE\0")
        if profile and name[12] == 1:  # the first of its parts
            fitting = _fits(name[14:], color=True)
        descriptive = marker in (0xE1, 0xED, 0xFE) or (marker == 0xE0 and name.startswith(b"JFIF\0"))
        if descriptive or (profile and fitting):
            kept += segment
    own = b"".join(s for marker, s in _jpeg_segments(result) if marker not in (0xE0, 0xE1, 0xED, 0xFE))
    rest = result[2 + sum(len(s) for _, s in _jpeg_segments(result)) :]
    return _JPEG + kept + own + rest


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """All before the compressed samples."""
    at = 2
    while data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        yield data[at + 1], data[at:end]
        at = end


def _carry_webp(source: bytes, result: bytes) -> bytes:
    kept = {kind: chunk for kind, chunk in _webp_chunks(source) if kind in _WEBP_FLAGS}
    if b"ICCP" in kept and not _fits(kept[b"ICCP"][8:], color=True):
        del kept[b"ICCP"]
    picture = dict(_webp_chunks(result))[b"VP8L"]
    bits = int.from_bytes(picture[9:13], "little")  # 14 bits of width, 14 of height, one for alpha
    flags = sum(_WEBP_FLAGS[kind] for kind in kept) | (0x10 if bits >> 28 & 1 else 0)
    width, height = bits & 0x3FFF, bits >> 14 & 0x3FFF
    extended = b"VP8X" + struct.pack("<II", 10, flags) + width.to_bytes(3, "little")
    profile, after = kept.pop(b"ICCP", b""), b"".join(kept.values())
    body = b"WEBP" + extended + height.to_bytes(3, "little") + profile + picture + after
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        end = at + 8 + size + size % 2
        yield data[at : at + 4], data[at:end].ljust(8 + size + size % 2, b"\0")
        at = end


def _carry_tiff(source: bytes, result: bytes) -> bytes:
    order = "<" if source.startswith(b"II") else ">"
    entries = dict(_tiff_entries(result, "<"))
    color = _samples(entries) > 1
    end = bytearray(result + b"\0" * (len(result) % 2))
    for tag, entry in _tiff_entries(source, order):
        if tag not in _TIFF_KEPT:
            continue
        kind, count = struct.unpack_from(order + "HI", entry, 2)
        unit = _TIFF_UNITS[kind]
        size = count * unit * (2 if kind in (5, 10) else 1)
        at = 0 if size <= 4 else struct.unpack_from(order + "I", entry, 8)[0]
        value = entry[8 : 8 + size] if size <= 4 else source[at : at + size]
        if order == ">":
            value = b"".join(value[i : i + unit][::-1] for i in range(0, size, unit))
        if len(value) < size or (tag == _PROFILE and not _fits(value, color)):
            continue
        if size > 4:
            place = struct.pack("<I", len(end))
            end += value + b"\0" * (size % 2)
        else:
            place = value.ljust(4, b"\0")
        entries[tag] = struct.pack("<HHI", tag, kind, count) + place
    start = len(end)
    end += struct.pack("<H", len(entries)) + b"".join(entries[tag] for tag in sorted(entries)) + bytes(4)
    end[4:8] = struct.pack("<I", start)
    return bytes(end)


def compression_of_tiff(data: bytes) -> int:
    """The code of the first picture's compression, 0 where it cannot be read."""
    with suppress(struct.error):
        order = "<" if data.startswith(b"II") else ">"
        for tag, entry in _tiff_entries(data, order):
            if tag == 259:
                return int(struct.unpack_from(order + "H", entry, 8)[0])
    return 0


def _samples(entries: dict[int, bytes]) -> int:
    """Samples per pixel."""
    return int.from_bytes(entries[277][8:10], "little") if 277 in entries else 1


def _tiff_entries(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """The fields of the first picture: tag, and its 12 bytes."""
    (at,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, at)
    for i in range(count):
        entry = data[at + 2 + 12 * i : at + 14 + 12 * i]
        yield struct.unpack_from(order + "H", entry)[0], entry
