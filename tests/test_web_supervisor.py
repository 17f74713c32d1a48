"""Who ended a worker, and what becomes of its job: real processes that end in real ways, under the supervisor."""

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pahs.progress import Progress
from pahs.web import deaths, supervisor
from pahs.web.child import ChildConfig, end_with_parent
from pahs.web.deaths import MOST_CRASHES
from pahs.web.jobs import Job, JobOptions, Preview
from pahs.web.queue import Queue
from pahs.web.settings import Settings
from pahs.web.supervisor import Child, Supervisor

RUNS = 6


def work(config: ChildConfig) -> None:
    """A worker that ends as the job's name says, except the last time; `memory` is a file that counts such ends."""
    end_with_parent()
    queue, folder = Queue(config.settings.queue_file), config.settings.folder
    while (folder / "mute").exists():
        time.sleep(0.01)
    while True:
        queue.beat(config.name)
        job = queue.claim(config.name)
        if job is None:
            time.sleep(0.01)
            continue
        with (folder / "runs").open("a") as runs:
            runs.write(".")
        queue.report(job, Progress("restoring", 2, 3), 1.0)
        if (folder / "runs").stat().st_size < RUNS:
            end(job.name, folder)
        queue.finish(job, "result.mp4", Preview("preview.mp4", "whole", 3, 25.0, 64, 48, 64), 1, 3, 1.0, [])


def end(how: str, folder: Path) -> None:
    if how == "memory":
        count = folder / "vmstat"
        count.write_text(f"oom_kill {int(count.read_text().split()[1]) + 1}\n")
    os.kill(os.getpid(), signal.SIGKILL if how == "memory" else signal.Signals[how])
    time.sleep(10)


def run(how: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Job, int]:
    """The job at its end, and how often it was started."""
    (folder / "vmstat").write_text("oom_kill 5\n")
    monkeypatch.setattr(deaths, "_VMSTAT", folder / "vmstat")
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE", 0.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    settings = Settings(folder)
    queue = Queue(settings.queue_file)
    added = queue.add(how, JobOptions(), 1, held=False)
    assert added is not None and queue.uploaded(added.id, 1) and queue.describe(added.id, {})
    watching = Supervisor(settings)
    watching.children = [Child(Path(__file__).stem, "cpu")]
    watching.start()
    try:
        deadline = time.monotonic() + 60
        while (job := queue.jobs()[0]).state not in ("done", "failed"):
            assert time.monotonic() < deadline, job
            time.sleep(0.02)
    finally:
        watching.stop()
    return job, (folder / "runs").stat().st_size


@pytest.mark.parametrize(
    ("how", "told"),
    [("SIGSEGV", "SIGSEGV"), ("memory", "the system ran out of memory")],
)
def test_a_job_that_ends_its_process_fails_after_few_tries(
    how: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, runs = run(how, tmp_path, monkeypatch)
    assert job.state == "failed" and f"({told})" in (job.error or "") and runs == 1 + MOST_CRASHES


def test_a_job_whose_process_others_end_runs_until_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, runs = run("SIGKILL", tmp_path, monkeypatch)
    assert job.state == "done" and runs == RUNS > 1 + MOST_CRASHES


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """A supervisor of one child."""
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE", 0.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    watching = Supervisor(Settings(tmp_path))
    watching.children = [Child(Path(__file__).stem, "cpu")]
    yield watching
    watching.stop()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def beats(watching: Supervisor) -> bool:
    return watching.children[0].beat is not None


def test_a_queue_that_cannot_be_written_for_a_while_ends_nothing(
    watched: Supervisor, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a full disk: the worker that dies then is replaced as soon as there is room again."""
    watched.start()
    wait_for(lambda: beats(watched))
    (child,) = watched.children
    first = child.process
    assert first is not None
    with closing(sqlite3.connect(watched.settings.queue_file, isolation_level=None)) as full:
        full.execute(
            "CREATE TRIGGER full BEFORE DELETE ON workers BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
        first.kill()
        time.sleep(1)
        assert child.process is first, "its job is not given back yet"
        said = capfd.readouterr().err
        full.execute("DROP TRIGGER full")
    wait_for(lambda: child.process is not first and beats(watched))
    assert said.count("disk is full") == said.count("\n") == 1, "said once"


def test_a_process_that_cannot_be_started_is_started_later(
    watched: Supervisor, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as none:
        none.setattr(sys, "executable", str(watched.settings.folder / "missing"))
        watched.start()
        time.sleep(0.5)
    wait_for(lambda: beats(watched))
    assert capfd.readouterr().err.count("No such file") == 1


def test_a_worker_that_never_beats_is_replaced(watched: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = watched.settings.folder
    (folder / "mute").touch()
    with monkeypatch.context() as impatient:
        impatient.setattr(supervisor, "START", 0.5)
        watched.start()
        wait_for(lambda: watched.children[0].failures > 1)
    (folder / "mute").unlink()
    wait_for(lambda: beats(watched))


if __name__ == "__main__":
    work(ChildConfig.parse(sys.argv[1]))
