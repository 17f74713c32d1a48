"""`pahs bench --backends`: what can compute a network on this processor, side by side, in one run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pahs.backends.choose import LARGEST_LOSS, choices
from pahs.backends.load import load
from pahs.backends.network import GraphNetwork
from pahs.benchmarks.conditions import Say, conditions, has_weights, settle
from pahs.benchmarks.files import Video, measure_file
from pahs.benchmarks.options import BenchConfig
from pahs.benchmarks.quality import measure_quality, open_takes
from pahs.errors import PahsError
from pahs.evaluation.tables import shown, table

CLIP = 40
"""Frames of the video that is made, where none is named: more than a chunk."""


@dataclass(frozen=True)
class Row:
    """One backend in one precision."""

    backend: str
    precision: str
    restore: float
    """Frames per second of the network and the change of colours, alone."""
    file_to_file: float
    psnr: float | None
    """Mean over all frames of the dataset, in dB; None without one."""


@dataclass(frozen=True)
class Comparison:
    """One run."""

    model: str
    rows: tuple[Row, ...]
    """The first one is PyTorch in float32."""
    auto: str
    """What `--backend auto` takes here."""
    conditions: str

    @property
    def best(self) -> Row:
        """The fastest from file to file that loses no more than `auto` allows."""
        first = self.rows[0].psnr or 0.0
        kept = [row for row in self.rows if row.psnr is None or first - row.psnr <= LARGEST_LOSS]
        return max(kept, key=lambda row: row.file_to_file)


def compare(model: str, config: BenchConfig, video: Video, data: Path | None, say: Say) -> Comparison:
    """Measure everything that runs here, one after the other."""
    if not has_weights(model):
        raise PahsError(f"--backends --model {model}: it has no weights, and int8 needs them; train it first")
    config = settle(replace(config, device="cpu"))
    takes = open_takes(data)
    wanted = [("torch", "fp32"), *([("torch", config.precision)] if config.precision != "fp32" else [])]
    wanted += [(x.backend, x.precision) for x in choices() if x.precision is not None]
    rows: list[Row] = []
    for backend, precision in wanted:
        try:
            network = load(model, "cpu", precision, backend=backend)
        except PahsError as error:
            say(f"{backend} {precision}: left out ({error})")
            continue
        rates = measure_file(network, video.path, say)
        quality = measure_quality(network, takes)
        psnr = None if quality is None else quality.restored
        rows.append(Row(backend, precision, rates.restore, rates.file_to_file, psnr))
        say(f"{backend} {precision}: {rates.file_to_file:.3f} frames/s, {shown(rows[-1].psnr)} dB")
    taken = load(model, "cpu", backend="auto")
    auto = taken.runs if isinstance(taken, GraphNetwork) else f"torch {config.precision}"
    what = f"--backends --model {model} {video.option}" + (f" --data {data}" if data is not None else "")
    return Comparison(model, tuple(rows), auto, conditions(config, what))


def markdown(result: Comparison) -> str:
    """The table, what follows from it, and the conditions of its measurement."""
    first = result.rows[0]
    lines = table(
        "backend | precision | restore, alone (frames/s) | file to file (frames/s) | times PyTorch fp32 "
        "| PSNR (dB) | loss (dB)",
        (
            f"{row.backend} | {row.precision} | {row.restore:.2f} | {row.file_to_file:.2f} | "
            f"{row.file_to_file / first.file_to_file:.2f} | {shown(row.psnr)} | "
            f"{shown(None if row.psnr is None or first.psnr is None else first.psnr - row.psnr)}"
            for row in result.rows
        ),
        text=2,
    )
    best = result.best
    lines += [
        "",
        f"Fastest within {LARGEST_LOSS:g} dB: {best.backend} {best.precision}. "
        f"`--backend auto` takes {result.auto} here.",
        "",
        result.conditions,
    ]
    return "\n".join(lines)
