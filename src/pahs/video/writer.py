"""Frames -> video file, with the other streams, times, rotation and tags of the source."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pahs.choices import EncodeOptions
from pahs.errors import PahsError
from pahs.files import Partial, remove
from pahs.video.encoder import choose_encoder
from pahs.video.frames import Frame, FrameSink, VideoInfo
from pahs.video.opening import create_video
from pahs.video.pixels import frame_of
from pahs.video.reader import VideoReader

if TYPE_CHECKING:
    from av import Packet, VideoFrame, VideoStream
    from av.container import OutputContainer
    from av.stream import Stream

_MP4_FAMILY = {"mp4", "mov", "ipod", "3gp", "3g2"}
_ROTATES = _MP4_FAMILY | {"matroska", "webm"}
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LONGEST_LEAD = 3600
"""Seconds by which a frame may be decoded before it is shown; encoders need a few frames."""
# What the muxer writes about its own file; copied from the source it would be wrong.
STALE_TAGS = {"major_brand", "minor_version", "compatible_brands", "encoder", "duration", "rotate"}


class VideoWriter(FrameSink):
    """Writes under a hidden name and renames at `close`, so that a half-written file never has the final name."""

    def __init__(
        self,
        path: Path | str,
        info: VideoInfo,
        options: EncodeOptions | None = None,
        source: VideoReader | None = None,
    ) -> None:
        self.path = Path(path)
        self.warnings: list[str] = []
        self._info = info
        self._copies: dict[int, Stream] = {}
        self._last_dts: dict[int, int] = {}
        self._finished = False
        with self._user_errors():
            self._partial = Partial(self.path)
        try:
            self._container = self._open()
        except BaseException:
            self._partial.discard()
            raise
        try:
            with self._user_errors():
                self._video = self._add_streams(source, options or EncodeOptions())
                self._add_tags(source)
                self._start()
        except BaseException:
            self.abort()
            raise

    @property
    def copied(self) -> frozenset[int]:
        """Which streams of the source are kept, by their number there."""
        return frozenset(self._copies)

    def prepare(self, frame: Frame) -> VideoFrame:
        """Copy a frame into the form that the encoder takes."""
        picture = frame_of(frame.planes, self._info.pixels)
        info = self._info
        picture.colorspace, picture.color_range = _matrix(info), _range(info)
        picture.color_primaries, picture.color_trc = info.primaries, info.transfer
        if self.layout != info.pixels.name:
            picture = picture.reformat(
                format=self.layout, src_color_range=_range(info), dst_color_range=_range(info)
            )
        picture.pts, picture.time_base = frame.pts, frame.time_base
        if frame.duration:
            picture.duration = frame.duration
        return picture

    def put(self, item: VideoFrame | Packet[Stream]) -> None:
        """Encode a prepared frame, or mux a packet of another stream of the source as it is."""
        import av

        if isinstance(item, av.VideoFrame):
            with self._user_errors():
                self._mux(self._video.encode(item))
        else:
            self._copy(item)

    def _mux(self, packets: list[Packet[VideoStream]]) -> None:
        for packet in packets:
            # In videos of one or two frames x265 leaves decoding times unset: they hold whatever was in memory.
            if packet.pts is not None and packet.time_base is not None:
                lead = None if packet.dts is None else (packet.pts - packet.dts) * packet.time_base
                if lead is None or not 0 <= lead <= _LONGEST_LEAD:
                    packet.dts = packet.pts
            self._container.mux(packet)

    def _copy(self, packet: Packet[Stream]) -> None:
        target = self._copies.get(packet.stream.index)
        if target is None:
            return
        # Cover pictures come without a time, some streams with only one of the two.
        times = [t for t in (packet.dts, packet.pts) if t is not None] or [0]
        packet.dts, packet.pts = times[0], times[-1]
        last = self._last_dts.get(target.index)
        strict = self._container.format.name in _MP4_FAMILY
        if last is not None and packet.dts < last + strict:
            # A damaged source: no muxer takes a step back in time, and MP4 not even two packets at once.
            packet.dts = last + strict
            packet.pts = max(packet.dts, packet.pts)
        self._last_dts[target.index] = packet.dts
        packet.stream = target
        with self._user_errors():
            self._container.mux(packet)

    def close(self) -> None:
        """Finish the file and give it its final name."""
        if self._finished:
            return
        try:
            with self._user_errors():
                self._mux(self._video.encode(None))
                self._container.close()
                self._partial.finish()
        except BaseException:
            self.abort()
            raise
        self._finished = True

    def abort(self) -> None:
        """Remove the unfinished file."""
        import av

        if self._finished:
            return
        self._finished = True
        # Removed first: closing would otherwise take the time to finish a file that nobody wants.
        remove(self._partial.path)
        with suppress(av.FFmpegError, OSError, ValueError):
            self._container.close()
        self._partial.discard()

    def _open(self) -> OutputContainer:
        import av

        try:
            container = create_video(self._partial.path)
        except (ValueError, av.FFmpegError):
            raise PahsError(
                f"{self.path}: no container is known for the ending {self.path.suffix!r}; use .mp4, .mov or .mkv"
            ) from None
        if container.format.name == "avi":
            raise PahsError(f"{self.path}: AVI cannot store when a frame is shown; use .mp4, .mov or .mkv")
        return container

    def _add_streams(self, source: VideoReader | None, options: EncodeOptions) -> VideoStream:
        """The source's streams in their order, the video one replaced by an encoder."""
        video = None
        if source is not None:
            chapters = bool(source.chapters())
            for stream in source.container.streams:
                if stream.index == source.stream.index:
                    video = self._add_video(options)
                    _copy_stream_tags(stream, video)
                else:
                    self._add_copy(stream, chapters)
        return video or self._add_video(options)

    def _add_video(self, options: EncodeOptions) -> VideoStream:
        from av.codec.context import Flags

        info, container = self._info, self._container.format.name
        encoder = choose_encoder(info, container, options)
        if encoder.note:
            self.warnings.append(encoder.note)
        self.encoder, self.layout = encoder.name, encoder.layout
        stream = cast(
            "VideoStream", self._container.add_stream(encoder.name, rate=info.rate, options=encoder.settings)
        )
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = info.width, info.height, encoder.layout
        # The source's own unit of time: every frame is shown exactly when it was.
        context.time_base = info.time_base
        stream.time_base = info.time_base
        context.flags |= Flags.frame_duration
        # PyAV's own choice gives each thread a slice of the picture: larger files, and slow where cores are many.
        context.thread_type = "AUTO"
        context.colorspace, context.color_range = _matrix(info), _range(info)
        context.color_primaries, context.color_trc = info.primaries, info.transfer
        if info.sample_aspect_ratio:
            context.sample_aspect_ratio = info.sample_aspect_ratio
        if encoder.name == "libx265" and container in _MP4_FAMILY:
            context.codec_tag = "hvc1"  # the only HEVC tag that Apple's players open
        if info.display_matrix:
            if container in _ROTATES:
                stream.set_display_matrix(info.display_matrix)
            elif info.rotation:
                self.warnings.append(
                    f"{self.path.name}: this container cannot store the rotation of {info.rotation} degrees, the "
                    "video will be shown unrotated; use an .mp4, .mov or .mkv output"
                )
        return stream

    def _add_copy(self, stream: Stream, chapters: bool) -> None:
        container = self._container.format.name
        codec = (
            stream.codec_context.name if stream.codec_context else getattr(stream, "name", None) or "unknown"
        )
        if not _can_hold(container, stream):
            if stream.type in ("audio", "subtitle") and _can_hold("matroska", stream):
                raise PahsError(
                    f"{self.path}: this container cannot hold the {stream.type} stream ({codec}) of the source; "
                    f"use {self.path.with_suffix('.mkv').name} as output"
                )
            # QuickTime's tracks of chapters and time codes come back by themselves, from the chapters and tags.
            if stream.type == "data" and ("timecode" in stream.metadata or chapters):
                return
            self.warnings.append(
                f"{self.path.name}: stream {stream.index} ({stream.type}, {codec}) is not kept"
            )
            return
        target = self._container.add_stream_from_template(stream, opaque=True)
        _copy_stream_tags(stream, target)
        self._copies[stream.index] = target

    def _add_tags(self, source: VideoReader | None) -> None:
        if source is None:
            return
        kept = {k: v for k, v in source.container.metadata.items() if k.lower() not in STALE_TAGS}
        self._container.metadata.update(kept)
        self._container.set_chapters(source.chapters())

    def _start(self) -> None:
        container = self._container
        if container.format.name in _MP4_FAMILY:
            flags = "+faststart"
            if any("." in key for key in container.metadata):
                flags += "+use_metadata_tags"  # phones' own keys, which plain MP4 tags have no names for
            container.container_options["movflags"] = flags
            # Edit lists count in this unit: with the default of 1 ms a stream's start would be rounded.
            container.container_options["movie_timescale"] = str(_timescale(container))
        if container.format.name == "matroska":
            container.container_options["avoid_negative_ts"] = "disabled"
        container.start_encoding()

    @contextmanager
    def _user_errors(self) -> Iterator[None]:
        """What the disk or the muxer refuses, in words for the user."""
        import av

        try:
            yield
        except (av.FFmpegError, OSError) as error:
            if error.errno in _DISK_FULL:
                raise PahsError(
                    f"{self.path}: the disk is full; free some space or choose another output"
                ) from None
            if isinstance(error, OSError):
                raise PahsError(
                    f"{self.path}: cannot be written ({error.strerror}); choose another output"
                ) from None
            raise PahsError(
                f"{self.path}: FFmpeg cannot write this video here ({error.strerror}); try an .mkv output"
            ) from None


def _can_hold(container: str, stream: Stream) -> bool:
    """Ask the muxer itself, by writing a header with nothing but this stream to memory."""
    import av

    try:
        with av.open(io.BytesIO(), "w", format=container) as trial:
            trial.add_stream_from_template(stream, opaque=True)
            trial.start_encoding()
    except (av.FFmpegError, ValueError):
        return False
    return True


def _copy_stream_tags(stream: Stream, target: Stream) -> None:
    for key, value in stream.metadata.items():
        if key.lower().split("-")[0] not in STALE_TAGS and not key.upper().startswith("_STATISTICS"):
            target.metadata[key] = value
    target.disposition = stream.disposition


def _matrix(info: VideoInfo) -> int:
    return 0 if info.pixels.family == "rgb" else info.matrix


def _range(info: VideoInfo) -> int:
    """As the source says; gray that says nothing uses all codes, which a coded gray video must spell out."""
    return 2 if info.pixels.family == "gray" and info.pixels.full_range else info.color_range


def _timescale(container: OutputContainer) -> int:
    units = [(s.time_base or Fraction(1, 1000)).denominator for s in container.streams]
    common = lcm(1000, *units)
    return common if common <= 10_000_000 else max(units)


def fits_into(container: str, path: Path) -> bool:
    """Whether a container can hold the sound and subtitles of a video file; no if the file cannot be read."""
    try:
        with VideoReader(path) as reader:
            others = [s for s in reader.container.streams if s.type in ("audio", "subtitle")]
            return all(_can_hold(container, s) for s in others)
    except PahsError:
        return False
