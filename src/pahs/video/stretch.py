"""A stretch of a video that is restored alone: its frames, those that its restoration needs before and after, and the
file of packets that they are encoded into."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pahs.choices import EncodeOptions
from pahs.errors import PahsError, Stopped
from pahs.files import Partial, remove
from pahs.progress import Advance, Stop
from pahs.video.batches import FrameFunction
from pahs.video.frames import Frame, FrameSink
from pahs.video.output import OutputFile, user_errors
from pahs.video.packets import PacketFile
from pahs.video.pipeline import pump
from pahs.video.reader import VideoReader

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.stream import Stream

_RUN_UP = 2
"""Seconds before the stretch where decoding starts. Decoders need a moment after a jump, and guess times at first."""


@dataclass(frozen=True)
class Stretch:
    """Frames by their numbers in the whole video: `begin` to `end` are written, `first` to `last` are read."""

    first: int
    begin: int
    end: int
    last: int
    pts: int
    """The time of frame `first`, in units of the video's time base: the frame is found by it."""
    last_pts: int
    """The time of the last frame that is read."""


class Misplaced(Exception):  # noqa: N818 - a reason to read again, from the start
    """A jump into the file led elsewhere."""


class StretchReader(VideoReader):
    """The frames of a stretch, at the times that they have in the whole video, without the other streams."""

    def __init__(self, path: Path, stretch: Stretch, deinterlace: bool, jump: bool) -> None:
        super().__init__(path, deinterlace)
        self._stretch, self._jump = stretch, jump
        self._expected, self._expected_end = 0, None
        if jump and stretch.first:
            time = stretch.pts * self.info.time_base - _RUN_UP - self._timeline.start
            self.container.seek(round(time / self.info.time_base), stream=self.stream)
            self._timeline.forget()
            self._decoded = self._decode()
            self._converted = self._convert_all()

    def items(self) -> Iterator[Frame]:
        """The frames; raises `Misplaced` if they are not those of the stretch."""
        stretch, items = self._stretch, super().items()
        frames: Iterator[Frame] = (item for item in items if isinstance(item, Frame))
        if self._jump and stretch.first:
            first = next((frame for frame in frames if frame.pts >= stretch.pts), None)
            frames = iter(()) if first is None else chain((first,), frames)
        else:
            frames = islice(frames, stretch.first, None)
        count, last = 0, None
        for frame in islice(frames, stretch.last - stretch.first):
            if not count and frame.pts != stretch.pts:
                raise Misplaced
            count, last = count + 1, frame.pts
            yield frame
        if count != stretch.last - stretch.first or last != stretch.last_pts:
            raise Misplaced


class _Encoder(OutputFile):
    """An output of which only the encoder is used, set up as for the whole video; its packets go elsewhere."""

    def __init__(self, packets: PacketFile, *arguments: Any) -> None:
        self._packets = packets
        super().__init__(*arguments)

    def _mux(self, packet: Packet[Stream]) -> None:
        self._packets.put(packet)


class StretchWriter(FrameSink):
    """Encodes the frames of a stretch that are written, and drops the others."""

    def __init__(
        self, path: Path, target: Path, reader: VideoReader, encode: EncodeOptions, stretch: Stretch
    ):
        """`path` is the file of packets, `target` the name of the whole result, whose ending decides the encoder."""
        self.path, self._stretch, self._number = path, stretch, stretch.first
        with user_errors(path):
            self._partial = Partial(path, shared=True)
        try:
            with user_errors(path):
                self._packets = PacketFile(self._partial.path)
            trial = self._partial.path.with_name(f"trial{target.suffix}")
            self._encoder = _Encoder(self._packets, trial, target, reader.info, encode, None)
        except BaseException:
            self._partial.discard()
            raise
        self.warnings = self._encoder.warnings

    def prepare(self, frame: Frame) -> VideoFrame | None:
        """Copy a frame into the form that the encoder takes; nothing for one that is not written."""
        number, self._number = self._number, self._number + 1
        return self._encoder.picture(frame) if self._stretch.begin <= number < self._stretch.end else None

    def put(self, item: VideoFrame | None) -> None:
        if item is not None:
            self._encoder.encode(item)

    def _finish(self) -> None:
        self._encoder.encode(None)
        video = self._encoder.video.codec_context
        with user_errors(self.path):
            self._packets.finish(
                self._encoder.encoder, video.extradata or b"", self._encoder.info.time_base, self.warnings
            )
        self._encoder.abandon()
        with user_errors(self.path):
            self._partial.finish()

    def _discard(self) -> None:
        remove(self._partial.path)
        self._encoder.abandon()
        self._packets.abandon()
        self._partial.discard()


def write_stretch(
    source: Path,
    path: Path,
    target: Path,
    fn: FrameFunction,
    stretch: Stretch,
    *,
    encode: EncodeOptions,
    device: torch.device,
    strength: float = 1.0,
    deinterlace: bool = False,
    advance: Advance | None = None,
    stop: Stop | None = None,
) -> int:
    """Restore a stretch of `source` into the file of packets `path`, which becomes a part of `target`.

    `fn` sees the frames from `first` to `last`, and gives one for each. Returns how many are written.
    """
    for jump in (True, False):
        with suppress(Misplaced), StretchReader(source, stretch, deinterlace, jump) as reader:
            with StretchWriter(path, target, reader, encode, stretch) as writer:
                pump(reader, writer, fn, device, advance or Advance(), stop, strength)
                if stop is not None and stop.is_set():
                    raise Stopped(f"{source}: stopped")
            return stretch.end - stretch.begin
    raise PahsError(
        f"{source}: frames {stretch.first} to {stretch.last} are not those of the plan; plan again"
    )
