"""Video file -> frames, with everything else in the file passed along untouched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pahs.errors import PahsError
from pahs.video.deinterlace import Deinterlacer
from pahs.video.frames import Frame, FrameSource, VideoInfo
from pahs.video.opening import open_video
from pahs.video.pixels import has_alpha, layout_of, planes_of, repacked
from pahs.video.sidedata import display_matrix, hdr10, not_kept
from pahs.video.timeline import Timeline, corrected, is_cover

if TYPE_CHECKING:
    from av import Packet, VideoFrame, VideoStream
    from av.container import InputContainer
    from av.stream import Stream

_INTERLACED = {2, 3, 4, 5}
_AHEAD_FEWEST, _AHEAD_MOST, _AHEAD_BYTES = 3, 24, 1 << 28
"""How far `ahead` reads: so many frames, or more until sound has come, in so many bytes."""
_FASTEST = 1000
"""From so many frames per second on, a file's rate is taken for the tick of its clock."""
_SPARE_FRAMES = 2
"""Frames of three 16-bit samples a pixel that fit where a decoder has memory to continue."""
_MOST_STRAYS = 3
"""So many frames in a row of another size are taken for damage, and left out; more for another video."""


class VideoReader(FrameSource):
    """Frames of the first proper video stream of a file, in presentation order.

    A damaged file yields every frame that decodes; `lost` says how many did not.
    """

    def __init__(self, path: Path | str, deinterlace: bool = False) -> None:
        self.path = Path(path)
        self._deinterlace = deinterlace
        self.warnings: list[str] = []
        self._failed = 0
        self._yielded = 0
        self._end = Fraction(0)
        self.container = open_video(self.path)
        try:
            self.stream = _video_stream(self.container, self.path)
            self._expected = _expected_frames(self.container, self.stream)
            self._expected_end = _expected_end(self.container, self.stream)
            self._timeline = Timeline(self.container, self.stream)
            # Only a frame knows its colours and rotation for sure; what comes up to the first one is kept for `items`.
            rest = self._decode()
            ahead, first = up_to_frame(rest)
            if first is None:
                raise PahsError(f"{self.path}: no frame can be decoded; the file is damaged or incomplete")
            self.info = self._describe(first)
        except BaseException:
            self.container.close()
            raise
        self._decoded: Iterator[VideoFrame | Packet[Stream]] = chain(ahead, rest)
        self._converted = self._convert_all()
        self._ahead: list[Frame | Packet[Stream]] = []

    def close(self) -> None:
        self.container.close()

    def chapters(self) -> list[Any]:
        """The file's chapters, as PyAV gives and takes them."""
        return list(self.container.chapters())

    @property
    def lost(self) -> int:  # type: ignore[override]
        missing = 0
        if self._expected_end is not None and self._yielded:
            missing = round((self._expected_end - self._end) * self.info.rate)
        # One frame more or less is how differently files round their duration.
        return max(self._failed, self._expected - self._yielded, missing if missing > 1 else 0)

    def items(self) -> Iterator[Frame | Packet[Stream]]:
        ahead, self._ahead = self._ahead, []
        return chain(ahead, self._converted)

    def pictures(self) -> Iterator[VideoFrame]:
        """The frames that `items` would yield, as FFmpeg decodes them; for who asks for nothing else."""
        import av

        size = self.info.width, self.info.height
        for item in self._decoded:
            if isinstance(item, av.VideoFrame) and (item.width, item.height) == size:
                yield item

    def ahead(self) -> list[Frame | Packet[Stream]]:
        """The first frames, and the packets up to there; `items` yields them all the same.

        It reads until sound has come too, as far as little memory allows.
        """
        silent = {s.index for s in self.container.streams.audio}
        frames = held = 0
        rest = iter(self._converted if not self._ahead else ())
        while held < _AHEAD_BYTES and (frames < _AHEAD_FEWEST or (silent and frames < _AHEAD_MOST)):
            item = next(rest, None)
            if item is None:
                break
            self._ahead.append(item)
            if isinstance(item, Frame):
                frames += 1
                held += sum(plane.nbytes for plane in item.planes)
            else:
                silent.discard(item.stream.index)
        return self._ahead

    def _convert_all(self) -> Iterator[Frame | Packet[Stream]]:
        import av

        last: int | None = None
        strays = 0
        for item in self._decoded:
            if not isinstance(item, av.VideoFrame):
                yield item
                continue
            if (item.width, item.height) != (self.info.width, self.info.height):
                strays += 1
                self._failed += 1
                if strays > _MOST_STRAYS:
                    raise PahsError(
                        f"{self.path}: the frame size changes from {self.info.width}x{self.info.height} to "
                        f"{item.width}x{item.height} at frame {self._yielded}; "
                        "cut the file there and run each part alone"
                    )
                continue
            strays = 0
            frame = self._convert(item, last)
            last = frame.pts
            self._yielded += 1
            shown = frame.duration * frame.time_base if frame.duration else 1 / self.info.rate
            self._end = frame.pts * frame.time_base + shown
            yield frame

    def _describe(self, frame: VideoFrame) -> VideoInfo:
        if has_alpha(frame.format):
            self.warnings.append(f"{self.path.name}: transparency (alpha) is dropped")
        self.warnings += [f"{self.path.name}: {loss}" for loss in not_kept(frame)]
        if self._timeline.start:
            self._note(f"times below zero were moved up by {float(self._timeline.start):.3f} s")
        info = _info(self.path, self.container, self.stream, frame)
        note = repacked(frame.format, info.pixels)
        if note:
            self._note(note)
        if self._deinterlace:
            return replace(info, field_order=1)
        if info.field_order in _INTERLACED or frame.interlaced_frame:
            self._note(
                "interlaced; both fields are treated as one picture, --deinterlace makes whole ones of them"
            )
        return info

    def _decode(self) -> Iterator[VideoFrame | Packet[Stream]]:
        return corrected(self._decode_packets(), self.stream.time_base or Fraction(1, 25), self._note_mended)

    def _decode_packets(self) -> Iterator[VideoFrame | Packet[Stream]]:
        import av

        whole = Deinterlacer(self.stream.time_base or Fraction(1, 25)) if self._deinterlace else None
        for packet in self._packets():
            if self._timeline.mended:
                self._note_mended()
            if self._timeline.joined:
                self._note("time stamps start afresh in the middle; the parts were put one after the other")
            if packet.stream.index != self.stream.index:
                if packet.size:
                    yield packet
                continue
            try:
                for frame in self._pictures(cast("Packet[VideoStream]", packet)):
                    yield from [frame] if whole is None else whole.put(frame)
            except av.FFmpegError as error:
                self._check_memory(error)
                self._failed += 1
        if whole is not None:
            yield from whole.finish()

    def _packets(self) -> Iterator[Packet[Stream]]:
        """The packets of all streams, at their times in the whole recording."""
        import av

        packets = self.container.demux(tuple(self.container.streams))
        while True:
            try:
                packet = next(packets)
            except (StopIteration, IndexError, av.FFmpegError) as end:
                self._check_memory(end)
                self._failed += isinstance(end, av.FFmpegError)
                if isinstance(end, IndexError):  # at the very end, PyAV stumbles over streams that came late
                    self._note("a stream that begins in the middle is not kept")
                yield from self._timeline.finish()
                return
            yield from self._timeline.put(packet)

    def _pictures(self, packet: Packet[VideoStream]) -> list[VideoFrame]:
        """What a packet of pictures gives; who reads the other streams alone leaves most of them undecoded."""
        return self.stream.decode(packet)

    def _check_memory(self, error: Exception) -> None:
        """Refuse to continue where memory has run out: frames would be lost one by one, as if they were damaged.

        A damaged file may ask for any amount of memory, so FFmpeg's word alone is not enough.
        """
        if not isinstance(error, MemoryError):
            return
        try:
            bytearray(_SPARE_FRAMES * 6 * self.stream.width * self.stream.height)
        except MemoryError:
            raise PahsError(
                f"{self.path}: not enough memory to decode it; allow more, or close other programs"
            ) from None

    def _convert(self, frame: VideoFrame, last: int | None) -> Frame:
        info = self.info
        step = max(1, round(1 / (info.rate * info.time_base)))
        pts = frame.pts
        if pts is None:
            pts = 0 if last is None else last + step
        elif last is not None and pts <= last:
            self._note("presentation times that do not increase were moved to the next free one")
            pts = last + 1
        return Frame(planes_of(frame, info.pixels), pts, info.time_base, frame.duration or None)

    def _note_mended(self) -> None:
        self._note("damaged time stamps were replaced by those between their neighbours")

    def _note(self, what: str) -> None:
        note = f"{self.path.name}: {what}"
        if note not in self.warnings:
            self.warnings.append(note)


def probe(path: Path | str) -> VideoInfo:
    """Facts about a video file, from its header and first frame."""
    with VideoReader(path) as reader:
        return reader.info


def up_to_frame(items: Iterator[Any]) -> tuple[list[Any], Any]:
    """The items up to the first frame, and this frame, or None."""
    import av

    taken = []
    for item in items:
        taken.append(item)
        if isinstance(item, av.VideoFrame):
            return taken, item
    return taken, None


def _video_stream(container: InputContainer, path: Path) -> VideoStream:
    import av

    best = container.streams.best("video")
    if not isinstance(best, av.VideoStream) or is_cover(best):
        raise PahsError(f"{path}: holds no video stream; give a file with moving pictures")
    best.thread_type = "AUTO"
    return best


def _info(path: Path, container: InputContainer, stream: VideoStream, frame: VideoFrame) -> VideoInfo:
    codec = stream.codec_context.name
    matrix = display_matrix(frame)
    rate = _rate(stream, frame)
    time_base = stream.time_base or 1 / rate
    info = VideoInfo(
        path=path,
        container=container.format.name,
        codec=codec,
        width=frame.width,
        height=frame.height,
        pixels=layout_of(frame, codec),
        source_format=frame.format.name,
        time_base=time_base,
        rate=rate,
        matrix=frame.colorspace,
        color_range=2 if frame.format.name.startswith("yuvj") else frame.color_range,
        primaries=frame.color_primaries,
        transfer=frame.color_trc,
        display_matrix=matrix,
        rotation=frame.rotation if matrix else 0,
        hdr10=hdr10(frame),
        sample_aspect_ratio=stream.sample_aspect_ratio or None,
        field_order=stream.codec_context.field_order,
        audio_streams=len(container.streams.audio),
    )
    return replace(info, frame_count=_frame_count(container, stream, info))


def _rate(stream: VideoStream, frame: VideoFrame) -> Fraction:
    shown = (frame.duration or 0) * (stream.time_base or Fraction(0))
    known = [stream.average_rate, stream.guessed_rate, 1 / shown if shown else None]
    return next((Fraction(rate) for rate in known if rate and rate < _FASTEST), Fraction(25))


def _expected_frames(container: InputContainer, stream: VideoStream) -> int:
    """Frames that a whole file would yield, 0 where the container does not list them."""
    if "mp4" not in container.format.name:
        return 0
    # The index after edit lists: samples outside of them are stored but never shown.
    return sum(not entry.is_discard for entry in stream.index_entries)


def _expected_end(container: InputContainer, stream: VideoStream) -> Fraction | None:
    """When the last frame of a whole file ends, in seconds, where a header at the start of the file says so."""
    if container.format.name == "avi" and stream.frames and stream.time_base:
        return stream.frames * stream.time_base  # AVI counts in frames, skipped ones included
    if "matroska" in container.format.name:
        tag = stream.metadata.get("DURATION", "")
        if re.fullmatch(r"\d+:\d+:\d+\.\d+", tag):
            hours, minutes, seconds = tag.split(":")
            return int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds)
        if container.duration:
            # The duration of the longest stream; sound often goes on a little longer than pictures.
            return Fraction(container.duration, 1_000_000) - 1
    return None


def _frame_count(container: InputContainer, stream: VideoStream, info: VideoInfo) -> int | None:
    if stream.frames:
        return stream.frames
    if stream.duration:
        return max(1, round(stream.duration * info.time_base * info.rate))
    if container.duration:
        return max(1, round(Fraction(container.duration, 1_000_000) * info.rate))
    return None
