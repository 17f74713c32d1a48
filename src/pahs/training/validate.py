"""Validation during training: PSNR on clips that training never sees.

PSNR is taken per frame on RGB rounded to 8 bits and averaged over all frames of all clips.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pahs.data.layouts import PairedDataset, open_dataset
from pahs.engine import restore
from pahs.errors import PahsError
from pahs.evaluation.metrics import capped, psnr
from pahs.files import whole
from pahs.levels import to_levels
from pahs.networks import Deblurrer
from pahs.training.recipe import Recipe, ValidationSection
from pahs.training.share import Share
from pahs.training.sources import Photos, SynthesisSource


@dataclass(frozen=True)
class Clip:
    """Consecutive frames, (T, 3, H, W) uint8 on the CPU."""

    name: str
    blurry: Tensor
    sharp: Tensor


@dataclass(frozen=True)
class Scores:
    """PSNR of the blurry and of the restored frames, in dB, averaged over all frames of all clips."""

    psnr_in: float
    psnr_out: float


def open_clips(recipe: Recipe, photos: Photos | None, share: Share = Share()) -> list[Clip]:  # noqa: B008 - frozen
    """Take clips from the folder that the recipe names, from the dataset's test part, or synthesise them once.

    Each process gets its share of them.
    """
    validation = recipe.validation
    if validation.root or photos is None:
        root = validation.root or recipe.data.root
        dataset = open_dataset(root, validation.layout, validation.split, validation.variant)
        if not validation.root and dataset.layout == "pairs":
            raise PahsError(
                f"{root}: has no test part of its own; set validation.root to another folder of pairs"
            )
        return _read_clips(dataset, validation, share)
    size = validation.size or recipe.data.size
    data = replace(recipe.data, frames=max(2, validation.frames), size=size, seed=validation.seed, streams=1)
    source = SynthesisSource(photos.held_out, data, batch=1, share=Share())
    clips = []
    for number in range(share.rank, validation.clips, share.world):
        source.load_state_dict({"step": number})
        blurry, sharp = (to_levels(clip[0, : validation.frames]).cpu() for clip in source.batch())
        clips.append(Clip(f"{number:03d}", blurry, sharp))
    return clips


def validate(
    model: Deblurrer,
    clips: list[Clip],
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> tuple[Tensor, list[Tensor]]:
    """Restore every clip. Returns the restored clips as uint8, and sums that the processes can add up.

    The sums are the number of frames, the PSNR of all blurry frames and the PSNR of all restored frames.
    """
    training = model.training
    model.eval()
    sums, outputs = torch.zeros(3, dtype=torch.float64), []
    for clip in clips:
        with autocast():
            output = restore(model, clip.blurry.to(device).float().div(255))
        outputs.append(to_levels(output).cpu())
        for number, frames in enumerate((clip.blurry, outputs[-1]), 1):
            sums[number] += sum(capped(psnr(x, y)) for x, y in zip(frames, clip.sharp, strict=True))
        sums[0] += len(clip.blurry)
    model.train(training)
    return sums, outputs


def save_samples(
    folder: Path, step: int, clips: list[Clip], outputs: list[Tensor]
) -> list[tuple[str, Tensor]]:
    """Save the middle frame of each clip as one picture: blurry, output, sharp."""
    pictures = []
    for clip, output in zip(clips, outputs, strict=True):
        middle = len(clip.blurry) // 2
        row = torch.cat([clip.blurry[middle], output[middle], clip.sharp[middle]], -1)
        name = clip.name.replace("/", "_")
        with whole(folder / f"{step:07d}_{name}.png") as partial:
            Image.fromarray(row.permute(1, 2, 0).contiguous().numpy()).save(partial, "PNG")
        pictures.append((name, row))
    return pictures


def _read_clips(dataset: PairedDataset, validation: ValidationSection, share: Share) -> list[Clip]:
    """Read the first frames of sequences that are spread evenly over the dataset."""
    size, count = validation.size, min(validation.clips, len(dataset.sequences))
    chosen = [dataset.sequences[i * len(dataset.sequences) // count] for i in range(count)]
    found = []
    for sequence in chosen[share.rank :: share.world]:
        height, width = sequence.size
        if size > min(height, width):
            raise PahsError(
                f"validation.size = {size} is larger than the {width}x{height} frames of {sequence.name}"
            )
        sides = (side[: validation.frames] for side in (sequence.blurry, sequence.sharp))
        clips = (sequence.middles(side, size or height, size or width) for side in sides)
        blurry, sharp = (torch.from_numpy(clip).permute(0, 3, 1, 2).contiguous() for clip in clips)
        found.append(Clip(sequence.name, blurry, sharp))
    return found
