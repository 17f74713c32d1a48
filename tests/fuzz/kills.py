"""Jobs that are killed at random moments: what they leave, and whether the next run removes it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av

from clips import make_clip
from pahs.video import transform
from processes import uncovered

from .hunt import ROOT, Findings, contents

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
FRAMES = 300


def kill_many(count: int, run: int, seconds: float | None) -> Findings:
    """Kill jobs, each at a moment of its own, half of them while they write; one by every signal at least."""
    findings, rng = Findings(), random.Random(run)
    end = time.monotonic() + seconds if seconds else None
    with tempfile.TemporaryDirectory(prefix="pahs-kills-") as scratch:
        folder = Path(scratch) / "films"
        folder.mkdir()
        clip = make_clip(folder / "film.mp4", frames=FRAMES, width=160, height=96, audio="aac").path
        small = make_clip(Path(scratch) / "small.mp4", frames=1).path
        before, log = contents(folder), Path(scratch) / "log"
        start = time.monotonic()
        assert _start(clip, log).wait() == 0, "the job fails even if nobody kills it"
        length = time.monotonic() - start
        for number in range(count):
            for path in folder.iterdir():
                if path.name not in before:
                    path.unlink()
            if number >= len(SIGNALS) and end is not None and time.monotonic() + length > end:
                break
            sent, job = SIGNALS[number % len(SIGNALS)], _start(clip, log)
            if rng.random() < 0.5:
                _wait_for_partial(folder, job)
                time.sleep(rng.uniform(0, 0.2 * length))
            else:
                time.sleep(rng.uniform(0, length))
            job.send_signal(sent)
            try:
                job.wait(timeout=60)
            except subprocess.TimeoutExpired:
                job.send_signal(signal.SIGABRT)  # the job shows where each of its threads is
                job.wait()
                findings.faults.append(f"kill {number}: {sent.name} did not end the job: {log.read_text()}")
            left = {name for name in contents(folder) if "/" not in name} - set(before) - {"out.mp4"}
            finished = "out.mp4" in contents(folder)
            findings.ends[
                f"{sent.name} {'after the end' if finished else 'left a part' if left else 'left nothing'}"
            ] += 1
            transform(small, folder / "next.mp4", lambda frames: frames)
            faults = _faults(folder, before, finished)
            if left and sent != signal.SIGKILL:
                faults.append(f"{sorted(left)} was left")
            findings.faults += [f"kill {number} by {sent.name}: {fault}" for fault in faults]
    return findings


def _start(clip: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pahs", "deblur", str(clip), "-o", str(clip.with_name("out.mp4"))]
    options = ["--model", "pahs-t", "--strength", "0", "--preset", "fast", "--device", "cpu"]
    options += ["--backend", "torch"]  # the first job would look for the fastest one, which takes minutes
    environment = uncovered(PYTHONFAULTHANDLER="1")
    with log.open("w") as file:
        return subprocess.Popen([*command, *options], cwd=ROOT, stdout=file, stderr=file, env=environment)


def _wait_for_partial(folder: Path, job: subprocess.Popen[bytes]) -> None:
    while job.poll() is None and not any(p.name.endswith(".partial") for p in folder.iterdir()):
        time.sleep(0.002)


def _faults(folder: Path, before: dict[str, bytes], finished: bool) -> list[str]:
    """What is wrong after the next run: a changed input, a broken result, or a part that is still there."""
    after = contents(folder)
    faults = (
        ["the input was changed"] if any(after.get(name) != data for name, data in before.items()) else []
    )
    others = set(after) - set(before) - {"out.mp4", "next.mp4"}
    if others:
        faults.append(f"{sorted(others)} is still there after the next run")
    if finished:
        with av.open(str(folder / "out.mp4")) as container:
            frames = sum(1 for _ in container.decode(video=0))
        if frames != FRAMES:
            faults.append(f"the result has {frames} of {FRAMES} frames")
    return faults
