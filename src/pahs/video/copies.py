"""The other streams of the source: which of them a container can hold, and their packets on the way there."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pahs.choices import Sound
from pahs.errors import PahsError
from pahs.video.frames import Frame
from pahs.video.reader import VideoReader
from pahs.video.sound import SoundEncoder, can_decode
from pahs.video.timeline import is_cover

if TYPE_CHECKING:
    from av import AudioStream, Packet
    from av.container import OutputContainer
    from av.stream import Stream

# What the muxer writes about its own file; copied from the source it would be wrong.
STALE_TAGS = {"major_brand", "minor_version", "compatible_brands", "encoder", "duration", "rotate"}
_MOST_HELD = 32
"""Packets that may wait for the first decoding time; codecs reorder fewer."""
_SAMPLES = 4
"""Packets of each stream that a container is tried with: the first one may be damaged."""
_COVERS_AS_STREAMS = {"mp4", "ipod"}
_IMAGES = {
    "png": "image/png",
    "mjpeg": "image/jpeg",
    "bmp": "image/bmp",
    "gif": "image/gif",
    "webp": "image/webp",
}


class Copy:
    """Packets as they are, with the decoding times that a muxer insists on."""

    def __init__(self, target: Stream) -> None:
        self.target = target
        self._held: list[Packet[Stream]] = []
        self._last: int | None = None

    def put(self, packet: Packet[Stream]) -> list[Packet[Stream]]:
        # Pictures that are shown out of order have no decoding time before the first that is shown in time.
        unknown = packet.dts is None and packet.stream.type == "video" and self._last is None
        self._held.append(packet)
        if unknown and packet.pts is not None and len(self._held) < _MOST_HELD:
            return []
        return self.finish()

    def finish(self) -> list[Packet[Stream]]:
        ready, self._held = self._held, []
        if len(ready) > 1:
            shown = [p.pts for p in ready if p.pts is not None]
            first = min(shown) if ready[-1].dts is None else ready[-1].dts
            for back, packet in enumerate(reversed(ready[:-1]), 1):
                packet.dts = first - back * max(1, packet.duration or 0)
        for packet in ready:
            # Cover pictures come without a time, some streams with only one of the two.
            times = [t for t in (packet.dts, packet.pts) if t is not None] or [self._last or 0]
            packet.dts, packet.pts = times[0], times[-1]
            self._last = packet.dts
            packet.stream = self.target
        return ready


class PlainSubtitles(Copy):
    """MP4's subtitles as SubRip's: their text, without its styles."""

    def put(self, packet: Packet[Stream]) -> list[Packet[Stream]]:
        import av

        data = bytes(packet)
        (length,) = struct.unpack(">H", data[:2]) if len(data) > 2 else (0,)
        if not length:
            return []  # MP4 fills the time between two lines with empty ones
        line: Packet[Stream] = av.Packet(data[2 : 2 + length])
        line.pts, line.dts, line.time_base = packet.pts, packet.dts, packet.time_base
        line.duration, line.stream = packet.duration, packet.stream
        return super().put(line)


Kept = Copy | SoundEncoder
"""A stream of the source in the output."""


class Copies:
    """All other streams of a source in one output."""

    def __init__(self, path: Path, container: OutputContainer, source: VideoReader, sound: Sound) -> None:
        self.warnings: list[str] = []
        self.kept: dict[int, Kept] = {}
        self.indices: set[int] = set()
        """Streams of the source that are in the output."""
        self.changed: set[int] = set()
        """Those of them that are stored in another way."""
        self._path, self._container, self._source, self._sound = path, container, source, sound

    def add(self, stream: Stream) -> None:
        """Keep a stream in the output, or refuse, or say that it is not kept."""
        if is_cover(stream) and self._container.format.name not in _COVERS_AS_STREAMS:
            self._add_cover(stream)
            return
        # QuickTime's tracks of time codes and chapters come back by themselves, from the tags and chapters.
        if stream.type == "data" and ("timecode" in stream.metadata or _is_chapters(stream)):
            self.indices.add(stream.index)
            return
        kept = self._kept(stream)
        if kept is None:
            self._say(f"stream {stream.index} ({stream.type}, {codec_of(stream)}) is not kept")
            return
        copy_tags(stream, kept.target)
        self.kept[stream.index] = kept
        self.indices.add(stream.index)
        if type(kept) is not Copy:
            self.changed.add(stream.index)

    def _kept(self, stream: Stream) -> Kept | None:
        container = self._container.format.name
        samples = samples_of(self._source, stream)
        if can_hold(container, stream, samples):
            return Copy(self._container.add_stream_from_template(stream, opaque=True))
        if stream.type not in ("audio", "subtitle"):
            return None
        elsewhere = can_hold("matroska", stream, samples)
        anew = self._sound == "encode" or (self._sound == "auto" and not elsewhere)
        if stream.type == "audio" and anew and can_decode(cast("AudioStream", stream)):
            encoder = SoundEncoder(self._container, cast("AudioStream", stream))
            self._say(f"sound {codec_of(stream)} is stored as {encoder.codec}, which this container can hold")
            return encoder
        if elsewhere:
            raise PahsError(
                f"{self._path}: this container cannot hold the {stream.type} stream ({codec_of(stream)}) of the "
                f"source; use {self._path.with_suffix('.mkv').name} as output"
            )
        if stream.type == "subtitle" and codec_of(stream) == "mov_text" and container == "matroska":
            self._say("subtitles mov_text are stored as subrip, without styles")
            return PlainSubtitles(self._container.add_mux_stream("subrip", time_base=stream.time_base))
        if self._sound == "copy" and stream.type == "audio":
            raise PahsError(
                f"{self._path}: no container can take over the sound ({codec_of(stream)}) of the source as it is; "
                "leave out --sound copy to have it encoded again"
            )
        return None

    def _add_cover(self, stream: Stream) -> None:
        pictures = samples_of(self._source, stream)
        kind = _IMAGES.get(codec_of(stream))
        if not pictures or kind is None or self._container.format.name != "matroska":
            self._say(f"the cover picture ({codec_of(stream)}) is not kept")
            return
        name = stream.metadata.get("filename", f"cover.{kind.partition('/')[2].replace('jpeg', 'jpg')}")
        self.indices.add(stream.index)
        self._container.add_attachment(name, kind, bytes(pictures[0]))

    def _say(self, what: str) -> None:
        self.warnings.append(f"{self._path.name}: {what}")


def can_hold(container: str, stream: Stream, samples: Iterable[Packet[Stream]] = ()) -> bool:
    """Ask the muxer itself, by writing a file of nothing but this stream to memory and opening it again."""
    import av

    file, written = io.BytesIO(), 0
    samples = list(samples)
    try:
        with av.open(file, "w", format=container) as trial:
            copy = Copy(trial.add_stream_from_template(stream, opaque=True))
            trial.start_encoding()
            for sample in samples:
                for packet in copy.put(clone(sample)):
                    with suppress(av.FFmpegError, ValueError):
                        trial.mux(packet)
                        written += 1
        if not written:
            return not samples
        if stream.type not in ("audio", "subtitle"):
            return True
        file.seek(0)
        with av.open(file) as back:
            return [s.type for s in back.streams] == [stream.type]
    except (av.FFmpegError, ValueError):
        return False


def clone(packet: Packet[Stream]) -> Packet[Stream]:
    """A packet that can be written without changing the one that it was made from."""
    import av

    copy: Packet[Stream] = av.Packet(bytes(packet))
    copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
    copy.duration, copy.is_keyframe = packet.duration, packet.is_keyframe
    copy.stream = packet.stream
    for data in packet.iter_sidedata():
        copy.set_sidedata(data)
    return copy


def samples_of(source: VideoReader, stream: Stream) -> list[Packet[Stream]]:
    """A stream's first packets, as far as they lie at the start of the file."""
    packets = [p for p in source.ahead() if not isinstance(p, Frame) and p.stream.index == stream.index]
    return packets[:_SAMPLES]


def _is_chapters(stream: Stream) -> bool:
    """FFmpeg reads QuickTime's track of chapters as chapters, and as a stream that it does not deliver."""
    from av.stream import Discard

    return stream.discard == Discard.all


def copy_tags(stream: Stream, target: Stream) -> None:
    for key, value in stream.metadata.items():
        if key.lower().split("-")[0] not in STALE_TAGS and not key.upper().startswith("_STATISTICS"):
            target.metadata[key] = value
    target.disposition = stream.disposition


def codec_of(stream: Stream) -> str:
    context = stream.codec_context
    return context.name if context else str(getattr(stream, "name", None) or "unknown")


def fits_into(container: str, path: Path) -> bool:
    """Whether a container can hold the sound and subtitles of a video file; no if the file cannot be read."""
    try:
        with VideoReader(path) as reader:
            others = [s for s in reader.container.streams if s.type in ("audio", "subtitle")]
            return all(can_hold(container, s, samples_of(reader, s)) for s in others)
    except PahsError:
        return False
