"""How well a network restores a dataset, for tables that also say how fast it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pahs.data.layouts import open_dataset
from pahs.evaluation.metrics import mean_psnr
from pahs.evaluation.options import EvaluateOptions
from pahs.evaluation.protocol import Take
from pahs.evaluation.score import score
from pahs.networks import Deblurrer
from pahs.progress import Advance


@dataclass(frozen=True)
class Quality:
    """Mean PSNR over all frames of a dataset, in dB."""

    restored: float
    blurry: float


def open_takes(data: Path | None) -> list[Take]:
    """What `pahs evaluate` would score; nothing without a dataset."""
    shots = () if data is None else open_dataset(data, "auto", "test", "blur").sequences
    return [Take.of(shot, EvaluateOptions(), "bidirectional") for shot in shots]


def measure_quality(network: Deblurrer, takes: Sequence[Take]) -> Quality | None:
    """Score the network as `pahs evaluate` does; None if there is nothing to score."""
    if not takes:
        return None
    scores = [score(network, take, EvaluateOptions(), None, Advance()) for take in takes]
    frames = [frame for each in scores for frame in each.frames]
    return Quality(mean_psnr(x.psnr for x in frames), mean_psnr(x.blurry_psnr for x in frames))
