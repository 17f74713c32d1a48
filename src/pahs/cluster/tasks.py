"""Which unit of a batch comes next, and what becomes of it when a worker fails or dies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pahs.cluster.manifest import Segment, Video
from pahs.cluster.work import Done

RETRIES = 5
"""How often a unit is given to another worker when the one that does it dies. Some files kill whoever opens them."""


@dataclass(frozen=True)
class Task:
    """One thing for a worker to do: plan a video (and do it, if it is short), restore a segment, or join."""

    kind: Literal["start", "segment", "join"]
    video: int
    segment: int = -1


@dataclass
class Outcome:
    """What became of a video."""

    video: Video
    state: Literal["waiting", "done", "exists", "failed"] = "waiting"
    frames: int = 0
    seconds: float = 0.0
    """Of all its workers together."""
    nodes: set[str] = field(default_factory=set)
    retries: int = 0
    error: str = ""
    warnings: tuple[str, ...] = ()


class Tasks:
    """The tasks of a batch: joins first, then segments, then new videos, so that few videos are in work at once."""

    def __init__(self, videos: Sequence[Video], retries: int = RETRIES) -> None:
        self.outcomes = [Outcome(video) for video in videos]
        self.blamed: Counter[str] = Counter()
        """Failures of each node with units that another node then did."""
        self._retries = retries
        self._queues: tuple[deque[Task], ...] = (deque(), deque(), deque())
        for number in range(len(videos)):
            self._queues[2].append(Task("start", number))
        self._left: dict[int, int] = {}
        """Segments of each video that are not done."""
        self._deaths: Counter[Task] = Counter()
        self._failed_at: dict[Task, dict[str, str]] = {}
        """What each node said of a task that it could not do."""

    @property
    def open(self) -> int:
        """Videos that are not finished."""
        return sum(outcome.state == "waiting" for outcome in self.outcomes)

    @property
    def failures(self) -> int:
        return sum(outcome.state == "failed" for outcome in self.outcomes)

    def skip(self, number: int) -> None:
        """The result of a video exists."""
        self.outcomes[number].state = "exists"
        self._queues[2].remove(Task("start", number))

    def next(self, node: str) -> Task | None:
        """A task for a worker of that node: one that has not failed there."""
        for queue in self._queues:
            for task in queue:
                if node not in self._failed_at.get(task, ()):
                    queue.remove(task)
                    return task
        return None

    def segment_of(self, task: Task) -> Segment | None:
        return None if task.segment < 0 else self.outcomes[task.video].video.segments[task.segment]

    def finished(self, task: Task, done: Done, node: str) -> None:
        """A worker has done a task."""
        outcome = self.outcomes[task.video]
        for other in self._failed_at.pop(task, {}):
            self.blamed[other] += other != node
        outcome.seconds += done.seconds
        outcome.nodes.add(done.node)
        outcome.warnings = tuple(dict.fromkeys((*outcome.warnings, *done.warnings)))
        if outcome.state != "waiting":
            return
        if task.kind == "start" and done.planned is not None:
            outcome.video = done.planned
            self._left[task.video] = len(done.planned.segments)
            self._queues[1].extend(
                Task("segment", task.video, number) for number in range(len(done.planned.segments))
            )
        elif task.kind == "segment":
            self._left[task.video] -= 1
            outcome.frames += (self.segment_of(task) or done).frames or 0
            if not self._left[task.video]:
                self._queues[0].append(Task("join", task.video))
        else:
            existed = task.kind == "start" and done.frames is None
            outcome.state = "exists" if existed else "done"
            outcome.frames = outcome.frames or done.frames or 0
            outcome.video = replace(outcome.video, frames=outcome.frames or outcome.video.frames)

    def failed(self, task: Task, node: str, error: str, nodes: Collection[str]) -> None:
        """A worker could not do a task, and says why. Another node may: its disk may not be full."""
        said = self._failed_at.setdefault(task, {})
        said[node] = error
        self._again_or_never(task, all(other in said for other in nodes), next(iter(said.values())))

    def died(self, task: Task, node: str) -> None:
        """A worker was gone before it had done its task."""
        self._deaths[task] += 1
        count = self._deaths[task]
        source = self.outcomes[task.video].video.source
        self._again_or_never(task, count > self._retries, f"{source}: {count} workers died with it")

    def fail_what_nobody_can_do(self, nodes: Collection[str]) -> None:
        """Nobody works: what has failed at every node that is left will not be done any more."""
        for task in [task for queue in self._queues for task in queue] if nodes else ():
            said = self._failed_at.get(task, {})
            if all(node in said for node in nodes):
                self._again_or_never(task, True, next(iter(said.values())))

    def give_up(self, error: str) -> None:
        """Nobody is left to do anything."""
        for outcome in self.outcomes:
            if outcome.state == "waiting":
                outcome.state, outcome.error = "failed", error

    def _again_or_never(self, task: Task, never: bool, error: str) -> None:
        outcome = self.outcomes[task.video]
        if outcome.state != "waiting":
            return
        if not never:
            outcome.retries += 1
            self._queues[("join", "segment", "start").index(task.kind)].appendleft(task)
            return
        outcome.state, outcome.error = "failed", error
        for queue in self._queues:
            for other in [other for other in queue if other.video == task.video]:
                queue.remove(other)

    def expected_frames(self) -> int | None:
        """Frames of all videos, as far as they are known; the others count as their mean."""
        known = [outcome.video.frames for outcome in self.outcomes if outcome.state != "exists"]
        told = [frames for frames in known if frames is not None]
        return round(sum(told) / len(told) * len(known)) if told else None
