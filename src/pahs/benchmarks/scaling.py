"""`pahs bench --scaling`: speed and memory of one network over frame size and video length."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import cycle, islice

import torch
from torch import Tensor

from pahs.benchmarks.conditions import Say, conditions, moving_texture, settle
from pahs.benchmarks.memory import allocated, peak_since
from pahs.benchmarks.options import BenchConfig
from pahs.benchmarks.zoo import run_through
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
    lines = [
        "| size | frames | frames/s | megapixels/s | peak GiB | peak bytes a pixel |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for point in result.sizes:
        each = point.peak_bytes / (1e6 * point.megapixels) if point.peak_bytes is not None else None
        lines.append(
            f"| {point.width}x{point.height} | {point.frames} | {point.speed:.3f} "
            f"| {point.speed * point.megapixels:.2f} | {gib(point)} | {f'{each:.0f}' if each else '-'} |"
        )
    lines += ["", "| length | frames/s | peak GiB | peak, against the shortest |", "|--:|--:|--:|--:|"]
    shortest = result.lengths[0].peak_bytes
    for point in result.lengths:
        more = f"{100 * (point.peak_bytes / shortest - 1):+.1f} %" if point.peak_bytes and shortest else "-"
        lines.append(f"| {point.frames} | {point.speed:.3f} | {gib(point)} | {more} |")
    lines += ["", f"{result.model}. {result.conditions}"]
    if shortest is None:
        lines.append("Peak memory is measured on CUDA devices only.")
    return "\n".join(lines)


def gib(point: Point) -> str:
    return f"{point.peak_bytes / 2**30:.3f}" if point.peak_bytes is not None else "-"


def numbers(result: Scaling) -> dict[str, object]:
    """Everything, for JSON."""
    return {
        **asdict(result),
        **{
            name: [{**asdict(point), "frames_per_second": point.speed} for point in points]
            for name, points in (("sizes", result.sizes), ("lengths", result.lengths))
        },
    }
