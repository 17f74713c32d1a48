"""A video file that is being written: its streams, tags and packets, and the errors of disk and muxer."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pahs.choices import EncodeOptions
from pahs.errors import PahsError
from pahs.video.copies import STALE_TAGS, Copies, Kept, copy_tags
from pahs.video.encoder import choose_encoder
from pahs.video.frames import UNSPECIFIED, Frame, VideoInfo
from pahs.video.opening import create_video
from pahs.video.pixels import frame_of
from pahs.video.reader import VideoReader
from pahs.video.timeline import flagged

if TYPE_CHECKING:
    from av import Packet, VideoFrame, VideoStream
    from av.container import OutputContainer
    from av.stream import Stream

_MP4_FAMILY = {"mp4", "mov", "ipod", "3gp", "3g2"}
_ROTATES = _MP4_FAMILY | {"matroska", "webm"}
_UNTIMED = {"avi", "yuv4mpegpipe"}
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LONGEST_LEAD = 3600
"""Seconds by which a frame may be decoded before it is shown; encoders need a few frames."""


class OutputFile:
    """A container that is open with all its streams, an encoder for the pictures among them."""

    def __init__(
        self,
        file: Path,
        path: Path,
        info: VideoInfo,
        options: EncodeOptions,
        source: VideoReader | None,
    ) -> None:
        """`file` is what is written, `path` the name that the user knows it by."""
        self.path, self.info = path, info
        self.warnings: list[str] = []
        self._file = file
        self.kept: frozenset[int] = frozenset()
        """Which streams of the source are kept besides the pictures, by their number there."""
        self.changed: frozenset[int] = frozenset()
        """Those of them that are stored in another way."""
        self._copies: dict[int, Kept] = {}
        self._last_dts: dict[int, int] = {}
        self._refused: dict[int, int] = {}
        self.container = self._open()
        try:
            with user_errors(self.path):
                self.video = self._add_streams(source, options)
                self._add_tags(source)
                self._start()
        except BaseException:
            self.abandon()
            raise

    def picture(self, frame: Frame) -> VideoFrame:
        """Copy a frame into the form that the encoder takes."""
        info = self.info
        picture = frame_of(frame.planes, info.pixels)
        if self.layout != info.pixels.name:
            # The matrix of YUV stays, so FFmpeg is not told it: it refuses those that it cannot convert, such as ICtCp.
            picture.colorspace = UNSPECIFIED if info.pixels.family.startswith("yuv") else _matrix(info)
            picture = picture.reformat(
                format=self.layout, src_color_range=_range(info), dst_color_range=_range(info)
            )
        picture.colorspace, picture.color_range = _matrix(info), _range(info)
        picture.color_primaries, picture.color_trc = info.primaries, info.transfer
        picture.pts, picture.time_base = frame.pts, frame.time_base
        if frame.duration:
            picture.duration = frame.duration
        return picture

    def encode(self, picture: VideoFrame | None) -> None:
        """Encode a picture; None ends the stream of pictures."""
        with user_errors(self.path):
            for packet in self.video.encode(picture):
                # In videos of one or two frames x265 leaves decoding times unset: they hold whatever was in memory.
                if packet.pts is not None and packet.time_base is not None:
                    lead = None if packet.dts is None else (packet.pts - packet.dts) * packet.time_base
                    if lead is None or not 0 <= lead <= _LONGEST_LEAD:
                        packet.dts = packet.pts
                self._mux(packet)

    def encoded(self, packet: Packet[Stream]) -> None:
        """Take a picture that the same encoder has encoded elsewhere."""
        packet.stream = self.video
        with user_errors(self.path):
            self._mux(packet)

    def copy(self, packet: Packet[Stream]) -> None:
        """Take over a packet of another stream of the source, if that stream is kept."""
        if packet.stream.index in self._copies:
            for ready in self._copies[packet.stream.index].put(packet):
                self._take(ready)

    def finish(self) -> None:
        """Write what is still on its way, and the end of the file."""
        self.encode(None)
        for kept in self._copies.values():
            for ready in kept.finish():
                self._take(ready)
        with user_errors(self.path):
            self.container.close()
        for index, count in self._refused.items():
            self.warnings.append(f"{self.path.name}: {count} damaged packets of stream {index} were left out")

    def abandon(self) -> None:
        """Let go of a file that nobody wants; it should be removed before, because finishing it takes time."""
        import av

        with suppress(av.FFmpegError, OSError, ValueError):
            self.container.close()

    def _take(self, packet: Packet[Stream]) -> None:
        import av

        with user_errors(self.path):
            try:
                self._mux(packet)
            except av.FFmpegError as error:
                # A damaged packet in the middle of a file is no reason to lose hours of work; a full disk is another.
                if error.errno != errno.EINVAL and error.errno in errno.errorcode:
                    raise
                self._refused[packet.stream_index] = self._refused.get(packet.stream_index, 0) + 1

    def _mux(self, packet: Packet[Stream]) -> None:
        """Write a packet, at the next moment that the muxer accepts where its own is not later than the last."""
        from av.rational import AVRational

        index = packet.stream_index
        target = self.container.streams[index]
        if target.time_base:
            packet.rescale_ts(AVRational(target.time_base.numerator, target.time_base.denominator))
        last = self._last_dts.get(index)
        if packet.dts is not None and packet.pts is not None:
            # Only of sound and pictures do muxers refuse two packets at one moment.
            step = self._strict and target.type in ("audio", "video")
            if last is not None and packet.dts < last + step:
                packet.dts = last + step
            packet.pts = max(packet.dts, packet.pts)
            self._last_dts[index] = packet.dts
        self.container.mux(packet)

    def _open(self) -> OutputContainer:
        import av

        try:
            container = create_video(self._file)
        except (ValueError, av.FFmpegError):
            raise PahsError(
                f"{self.path}: no container is known for the ending {self.path.suffix!r}; use .mp4, .mov or .mkv"
            ) from None
        format, name = container.format, container.format.name
        if flagged(format, "no_file"):
            raise PahsError(f"{self.path}: {name} is not a single video file; use .mp4, .mov or .mkv")
        if flagged(format, "no_timestamps") or name in _UNTIMED:
            label = "AVI" if name == "avi" else name
            raise PahsError(
                f"{self.path}: {label} cannot store when a frame is shown; use .mp4, .mov or .mkv"
            )
        self._strict = not flagged(format, "ts_nonstrict")
        return container

    def _add_streams(self, source: VideoReader | None, options: EncodeOptions) -> VideoStream:
        """The source's streams in their order, the video one replaced by an encoder."""
        if source is None:
            return self._add_video(options)
        copies = Copies(self.path, self.container, source, options.sound)
        for stream in source.container.streams:
            if stream.index == source.stream.index:
                video = self._add_video(options)
                copy_tags(stream, video)
            else:
                copies.add(stream)
        self.warnings += copies.warnings
        self._copies = copies.kept
        self.kept, self.changed = frozenset(copies.indices), frozenset(copies.changed)
        return video

    def _add_video(self, options: EncodeOptions) -> VideoStream:
        from av.codec.context import Flags

        info, container = self.info, self.container.format.name
        encoder = choose_encoder(info, container, options)
        self.warnings += encoder.notes
        self.encoder, self.layout = encoder.name, encoder.layout  # FFmpeg's names of both
        stream = cast(
            "VideoStream", self.container.add_stream(encoder.name, rate=info.rate, options=encoder.settings)
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

    def _add_tags(self, source: VideoReader | None) -> None:
        if source is None:
            return
        kept = {k: v for k, v in source.container.metadata.items() if k.lower() not in STALE_TAGS}
        self.container.metadata.update(kept)
        self.container.set_chapters(source.chapters())

    def _start(self) -> None:
        container = self.container
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
def user_errors(path: Path) -> Iterator[None]:
    """What the disk or the muxer refuses, in words for the user."""
    import av

    try:
        yield
    except (av.FFmpegError, OSError) as error:
        if error.errno in _DISK_FULL:
            raise PahsError(f"{path}: the disk is full; free some space or choose another output") from None
        if isinstance(error, OSError):
            raise PahsError(f"{path}: cannot be written ({error.strerror}); choose another output") from None
        if isinstance(error, MemoryError):
            raise PahsError(f"{path}: not enough memory to encode this video; allow more") from None
        if isinstance(error, av.ExternalError):
            raise PahsError(
                f"{path}: the encoder gives up; it lacks memory, or the hardware that it needs: "
                "allow more memory, or choose another --codec"
            ) from None
        raise PahsError(
            f"{path}: FFmpeg cannot write this video here ({error.strerror}); try an .mkv output"
        ) from None


def _matrix(info: VideoInfo) -> int:
    return 0 if info.pixels.family == "rgb" else info.matrix


def _range(info: VideoInfo) -> int:
    """As the source says; gray that says nothing uses all codes, which a coded gray video must spell out."""
    return 2 if info.pixels.family == "gray" and info.pixels.full_range else info.color_range


def _timescale(container: OutputContainer) -> int:
    units = [(s.time_base or Fraction(1, 1000)).denominator for s in container.streams]
    common = lcm(1000, *units)
    return common if common <= 10_000_000 else max(units)
