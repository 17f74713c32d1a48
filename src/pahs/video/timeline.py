"""One clock for a whole recording: joined parts follow each other, and nothing lies below zero."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from av import Packet, VideoFrame, VideoStream
    from av.container import InputContainer
    from av.format import ContainerFormat
    from av.stream import Stream

_BACK = Fraction(1, 2)
"""Seconds by which a damaged packet may step back; more means that another recording was joined here."""
_FORWARD = 10
"""Seconds without any packet after which a transport stream counts as joined, as FFmpeg's own tools assume."""
_DOUBT = Fraction(1, 4)
"""Seconds without a packet or frame after which the next one of its stream tells whether the time is right."""
_HELD, _HELD_BYTES = 256, 1 << 26
"""Most packets, and their bytes, that wait for this next one."""


def flagged(format: ContainerFormat, flag: str) -> bool:
    """Whether FFmpeg says so about a container, in PyAV's words."""
    from av.format import Flags

    return bool(format.flags & cast("int", Flags[flag].value))


class Timeline:
    """Moves the times of packets so that each stream's go on where they start afresh.

    Every part of a joined recording has one shift, so sound stays with its pictures. A stream enters a part when its
    own times demand it: the last sound of one part may lie behind the first picture of the next in the file.

    A single packet whose time is far from those before and after it is damaged. It gets the time in between, and begins
    no part.
    """

    def __init__(self, container: InputContainer, video: VideoStream) -> None:
        self.start = _below_zero(container, video)
        """Seconds by which everything is moved up, because the pictures would start below zero."""
        self._shifts = [self.start]
        self._part: dict[int, int] = {}
        self._next: dict[int, Fraction] = {}
        self._held: deque[Packet[Stream]] = deque()
        self._broadcast = flagged(container.format, "ts_discont")
        self.mended = 0
        """How many packets had damaged times so far."""

    @property
    def joined(self) -> int:
        """How often times started afresh so far."""
        return len(self._shifts) - 1

    def forget(self) -> None:
        """Start anew: the file was entered somewhere else."""
        self._shifts, self._part, self._next = [self.start], {}, {}
        self._held.clear()

    def put(self, packet: Packet[Stream]) -> Iterator[Packet[Stream]]:
        """Take the next packet of the file; yields those whose times are certain now, with their new times."""
        self._held.append(packet)
        return self._certain(whole=False)

    def finish(self) -> Iterator[Packet[Stream]]:
        """The packets that still waited for others when the file ended."""
        return self._certain(whole=True)

    def _certain(self, whole: bool) -> Iterator[Packet[Stream]]:
        while self._held:
            packet, tells = self._held[0], True
            if self._doubtful(packet):
                others = islice(self._held, 1, None)
                following = next(
                    (p for p in others if p.stream.index == packet.stream.index and p.dts is not None), None
                )
                if following is None and not (whole or self._full()):
                    return
                tells = packet.dts is not None or following is None
                if following is not None or whole:
                    self._mend(packet, following)
            self._apply(self._held.popleft(), tells)
            yield packet

    def _full(self) -> bool:
        return len(self._held) > _HELD or sum(p.size for p in self._held) > _HELD_BYTES

    def _doubtful(self, packet: Packet[Stream]) -> bool:
        """Whether only the stream's next packet can tell that this one's time is right."""
        index, unit = packet.stream.index, packet.time_base
        if packet.stream.type not in ("audio", "video") or packet.pts is None or unit is None:
            return False
        expected = self._next.get(index)
        if expected is None:
            return not is_cover(packet.stream)
        shifts = self._shifts[self._part[index] :]
        return packet.dts is not None and not any(
            -_BACK <= packet.dts * unit + shift - expected <= _DOUBT for shift in shifts
        )

    def _mend(self, packet: Packet[Stream], following: Packet[Stream] | None) -> None:
        """Correct the packet's time if the next one goes on where the one before it ended."""
        index, unit = packet.stream.index, packet.time_base
        expected, found, length = self._next.get(index), packet.dts, packet.duration or 0
        then = None if following is None else following.dts
        if found is None or (expected is None and then is None):
            return
        due = 0 if then is None else then - length
        if expected is not None:
            due = round((expected - self._shifts[self._part[index]]) / unit)
        if then is None:  # the last packet
            damaged = found < due
        elif expected is None:  # the first one
            damaged = found - then > _BACK / unit
        else:
            early, late = due - _BACK / unit, due + length + _DOUBT / unit
            follows = early <= then < found if found > due else early <= then <= late
            damaged = follows and abs(then - due - length) < abs(then - found - length)
        if damaged:
            if packet.pts is not None:
                packet.pts = min(packet.pts, packet.pts + due - found, key=lambda pts: abs(pts - due))
            packet.dts = due
            self.mended += 1

    def _apply(self, packet: Packet[Stream], tells: bool) -> None:
        """Change the packet's times in place. It `tells` when the next one comes, unless only that one has a `dts`."""
        time = packet.pts if packet.dts is None else packet.dts
        unit = packet.time_base
        if time is None or unit is None:
            return
        index, part = packet.stream.index, self.joined
        if packet.stream.type in ("audio", "video") and tells:
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


def corrected(
    items: Iterable[VideoFrame | Packet[Stream]], unit: Fraction, found: Callable[[], None]
) -> Iterator[VideoFrame | Packet[Stream]]:
    """Frames, and packets between them, with damaged times corrected; `found` is called for each.

    Where frames are not stored in the order in which they are shown, packets do not tell that the time of one is wrong.
    """
    import av

    last: int | None = None
    held: list[VideoFrame | Packet[Stream]] = []
    for item in items:
        if not isinstance(item, av.VideoFrame):
            held.append(item)
            if len(held) == 1 or len(held) > _HELD:
                yield from held
                held = []
            continue
        if held:
            frame = cast("VideoFrame", held[0])
            if _is_damaged(last, frame, item, unit):
                length = max(1, frame.duration or 0)
                pts = cast("int", item.pts)
                frame.pts = pts - length if last is None else (last + pts) // 2
                found()
            last = frame.pts
            yield from held
            held = []
        if item.pts is None or (last is not None and 0 < (item.pts - last) * unit <= _DOUBT):
            last = last if item.pts is None else item.pts
            yield item
        else:
            held = [item]
    yield from held


def _is_damaged(last: int | None, frame: VideoFrame, following: VideoFrame, unit: Fraction) -> bool:
    """Whether the next frame goes on after the one before, and this one's time does not lie between them."""
    if frame.pts is None or following.pts is None:
        return False
    if last is None:
        return (frame.pts - following.pts) * unit > _DOUBT
    late = frame.pts >= following.pts and (frame.pts - last) * unit > _DOUBT
    return (frame.pts < last or late) and following.pts > last + 1


def is_cover(stream: Stream) -> bool:
    """Whether a stream is a picture that players show for the whole file."""
    from av.stream import Disposition

    return stream.type == "video" and bool(stream.disposition & Disposition.attached_pic)


def _below_zero(container: InputContainer, video: VideoStream) -> Fraction:
    if "mp4" in container.format.name or (video.start_time or 0) >= 0:
        # MP4's edit lists say what is shown; a little sound below zero is an encoder's run-in.
        return Fraction(0)
    streams = [s for s in container.streams if s.type in ("audio", "video")]
    return -min((s.start_time or 0) * (s.time_base or Fraction(0)) for s in streams)
