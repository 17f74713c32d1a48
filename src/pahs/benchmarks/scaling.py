"""`pahs bench --scaling`: speed and memory of one network over frame size and video length."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import cycle, islice

import torch
from torch import Tensor

from pahs.benchmarks.conditions import Say, allocated, conditions, moving_texture, peak_since, settle
from pahs.benchmarks.options import BenchConfig
from pahs.benchmarks.zoo import run_through
from pahs.evaluation.tables import NO_MEMORY, gib, table
from pahs.runtime.load import load

SIZES = ((320, 180), (640, 360), (960, 540), (1280, 720), (1920, 1080), (2560, 1440), (3840, 2160))
LENGTHS = (1, 2, 5, 10)
"""Video lengths, in multiples of `--frames`."""
HELD = 24
"""Frames of the clip that is repeated to make a long video."""


@dataclass(frozen=True)
class Point:
    """The measurements of one video."""

    width: int
    height: int
    frames: int
    seconds: float
    peak_bytes: int | None
    """Most memory in use, weights included, the clip not; None on a CPU."""

    @property
    def speed(self) -> float:
        return self.frames / self.seconds

    @property
    def megapixels(self) -> float:
        return self.width * self.height / 1e6


@dataclass(frozen=True)
class Scaling:
    """One run of `pahs bench --scaling`."""

    model: str
    sizes: tuple[Point, ...]
    """Videos of the same length and growing frame size."""
    lengths: tuple[Point, ...]
    """Videos of the largest size and growing length."""
    conditions: str


def scale(model: str, config: BenchConfig, say: Say = lambda _: None) -> Scaling:
    """Measure the usual sizes up to the one asked for, then videos up to ten times as long."""
    config = settle(config)
    device = torch.device(config.device)
    before = allocated(device)
    network = load(model, config.device, config.precision, random_weights=True)

    def measure(clip: list[Tensor], frames: int) -> Point:
        run_through(network, clip, device)
        seconds = run_through(network, islice(cycle(clip), frames), device)
        peak = peak_since(before + sum(x.nbytes for x in clip), device)
        point = Point(clip[0].shape[2], clip[0].shape[1], frames, seconds, peak)
        say(f"{point.width}x{point.height}, {frames} frames: {point.speed:.3f} frames/s")
        return point

    sizes = [(w, h) for w, h in SIZES if w * h < config.width * config.height]
    points = []
    for width, height in [*sizes, (config.width, config.height)]:
        clip = moving_texture(min(HELD, config.frames), height, width, device)
        points.append(measure(clip, config.frames))
    longer = [measure(clip, times * config.frames) for times in LENGTHS[1:]]
    text = conditions(config, f"--scaling --model {model}")
    return Scaling(model, tuple(points), (points[-1], *longer), text)


def markdown(result: Scaling) -> str:
    lines = table(
        "size | frames | frames/s | megapixels/s | peak GiB | peak bytes a pixel",
        (
            f"{p.width}x{p.height} | {p.frames} | {p.speed:.3f} | {p.speed * p.megapixels:.2f} | "
            f"{gib(p.peak_bytes, '.3f')} | "
            f"{f'{p.peak_bytes / (1e6 * p.megapixels):.0f}' if p.peak_bytes else '-'}"
            for p in result.sizes
        ),
    )
    shortest = result.lengths[0].peak_bytes
    more = (
        100 * (p.peak_bytes / shortest - 1) if p.peak_bytes and shortest else None for p in result.lengths
    )
    rows = (
        f"{p.frames} | {p.speed:.3f} | {gib(p.peak_bytes, '.3f')} | {'-' if x is None else f'{x:+.1f} %'}"
        for p, x in zip(result.lengths, more, strict=True)
    )
    lines += ["", *table("length | frames/s | peak GiB | peak, against the shortest", rows, text=0)]
    lines += ["", f"{result.model}. {result.conditions}"]
    return "\n".join(lines if shortest is not None else [*lines, NO_MEMORY])


def numbers(result: Scaling) -> dict[str, object]:
    """Everything, for JSON."""
    return {
        **asdict(result),
        **{
            name: [{**asdict(point), "frames_per_second": point.speed} for point in points]
            for name, points in (("sizes", result.sizes), ("lengths", result.lengths))
        },
    }
