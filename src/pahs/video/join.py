"""Segments that were restored one by one -> the whole result: their packets as they are, and everything else of the
source by the code that writes a result in one go."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.choices import EncodeOptions
from pahs.errors import PahsError
from pahs.video.frames import Frame
from pahs.video.output import OutputFile
from pahs.video.packets import Index, read_index, read_packets
from pahs.video.reader import VideoReader
from pahs.video.sinks import try_first
from pahs.video.writer import VideoWriter

if TYPE_CHECKING:
    from av import Packet, VideoFrame, VideoStream
    from av.stream import Stream

_DECODED = 32
"""Frames that are decoded: the output is tried with a few, and sound is waited for so long."""
_START_CODE = re.compile(rb"\x00\x00\x00?\x01")


class _OtherStreams(VideoReader):
    """A video file of which only the first frames are decoded: sound, subtitles and the rest are copied."""

    _decoded_so_far = 0

    def _pictures(self, packet: Packet[VideoStream]) -> list[VideoFrame]:
        if self._decoded_so_far >= _DECODED:
            return []
        frames = super()._pictures(packet)
        self._decoded_so_far += len(frames)
        return frames


def join(
    source: Path, target: Path, segments: Sequence[Path], encode: EncodeOptions, deinterlace: bool = False
) -> tuple[str, ...]:
    """Write `target` from its segments, files of packets in order; returns what could not be kept."""
    indexes = [read_index(path) for path in segments]
    with _OtherStreams(source, deinterlace) as reader:
        losses = try_first(target, reader, encode)
        with VideoWriter(target, reader.info, encode, reader) as writer:
            for path, index in zip(segments, indexes, strict=True):
                _check(path, index, writer.output)
            _write(reader, writer.output, _in_time(segments, indexes))
    found = [*reader.warnings, *writer.warnings, *losses, *(w for index in indexes for w in index.warnings)]
    return tuple(dict.fromkeys(found))


def _write(reader: VideoReader, output: OutputFile, pictures: Iterator[Packet[Stream]]) -> None:
    """Mux pictures and the packets of other streams by their decoding times."""
    mine = ((output.encoded, packet) for packet in pictures)
    others = ((output.copy, item) for item in reader.items() if not isinstance(item, Frame))
    for take, packet in heapq.merge(mine, others, key=lambda pair: _time(pair[1])):
        take(packet)


def _time(packet: Packet[Stream]) -> Fraction:
    """When a packet is decoded, in seconds; cover pictures have no time, and come at the start."""
    time = packet.pts if packet.dts is None else packet.dts
    return Fraction(0) if time is None or packet.time_base is None else time * packet.time_base


def _in_time(segments: Sequence[Path], indexes: Sequence[Index]) -> Iterator[Packet[Stream]]:
    """All packets with the decoding times that one encoder would have given them.

    Encoders that reorder by D frames decode frame i when frame i - D is shown, and the first D as much earlier as the
    first frame is decoded before it is shown.
    """
    shown: list[int] = []
    delay = 0
    for path, index in zip(segments, indexes, strict=True):
        times = sorted(packet.pts for packet in index.packets)
        if not times or (shown and times[0] <= shown[-1]):
            raise PahsError(f"{path}: does not follow the segment before it; remove it and run it again")
        delay = max(delay, sum(p.dts is not None and p.dts < times[0] for p in index.packets))
        shown += times
    delay = min(delay, len(shown) - 1)
    lead, number = shown[delay] - shown[0], 0
    for path, index in zip(segments, indexes, strict=True):
        for packet in read_packets(path, index):
            packet.dts = shown[number - delay] if number >= delay else shown[number] - lead
            number += 1
            yield packet


def _check(path: Path, index: Index, output: OutputFile) -> None:
    """Refuse a segment that players could not decode with the others."""
    here = output.video.codec_context.extradata or b""
    same = _parameters(bytes.fromhex(index.header), index.encoder) == _parameters(here, index.encoder)
    if index.encoder != output.encoder or index.unit != output.info.time_base or not same:
        raise PahsError(
            f"{path}: was encoded by another encoder or version of it than is here; remove it and run it again"
        )


def _parameters(header: bytes, encoder: str) -> list[bytes]:
    """An encoder's header without the comment in which x264 and x265 name, among others, their number of threads."""
    if not encoder.startswith(("libx264", "libx265")):
        return [header]
    hevc = encoder == "libx265"
    units = [unit for unit in _START_CODE.split(header) if unit]
    return [unit for unit in units if ((unit[0] >> 1) & 63 not in (39, 40) if hevc else unit[0] & 31 != 6)]
