"""`pahs batch`: all units of many videos on the workers of a Ray cluster, and a report at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pahs.cluster import store
from pahs.cluster.manifest import Settings, Video
from pahs.cluster.pool import BLAMES, CORES, STARTS, Failed, Member, Pool, Worker
from pahs.cluster.tasks import RETRIES, Outcome, Tasks
from pahs.progress import Advance

REPORT = "batch.json"
"""The report's name in the folder of the results."""
_WAIT_SECONDS = 0.5
_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True)
class Report:
    """What became of a batch."""

    outcomes: tuple[Outcome, ...]
    settings: Settings
    seconds: float
    waited: float
    """Seconds of them before the first worker was ready for its first unit."""
    workers: int
    """The most that worked at the same time."""
    retired: tuple[str, ...]
    """Why nodes got no more work, each in one line."""

    @property
    def frames(self) -> int:
        """Frames that were restored now."""
        return sum(outcome.frames for outcome in self.outcomes)

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.state == "failed"]

    def write(self, output: str) -> str:
        """Write it as JSON into the folder of the results; returns its address."""
        path = f"{output.rstrip('/')}/{REPORT}"
        videos = [
            {
                "source": x.video.source,
                "target": x.video.target,
                "state": x.state,
                "frames": x.frames,
                "seconds": round(x.seconds, 3),
                "segments": len(x.video.segments) or 1,
                "nodes": sorted(x.nodes),
                "retries": x.retries,
                "error": x.error,
                "warnings": list(x.warnings),
            }
            for x in self.outcomes
        ]
        content = {
            "seconds": round(self.seconds, 3),
            "waited": round(self.waited, 3),
            "frames": self.frames,
            "workers": self.workers,
            "retired": list(self.retired),
            "settings": asdict(self.settings),
            "videos": videos,
        }
        with store.writing(path, replace=True) as file:
            file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path


def run_batch(
    videos: Sequence[Video],
    settings: Settings,
    *,
    cores: int = CORES,
    retries: int = RETRIES,
    advance: Advance | None = None,
    say: Callable[[str], None] = print,
    worker: type[Worker] = Worker,
) -> Report:
    """Do all videos on the Ray cluster that this process is connected to.

    Each worker has one unit at a time, and the rest waits here: nothing piles up anywhere. `worker` is the class of the
    actors.
    """
    began = time.monotonic()
    advance = advance or Advance()
    tasks = Tasks(videos, retries)
    _skip_existing(tasks)
    pool = Pool(settings, cores, worker)
    driver = _Driver(tasks, pool, advance, say)
    try:
        while tasks.open:
            driver.step()
    finally:
        pool.close()
    driver.show()
    seconds = time.monotonic() - began
    waited = seconds if driver.first_given is None else driver.first_given - began
    return Report(tuple(tasks.outcomes), settings, seconds, waited, pool.most, tuple(pool.retired.values()))


def _skip_existing(tasks: Tasks) -> None:
    """Leave out videos whose results exist: the same command continues a batch."""
    folders: dict[str, set[str]] = {}
    for number, outcome in enumerate(tasks.outcomes):
        folder, _, name = outcome.video.target.rpartition("/")
        if folder not in folders:
            folders[folder] = store.names_in(folder)
        if name in folders[folder]:
            tasks.skip(number)


class _Driver:
    """Hands out tasks and takes their results."""

    def __init__(self, tasks: Tasks, pool: Pool, advance: Advance, say: Callable[[str], None]) -> None:
        self._tasks, self._pool, self._advance, self._say = tasks, pool, advance, say
        self.first_given: float | None = None
        """When the first unit was handed out."""
        self._shown = 0.0
        self._idle_since = time.monotonic()

    def step(self) -> None:
        """Wait for one result, or a moment."""
        import ray

        self._pool.refresh()
        for member in self._pool.members:
            if member.starting is None and member.task is None:
                self._give(member)
        if all(member.starting is None and member.task is None for member in self._pool.members):
            self._tasks.fail_what_nobody_can_do(self._pool.nodes)
        refs = [member.starting or member.answer for member in self._pool.members]
        refs = [ref for ref in refs if ref is not None]
        if refs:
            for ref in ray.wait(refs, num_returns=1, timeout=_WAIT_SECONDS)[0]:
                self._take(next(m for m in self._pool.members if ref in (m.starting, m.answer)), ref)
        else:
            time.sleep(_WAIT_SECONDS)
            self._tell_that_nobody_works()
        if time.monotonic() - self._shown >= _PROGRESS_SECONDS:
            self.show()

    def show(self) -> None:
        """Tell how far the batch is, frames of units in work included."""
        self._shown = time.monotonic()
        self._ask_progress()
        running = sum(member.frames for member in self._pool.members if member.task is not None)
        done = sum(x.frames for x in self._tasks.outcomes if x.state != "exists") + running
        self._advance.expect(self._tasks.expected_frames())
        videos = len(self._tasks.outcomes)
        note = f"{videos - self._tasks.open} of {videos} videos, {len(self._pool.nodes)} nodes"
        if self._tasks.failures:
            note += f", {self._tasks.failures} failed"
        self._advance.note(note)
        self._advance(done - self._advance.progress.done)

    def _give(self, member: Member) -> None:
        task = self._tasks.next(member.node)
        if task is not None:
            outcome = self._tasks.outcomes[task.video]
            member.task, member.frames = task, 0
            self.first_given = self.first_given or time.monotonic()
            member.answer = member.actor.do.remote(task.kind, outcome.video, self._tasks.segment_of(task))

    def _take(self, member: Member, ref: Any) -> None:
        """What a worker has answered, or that it is gone."""
        import ray

        task, member.task, member.answer = member.task, None, None
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayError as error:
            self._pool.remove(member)
            if member.starting is not None:
                self._pool.failed_starts[member.node] += 1
                if self._pool.failed_starts[member.node] >= STARTS:
                    self._retire(member.node, f"its workers do not start: {_line(error)}")
            elif task is not None:
                self._tasks.died(task, member.node)
                self._say(
                    f"a worker died with {self._tasks.outcomes[task.video].video.source}: {_line(error)}"
                )
            return
        if member.starting is not None:
            member.starting = None
            self._pool.failed_starts[member.node] = 0
            if isinstance(answer, Failed):
                self._retire(member.node, answer.error)
            return
        if isinstance(answer, Failed):
            if answer.details:
                self._say(answer.details)
            self._tasks.failed(task, member.node, answer.error, self._pool.nodes)
        else:
            self._tasks.finished(task, answer, member.node)
            for node, count in self._tasks.blamed.items():
                if count >= BLAMES and node not in self._pool.retired:
                    self._retire(node, f"it failed with {count} units that another node did")
        if member.node in self._pool.retired:
            self._pool.remove(member)

    def _retire(self, node: str, why: str) -> None:
        self._pool.retire(node, f"node {node[:8]} gets no more work: {why}")
        self._say(self._pool.retired[node])

    def _ask_progress(self) -> None:
        import ray

        for member in self._pool.members:
            if member.task is None:
                continue
            if member.progress is None:
                member.progress = member.actor.progress.remote()
            elif ray.wait([member.progress], timeout=0)[0]:
                try:
                    segment = self._tasks.segment_of(member.task)
                    frames = ray.get(member.progress)
                    member.frames = frames if segment is None else min(frames, segment.frames)
                except ray.exceptions.RayError:
                    pass  # the answer to its task says so too
                member.progress = None

    def _tell_that_nobody_works(self) -> None:
        if self._pool.members:
            return
        retired = self._pool.retired
        if retired and all(node in retired for node in self._pool.able()):
            self._tasks.give_up(next(iter(retired.values())))
        elif time.monotonic() - self._idle_since > 30:
            self._idle_since = time.monotonic()
            what = "GPU" if self._pool.settings.device == "cuda" else "CPU core"
            self._say(f"waiting: no node of the Ray cluster has a {what}")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
