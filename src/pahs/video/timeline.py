"""One clock for a whole recording: joined parts follow each other, and nothing lies below zero."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from av import Packet, VideoStream
    from av.container import InputContainer
    from av.format import ContainerFormat
    from av.stream import Stream

_BACK = Fraction(1, 2)
"""Seconds by which a damaged packet may step back; more means that another recording was joined here."""
_FORWARD = 10
"""Seconds without any packet after which a transport stream counts as joined, as FFmpeg's own tools assume."""


def flagged(format: ContainerFormat, flag: str) -> bool:
    """Whether FFmpeg says so about a container, in PyAV's words."""
    from av.format import Flags

    return bool(format.flags & cast("int", Flags[flag].value))


class Timeline:
    """Moves the times of packets so that each stream's go on where they start afresh.

    Every part of a joined recording has one shift, so sound stays with its pictures. A stream enters a part when its
    own times demand it: the last sound of one part may lie behind the first picture of the next in the file.
    """

    def __init__(self, container: InputContainer, video: VideoStream) -> None:
        self.start = _below_zero(container, video)
        """Seconds by which everything is moved up, because the pictures would start below zero."""
        self._shifts = [self.start]
        self._part: dict[int, int] = {}
        self._next: dict[int, Fraction] = {}
        self._broadcast = flagged(container.format, "ts_discont")

    @property
    def joined(self) -> int:
        """How often times started afresh so far."""
        return len(self._shifts) - 1

    def forget(self) -> None:
        """Start anew: the file was entered somewhere else."""
        self._shifts, self._part, self._next = [self.start], {}, {}

    def apply(self, packet: Packet[Stream]) -> None:
        """Change the packet's times in place."""
        time = packet.pts if packet.dts is None else packet.dts
        unit = packet.time_base
        if time is None or unit is None:
            return
        index, part = packet.stream.index, self.joined
        if packet.stream.type in ("audio", "video"):
            part = self._part[index] = self._part_of(index, time * unit)
            self._next[index] = time * unit + self._shifts[part] + (packet.duration or 0) * unit
        shift = round(self._shifts[part] / unit)
        if shift:
            packet.pts = None if packet.pts is None else packet.pts + shift
            packet.dts = None if packet.dts is None else packet.dts + shift

    def _part_of(self, index: int, time: Fraction) -> int:
        part = self._part.get(index, self.joined)
        expected = self._next.get(index)
        if expected is None:
            return part
        newest = max(self._next.values())
        candidates: list[int] = [part, *range(self.joined, -1, -1)]
        for candidate in candidates:
            shifted = time + self._shifts[candidate]
            if shifted >= expected - _BACK and (not self._broadcast or shifted <= newest + _FORWARD):
                return candidate
        self._shifts.append(expected - time)
        return self.joined


def _below_zero(container: InputContainer, video: VideoStream) -> Fraction:
    if "mp4" in container.format.name or (video.start_time or 0) >= 0:
        # MP4's edit lists say what is shown; a little sound below zero is an encoder's run-in.
        return Fraction(0)
    streams = [s for s in container.streams if s.type in ("audio", "video")]
    return -min((s.start_time or 0) * (s.time_base or Fraction(0)) for s in streams)
