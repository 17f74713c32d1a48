"""`pahs bench --scaling`: speed and memory of one network over the frame size and over the video's length."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pahs.benchmarks.conditions import BenchConfig, conditions, moving_texture, settle, wait
from pahs.engine import stream
from pahs.networks import Deblurrer

if TYPE_CHECKING:
    from PIL import ImageDraw

SIZES = ((320, 180), (640, 360), (960, 540), (1280, 720), (1920, 1080), (2560, 1440), (3840, 2160))
LENGTHS = (1, 2, 5, 10)
"""Video lengths, in multiples of `--frames`."""
HELD = 24
"""Frames of the clip that goes round and round."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """One video: how large, how long, how fast, and the most memory."""

    width: int
    height: int
    frames: int
    seconds: float
    peak_bytes: int | None
    """Weights included, the clip not; None on a CPU."""

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
    """The same length, larger and larger."""
    lengths: tuple[Point, ...]
    """The largest of the sizes, longer and longer."""
    conditions: str


def scale(
    model: str, build: Callable[[BenchConfig], Deblurrer], config: BenchConfig, say: Say = lambda _: None
) -> Scaling:
    """The usual sizes up to the one asked for, then videos up to ten times as long. `build` makes the network."""
    config = settle(config)
    device = torch.device(config.device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    network = build(config)

    def measure(clip: list[Tensor], frames: int) -> Point:
        run(network, clip, len(clip), device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        seconds = run(network, clip, frames, device)
        held = sum(x.nbytes for x in clip) + before
        peak = torch.cuda.max_memory_allocated(device) - held if device.type == "cuda" else None
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


def run(network: Deblurrer, clip: list[Tensor], frames: int, device: torch.device) -> float:
    """Seconds from the first frame given to the last frame returned."""
    wait(device)
    started = time.perf_counter()
    for _ in stream(network, islice(cycle(clip), frames), scene_cuts=False):
        pass
    wait(device)
    return time.perf_counter() - started


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


PANEL, MARGIN, LABEL = (460, 300), 56, 36


def plot(result: Scaling, path: Path) -> None:
    """A picture of both tables: time, and memory where it was measured, over pixels and over frames."""
    from PIL import Image, ImageDraw

    from pahs.files import write_whole

    columns = (
        ("megapixels", [p.megapixels for p in result.sizes], result.sizes),
        ("frames of the video", [float(p.frames) for p in result.lengths], result.lengths),
    )
    quantities: list[tuple[str, Callable[[Point], float]]] = [("ms a frame", lambda p: 1000 / p.speed)]
    if result.sizes[0].peak_bytes is not None:
        quantities.append(("peak GiB", lambda p: (p.peak_bytes or 0) / 2**30))
    image = Image.new("RGB", (PANEL[0] * len(columns), PANEL[1] * len(quantities)), "white")
    draw = ImageDraw.Draw(image)
    for row, (name, value) in enumerate(quantities):
        for column, (label, xs, points) in enumerate(columns):
            panel(draw, (column * PANEL[0], row * PANEL[1]), label, name, xs, [value(p) for p in points])
    write_whole(path, lambda partial: image.save(partial, "PNG"))


def panel(
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    label: str,
    name: str,
    xs: list[float],
    ys: list[float],
) -> None:
    """One curve from zero, with each point's own numbers at the axes."""
    left, top = corner[0] + MARGIN, corner[1] + 24
    right, bottom = corner[0] + PANEL[0] - 30, corner[1] + PANEL[1] - 40
    x_scale, y_scale = (right - left) / max(xs), (bottom - top) / (1.1 * max(ys))
    draw.line([(left, top), (left, bottom), (right, bottom)], "black")
    draw.text((left + 6, top - 16), name, "black")
    draw.text((right, bottom + 20), label, "black", anchor="rt")
    places = [(left + x * x_scale, bottom - y * y_scale) for x, y in zip(xs, ys, strict=True)]
    draw.line(places, "#1f6fb4", width=2)
    labelled = float("inf")
    for (x, y), amount, value in reversed(list(zip(places, xs, ys, strict=True))):
        draw.ellipse((x - 3, y - 3, x + 3, y + 3), "#1f6fb4")
        if labelled - x >= LABEL:
            labelled = x
            draw.text((x, y - 6), f"{value:.3g}", "black", anchor="mb")
            draw.text((x, bottom + 4), f"{amount:.4g}", "gray", anchor="mt")
