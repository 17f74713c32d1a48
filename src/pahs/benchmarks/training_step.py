"""`pahs bench --training-step`: time each kind of step on the same batches, from the same initial weights."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

from pahs.benchmarks.conditions import time_work, wait
from pahs.runtime.device import device_name
from pahs.training.capture import Step
from pahs.training.recipe import Recipe
from pahs.training.recipe_file import load_recipe
from pahs.training.schedule import ema_decay, learning_rate
from pahs.training.setup import make_model, make_step, setup
from pahs.training.share import Inputs, Share
from pahs.training.sources import open_photos, open_source

if TYPE_CHECKING:
    from lightning_fabric import Fabric

KEPT_BATCHES = 32
"""Batches are made once and reused in turn, so that only the step is timed."""
TOP = 12
"""Kernels in a profile's table."""
TIMED_FROM = 0.5
"""The first half of the steps is not timed."""


@dataclass(frozen=True)
class Timing:
    """One kind of step."""

    name: str
    prepare_seconds: float
    """Compiling, warming up, capturing."""
    milliseconds: float
    """Mean per step over the second half."""
    gigabytes: float
    """Most memory in use; 0 on a CPU."""
    losses: list[float]
    """The loss of every step."""
    kernels: list[tuple[str, int, float]]
    """Kernels of one step, or operations on a CPU: name, how often, milliseconds together; longest first."""
    error: str = ""
    """The traceback, where there are no numbers."""


def measure_recipe(path: Path, sets: Sequence[str], steps: int) -> dict[str, object]:
    """`pahs bench --training-step`: print a table, return its numbers."""
    recipe = load_recipe(path, sets)
    fabric = setup(recipe)
    cuda = fabric.device.type == "cuda"
    photos = open_photos(recipe, fabric.device)
    source = open_source(recipe, photos, Share(), fabric.device, print)
    batches = [source.batch() for _ in range(min(KEPT_BATCHES, steps))]
    made = min(20, steps)
    synthesis = 1000 / made * time_work(lambda: [source.batch() for _ in range(made)], fabric.device)
    kinds = [("eager", False, False)]
    if cuda:
        kinds += [("captured", False, False), ("captured", True, False), ("captured", True, True)]
    kinds = [kind for kind in kinds if recipe.train.step in ("auto", kind[0])]
    timings: list[Timing] = []
    for step, compiled, fused in kinds:
        name = step + (", compiled" if compiled else "") + (", fused" if fused else "")
        train = replace(recipe.train, step=step, compile=compiled, fused=fused)  # type: ignore[arg-type]
        try:
            timings.append(time_steps(fabric, replace(recipe, train=train), name, batches, steps))
        except Exception:  # the other kinds are worth their numbers all the same
            timings.append(Timing(name, 0.0, 0.0, 0.0, [], [], traceback.format_exc()))
        print(line(timings[-1], timings[0]), flush=True)
    print(f"making a batch: {synthesis:.1f} ms", flush=True)
    for timing in timings:
        print(profile_table(timing), flush=True)
    device = device_name(fabric.device)
    return {"device": device, "batch_ms": synthesis, "steps": [asdict(timing) for timing in timings]}


def time_steps(fabric: Fabric, recipe: Recipe, name: str, batches: list[Inputs], steps: int) -> Timing:
    started = time.monotonic()
    gc.collect()  # a compiled network refers to itself
    if fabric.device.type == "cuda":
        torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = make_model(recipe).to(fabric.device)
    update, step, _ = make_step(fabric, recipe, model)
    step.prepare(*batches[0])  # where this fails, training falls back; a benchmark reports it
    wait(fabric.device)
    prepare_seconds = time.monotonic() - started

    losses = torch.zeros(steps, device=fabric.device)
    timed_from, since = int(steps * TIMED_FROM), time.monotonic()
    for number in range(steps):
        if number == timed_from:
            wait(fabric.device)
            since = time.monotonic()
        lr = learning_rate(recipe.schedule, recipe.optim.lr, number, number / steps, steps)
        update.set(lr, ema_decay(recipe.optim.ema, number))
        losses[number].copy_(step(*batches[number % len(batches)]))
    wait(fabric.device)
    each = (time.monotonic() - since) / (steps - timed_from)
    memory = torch.cuda.max_memory_allocated() / 1e9 if fabric.device.type == "cuda" else 0.0
    kernels = kernels_of(step, batches[0], fabric.device)
    return Timing(name, prepare_seconds, each * 1000, memory, losses.tolist(), kernels)


def kernels_of(step: Step, batch: Inputs, device: torch.device) -> list[tuple[str, int, float]]:
    """What one step runs, longest first."""
    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
        step(*batch)
        wait(device)
    rows = []
    for event in seen.key_averages():
        microseconds = event.self_device_time_total if cuda else event.self_cpu_time_total
        rows.append((event.key, event.count, microseconds / 1000))
    return sorted(rows, key=lambda row: -row[2])


def profile_table(timing: Timing) -> str:
    """The longest kernels of one kind of step."""
    total = sum(milliseconds for _, _, milliseconds in timing.kernels)
    count = sum(times for _, times, _ in timing.kernels)
    rows = [f"{ms:9.2f} ms {times:6d} x  {name[:90]}" for name, times, ms in timing.kernels[:TOP]]
    return "\n".join([f"{timing.name}: {count} kernels, {total:.1f} ms if they ran one by one", *rows])


def line(timing: Timing, reference: Timing) -> str:
    """A row of the table; the last column is the mean distance of its losses from the reference's, in percent."""
    if timing.error:
        return f"{timing.name:20} failed: {timing.error[-1500:].rstrip()}"
    pairs = list(zip(timing.losses, reference.losses, strict=False))
    apart = 100 * sum(abs(a - b) / abs(b) for a, b in pairs) / len(pairs) if pairs else float("nan")
    tail = timing.losses[-max(1, len(timing.losses) // 5) :]
    return (
        f"{timing.name:20} {timing.milliseconds:8.1f} ms/step  {timing.gigabytes:6.1f} GB  "
        f"prepared in {timing.prepare_seconds:6.1f} s  last losses {sum(tail) / len(tail):.5f}  "
        f"losses apart {apart:.3f} %"
    )
