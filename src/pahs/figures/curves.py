"""The curves of training runs in one picture: a row for each, its loss on the left, its validation on the right.

pahs curves runs/s2 runs/t3 -o curves.png
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pahs.errors import PahsError
from pahs.figures import new_figure, save

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """The numbers that a run has logged."""

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


def plot(runs: Sequence[Path], output: Path) -> None:
    """Draw runs, given as their folders or their `metrics.jsonl`, into a PNG."""
    curves = [read(path) for path in runs]
    figure = new_figure(len(curves), 2)
    for row, run in zip(figure.subplots(len(curves), 2, squeeze=False), curves, strict=True):
        for axes, name, points, marker in zip(
            row, ("loss", "validation: gain in dB"), (run.loss, run.gain), ("", "o"), strict=True
        ):
            axes.plot([x for x, _ in points], [y for _, y in points], marker=marker)
            axes.set(title=run.name, xlabel="steps", ylabel=name)
            axes.set_xlim(left=0)
    figure.align_ylabels()
    save(figure, output)
