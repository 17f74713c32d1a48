"""The process that restores videos: claims a job, reports how far it is, publishes the result, claims the next."""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.deblur import DeblurOptions, chosen_part, deblur
from pahs.errors import PahsError, Stopped
from pahs.files import remove
from pahs.progress import Callback, Progress
from pahs.web.child import ChildConfig, Survivor, end_with_parent, limit_memory
from pahs.web.jobs import Job
from pahs.web.queue import Queue
from pahs.web.store import check_room, clear_runs, free_bytes, gib, result_ending

if TYPE_CHECKING:
    from pahs.networks import Deblurrer

_IDLE_SECONDS = 0.1
_PULSE_SECONDS = 0.2
LOOK_SECONDS = 1.2
"""Length of the first look."""
_WORTH_A_LOOK = 3
"""Times that a video must be longer than its first look to get one."""
_PATIENCE = 30.0
"""Seconds within which a stopped job must have ended; then the process ends, and the server starts another."""


class Run:
    """One claimed job while it is worked on."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.stop = threading.Event()
        self.held = threading.Event()
        self.progress = Progress()
        self.rate: float | None = None
        self._began: float | None = None
        self._paused = 0.0

    def advance(self, progress: Progress) -> None:
        """Called by the thread that restores; while the job is paused it waits here, and so does everything else."""
        now = time.monotonic()
        if progress.stage == "restoring" and self._began is None:
            self._began = now
        self.progress = progress
        if self._began is not None and progress.done and now > self._began + self._paused:
            self.rate = progress.done / (now - self._began - self._paused)
        while self.held.is_set() and not self.stop.wait(0.05):
            pass
        self._paused += time.monotonic() - now


class Pulse:
    """A thread that beats, reports and listens while another one works: a look-ahead can take minutes."""

    def __init__(self, config: ChildConfig) -> None:
        self.run: Run | None = None
        self._config = config
        self._stopped_at: float | None = None
        self._worked = self._listened = self._last_beat = 0.0
        self._told: object = None
        threading.Thread(target=self._loop, name="pahs-pulse", daemon=True).start()

    def start(self, run: Run) -> None:
        self._stopped_at, self._worked, self._listened = None, 0.0, time.monotonic()
        self.run = run

    def end(self) -> None:
        self.run = None

    def finish(self) -> None:
        """Stop the run, if there is one, and give it a moment to clean up."""
        run, deadline = self.run, time.monotonic() + 3
        if run is not None:
            run.stop.set()
            while self.run is run and time.monotonic() < deadline:
                time.sleep(0.02)

    def _loop(self) -> None:
        survivor, queue = Survivor(self._config.name), None
        while True:
            with survivor:
                queue = queue or Queue(self._config.settings.queue_file)
                self._beat(queue)
            run = self.run
            if run is not None and queue is not None:
                with survivor:
                    self._report(queue, run)
                with survivor:  # on a full disk nothing can be reported, but a cancelled job can be heard of
                    self._listen(queue, run)
            time.sleep(_PULSE_SECONDS)

    def _beat(self, queue: Queue) -> None:
        now = time.monotonic()
        if now - self._last_beat >= 1:
            queue.beat(self._config.name)
            self._last_beat = now

    def _report(self, queue: Queue, run: Run) -> None:
        state = (run.job.claim, run.progress, run.rate)
        if state != self._told:
            queue.report(run.job, run.progress, run.rate)
            self._told = state

    def _listen(self, queue: Queue, run: Run) -> None:
        now = time.monotonic()
        go_on, held = queue.wanted(run.job)
        (run.held.set if held else run.held.clear)()
        self._worked += 0.0 if held else now - self._listened
        self._listened = now
        excess = self.excess(run) if go_on else None
        if excess is not None:
            queue.fail(run.job, excess)
            go_on = False
        if not go_on:
            run.stop.set()
            self._stopped_at = self._stopped_at or now
            if self.run is run and now - self._stopped_at > _PATIENCE:
                os._exit(3)

    def excess(self, run: Run) -> str | None:
        """Which limit a run exceeds, in words for its user."""
        limits, facts = self._config.limits, run.job.facts or {}
        if self._worked > limits.job_hours * 3600:
            return f"took longer than the {limits.job_hours:g} hours allowed here"
        told = facts.get("seconds") is not None or not facts.get("rate")
        if not told and run.progress.done / facts["rate"] > limits.seconds:
            return (
                f"the video is longer than the {round(limits.seconds / 60, 1):g} minutes that this server "
                "accepts (--max-minutes); choose a part of it"
            )
        if free_bytes(self._config.settings.folder, limits) < 0:
            return (
                f"less than {gib(limits.spare_bytes)} of the server's disk were free (--keep-free); "
                "remove old jobs, then retry"
            )
        return None


class Worker:
    """Works through the queue, one job at a time."""

    def __init__(self, config: ChildConfig) -> None:
        self.config = config
        self.queue = Queue(config.settings.queue_file)
        self.pulse = Pulse(config)
        self._limited = False
        self._loaded: tuple[str, Deblurrer] | None = None

    def network(self, name: str) -> Deblurrer:
        """The network of that name, kept for the next job."""
        from pahs.backends.load import load

        if self._loaded is None or self._loaded[0] != name:
            self._loaded = None  # before the next one takes memory
            source = self.config.settings.models().get(name)
            if source is None:
                raise PahsError(f"model {name!r} is not offered any more; retry with another one")
            network = load(
                source,
                self.config.device,
                backend=DeblurOptions.backend,
            )
            self._loaded = (name, network)
            if not self._limited and network.device.type == "cpu":
                machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
                limit_memory(self.config.limits.job_bytes or machine)
                self._limited = True
        return self._loaded[1]

    def work(self) -> None:
        while True:
            if not self.work_once():
                time.sleep(_IDLE_SECONDS)

    def work_once(self) -> bool:
        """Work on the next job until it has ended; False where there is none."""
        job = self.queue.claim(self.config.name)
        if job is None:
            return False
        run = Run(job)
        self.pulse.start(run)
        try:
            self._restore(run)
        except Stopped:
            pass
        except Exception as error:
            self.queue.fail(job, self._reason(error, job))
        finally:
            self.pulse.end()
            gc.collect()  # a job that failed for lack of memory leaves its decoder in a circle of references
            self.queue.release(self.config.name)
            self.queue.beat(self.config.name)
        return True

    def _reason(self, error: Exception, job: Job) -> str:
        """One line that names the user's file instead of the server's, which are nobody's business."""
        text = str(error)
        if not isinstance(error, PahsError):
            traceback.print_exception(error)
            text = _explained(error)
        folder = self.config.settings.job_folder(job.id)
        return re.sub(rf"{re.escape(str(folder))}/[^\s:]*", lambda _: job.name, text)

    @contextmanager
    def _optional(self, what: str, job: Job, warnings: list[str]) -> Iterator[None]:
        """Work that a job can do without: where it fails, the job gets a warning and continues."""
        try:
            yield
        except Stopped:
            raise
        except Exception as error:
            warnings.append(f"the {what} could not be made: {self._reason(error, job)}")
        finally:
            gc.collect()  # readers refer to themselves, and what they hold counts towards the limit on memory

    def _restore(self, run: Run) -> None:
        from pahs.web.preview import stack

        job = run.job
        assert job.claim is not None
        folder = self.config.settings.job_folder(job.id)
        source, final = folder / job.source, folder / job.claim
        partial = folder / f".{job.claim}"
        check_room(job.options, job.facts or {}, folder, self.config.limits)
        try:
            partial.mkdir()
            network = self.network(job.options.model)
            options = DeblurOptions(
                encode=job.options.encode(),
                start=job.options.start,
                end=job.options.end,
                strength=job.options.strength,
                device=self.config.device,
            )
            warnings: list[str] = []
            with self._optional("first look", job, warnings):
                self._first_look(run, source, options, network, partial)
            target = partial / f"result{result_ending(source, options.encode.codec)}"
            report = deblur(source, target, options, network, Callback(run.advance), run.stop)
            run.progress = Progress("comparing", report.frames, report.frames)
            warnings += [
                _named(text, {source.name: job.name, target.name: "the result"}) for text in report.warnings
            ]
            preview = None
            start = options.start or 0.0
            with self._optional("comparison", job, warnings):
                preview = stack(source, target, partial / "preview.mp4", start=start, stop=run.stop)
                preview = preview.moved(f"{job.claim}/{preview.file}")
            if run.stop.is_set():
                raise Stopped(f"{job.name}: stopped")
            excess = self.pulse.excess(run)  # a short job ends between two beats
            if excess is not None:
                raise PahsError(excess)
            partial.replace(final)
            size = (final / target.name).stat().st_size
            rate = run.rate or report.rate
            if self.queue.finish(
                job, f"{job.claim}/{target.name}", preview, size, report.frames, rate, warnings
            ):
                clear_runs(folder, self.queue.get(job.id))
            else:
                remove(final)
        finally:
            remove(partial)

    def _first_look(
        self, run: Run, source: Path, options: DeblurOptions, network: Deblurrer, partial: Path
    ) -> None:
        """Restore the blurriest moment of a longer video first, so that its user sees soon what to expect."""
        from pahs.web.preview import stack

        job = run.job
        seconds = (job.facts or {}).get("seconds") or 0.0
        shown = min(options.end or seconds, seconds) - (options.start or 0.0)
        if shown < _WORTH_A_LOOK * LOOK_SECONDS:
            return
        run.progress = Progress("first look")
        part = chosen_part(source, replace(options, preview=LOOK_SECONDS))
        start = float(part.start) if part else 0.0
        end = float(part.end) if part and part.end is not None else start + LOOK_SECONDS
        look = partial / f"look{result_ending(source, options.encode.codec)}"
        advance = Callback(lambda progress: run.advance(Progress("first look")))
        deblur(source, look, replace(options, start=start, end=end), network, advance, run.stop)
        name = f"look-{job.claim}.mp4"
        preview = stack(source, look, partial.with_name(name), "first", start, run.stop)
        look.unlink()
        self.queue.show(job, preview)


def _named(text: str, names: dict[str, str]) -> str:
    """A line that begins with a file's name, by the name that the user knows."""
    file, colon, what = text.partition(": ")
    return f"{names.get(file, file)}{colon}{what}"


def _explained(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "memory" in text.lower():
        return (
            "not enough memory for this video; try a smaller model or a shorter part, or close other programs"
        )
    return f"an unexpected error in pahs: {type(error).__name__}: {text[:300]}"


def main(config: ChildConfig) -> None:
    from pahs.runtime.malloc import keep_memory

    keep_memory()
    worker = Worker(config)
    end_with_parent(worker.pulse.finish)
    worker.work()


if __name__ == "__main__":
    main(ChildConfig.parse(sys.argv[1]))
