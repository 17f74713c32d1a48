"""Gives mutants to worker processes and judges how each job ended."""

from __future__ import annotations

import json
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import av

from .mutants import Mutant, mutant
from .seeds import make_seeds

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30.0
"""A job on eight frames that takes longer hangs."""


@dataclass
class Findings:
    """What became of the mutants."""

    ends: Counter[str] = field(default_factory=Counter)
    """done, refused, or what is wrong: late, traceback, crash, hang, input changed, left behind, broken result."""
    faults: list[str] = field(default_factory=list)
    """A paragraph for each mutant that met something wrong."""


def hunt(
    count: int, run: int, jobs: int, seconds: float | None, keep: Path | None, only: int | None
) -> Findings:
    """Try mutants until `count` of them, or `seconds`, are over."""
    findings, lock = Findings(), threading.Lock()
    numbers = iter(range(count) if only is None else [only])
    end = time.monotonic() + seconds if seconds else None
    with tempfile.TemporaryDirectory(prefix="pahs-fuzz-") as scratch:
        (Path(scratch) / "seeds").mkdir()
        seeds = make_seeds(Path(scratch) / "seeds")

        def work(place: Path) -> None:
            worker = Worker(place)
            try:
                while end is None or time.monotonic() < end:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    case = mutant(seeds, run, number)
                    outcome, text = judge(worker, case, place)
                    with lock:
                        findings.ends[outcome] += 1
                        if outcome not in ("done", "refused"):
                            findings.faults.append(f"#{number} {case.name} {case.damage}: {outcome}: {text}")
                            if keep is not None:
                                (keep / f"{number}").mkdir(parents=True, exist_ok=True)
                                case.write(keep / f"{number}")
            finally:
                worker.end()

        threads = [threading.Thread(target=work, args=(Path(scratch) / str(i),)) for i in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return findings


def judge(worker: Worker, case: Mutant, place: Path) -> tuple[str, str]:
    """Let a worker deblur a mutant in a folder of its own; how it ended, and why."""
    folder = place / "job"
    folder.mkdir()
    try:
        source = case.write(folder)
        before = contents(folder)
        outcome, text, number = worker.deblur(source)
        after = contents(folder)
        if any(after.get(name) != data for name, data in before.items()):
            return "input changed", text
        new = {name.split("/")[0] for name in after if name not in before}
        expected = {Path(text).name} if outcome == "done" else set()
        if outcome in ("done", "refused", "late") and new != expected:
            return "left behind", f"{sorted(new)} after {outcome}: {text}"
        if outcome == "done" and not shows(Path(text)):
            return "broken result", text
        if outcome == "refused" and number:
            return "several lines", text
        return outcome, text
    finally:
        shutil.rmtree(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; folders are listed too."""
    paths = folder.rglob("*")
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in paths}


def shows(result: Path) -> bool:
    """Whether a picture can be decoded from a result."""
    file = next(iter(sorted(result.iterdir()))) if result.is_dir() else result
    try:
        with av.open(str(file)) as container:
            return next(iter(container.decode(video=0)), None) is not None
    except (av.FFmpegError, OSError):
        return False


class Worker:
    """A process that deblurs one file after the other; a new one takes over after a crash."""

    def __init__(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        self.log = (place / "log").open("w+b")
        self._start()

    def deblur(self, source: Path) -> tuple[str, str, int]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.log.seek(0)
        self.log.truncate()
        self.process.stdin.write(json.dumps(str(source)).encode() + b"\n")
        self.process.stdin.flush()
        line = self._line(SECONDS)
        if line is not None and line.endswith(b"\n"):
            outcome, text, number = json.loads(line)
            return outcome, text, number
        if line is None:
            self.process.send_signal(
                signal.SIGABRT
            )  # the worker's fault handler writes where all threads are
        code = self.process.wait(timeout=60)
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")[-3000:]
        self.end()
        self._start()
        return ("hang" if line is None else "crash"), f"exit code {code}\n{text}", 0

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.fuzz.worker"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, bufsize=0
        )
        assert self._line(120) == b"ready\n", "the worker does not start"

    def _line(self, seconds: float) -> bytes | None:
        """What the worker says next; None after `seconds`, and a part of a line if it has ended."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
            return self.process.stdout.readline()
