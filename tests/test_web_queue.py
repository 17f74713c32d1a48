"""The queue alone: who gets which job, what a late worker may still do, and what pages are told."""

import multiprocessing
import time
from pathlib import Path

import pytest

from pahs.errors import PahsError
from pahs.progress import Progress
from pahs.web.deaths import MOST_CRASHES, MOST_KILLS, Death
from pahs.web.jobs import Job, JobOptions, Preview, check_name
from pahs.web.queue import Queue

CRASH, KILL = Death(True, "SIGSEGV"), Death(False, "SIGKILL")
PREVIEW = Preview("preview.mp4", "whole", 3, 25.0, 64, 48, 64)


def ready(queue: Queue, count: int = 1) -> list[str]:
    """Jobs that a worker may claim."""
    ids = []
    for number in range(count):
        job = queue.add(f"{number}.mp4", JobOptions(), 10, held=False)
        assert job is not None
        queue.uploaded(job.id, 10)
        queue.describe(job.id, {"frames": 3, "width": 64, "height": 48})
        ids.append(job.id)
    return ids


def take(queue: Queue, worker: str = "a") -> Job:
    job = queue.claim(worker)
    assert job is not None
    return job


def finish(queue: Queue, job: Job) -> bool:
    return queue.finish(job, f"{job.claim}/result.mp4", PREVIEW, 10, 3, 5.0, [])


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "queue.sqlite")


def claim_all(file: Path, worker: str, out: "multiprocessing.Queue[list[str]]") -> None:
    queue, mine = Queue(file), []
    while (job := queue.claim(worker)) is not None:
        mine.append(job.id)
        finish(queue, job)
    out.put(mine)


def test_every_job_goes_to_one_worker(queue: Queue) -> None:
    ids = ready(queue, 60)
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    workers = [context.Process(target=claim_all, args=(queue.file, f"w{n}", out)) for n in range(3)]
    for worker in workers:
        worker.start()
    taken = [id for _ in workers for id in out.get(timeout=60)]
    for worker in workers:
        worker.join()
    assert sorted(taken) == sorted(ids)
    assert {job.state for job in queue.jobs()} == {"done"}


def test_jobs_are_claimed_in_the_order_that_the_user_gave(queue: Queue) -> None:
    a, b, c, d = ready(queue, 4)
    assert queue.move(d, a) and queue.move(a, None) and queue.hold(b, True)
    assert [job.id for job in queue.jobs()] == [d, b, c, a]
    assert [take(queue).id for _ in range(3)] == [d, c, a]
    assert queue.claim("a") is None, "b is paused"
    assert queue.hold(b, False) and take(queue).id == b


def test_moving_does_not_run_out_of_numbers(queue: Queue) -> None:
    a, b, c = ready(queue, 3)
    for turn in range(200):
        assert queue.move((b, c)[turn % 2], (c, b)[turn % 2])
    assert [job.id for job in queue.jobs()] == [a, c, b]


def test_a_worker_that_lost_its_job_changes_nothing_any_more(queue: Queue) -> None:
    ready(queue)
    late = take(queue)
    queue.release("a", CRASH)
    new = take(queue, "b")
    assert new.id == late.id and new.claim != late.claim
    assert not queue.report(late, Progress("restoring", 2, 3), 1.0)
    assert not queue.show(late, PREVIEW)
    assert not queue.fail(late, "no")
    assert not finish(queue, late)
    assert queue.wanted(late) == (False, False)
    assert finish(queue, new) and not finish(queue, new), "published once"
    assert queue.get(new.id).result == f"{new.claim}/result.mp4"  # type: ignore[union-attr]


def die(queue: Queue, death: Death, *places: tuple[str, int]) -> int:
    """Workers die with the only job at these places, until it has failed; how often they did."""
    for count, (stage, done) in enumerate(places, 1):
        queue.report(take(queue), Progress(stage, done, 9), 1.0)
        queue.release("a", death)
        if queue.jobs()[0].state == "failed":
            return count
    return len(places)


def test_a_job_that_crashes_its_process_without_getting_further_fails(queue: Queue) -> None:
    (id,) = ready(queue)
    assert die(queue, CRASH, *[("restoring", 5)] * 99) == 1 + MOST_CRASHES
    assert "ended 4 times without getting further (SIGSEGV)" in (queue.jobs()[0].error or "")
    assert queue.retry(id) and die(queue, CRASH, ("", 0), ("", 0)) == 2
    assert take(queue).id == id, "counted from the beginning again"


def test_deaths_with_progress_between_them_are_forgiven(queue: Queue) -> None:
    ready(queue)
    places = [("opening", 0), ("looking ahead", 0), *(("restoring", n) for n in range(50)), ("comparing", 50)]
    assert die(queue, CRASH, *places) == len(places)
    assert die(queue, CRASH, *[("restoring", 9)] * 99) == MOST_CRASHES, "behind the furthest"


def test_kills_from_outside_are_forgiven_but_not_for_ever(queue: Queue) -> None:
    ready(queue)
    assert die(queue, KILL, *[("restoring", 5)] * 99) == 1 + MOST_KILLS


def test_a_file_that_kills_those_who_look_is_told_from_kills_from_outside(queue: Queue) -> None:
    job = queue.add("a.mp4", JobOptions(), 10, held=False)
    assert job is not None and queue.uploaded(job.id, 10)
    for _ in range(5):
        assert queue.look("look") and queue.looks(job.id) == 1
        queue.release("look", KILL)
    for count in (1, 2, 3):
        assert queue.look("look") and queue.looks(job.id) == count
        queue.release("look", CRASH)


def test_a_server_that_stops_does_not_count_as_a_death(queue: Queue) -> None:
    (id,) = ready(queue)
    for _ in range(3 * MOST_KILLS):
        assert take(queue).id == id
        queue.release()
    assert queue.get(id).state == "queued"  # type: ignore[union-attr]


def test_cancel_ends_a_waiting_job_at_once_and_a_running_one_by_its_worker(queue: Queue) -> None:
    waiting, _ = ready(queue, 2)
    queue.cancel(waiting)
    assert queue.get(waiting).state == "cancelled"  # type: ignore[union-attr]
    running = take(queue)
    queue.cancel(running.id)
    assert queue.get(running.id).state == "running" and queue.wanted(running)[0] is False  # type: ignore[union-attr]
    queue.release("a")
    assert queue.get(running.id).state == "cancelled"  # type: ignore[union-attr]
    assert queue.retry(running.id) and take(queue).id == running.id


def test_changes_are_numbered_for_those_who_come_back(queue: Queue) -> None:
    a, b = ready(queue, 2)
    _, seen = queue.revision()
    queue.beat("w")
    assert queue.revision()[1] == seen, "a beat is no news"
    queue.hold(a, True)
    queue.remove(b)
    jobs, gone = queue.changes(seen)
    assert ([job.id for job in jobs], gone) == ([a], [b])
    assert queue.changes(queue.revision()[1]) == ([], [])
    assert Queue(queue.file).revision() == queue.revision(), "the same after a restart"


def test_a_silent_worker_is_noticed(queue: Queue) -> None:
    assert queue.last_beat("a") is None, "it has not started yet"
    queue.beat("a")
    first = queue.last_beat("a")
    assert first is not None and queue.last_beat("a") == first, "silent"
    time.sleep(0.01)
    queue.beat("a")
    assert (queue.last_beat("a") or 0) > first


def test_the_list_has_an_end(queue: Queue) -> None:
    assert queue.add("a.mp4", JobOptions(), 1, held=False, most=1) is not None
    assert queue.add("b.mp4", JobOptions(), 1, held=False, most=1) is None


def test_another_file_is_not_taken_for_a_queue(tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite").write_text("a letter, long enough to be looked at " * 40)
    with pytest.raises(PahsError, match="is not a queue"):
        Queue(tmp_path / "queue.sqlite")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        " ",
        "../a.mp4",
        "a/b.mp4",
        "a\\b.mp4",
        "a\0.mp4",
        "a\n.mp4",
        "x" * 300 + ".mp4",
        "a\u202egpj.mp4",
    ],
)
def test_names_that_could_be_paths_or_pretend_are_refused(name: str) -> None:
    with pytest.raises(PahsError, match="name: "):
        check_name(name)


@pytest.mark.parametrize(
    "name", ["clip.mp4", "Урок 1.MOV", "日本.mkv", "a b'c\"d;e&f.mp4", "..a.mp4", "😀.mp4"]
)
def test_names_from_anywhere_are_fine(name: str) -> None:
    assert check_name(name) == name
