"""`pahs bench --fleet`: what many GPUs give, by a simulation that begins with what one of them was measured to give.

Units of work, each a video or a segment of one, wait in a queue. A driver hands them out one after the other; a worker,
one per GPU, restores a unit at the rate of its slowest stage, or slower while all workers together ask more of the
storage than it gives; the last worker of a video joins its segments. Events are simulated one by one, and rates
between two events are constant, so that no time step rounds anything.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pahs.benchmarks.files import FileRates

RESOURCES = (
    "decode",
    "restore",
    "encode",
    "network",
    "storage",
    "driver",
    "overhead",
    "start",
    "join",
    "split",
)
"""What can be the bottleneck. `split`: units are too few, or unequal, so that workers stand idle at the end."""


@dataclass(frozen=True)
class Video:
    """A video, by the frames that are computed for each of its segments; a short video has one."""

    segments: tuple[int, ...]
    frames: int


@dataclass(frozen=True)
class Fleet:
    """Workers, and what they share. Zero seconds, and rates without end, stand for what costs nothing."""

    workers: int
    stages: tuple[float, ...]
    """Frames per second of each stage of a worker; they run at the same time, so the slowest counts."""
    storage: float = float("inf")
    """Frames per second that the storage can read and write for all workers together."""
    start: float = 0.0
    """Seconds until a worker is ready: its process, the network, the recording of its step."""
    overhead: float = 0.0
    """Seconds of a worker for each unit in which no frame is restored."""
    driver: float = 0.0
    """Seconds of the driver for each unit; it hands out one at a time."""
    join: float = float("inf")
    """Frames per second at which the packets of segments are put together."""

    @property
    def rate(self) -> float:
        return min(self.stages)


@dataclass(frozen=True)
class Outcome:
    """A simulated run."""

    seconds: float
    """From the start of the workers to the last result."""
    busy: float
    """Share of the workers' time in which frames are restored."""


def split(frames: int, length: int, warm_up: int, look_ahead: int) -> Video:
    """A video cut every `length` frames; what precedes and follows a segment is computed and thrown away."""
    starts = range(0, frames, length)
    segments = tuple(
        min(length, frames - start)
        + (warm_up if start else 0)
        + min(look_ahead, max(0, frames - start - length))
        for start in starts
    )
    return Video(segments, frames)


def simulate(videos: Sequence[Video], fleet: Fleet) -> Outcome:
    """Restore every video; units are handed out in the order of the videos."""
    waiting = deque((video, frames) for video, v in enumerate(videos) for frames in v.segments)
    left = [len(video.segments) for video in videos]
    clock, done, restored = fleet.start, 0.0, 0
    idle, driver_free = fleet.workers, fleet.start
    # (time, order, video, frames), where 0 frames end a worker's turn.
    timed: list[tuple[float, int, int, int]] = []
    # (position, order, video) where a unit ends, on a scale of frames.
    running: list[tuple[float, int, int]] = []
    position, order = 0.0, 0
    while waiting or timed or running:
        while waiting and idle:
            video, frames = waiting.popleft()
            idle, order = idle - 1, order + 1
            driver_free = max(clock, driver_free) + fleet.driver
            heapq.heappush(timed, (driver_free + fleet.overhead, order, video, frames))
        # All that run advance alike, because they are equal: one scale of frames serves them all.
        rate = min(fleet.rate, fleet.storage / len(running)) if running else fleet.rate
        ends = clock + (running[0][0] - position) / rate if running else float("inf")
        if timed and timed[0][0] <= ends:
            at, _, video, frames = heapq.heappop(timed)
            position, clock = position + (at - clock) * rate * bool(running), at
            if frames:
                order, restored = order + 1, restored + frames
                heapq.heappush(running, (position + frames, order, video))
            else:
                idle, done = idle + 1, clock
            continue
        position, clock = running[0][0], ends
        _, _, video = heapq.heappop(running)
        left[video] -= 1
        last = left[video] == 0 and len(videos[video].segments) > 1
        order += 1
        heapq.heappush(timed, (clock + (videos[video].frames / fleet.join if last else 0.0), order, video, 0))
    return Outcome(done, restored / fleet.rate / (fleet.workers * done) if done else 0.0)


@dataclass(frozen=True)
class Setting:
    """All that decides a simulated run besides the number of workers and the videos."""

    rates: FileRates
    """Measured by `pahs bench --clip` on a machine with one GPU."""
    frame_bytes: float
    """Bytes of a frame in a file; as many are written as are read."""
    network: float
    """Bytes per second of one GPU's part of its machine's connection."""
    storage: float
    """Bytes per second of the storage, read and written together."""
    start: float
    segment: float
    """Seconds that handing out, reading and closing add to a unit."""
    driver: float
    join: float
    """Bytes per second at which the packets of segments are put together."""

    @property
    def ends(self) -> float:
        """Seconds lost at both ends of a file: from what the measured file took, beyond its slowest stage."""
        return max(0.0, self.rates.frames * (1 / self.rates.file_to_file - 1 / self.rates.slowest))

    def fleet(self, workers: int, free: str = "") -> Fleet:
        """The workers; `free` names a resource that costs nothing."""
        moved = 2 * self.frame_bytes
        stages = {name: getattr(self.rates, name) for name in ("decode", "restore", "encode")}
        stages["network"] = self.network / moved
        shared = {"storage": self.storage / moved, "join": self.join / moved}
        lost = {"start": self.start, "overhead": self.ends + self.segment, "driver": self.driver}
        costs = {name: cost for name, cost in (shared | lost).items() if name != free}
        return Fleet(workers, tuple(rate for name, rate in stages.items() if name != free), **costs)


def bottleneck(videos: Sequence[Video], setting: Setting, workers: int) -> tuple[str, float]:
    """What would save most time if it cost nothing, and the share of the time that it would save."""
    seconds = simulate(videos, setting.fleet(workers)).seconds
    least = {name: simulate(videos, setting.fleet(workers, name)).seconds for name in RESOURCES[:-1]}
    least["split"] = even(videos, setting.fleet(workers))
    saved = {name: seconds - x for name, x in least.items()}
    name = max(saved, key=lambda each: saved[each])
    return name, max(0.0, saved[name]) / seconds


def even(videos: Sequence[Video], fleet: Fleet) -> float:
    """Seconds if the same units could be divided evenly among all workers."""
    units, frames = sum(len(v.segments) for v in videos), sum(sum(v.segments) for v in videos)
    working = fleet.overhead * units / fleet.workers + frames / min(fleet.workers * fleet.rate, fleet.storage)
    join = max((v.frames / fleet.join for v in videos if len(v.segments) > 1), default=0.0)
    return fleet.start + max(working, fleet.driver * units) + join
