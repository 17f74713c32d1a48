"""What an evaluation found: numbers with their protocol, as dataclasses, JSON and Markdown, and comparison strips."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pahs import configs
from pahs.errors import PahsError
from pahs.evaluation.metrics import mean_psnr
from pahs.files import write_whole

FORMAT = "pahs-evaluation-4"
REPLACE_PERIOD = 5
"""With `replace_neighbour`, one frame of any five consecutive ones is sharp: one in the window of a windowed net."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Which frames the network sees and which of them count: everything that changes a number."""

    look_ahead: int | None = None
    """Exactly this many future frames for each output; None: the network's own, at least, as `pahs deblur` does."""
    every_second: bool = False
    """Large motion: keep frames 0, 2, 4, ... of each sequence and drop the others."""
    replace_neighbour: bool = False
    """Each frame is scored while its previous frame (for the first frame: the next) is the sharp ground truth."""
    limit: int | None = None
    """Use only the first frames of each sequence."""
    scene_cuts: bool = False
    """Reset the hidden state at scene cuts; datasets have none, and a false alarm would cost."""

    def __post_init__(self) -> None:
        if self.look_ahead is not None and self.look_ahead < 0:
            raise PahsError(f"look-ahead is {self.look_ahead}; it must be 0 or more")
        if self.limit is not None and self.limit < 1:
            raise PahsError(f"limit is {self.limit}; it must be 1 frame or more")


@dataclass(frozen=True)
class FrameScore:
    """One frame on 8-bit RGB, beside the score of the blurry frame as it was shot."""

    frame: str
    psnr: float
    """In dB, capped as `metrics.capped` does."""
    ssim: float
    blurry_psnr: float
    blurry_ssim: float
    shift: tuple[float, float, float]
    """Mean of output minus blurry frame, in levels of red, green and blue."""
    true_shift: tuple[float, float, float]
    """Mean of sharp minus blurry frame: blur that was averaged as light is brighter than the truth."""
    flicker: float | None
    """Levels by which the change since the last frame differs from the true change; None: no last frame."""
    blurry_flicker: float | None


@dataclass(frozen=True)
class Means:
    """Averages over frames, or over the averages of sequences."""

    psnr: float
    ssim: float
    blurry_psnr: float
    blurry_ssim: float
    shift: tuple[float, float, float]
    true_shift: tuple[float, float, float]
    flicker: float | None
    blurry_flicker: float | None


@dataclass(frozen=True)
class SequenceScore:
    name: str
    size: tuple[int, int]
    """Height and width."""
    fingerprint: str
    """Of the frames that were used, by name and length of file: other frames are evaluated anew."""
    outputs: int
    """Frames that the network restored for this: more than the scored ones when it needs several passes."""
    seconds: float
    """Time in the engine, reading the blurry frames included and the metrics excluded."""
    frames: tuple[FrameScore, ...]

    @property
    def mean(self) -> Means:
        return _means(self.frames)


@dataclass(frozen=True)
class ModelFacts:
    """What was evaluated."""

    name: str
    checksum: str
    """sha256 over configuration and weights."""
    parameters: int
    flops_per_frame: float
    flops_size: tuple[int, int]
    """Height and width that the FLOPs are for: those of the first sequence."""
    look_ahead: int
    """Future frames that an output needs."""
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
    """Names of all sequences; those not in `sequences` are still to do."""
    sequences: tuple[SequenceScore, ...]

    @property
    def complete(self) -> bool:
        return len(self.sequences) == len(self.planned)

    @property
    def mean_over_sequences(self) -> Means:
        """The mean of the sequences' means: each sequence weighs the same."""
        return _means([sequence.mean for sequence in self.sequences])

    @property
    def mean_over_frames(self) -> Means:
        """The mean of all frames: each frame weighs the same."""
        return _means([frame for sequence in self.sequences for frame in sequence.frames])

    @property
    def frames_per_second(self) -> float:
        seconds = sum(sequence.seconds for sequence in self.sequences)
        return sum(sequence.outputs for sequence in self.sequences) / seconds if seconds else 0.0

    @property
    def protocol(self) -> str:
        """One line that belongs beside every number."""
        options = self.options
        exactly = "at least " if options.look_ahead is None and self.model.look_ahead else ""
        parts = [
            "PSNR and SSIM on 8-bit RGB",
            f"first {options.limit} frames of each sequence"
            if options.limit
            else "all frames, borders included",
            f"{exactly}{self.model.look_ahead} future frames",
        ]
        if options.every_second:
            parts.append("large motion: every second frame")
        if options.replace_neighbour:
            parts.append(f"one neighbour sharp (1 in {REPLACE_PERIOD})")
        if options.scene_cuts:
            parts.append("state reset at scene cuts")
        return "; ".join(parts)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _means(scores: Sequence[FrameScore] | Sequence[Means]) -> Means:
    shift, true_shift = (
        (red or 0.0, green or 0.0, blue or 0.0)
        for red, green, blue in (
            (_mean(colour[channel] for colour in colours) for channel in range(3))
            for colours in ([x.shift for x in scores], [x.true_shift for x in scores])
        )
    )
    return Means(
        psnr=mean_psnr(x.psnr for x in scores),
        ssim=_mean(x.ssim for x in scores) or 0.0,
        blurry_psnr=mean_psnr(x.blurry_psnr for x in scores),
        blurry_ssim=_mean(x.blurry_ssim for x in scores) or 0.0,
        shift=shift,
        true_shift=true_shift,
        flicker=_mean(x.flicker for x in scores),
        blurry_flicker=_mean(x.blurry_flicker for x in scores),
    )


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
    text = json.dumps({"format": FORMAT, "summary": summary, **asdict(evaluation)}, indent=1, allow_nan=False)
    write_whole(path, lambda partial: partial.write_text(text + "\n", encoding="utf-8"))


def read_json(path: Path) -> Evaluation:
    """What `write_json` wrote."""
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
    """A table per sequence with both averages, under the facts that belong to them."""
    model, (height, width) = evaluation.model, evaluation.model.flops_size
    facts = (
        f"**{model.name}** on {evaluation.data} ({evaluation.layout}, {evaluation.split or 'everything'}): "
        f"{model.parameters / 1e6:.2f} M parameters, {model.flops_per_frame / 1e9:.1f} GFLOPs per {width}x{height} "
        f"frame, {evaluation.frames_per_second:.2f} frames/s on {model.device} in {model.precision}"
    )
    rows: list[tuple[str, ...]] = [
        ("sequence", "frames", "blurry PSNR", "PSNR", "gain", "blurry SSIM", "SSIM")
    ]
    rows += [_row(s.name, len(s.frames), s.mean) for s in evaluation.sequences]
    frames = sum(len(s.frames) for s in evaluation.sequences)
    rows.append(_row("**mean over sequences**", frames, evaluation.mean_over_sequences))
    rows.append(_row("**mean over all frames**", frames, evaluation.mean_over_frames))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(_pad(row, widths)) + " |" for row in rows]
    lines.insert(
        1,
        "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|",
    )
    missing = len(evaluation.planned) - len(evaluation.sequences)
    note = (
        [f"\nUnfinished: {missing} of {len(evaluation.planned)} sequences are still to do."]
        if missing
        else []
    )
    beside = _beside(evaluation.mean_over_frames)
    return "\n".join([facts, "", f"Protocol: {evaluation.protocol}.", "", *lines, "", beside, *note]) + "\n"


def _beside(mean: Means) -> str:
    """What a viewer would notice before the PSNR: another colour, and flicker."""
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


STRIP_FRAMES = 3
STRIP_SIZE = 256


class Strip:
    """A few frames of a sequence as rows of blurry | output | sharp, cropped where blur does most harm."""

    def __init__(self, frames: int) -> None:
        rows = min(STRIP_FRAMES, frames)
        self._wanted = frozenset((2 * row + 1) * frames // (2 * rows) for row in range(rows))
        self._rows: dict[int, NDArray[np.uint8]] = {}

    def offer(
        self, index: int, blurry: NDArray[np.uint8], output: NDArray[np.uint8], sharp: NDArray[np.uint8]
    ) -> None:
        """Keep the crops of this frame if it is one of those shown."""
        if index in self._wanted:
            window = _worst_window(blurry, sharp)
            self._rows[index] = np.concatenate(
                [picture[window] for picture in (blurry, output, sharp)], axis=1
            )

    def write(self, path: Path) -> None:
        from PIL import Image

        picture = Image.fromarray(np.concatenate([self._rows[index] for index in sorted(self._rows)]))
        write_whole(path, lambda partial: picture.save(partial, format="PNG"))


def _worst_window(blurry: NDArray[np.uint8], sharp: NDArray[np.uint8]) -> tuple[slice, slice]:
    """The square, on a grid of quarters of its side, where the two differ most."""
    height, width = min(STRIP_SIZE, blurry.shape[0]), min(STRIP_SIZE, blurry.shape[1])
    difference = np.abs(blurry.astype(np.int32) - sharp).sum(axis=2)
    sums = np.pad(difference.cumsum(0, dtype=np.int64).cumsum(1), ((1, 0), (1, 0)))
    total = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    step = STRIP_SIZE // 4
    top, left = np.unravel_index(int(total[::step, ::step].argmax()), total[::step, ::step].shape)
    return slice(int(top) * step, int(top) * step + height), slice(int(left) * step, int(left) * step + width)
