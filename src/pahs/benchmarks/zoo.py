"""`pahs bench` and `pahs bench --zoo`: speed, memory and arithmetic of networks, each on the same frames.

The network is timed in the engine, as `pahs deblur` runs it: from the first frame given to the last frame returned. The
frames already lie on the device; decoding, encoding and the detection of scene cuts are not part of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pahs.benchmarks.conditions import (
    Say,
    allocated,
    check_model,
    conditions,
    free_memory,
    has_weights,
    moving_texture,
    peak_since,
    reset_peak,
    settle,
    time_work,
)
from pahs.benchmarks.options import BenchConfig
from pahs.benchmarks.quality import Quality, measure_quality, open_takes
from pahs.engine import stream
from pahs.errors import PahsError
from pahs.evaluation.flops import flops_per_frame, parameters
from pahs.evaluation.protocol import Take
from pahs.evaluation.tables import NO_MEMORY, gib, shown, table
from pahs.networks import PRESETS, Deblurrer
from pahs.runtime import weights
from pahs.runtime.device import device_name
from pahs.runtime.load import load

PAPER_SPEED = {
    "pahs": 1.43,
    "pahs-s-paper": 4.17,
    "ovd": 7.69,
    "ifirnn": 20.15,
    "stfan": 6.66,
    "estrnn-c80b15": 6.21,
    "edvr-l": 2.70,
    "tsp": 0.22,
    "arvo": 0.15,
}
"""Frames per second in the paper's table; the paper tells neither the frame size nor the GPU."""
PROBE = 4
"""Frames of a short clip that is timed first, to choose how many frames there is time for."""


@dataclass(frozen=True)
class Row:
    """The measurements of one network. Where one failed, `error` says why and the rest is None."""

    model: str
    family: str = ""
    parameters: int | None = None
    flops: float | None = None
    """Per frame of a whole clip, a multiplication and an addition counting as two."""
    frames: int | None = None
    """Frames that were timed."""
    seconds: float | None = None
    """Time for these frames."""
    peak_bytes: int | None = None
    """Most memory in use, weights included, the clip not; None on a CPU."""
    paper_speed: float | None = None
    quality: Quality | None = None
    """On the dataset, if there is one."""
    error: str = ""

    @property
    def speed(self) -> float | None:
        return self.frames / self.seconds if self.frames and self.seconds else None


@dataclass(frozen=True)
class Zoo:
    """One run."""

    rows: tuple[Row, ...]
    config: BenchConfig
    """With the device and the precision that `auto` stood for."""
    device: str
    """The device's own name."""
    torch: str
    conditions: str
    """Machine, versions and command, in one line."""


def measure_all(
    names: Sequence[str], config: BenchConfig, say: Say = lambda _: None, data: Path | None = None
) -> Zoo:
    """Measure networks one after the other; `names` are presets (random weights) or weights files.

    Where `data` is a dataset, they need weights, and are scored on it too.
    """
    config = settle(config)
    device = torch.device(config.device)
    for name in names:
        check_model(name)
        if data is not None and not has_weights(name):
            raise PahsError(f"--data --model {name}: it has no weights to score; train it first")
    takes = open_takes(data)
    clip = moving_texture(config.frames, config.height, config.width, device)
    rows = []
    for number, name in enumerate(names, 1):
        row = measure(name, clip, config)
        rows.append(scored(row, takes, config) if takes and not row.error else row)
        say(f"[{number}/{len(names)}] {summary(rows[-1])}")
    which = "--zoo" if list(names) == list(PRESETS) else f"--model {' '.join(names)}"
    which += f" --data {data}" if data is not None else ""
    return Zoo(tuple(rows), config, device_name(device), torch.__version__, conditions(config, which))


def measure(name: str, clip: list[Tensor], config: BenchConfig) -> Row:
    """Everything about one network; an error is noted in its row."""
    row = Row(name, paper_speed=PAPER_SPEED.get(name))
    try:
        row = count(row, config)
        row = time_and_weigh(row, clip, config)
    except Exception as error:  # the other networks are worth their rows all the same
        reason = (str(error).strip().splitlines() or [""])[0]
        known = isinstance(error, PahsError)
        row = replace(row, error=reason if known else f"{type(error).__name__}: {reason}")
    free_memory()
    return row


def count(row: Row, config: BenchConfig) -> Row:
    """Parameters and operations, counted on tensors without values."""
    known = PRESETS.get(row.model)
    shape = weights.describe(row.model).config if known is None else known.config
    with torch.device("meta"):
        network = shape.build()
    return replace(
        row,
        family=network.contract.family,
        parameters=parameters(network),
        flops=flops_per_frame(network, config.height, config.width),
    )


def time_and_weigh(row: Row, clip: list[Tensor], config: BenchConfig) -> Row:
    """Speed, and the most memory in use meanwhile."""
    device = torch.device(config.device)
    before = allocated(device)
    network = load(row.model, config.device, config.precision, random_weights=True)
    frames, seconds = time_clip(network, clip, device, config.seconds)
    return replace(row, frames=frames, seconds=seconds, peak_bytes=peak_since(before, device))


def scored(row: Row, takes: Sequence[Take], config: BenchConfig) -> Row:
    """With the quality."""
    network = load(row.model, config.device, config.precision)
    return replace(row, quality=measure_quality(network, takes))


def time_clip(
    network: Deblurrer, clip: list[Tensor], device: torch.device, seconds: float
) -> tuple[int, float]:
    """Frames that were timed and the seconds they took, after one pass over the same frames to warm up."""
    probe = clip[:PROBE]
    run_through(network, probe, device)
    took = run_through(network, probe, device)
    affordable = min(len(clip), int(seconds / took * len(probe)))
    if affordable <= len(probe):
        return len(probe), took
    run_through(network, clip[:affordable], device)
    return affordable, run_through(network, clip[:affordable], device)


def run_through(network: Deblurrer, clip: Iterable[Tensor], device: torch.device) -> float:
    """Seconds from the first frame given to the last frame returned. Peak memory counts from here."""
    reset_peak(device)
    return time_work(lambda: deque(stream(network, clip, scene_cuts=False), maxlen=0), device)


def summary(row: Row) -> str:
    if row.speed is None:
        return f"{row.model}: {row.error}"
    memory = f", {gib(row.peak_bytes)} GiB" if row.peak_bytes is not None else ""
    return f"{row.model}: {row.speed:.2f} frames/s over {row.frames} frames{memory}"


def markdown(result: Zoo) -> str:
    """The table, and the conditions of its measurement."""
    head = "model | family | parameters (M) | GFLOPs a frame | frames timed | frames/s | paper's frames/s | peak GiB"
    scored = any(row.quality is not None for row in result.rows)
    lines = table(
        f"{head} | PSNR (dB) | blurry (dB)" if scored else head,
        (
            f"{row.model} | {row.family or '-'} | {shown(row.parameters and row.parameters / 1e6)} | "
            f"{shown(row.flops and row.flops / 1e9, '.1f')} | {row.frames or '-'} | "
            f"{row.error.replace('|', '/') if row.speed is None else f'{row.speed:.2f}'} | "
            f"{shown(row.paper_speed)} | {gib(row.peak_bytes)}" + (_scores(row.quality) if scored else "")
            for row in result.rows
        ),
        text=2,
    )
    lines += ["", result.conditions]
    if all(row.peak_bytes is None for row in result.rows):
        lines.append(NO_MEMORY)
    return "\n".join(lines)


def _scores(quality: Quality | None) -> str:
    return " | - | -" if quality is None else f" | {quality.restored:.2f} | {quality.blurry:.2f}"


def numbers(result: Zoo) -> dict[str, object]:
    """Everything, for JSON."""
    return {
        **asdict(result),
        "rows": [{**asdict(row), "frames_per_second": row.speed} for row in result.rows],
    }
