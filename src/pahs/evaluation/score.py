"""Score the frames of one sequence, as the engine restores them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pahs.engine import stream
from pahs.evaluation.metrics import capped, flicker, mean_psnr, psnr, ssim
from pahs.evaluation.options import EvaluateOptions
from pahs.evaluation.protocol import Take
from pahs.evaluation.strips import Strip
from pahs.networks.contract import Deblurrer
from pahs.progress import Advance

Colour = tuple[float, float, float]
"""Red, green and blue."""


@dataclass(frozen=True)
class Means:
    """Scores of restored frames on 8-bit RGB and of the blurry ones: averages over frames, or over sequences."""

    psnr: float
    """In dB, each frame capped as `metrics.capped` does."""
    ssim: float
    blurry_psnr: float
    blurry_ssim: float
    shift: Colour
    """Mean of output minus blurry frame, in levels of 255."""
    true_shift: Colour
    """Mean of sharp minus blurry frame: blur that was averaged in linear light is brighter than the truth."""
    flicker: float | None
    """Levels by which the change since the last frame differs from the true change; None: there is no last frame."""
    blurry_flicker: float | None


@dataclass(frozen=True)
class FrameScore(Means):
    """The scores of a single frame."""

    frame: str
    """Name of the sharp frame's file."""


@dataclass(frozen=True)
class SequenceScore:
    """All frames of one sequence."""

    name: str
    size: tuple[int, int]
    """Height and width."""
    fingerprint: str
    """Of the frames that were used, by name and length of file: other frames are evaluated again."""
    outputs: int
    """Frames that the network restored for this: more than the scored ones when there are several passes."""
    seconds: float
    """Time in the engine, reading the blurry frames included and the metrics excluded."""
    frames: tuple[FrameScore, ...]

    @property
    def mean(self) -> Means:
        return means(self.frames)


def means(scores: Sequence[Means]) -> Means:
    return Means(
        psnr=mean_psnr(x.psnr for x in scores),
        ssim=_mean(x.ssim for x in scores) or 0.0,
        blurry_psnr=mean_psnr(x.blurry_psnr for x in scores),
        blurry_ssim=_mean(x.blurry_ssim for x in scores) or 0.0,
        shift=_mean_colour(x.shift for x in scores),
        true_shift=_mean_colour(x.true_shift for x in scores),
        flicker=_mean(x.flicker for x in scores),
        blurry_flicker=_mean(x.blurry_flicker for x in scores),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _mean_colour(colours: Iterable[Colour]) -> Colour:
    red, green, blue = (_mean(channel) or 0.0 for channel in zip(*colours, strict=True))
    return red, green, blue


def score(
    model: Deblurrer, take: Take, options: EvaluateOptions, strips: Path | None, advance: Advance
) -> SequenceScore:
    """Restore and score one sequence, and draw its comparison picture into the folder `strips`."""
    sequence = take.sequence
    strip = Strip(len(take.chosen)) if strips else None
    scores: dict[int, FrameScore] = {}
    blurry_frames: dict[int, NDArray[np.uint8]] = {}
    seconds = 0.0
    # One frame per backward sweep gives every output exactly the future frames that were asked for.
    chunk = None if options.look_ahead is None else 1
    for one in take.passes:

        def inputs() -> Iterator[NDArray[np.uint8]]:
            for position, frame in enumerate(take.inputs(one)):  # noqa: B023 - used up in this pass
                if position in one.scored:  # noqa: B023
                    blurry_frames[position] = frame
                yield frame

        outputs = stream(
            model, inputs(), look_ahead=options.look_ahead, chunk=chunk, scene_cuts=options.scene_cuts
        )
        last: _Pictures | None = None
        start = time.perf_counter()
        for position, output in enumerate(outputs):
            seconds += time.perf_counter() - start
            if position in one.scored:
                path = sequence.sharp[take.chosen[position]]
                blurry, sharp = blurry_frames.pop(position), sequence.read_sharp(take.chosen[position])
                now = _Pictures.on(model.device, output, blurry, sharp)
                scores[position] = _score_frame(path.name, now, last)
                # Flicker needs the frame before, from the same pass.
                last = now if len(take.passes) == 1 else None
                if strip:
                    strip.offer(position, blurry, output, sharp)
            advance(1)
            if position + 1 == one.length:
                break
            start = time.perf_counter()
    if strip and strips:
        strip.write(strips / f"{sequence.name.replace('/', '__')}.png")
    return SequenceScore(
        name=sequence.name,
        size=sequence.size,
        fingerprint=take.fingerprint,
        outputs=take.outputs,
        seconds=seconds,
        frames=tuple(scores[position] for position in range(len(take.chosen))),
    )


@dataclass(frozen=True)
class _Pictures:
    """One frame three times, (3, H, W) uint8."""

    output: Tensor
    blurry: Tensor
    sharp: Tensor

    @classmethod
    def on(cls, device: torch.device, *pictures: NDArray[np.uint8]) -> _Pictures:
        # Metrics are computed in float64, which not every accelerator has.
        chosen = device if device.type == "cuda" else torch.device("cpu")
        return cls(*(torch.from_numpy(x).to(chosen).permute(2, 0, 1) for x in pictures))


def _score_frame(name: str, now: _Pictures, last: _Pictures | None) -> FrameScore:
    o, b, s = now.output, now.blurry, now.sharp
    return FrameScore(
        frame=name,
        psnr=capped(psnr(o, s)),
        ssim=ssim(o, s),
        blurry_psnr=capped(psnr(b, s)),
        blurry_ssim=ssim(b, s),
        shift=_colour(o, b),
        true_shift=_colour(s, b),
        flicker=flicker(last.output, o, last.sharp, s) if last else None,
        blurry_flicker=flicker(last.blurry, b, last.sharp, s) if last else None,
    )


def _colour(picture: Tensor, other: Tensor) -> Colour:
    """Mean difference in red, green and blue."""
    red, green, blue = (picture.double() - other.double()).mean((1, 2)).tolist()
    return red, green, blue
