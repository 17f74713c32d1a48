"""Accidents and jobs that meet: full disks, failures at every step, two jobs on one output; nothing is left behind."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clips import decoded, make_clip
from pahs.errors import PahsError
from pahs.files import Partial
from pahs.video import EncodeOptions, VideoReader, VideoWriter, probe, transform
from pahs.video.channel import Channel, Closed
from processes import uncovered

FAST = EncodeOptions(preset="ultrafast")


def identity(frames):
    yield from frames


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("pahs-")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk(tmp_path, monkeypatch):
    real = Partial.__init__

    def on_a_full_disk(self, target):
        real(self, target)
        self.path.symlink_to("/dev/full")

    monkeypatch.setattr(Partial, "__init__", on_a_full_disk)
    clip = make_clip(tmp_path / "in.mp4", frames=20, audio="aac")
    for suffix in (".mp4", ".mkv"):
        with pytest.raises(PahsError, match=rf"out{suffix}: the disk is full; free some space"):
            transform(clip.path, tmp_path / f"out{suffix}", identity, encode=FAST)
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


def test_disk_that_fills_up_on_the_way(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=40, width=128, height=96)
    code = (
        "import resource, sys\n"
        "from pahs.errors import PahsError\n"
        "from pahs.video import EncodeOptions, transform\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "try:\n"
        "    transform(sys.argv[1], sys.argv[2], lambda frames: frames, encode=EncodeOptions(lossless=True))\n"
        "except PahsError as error:\n"
        "    print(error)\n"
    )
    arguments = [sys.executable, "-c", code, str(clip.path), str(tmp_path / "out.mkv")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
    assert "out.mkv: the disk is full" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


def test_other_errors_of_the_disk_are_named(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=2)
    info = probe(clip.path)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        with pytest.raises(PahsError, match=os.strerror(errno.EMFILE)):
            VideoWriter(tmp_path / "out.mp4", info)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


class AccidentError(Exception):
    pass


@pytest.mark.parametrize("accident", [AccidentError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [0, 5, 19])
def test_an_accident_leaves_nothing_behind(tmp_path, accident, at):
    clip = make_clip(tmp_path / "in.mp4", frames=20, audio="aac")
    target = tmp_path / "out.mp4"
    target.write_bytes(b"from the last run")
    before = snapshot(tmp_path)

    def failing(frames):
        for index, frame in enumerate(frames):
            if index == at:
                if accident is KeyboardInterrupt:
                    signal.raise_signal(signal.SIGINT)
                raise accident
            yield frame

    with pytest.raises(accident):
        transform(clip.path, target, failing, encode=FAST, overwrite=True)
    assert snapshot(tmp_path) == before
    assert not threads()


@pytest.mark.parametrize("step", ["prepare", "put"])
@pytest.mark.parametrize("at", [1, 7, 20])
def test_an_encoder_that_fails_ends_the_job(tmp_path, monkeypatch, step, at):
    """At the last frame nobody else is left to notice."""
    clip = make_clip(tmp_path / "in.mp4", frames=20)
    calls, real = [], getattr(VideoWriter, step)

    def failing(self, item):
        calls.append(item)
        if len(calls) == at:
            raise AccidentError
        return real(self, item)

    monkeypatch.setattr(VideoWriter, step, failing)
    with pytest.raises(AccidentError):
        transform(clip.path, tmp_path / "out.mp4", identity, encode=FAST)
    assert len(calls) == at
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]
    assert not threads()


def test_interrupt_while_waiting_for_the_decoder(tmp_path):
    """Ctrl-C must not hang when the main thread sleeps in a queue: here on one that nobody fills."""
    channel: Channel[int] = Channel(1)

    def interrupt():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(channel))


INTERRUPTS = """
import random, signal, sys, threading
from pahs.video.channel import Channel

def feed():
    for number in range(10**9):
        first.put(number)

def interrupt(*_): raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
threading.excepthook = lambda *_: None
random.seed(0)
for number in range(1000):
    first, second = Channel(2), Channel(2)
    threads = [threading.Thread(target=t, daemon=True) for t in (feed, lambda: [None for _ in second])]
    for thread in threads:
        thread.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.002))
        for item in first:
            second.put(item)
    except KeyboardInterrupt:
        pass
    closing = threading.Thread(target=lambda: [c.close(drop=True) for c in (first, second)], daemon=True)
    threads.append(closing)
    closing.start()
    for thread in threads:
        thread.join(10)
        if thread.is_alive():
            sys.exit(f"interrupt {number}: a thread waits for ever")
print("no thread waits")
"""


def test_an_interrupt_at_any_moment_leaves_no_thread_waiting():
    arguments = [sys.executable, "-c", INTERRUPTS]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=uncovered())
    assert done.stdout == "no thread waits\n", done.stderr


@pytest.mark.parametrize("kind", ["fewer", "more", "shape"])
def test_a_function_that_breaks_its_word_is_a_defect(tmp_path, kind):
    clip = make_clip(tmp_path / "in.mp4", frames=6)

    def wrong(frames):
        for index, frame in enumerate(frames):
            if kind == "fewer" and index == 2:
                return
            yield frame[:, 1:] if kind == "shape" else frame
            if kind == "more":
                yield frame

    with pytest.raises(ValueError, match="the function gave"):
        transform(clip.path, tmp_path / "out.mp4", wrong, encode=FAST)
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


def test_a_writer_that_is_left_by_an_exception_removes_its_file(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=3)
    target = tmp_path / "out.mp4"
    with (
        VideoReader(clip.path) as reader,
        pytest.raises(AccidentError),
        VideoWriter(target, reader.info, FAST) as writer,
    ):
        writer.write(next(iter(reader)))
        raise AccidentError
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


def test_a_channel_holds_only_so_much_and_lets_go_when_closed():
    channel: Channel[int] = Channel(2)
    put: list[int] = []

    def produce():
        try:
            for number in range(10):
                channel.put(number)
                put.append(number)
        except Closed:
            put.append(-1)

    producer = threading.Thread(target=produce)
    producer.start()
    items = iter(channel)
    assert [next(items), next(items)] == [0, 1]
    time.sleep(0.1)
    assert put == [0, 1, 2, 3]
    channel.close(drop=True)
    producer.join(5)
    assert put[-1] == -1
    assert list(items) == []


def test_a_channel_carries_the_error_of_its_other_end():
    channel: Channel[int] = Channel(2)
    channel.put(1)
    channel.close(AccidentError())
    items = iter(channel)
    assert next(items) == 1
    with pytest.raises(AccidentError):
        next(items)
    with pytest.raises(AccidentError):
        channel.put(2)


def test_three_threads_with_one_output_leave_the_result_of_one(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=10)
    all_run, results = threading.Barrier(3), []

    def slowly(frames):
        for index, frame in enumerate(frames):
            if index == 5:
                all_run.wait(10)
            yield frame

    def work():
        try:
            results.append(transform(clip.path, tmp_path / "out.mp4", slowly, encode=FAST).frames)
        except PahsError as error:
            results.append(str(error))
            all_run.wait(10)

    jobs = [threading.Thread(target=work) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    refused_jobs = [r for r in results if isinstance(r, str)]
    assert len(refused_jobs) == 2 and all("another job is writing it" in r for r in refused_jobs)
    assert len(decoded(tmp_path / "out.mp4")) == 10
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.mp4", "out.mp4"]


def test_an_output_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    """Another job may finish between the look at the output's name and its lock."""
    clip = make_clip(tmp_path / "in.mp4", frames=2)
    real = Partial.__init__

    def late(self, target):
        if target.name == "out.mp4":
            target.write_bytes(b"by the other job")
        real(self, target)

    monkeypatch.setattr(Partial, "__init__", late)
    with pytest.raises(PahsError, match=r"out\.mp4: exists"):
        transform(clip.path, tmp_path / "out.mp4", identity, encode=FAST)
    assert snapshot(tmp_path) == {"in.mp4": clip.path.read_bytes(), "out.mp4": b"by the other job"}
