"""One worker in this process, with a real queue: what a job survives, and what ends it."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from clips import make_clip
from pahs.errors import PahsError
from pahs.web import preview
from pahs.web.child import ChildConfig
from pahs.web.jobs import Job, JobOptions
from pahs.web.queue import Queue
from pahs.web.settings import Limits, Settings
from pahs.web.worker import Pulse, Run, Worker
from web_server import identity


def worker_in(folder: Path, limits: Limits = Limits(spare_bytes=0)) -> Worker:  # noqa: B008 - frozen
    identity(folder / "identity.safetensors")
    settings = Settings(folder, model_files=(folder / "identity.safetensors",), limits=limits)
    worker = Worker(ChildConfig("worker", settings, "cpu"))
    worker._limited = True  # the limit on memory would hold for all tests after this one
    return worker


def queued(
    worker: Worker, facts: dict[str, object], frames: int = 12, options: JobOptions | None = None
) -> str:
    """A job that is uploaded and looked at."""
    job = worker.queue.add("clip.mp4", options or JobOptions("identity"), 1, held=False)
    assert job is not None
    folder = worker.config.settings.job_folder(job.id)
    folder.mkdir(parents=True)
    make_clip(folder / job.source, frames=frames)
    assert worker.queue.describe(job.id, {"width": 64, "height": 48, "rate": 25.0, **facts})
    assert worker.queue.uploaded(job.id, 1)
    return job.id


def now(queue: Queue, id: str) -> Job:
    job = queue.get(id)
    assert job is not None
    return job


@pytest.mark.parametrize("error", [PahsError("no pictures"), ValueError("no pictures")])
def test_a_comparison_that_fails_costs_a_warning_and_not_the_result(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(before: Path, *_: object, **__: object) -> None:
        error.args = (f"{before}: no pictures",)
        raise error

    monkeypatch.setattr(preview, "stack", fail)
    worker = worker_in(tmp_path)
    id = queued(worker, {"seconds": 4.0, "frames": 100}, frames=100)
    assert worker.work_once()
    job = now(worker.queue, id)
    assert job.state == "done" and job.error is None and job.preview is None
    assert job.result is not None and (worker.config.settings.job_folder(id) / job.result).is_file()
    first, whole = job.warnings
    assert "the first look could not be made" in first and "the comparison could not be made" in whole
    assert "no pictures" in whole and str(tmp_path) not in whole and not worker.work_once()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def running(folder: Path, limits: Limits = Limits(), **facts: object) -> tuple[Queue, Run, Pulse]:  # noqa: B008
    """A job in progress, without the work."""
    settings = Settings(folder, limits=limits)
    queue = Queue(settings.queue_file)
    added = queue.add("clip.mp4", JobOptions(), 1, held=False)
    assert added is not None and queue.uploaded(added.id, 1)
    assert queue.describe(added.id, {"width": 64, "height": 48, "rate": 25.0, **facts})
    settings.job_folder(added.id).mkdir(parents=True)
    job = queue.claim("worker")
    assert job is not None
    run, pulse = Run(job), Pulse(ChildConfig("worker", settings))
    pulse.start(run)
    return queue, run, pulse


def test_a_worker_listens_and_beats_on_after_the_disk_was_full(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = Settings(tmp_path).queue_file
    Queue(file).close()
    with closing(sqlite3.connect(file, isolation_level=None)) as full:
        full.execute(
            "CREATE TRIGGER full BEFORE INSERT ON workers BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
        queue, run, pulse = running(tmp_path, Limits(spare_bytes=0))
        time.sleep(0.5)
        assert queue.last_beat("worker") is None and queue.hold(run.job.id, True)
        wait_for(run.held.is_set)
        assert capfd.readouterr().err.count("disk is full") == 1, "said once"
        full.execute("DROP TRIGGER full")
    wait_for(lambda: queue.last_beat("worker"))
    pulse.end()
