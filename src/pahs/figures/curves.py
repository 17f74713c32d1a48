"""Curves of training runs as one picture: a row for each run, its loss on the left, its validation on the right.

pahs curves runs/s2 runs/t3 -o curves.png
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from pahs.errors import PahsError
from pahs.files import write_whole

PANEL = (480, 220)
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 30, 34
INK = "#1f6fb4"

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """What a run wrote down."""

    name: str
    loss: Points
    """Step, mean loss of the steps up to it."""
    gain: Points
    """Step, PSNR of the output minus that of the input on the validation clips, in dB."""


def read(path: Path) -> Curves:
    """A run's `metrics.jsonl`, or the folder that holds it."""
    path = path / "metrics.jsonl" if path.is_dir() else path
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        loss = sorted((line["step"], line["loss"]) for line in lines if "loss" in line)
        gain = sorted(
            (line["step"], line["psnr_out"] - line["psnr_in"]) for line in lines if "psnr_out" in line
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PahsError(f"{path}: cannot be read as a run's metrics.jsonl ({error})") from None
    if not loss and not gain:
        raise PahsError(f"{path}: holds neither losses nor validations")
    name = path.parent.name if path.stem == "metrics" else path.stem
    return Curves(name, loss, gain)


def draw(runs: Sequence[Curves]) -> Image.Image:
    image = Image.new("RGB", (2 * PANEL[0], PANEL[1] * len(runs)), "white")
    pen = ImageDraw.Draw(image)
    for row, run in enumerate(runs):
        for column, (title, points) in enumerate((("loss", run.loss), ("validation, gain in dB", run.gain))):
            panel(pen, (column * PANEL[0], row * PANEL[1]), f"{run.name}: {title}", points)
    return image


def panel(pen: ImageDraw.ImageDraw, corner: tuple[int, int], title: str, points: Points) -> None:
    """One curve that fills its panel, with its smallest and largest values at the axes."""
    left, top = corner[0] + LEFT, corner[1] + TOP
    right, bottom = corner[0] + PANEL[0] - RIGHT, corner[1] + PANEL[1] - BOTTOM
    pen.text((left, top - 18), title, "black")
    pen.line([(left, top), (left, bottom), (right, bottom)], "black")
    if not points:
        return
    last = max(x for x, _ in points) or 1
    low, high = min(y for _, y in points), max(y for _, y in points)
    span = high - low or 1
    places = [
        (left + x / last * (right - left), bottom - 8 - (y - low) / span * (bottom - top - 16))
        for x, y in points
    ]
    pen.line(places, INK, width=2)
    for x, y in places if len(places) < 20 else places[-1:]:
        pen.ellipse((x - 3, y - 3, x + 3, y + 3), INK)
    pen.text((left - 6, bottom - 8), f"{low:.4g}", "gray", anchor="rm")
    pen.text((left - 6, top + 8), f"{high:.4g}", "gray", anchor="rm")
    pen.text((right, bottom + 6), f"{last:g} steps", "gray", anchor="rt")


def plot(runs: Sequence[Path], output: Path) -> None:
    """Draw runs, given as their folders or their `metrics.jsonl`, into a PNG."""
    image = draw([read(path) for path in runs])
    write_whole(output, lambda partial: image.save(partial, "PNG"))
