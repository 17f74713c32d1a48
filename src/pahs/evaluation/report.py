"""The result of an evaluation: numbers with their protocol, as dataclasses, JSON and Markdown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pahs import configs, files
from pahs.errors import PahsError
from pahs.evaluation.options import EvaluateOptions
from pahs.evaluation.score import Means, SequenceScore, means
from pahs.networks.contract import Family

FORMAT = "pahs-evaluation-5"


@dataclass(frozen=True)
class ModelFacts:
    """The network that was evaluated, and where it ran."""

    name: str
    checksum: str
    """sha256 over configuration and weights."""
    family: Family
    parameters: int
    flops_per_frame: float
    flops_size: tuple[int, int]
    """Height and width that the FLOPs are for: those of the first sequence."""
    look_ahead: int
    """Future frames that an output sees at least."""
    chunk: int
    """Frames that one backward sweep restores at most: an output sees up to `chunk` - 1 more future frames."""
    device: str
    precision: str


@dataclass(frozen=True)
class Evaluation:
    """One network on one dataset under one protocol."""

    version: str
    """Of pahs."""
    model: ModelFacts
    data: str
    layout: str
    split: str | None
    options: EvaluateOptions
    planned: tuple[str, ...]
    """Names of all sequences; those that are not in `sequences` remain to be scored."""
    sequences: tuple[SequenceScore, ...]

    @property
    def complete(self) -> bool:
        return len(self.sequences) == len(self.planned)

    @property
    def mean_over_sequences(self) -> Means:
        """The mean of the sequences' means: each sequence weighs the same."""
        return means([sequence.mean for sequence in self.sequences])

    @property
    def mean_over_frames(self) -> Means:
        """The mean of all frames: each frame weighs the same."""
        return means([frame for sequence in self.sequences for frame in sequence.frames])

    @property
    def frames_per_second(self) -> float:
        seconds = sum(sequence.seconds for sequence in self.sequences)
        return sum(sequence.outputs for sequence in self.sequences) / seconds if seconds else 0.0

    @property
    def protocol(self) -> str:
        return self.options.text(self.model.look_ahead, self.model.chunk, self.model.family)


def write_json(evaluation: Evaluation, path: Path) -> None:
    """All numbers of all frames, with a summary in front."""
    summary = {
        "protocol": evaluation.protocol,
        "complete": evaluation.complete,
        "frames_per_second": evaluation.frames_per_second,
        "mean_over_sequences": asdict(evaluation.mean_over_sequences),
        "mean_over_frames": asdict(evaluation.mean_over_frames),
        "sequences": {sequence.name: asdict(sequence.mean) for sequence in evaluation.sequences},
    }
    files.write_json(path, {"format": FORMAT, "summary": summary, **asdict(evaluation)}, allow_nan=False)


def read_json(path: Path) -> Evaluation:
    """Read a file of `write_json`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        data.pop("summary", None)
        return configs.build(Evaluation, data)
    except (OSError, ValueError) as error:
        raise PahsError(
            f"{path}: not an evaluation that can be continued ({error}); name another file"
        ) from None


def markdown_table(evaluation: Evaluation) -> str:
    """The facts of the run, and a table with a row for each sequence and both averages."""
    model, (height, width) = evaluation.model, evaluation.model.flops_size
    facts = (
        f"**{model.name}** on {evaluation.data} ({evaluation.layout}, {evaluation.split or 'everything'}): "
        f"{model.parameters / 1e6:.2f} M parameters, {model.flops_per_frame / 1e9:.1f} GFLOPs per {width}x{height} "
        f"frame, {evaluation.frames_per_second:.2f} frames/s on {model.device} in {model.precision}"
    )
    headings = ("sequence", "frames", "blurry PSNR", "PSNR", "gain", "blurry SSIM", "SSIM")
    rows = [headings, *(_row(s.name, len(s.frames), s.mean) for s in evaluation.sequences)]
    frames = sum(len(s.frames) for s in evaluation.sequences)
    rows.append(_row("**mean over sequences**", frames, evaluation.mean_over_sequences))
    rows.append(_row("**mean over all frames**", frames, evaluation.mean_over_frames))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(_pad(row, widths)) + " |" for row in rows]
    rule = ("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths))
    lines.insert(1, f"|{'|'.join(rule)}|")
    lines += ["", _colour_and_flicker(evaluation.mean_over_frames)]
    missing = len(evaluation.planned) - len(evaluation.sequences)
    if missing:
        lines.append(f"\nUnfinished: {missing} of {len(evaluation.planned)} sequences are still to do.")
    return "\n".join([facts, "", f"Protocol: {evaluation.protocol}.", "", *lines]) + "\n"


def _colour_and_flicker(mean: Means) -> str:
    """Two errors that a viewer notices and PSNR hardly does: another colour, and flicker."""
    ours, true = (
        f"R {red:+.2f}, G {green:+.2f}, B {blue:+.2f}" for red, green, blue in (mean.shift, mean.true_shift)
    )
    text = f"Colour: output minus input {ours} levels (sharp frames minus input: {true})."
    if mean.flicker is not None and mean.blurry_flicker is not None:
        text += (
            f" Flicker: changes between frames differ from the true ones by {mean.flicker:.2f} levels "
            f"(blurry input: {mean.blurry_flicker:.2f})."
        )
    return text


def _row(name: str, frames: int, mean: Means) -> tuple[str, ...]:
    decibels = (f"{mean.blurry_psnr:.2f}", f"{mean.psnr:.2f}", f"{mean.psnr - mean.blurry_psnr:+.2f}")
    return name, str(frames), *decibels, f"{mean.blurry_ssim:.4f}", f"{mean.ssim:.4f}"


def _pad(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [x.ljust(w) if i == 0 else x.rjust(w) for i, (x, w) in enumerate(zip(row, widths, strict=True))]
