"""A part of a video: its frames, and what belongs to them of the sound, the subtitles and the chapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from pahs.errors import PahsError
from pahs.video.color import to_rgb
from pahs.video.images import ImageFolderReader
from pahs.video.reader import VideoReader, up_to_frame
from pahs.video.timeline import is_cover

if TYPE_CHECKING:
    from av import Packet
    from av.stream import Stream

    from pahs.video.frames import FrameSource

_TOLERANCE = Fraction(1, 2000)
"""Seconds: a time that is typed with three decimals means the frame that it is nearest to."""
_INTERLEAVE = 10
"""Seconds that sound may lie behind its pictures in a file."""
_RUN_UP = (0, 2, 10)
"""Seconds before the part where decoding starts; files without an index are not entered exactly where one asks."""
_SAMPLES = 12
"""Frames that are looked at to find the blurriest seconds."""

Measure = Callable[[Tensor], float | None]
"""Sharpness of an RGB frame, or None where it cannot be told."""


@dataclass(frozen=True)
class Part:
    """From `start` to `end`, in seconds after the first frame; the frame at `end` is not in it."""

    start: Fraction = Fraction(0)
    end: Fraction | None = None
    """None: to the end of the video."""


def part_of(start: float | None, end: float | None) -> Part | None:
    """The part that a user names in seconds, None for all."""
    if not start and end is None:
        return None
    return Part(_exact(start or 0), None if end is None else _exact(end))


def _exact(seconds: float) -> Fraction:
    return Fraction(seconds).limit_denominator(1_000_000)


class PartReader(VideoReader):
    """The part of a video file as if it were all: its first frame is shown at 0, other streams are cut to it.

    Packets of sound are kept or left out whole. A subtitle that is shown when the part begins or ends is shortened.
    """

    def __init__(self, path: Path | str, part: Part, deinterlace: bool = False) -> None:
        super().__init__(path, deinterlace)
        try:
            items, first = up_to_frame(self._decoded)
            origin = self._time(first)
            self._start, self._stop = origin + part.start, None if part.end is None else origin + part.end
            covers = [item for item in items if _is_cover(item)]
            raw: Iterator[Any] = chain(items, self._decoded)
            if part.start:
                raw = self._seek(self._start) or self._reopened()
            self._decoded = self._cut(raw, covers, part)
        except BaseException:
            self.close()
            raise

    def chapters(self) -> list[Any]:
        """The chapters of the part, with times that count from its first frame."""
        found = []
        for chapter in super().chapters():
            unit: Fraction = chapter["time_base"]
            low, high = chapter["start"] * unit - self._shift, chapter["end"] * unit - self._shift
            if self._stop is not None:
                high = min(high, self._stop - self._shift)
            if high > max(low, 0):
                start, end = (round(x / unit) for x in (max(low, Fraction(0)), high))
                found.append({**chapter, "start": start, "end": end})
        return found

    def _time(self, frame: Any) -> Fraction:
        return Fraction((frame.pts or 0) * self.info.time_base)

    def _seek(self, time: Fraction) -> Iterator[Any] | None:
        """Items from a little before `time` on, or nothing where the file cannot be entered in the middle."""
        import av

        # A subtitle that is shown when the part begins lies before it in the file. MPEG's decoder guesses the times of
        # the first frames after a jump.
        least = 2 if self.container.streams.subtitles else "mpeg" in self.container.format.name
        for seconds in _RUN_UP[least:]:
            with suppress(av.FFmpegError, OSError):
                asked = time - seconds - self._timeline.start
                self.container.seek(round(asked / self.info.time_base), stream=self.stream)
                self._timeline.forget()
                rest = self._decode()
                items, frame = up_to_frame(rest)
                if frame is not None and self._time(frame) <= time + _TOLERANCE:
                    return chain(items, rest)
        return None

    def _reopened(self) -> Iterator[Any]:
        """All items from the start of the file."""
        self.close()
        VideoReader.__init__(self, self.path, self._deinterlace)
        return self._decoded

    def _cut(self, raw: Iterator[Any], covers: list[Any], part: Part) -> Iterator[Any]:
        import av

        self._failed = self._expected = 0
        self._expected_end = None
        early: list[Packet[Stream]] = []
        for item in raw:
            if not isinstance(item, av.VideoFrame):
                early.append(item)
            elif self._time(item) >= self._start - _TOLERANCE:
                break
        else:
            item = None
        self._shift = Fraction(0) if item is None else self._time(item)
        if item is None or (self._stop is not None and self._shift >= self._stop - _TOLERANCE):
            raise PahsError(
                f"{self.path}: holds no frame from {float(part.start):g} s "
                f"to {'its end' if part.end is None else f'{float(part.end):g} s'}; choose another --start or --end"
            )
        self._describe_part(part)
        covers = [x for x in early if _is_cover(x)] or covers
        return chain(covers, self._moved(chain(early, [item], raw)))

    def _describe_part(self, part: Part) -> None:
        count, rate = self.info.frame_count, self.info.rate
        if count is not None:
            count = max(1, count - round(part.start * rate))
        if part.end is not None:
            count = min(count or 1 << 62, max(1, round((part.end - part.start) * rate)))
        self.info = replace(self.info, frame_count=count)

    def _moved(self, items: Iterator[Any]) -> Iterator[Any]:
        """The items of the part, at their new times."""
        import av

        sound = {s.index for s in self.container.streams.audio}
        begun: set[int] = set()
        unit, time = self.info.time_base, Fraction(0)
        for item in items:
            if isinstance(item, av.VideoFrame):
                time = self._time(item) if item.pts is not None else time + 1 / self.info.rate
                if self._stop is None or time < self._stop - _TOLERANCE:
                    item.pts = round((time - self._shift) / unit)
                    yield item
                elif not sound or time > self._stop + _INTERLEAVE:
                    return
            elif _is_cover(item):
                continue
            elif self._stop is not None and (_start(item) or 0) >= self._stop:
                sound.discard(item.stream.index)
            elif self._keep(item, begun):
                yield item

    def _keep(self, packet: Packet[Stream], begun: set[int]) -> bool:
        """Whether a packet belongs to the part; it then gets its new time."""
        start, unit = _start(packet), packet.time_base
        if start is None or unit is None:
            return True
        end = start + (packet.duration or 0) * unit
        if packet.stream.type == "subtitle":
            if max(end, start + unit) <= self._shift:
                return False
            start, end = max(start, self._shift), end if self._stop is None else min(end, self._stop)
            packet.pts = packet.dts = round((start - self._shift) / unit)
            if packet.duration:
                packet.duration = max(1, round((end - start) / unit))
            return True
        if start < self._shift - _TOLERANCE:
            return False
        if packet.stream.type == "video" and packet.stream.index not in begun:
            if not packet.is_keyframe:
                return False
            begun.add(packet.stream.index)
        delta = round(self._shift / unit)
        packet.pts = None if packet.pts is None else packet.pts - delta
        packet.dts = None if packet.dts is None else packet.dts - delta
        return True

    def frame_near(self, time: Fraction) -> tuple[Fraction, Tensor] | None:
        """A frame that can be decoded quickly, not far from so many seconds after the first, and its time."""
        items = self._seek(self._shift + time)
        frame = None if items is None else up_to_frame(items)[1]
        if frame is None:
            return None
        picture = self._convert(frame, None)
        return self._time(frame) - self._shift, to_rgb(picture.planes, self.info.pixels)


def _start(packet: Packet[Stream]) -> Fraction | None:
    time = packet.pts if packet.pts is not None else packet.dts
    return None if time is None or packet.time_base is None else Fraction(time * packet.time_base)


def _is_cover(item: Any) -> bool:
    import av

    return isinstance(item, av.Packet) and is_cover(item.stream)


def _exact_rate(rate: float) -> Fraction:
    """23.976 and its like mean 24000/1001."""
    film = Fraction(round(rate * 1.001) * 1000, 1001)
    return film if abs(film - Fraction(rate)) < Fraction(1, 1000) else Fraction(rate).limit_denominator(1000)


def open_source(
    path: Path, part: Part | None = None, rate: float | None = None, deinterlace: bool = False
) -> FrameSource:
    """A video file or a folder of images, or a part of it. `rate` is the images' frames per second, 25 by default."""
    if not path.is_dir():
        if rate is not None:
            raise PahsError(f"{path}: --fps is for folders of images; a video keeps the times of its frames")
        return VideoReader(path, deinterlace) if part is None else PartReader(path, part, deinterlace)
    images = ImageFolderReader(path) if rate is None else ImageFolderReader(path, _exact_rate(rate))
    if part is not None:
        images.keep(part.start, part.end)
    return images


def blurriest(
    path: Path, seconds: float, within: Part | None, measure: Measure, rate: float | None = None
) -> Part:
    """So many seconds of a video where the blur is worst, by a few of its frames; the middle where none tells.

    Frames that decode quickly are measured, spread over the video or over the part `within` it.
    """
    length, part = _exact(seconds), within or Part()
    near: Callable[[Fraction], tuple[Fraction, Tensor] | None] = partial(_image_near, path, rate)
    with PartReader(path, Part()) if not path.is_dir() else open_source(path, rate=rate) as reader:
        total = Fraction(reader.info.frame_count or 0) / reader.info.rate
        end = min(part.end or total, total)
        if end <= part.start + length:
            return Part(part.start, part.end)
        step = (end - part.start) / _SAMPLES
        if isinstance(reader, PartReader):
            near = reader.frame_near
        found = [near(part.start + step * (i + Fraction(1, 2))) for i in range(_SAMPLES)]
    measured = [(measure(image), time) for time, image in filter(None, found) if part.start <= time < end]
    told = [(value, time) for value, time in measured if value is not None]
    middle = min(told)[1] if told else (part.start + end) / 2
    start = min(max(part.start, middle - length / 2), end - length)
    return Part(start, start + length)


def _image_near(folder: Path, rate: float | None, time: Fraction) -> tuple[Fraction, Tensor]:
    images = open_source(folder, Part(time), rate)
    return time, to_rgb(next(iter(images)).planes, images.info.pixels)
