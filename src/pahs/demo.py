"""The demonstration: a street is painted, filmed by a shaking camera, deblurred, and compared.

It needs no data, and the sharp frames are known, so the score is measured from file to file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from pahs.backends.load import load
from pahs.data.street import film
from pahs.deblur import DeblurOptions, deblur
from pahs.errors import PahsError
from pahs.evaluation.metrics import mean_psnr, psnr
from pahs.files import os_errors
from pahs.levels import to_pictures
from pahs.progress import bar
from pahs.video import VideoReader, to_rgb
from pahs.video.write_video import write_video

RATE = 24
font = ImageFont.load_default

Levels = NDArray[np.uint8]


@dataclass(frozen=True)
class DemoReport:
    """The files of a demonstration, and their scores. PSNR is the mean over frames, RGB, 8-bit, after encoding."""

    blurry: Path
    deblurred: Path
    comparison: Path
    side_by_side: Path
    psnr_blurry: float
    psnr_deblurred: float
    frames_per_second: float


def demo(
    folder: Path,
    model: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    frames: int = 48,
    overwrite: bool = True,
    quiet: bool = True,
    backend: str = "auto",
) -> DemoReport:
    """Write a blurry clip, its deblurred version, a comparison picture and a comparison video into `folder`."""
    if frames < 1:
        raise PahsError(f"--frames {frames}: it must be 1 or more")
    network = load(model, device, precision, backend=backend, quiet=quiet)
    with os_errors(f"{folder}: no folder can be made", "; choose another --output"):
        folder.mkdir(parents=True, exist_ok=True)
    blurry, deblurred = folder / "blurry.mp4", folder / "deblurred.mp4"
    sharp = []
    with bar("filming a street", frames, quiet=quiet) as advance:

        def filmed() -> Iterator[Tensor]:
            for shaken, still in film(frames):
                sharp.append(to_pictures(still))
                advance(1)
                yield shaken

        write_video(blurry, filmed(), RATE)
    with bar(blurry.name, None, quiet=quiet) as advance:
        report = deblur(blurry, deblurred, DeblurOptions(overwrite=overwrite), network, advance)
    before, after = list(read_video(blurry)), list(read_video(deblurred))
    comparison, side_by_side = folder / "comparison.png", folder / "comparison.mp4"
    worst = min(range(len(sharp)), key=lambda t: psnr(before[t], sharp[t]))
    compare(before[worst], after[worst], sharp[worst]).save(comparison)
    write_video(side_by_side, (divided(a, b) for a, b in zip(before, after, strict=True)), RATE)
    blurred, restored = (
        mean_psnr(psnr(a, b) for a, b in zip(frames, sharp, strict=True)) for frames in (before, after)
    )
    return DemoReport(blurry, deblurred, comparison, side_by_side, blurred, restored, report.rate)


def read_video(path: Path) -> Iterator[Levels]:
    with VideoReader(path) as reader:
        for frame in reader:
            yield to_pictures(to_rgb(frame.planes, reader.info.pixels))


def compare(before: Levels, after: Levels, truth: Levels) -> Image.Image:
    """Input and output side by side over the same details, enlarged, with the truth."""
    height, width = before.shape[:2]
    top = Image.fromarray(np.concatenate([before[:, : width // 2], after[:, width // 2 :]], 1))
    top = top.resize((2 * width, 2 * height), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(top)
    draw.line((width, 0, width, 2 * height), "white", 3)
    box_w, box_h = width // 3, height // 3
    sheet = Image.new("RGB", (2 * width, 2 * height + 2 * box_h), "white")
    sheet.paste(top, (0, 0))
    corner = (int(0.36 * width), int(0.42 * height))
    for i, (label, image) in enumerate((("blurry", before), ("deblurred", after), ("truth", truth))):
        detail = Image.fromarray(image).crop((*corner, corner[0] + box_w, corner[1] + box_h))
        detail = detail.resize((2 * width // 3, 2 * box_h), Image.Resampling.LANCZOS)
        caption(detail, label)
        sheet.paste(detail, (i * 2 * width // 3, 2 * height))
    caption(sheet, "blurry")
    caption(sheet, "deblurred", 2 * width - 16, "ra")
    return sheet


def caption(image: Image.Image, text: str, x: int = 16, anchor: str = "la") -> None:
    pen = ImageDraw.Draw(image)
    pen.text((x, 12), text, "white", font(28), anchor=anchor, stroke_width=2, stroke_fill="black")


def divided(before: Levels, after: Levels) -> Tensor:
    """One frame: its left half is blurry, its right half deblurred."""
    middle = before.shape[1] // 2
    frame = np.concatenate(
        [before[:, : middle - 1], np.full_like(before[:, :2], 255), after[:, middle + 1 :]], 1
    )
    return torch.from_numpy(frame).permute(2, 0, 1).float() / 255
