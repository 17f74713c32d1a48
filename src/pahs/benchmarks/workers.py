"""`pahs bench --fleet --workers 1 2 4`: the simulation against real processes that deblur a folder of clips.

Each process has one thread and takes clips from a common queue. What one of them needs for a clip and for a frame is
fitted to a first run with a single process; the simulation then says how long each number of them takes. Time counts
from the moment when all of them have loaded their network.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pahs.benchmarks.conditions import Say
from pahs.benchmarks.files import make_clip
from pahs.benchmarks.fleet import Fleet, Video, simulate
from pahs.benchmarks.options import FleetOptions
from pahs.errors import PahsError
from pahs.evaluation.tables import table
from pahs.networks import Deblurrer
from pahs.networks.contract import Contract, Tensors
from pahs.runtime.load import load

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

CLIPS = 32
SIZE = (128, 96)
LENGTHS = (6, 36, 14, 22)
"""Frames of the clips, in turn."""


class Sleeping(Deblurrer):
    """Gives every frame back after a while in which it needs no processor."""

    contract = Contract("recurrent", 0)

    def __init__(self, milliseconds: float) -> None:
        super().__init__()
        self.seconds = milliseconds / 1000

    def extract(self, frames: Tensor) -> Tensors:
        return (frames,)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        time.sleep(self.seconds * keep)
        return (features[0][:, :keep],), ()

    def reconstruct(self, latents: Tensors) -> Tensor:
        return latents[0]


@dataclass(frozen=True)
class Turn:
    """One clip, restored by one process."""

    frames: int
    seconds: float
    ended: float
    """On the clock that all processes read."""


@dataclass(frozen=True)
class Row:
    workers: int
    measured: float
    simulated: float
    """Seconds for all clips."""

    @property
    def difference(self) -> float:
        return self.simulated / self.measured - 1


@dataclass(frozen=True)
class Runs:
    """Real runs, and what the simulation says of them."""

    model: str
    frames: int
    clips: int
    cores: int
    per_clip: float
    """Fitted seconds of a clip without its frames."""
    per_frame: float
    rows: tuple[Row, ...]


def compare(model: str, options: FleetOptions, say: Say) -> Runs:
    with TemporaryDirectory(prefix="pahs-bench-") as name:
        folder = Path(name)
        lengths = [LENGTHS[n % len(LENGTHS)] for n in range(CLIPS)]
        sources = [folder / f"{n:03d}.mp4" for n in range(CLIPS)]
        for source, frames in zip(sources, lengths, strict=True):
            make_clip(source, frames, *SIZE)
        per_frame, per_clip = fit(run(1, model, options.sleep, sources, folder / "fitted")[1])
        say(f"one process: {1000 * per_clip:.1f} ms a clip and {1000 * per_frame:.2f} ms a frame")
        videos = [Video((frames,), frames) for frames in lengths]
        cores = len(os.sched_getaffinity(0))
        rows = []
        for count in options.workers:
            measured = run(count, model, options.sleep, sources, folder / f"{count}")[0]
            # Processes that compute share the cores; those that sleep share nothing.
            shared = cores / per_frame if options.sleep is None else float("inf")
            fleet = Fleet(count, (1 / per_frame,), shared, overhead=per_clip)
            rows.append(Row(count, measured, simulate(videos, fleet).seconds))
            say(f"{count} processes: {measured:.2f} s, simulated {rows[-1].simulated:.2f} s")
    name = model if options.sleep is None else f"a network that sleeps {options.sleep:g} ms a frame"
    return Runs(name, sum(lengths), CLIPS, cores, per_clip, per_frame, tuple(rows))


def fit(turns: Sequence[Turn]) -> tuple[float, float]:
    """Seconds of a frame and of a clip, by least squares; neither is below zero."""
    frames, seconds = np.array([turn.frames for turn in turns]), np.array([turn.seconds for turn in turns])
    slope, base = np.polyfit(frames, seconds, 1)
    if slope > 0 and base > 0:
        return float(slope), float(base)
    return float(seconds.sum() / frames.sum()), 0.0  # a busy machine bends the line


def run(
    count: int, model: str, sleep: float | None, sources: list[Path], folder: Path
) -> tuple[float, list[Turn]]:
    """Restore every clip once; the seconds from the moment when all are ready, and each clip's turn."""
    folder.mkdir()
    context = multiprocessing.get_context("spawn")
    todo: Queue[Path | None] = context.Queue()
    done: Queue[Turn | str | None] = context.Queue()
    go = context.Event()
    for item in (*sources, *[None] * count):
        todo.put(item)
    processes = [
        context.Process(target=work, args=(model, sleep, todo, done, go, folder)) for _ in range(count)
    ]
    try:
        for process in processes:
            process.start()
        for _ in processes:
            take(done, processes)
        began = time.monotonic()
        go.set()
        turns = [turn for _ in sources if isinstance(turn := take(done, processes), Turn)]
    finally:
        for process in processes:
            process.kill()
            process.join()
    return max(turn.ended for turn in turns) - began, turns


def take(done: Queue[Turn | str | None], processes: list[SpawnProcess]) -> Turn | None:
    """What a process says next; an error of one, or its death, ends the comparison."""
    while True:
        try:
            said = done.get(timeout=1)
        except queue.Empty:
            if any(process.exitcode for process in processes):
                raise PahsError("--workers: a process died; less memory is free than they need") from None
            continue
        if isinstance(said, str):
            raise PahsError(f"--workers: {said}")
        return said


def work(
    model: str,
    sleep: float | None,
    todo: Queue[Path | None],
    done: Queue[Turn | str | None],
    go: Event,
    out: Path,
) -> None:
    """One process: loads its network once, then restores clips until there are none."""
    from pahs.deblur import DeblurOptions, deblur

    try:
        torch.set_num_threads(1)
        network = load(model, "cpu", "fp32") if sleep is None else Sleeping(sleep)
        done.put(None)
        go.wait()
        while (source := todo.get()) is not None:
            began = time.monotonic()
            frames = deblur(source, out / source.name, DeblurOptions(device="cpu"), network).frames
            ended = time.monotonic()
            done.put(Turn(frames, ended - began, ended))
    except PahsError as error:
        done.put(str(error))


def markdown(runs: Runs) -> str:
    first = runs.rows[0]
    rows = (
        f"{x.workers} | {x.measured:.2f} | {x.simulated:.2f} | {100 * x.difference:+.0f} % | "
        f"{runs.frames / x.measured:.1f} | {first.measured / x.measured:.2f}"
        for x in runs.rows
    )
    headings = f"workers | seconds | simulated | difference | frames/s | times the speed of {first.workers}"
    about = (
        f"{runs.clips} clips of {SIZE[0]}x{SIZE[1]}, {runs.frames} frames; {runs.model}; {runs.cores} cores, one "
        f"thread a worker. One worker: {1000 * runs.per_clip:.1f} ms a clip and {1000 * runs.per_frame:.2f} ms a "
        "frame."
    )
    return "\n".join([*table(headings, rows, text=0), "", about])
