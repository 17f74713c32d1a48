"""One worker in this process, with a real queue: what a job survives, and what ends it."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from clips import make_clip
from pahs.errors import PahsError
from pahs.progress import Progress
from pahs.web import preview
from pahs.web.child import ChildConfig
from pahs.web.jobs import Job, JobOptions
from pahs.web.look import look_at
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


def test_warnings_call_the_video_by_its_users_name(tmp_path: Path) -> None:
    worker = worker_in(tmp_path)
    id = queued(worker, {"seconds": 4.0, "frames": 100}, frames=100)
    source = worker.config.settings.job_folder(id) / now(worker.queue, id).source
    make_clip(source, frames=100, codec="mjpeg", pix_fmt="yuvj420p", settings={"qscale": "3"})
    data = bytearray(source.read_bytes())
    start = data.index(b"\xff\xd8", len(data) // 2)
    data[start : start + 600] = bytes(600)
    source.write_bytes(data)
    assert worker.work_once()
    (warning,) = now(worker.queue, id).warnings
    assert warning.startswith("clip.mp4: ") and "damaged" in warning


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


def ended(queue: Queue, run: Run) -> Job:
    """The job of a run that is asked to stop."""
    wait_for(run.stop.is_set)
    return now(queue, run.job.id)


def test_a_job_ends_where_the_disk_has_no_more_than_must_stay_free(tmp_path: Path) -> None:
    queue, run, pulse = running(tmp_path, Limits(spare_bytes=2**60))
    job = ended(queue, run)
    pulse.end()
    assert job.state == "failed" and "--keep-free" in (job.error or "")


def test_a_pause_does_not_count_as_work(tmp_path: Path) -> None:
    queue, run, pulse = running(tmp_path, Limits(spare_bytes=0, job_hours=0.8 / 3600))
    assert queue.hold(run.job.id, True)
    time.sleep(1.6)
    assert now(queue, run.job.id).state == "running" and not run.stop.is_set()
    assert queue.hold(run.job.id, False)
    job = ended(queue, run)
    pulse.end()
    assert job.state == "failed" and "took longer than" in (job.error or "")


def test_a_video_that_does_not_tell_its_length_ends_at_the_longest(tmp_path: Path) -> None:
    queue, run, pulse = running(tmp_path, Limits(spare_bytes=0, seconds=120), seconds=None)
    run.advance(Progress("restoring", 120 * 25))
    time.sleep(0.5)
    assert not run.stop.is_set()
    run.advance(Progress("restoring", 120 * 25 + 1))
    job = ended(queue, run)
    pulse.end()
    assert job.state == "failed" and "longer than the 2 minutes" in (job.error or "")
    worker = worker_in(tmp_path, Limits(spare_bytes=0, seconds=0.1))
    short = now(worker.queue, queued(worker, {"seconds": None}))
    assert worker.work_once() and now(worker.queue, short.id).state == "failed", "between two beats"


def test_a_result_that_would_not_fit_is_refused_before_the_work(tmp_path: Path) -> None:
    worker = worker_in(tmp_path)
    facts = {"seconds": 100.0, "output_bytes": 2**60, "output_codec": "auto"}
    large, other = (
        queued(worker, facts, options=JobOptions("identity", codec)) for codec in ("auto", "ffv1")
    )
    assert worker.work_once() and worker.work_once()
    assert "would have about 1.07e+09 GiB" in (now(worker.queue, large).error or "")
    assert now(worker.queue, other).state == "done", "nothing is known about it"
    assert JobOptions(start=90, end=200).share(100) == 0.1


@pytest.mark.parametrize("held", [False, True])
def test_what_would_not_fit_is_refused_when_it_is_looked_at(held: bool, tmp_path: Path) -> None:
    queue = Queue(Settings(tmp_path).queue_file)
    job = queue.add("clip.mp4", JobOptions(), 1, held)
    assert job is not None and queue.uploaded(job.id, 1)
    make_clip(tmp_path / job.source, frames=12)
    look_at(queue, now(queue, job.id), tmp_path, Limits(spare_bytes=2**60))
    job = now(queue, job.id)
    if held:
        assert job.state == "queued" and job.facts is not None, "its user may choose a part"
    else:
        assert job.state == "failed" and "disk has 0 GiB for it (--keep-free)" in (job.error or "")


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


def offered(folder: Path, *names: str) -> dict[str, str]:
    """The models of a server that is given these files, without those of the package."""
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    models = Settings(folder, model_files=tuple(folder / name for name in names)).models()
    return {name: path.removeprefix(f"{folder}/") for name, path in models.items() if "/" in path}


def test_weights_of_the_same_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    assert offered(tmp_path, "a/own.safetensors") == {"own": "a/own.safetensors"}
    files = ("a/weights.safetensors", "b/weights.safetensors", "a/pahs-t.safetensors", "b/auto.safetensors")
    names = ("a-weights", "b-weights", "a-pahs-t", "b-auto")
    assert offered(tmp_path, *files) == dict(zip(names, files, strict=True))


@pytest.mark.parametrize(
    "names",
    [
        ("a/w.safetensors", "a/w.safetensors"),
        ("a/w.safetensors", "b/w.safetensors", "b/a-w.safetensors"),
        ("pahs/t.safetensors", "b/t.safetensors"),
    ],
)
def test_weights_that_cannot_be_told_apart_are_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(PahsError, match=r"--model .*: would be shown under the same name as .*; rename one"):
        offered(tmp_path, *names)


def test_a_model_that_is_offered_no_more_is_not_replaced_by_another(tmp_path: Path) -> None:
    worker = worker_in(tmp_path)
    id = queued(worker, {}, options=JobOptions("gone"))
    assert worker.work_once()
    assert now(worker.queue, id).error == "model 'gone' is not offered any more; retry with another one"
