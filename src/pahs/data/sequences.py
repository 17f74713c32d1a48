"""Writes sequences of blurry and sharp frames, whole or not at all, and a contact sheet of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from pahs.files import whole
from pahs.levels import to_pictures

THUMBNAIL = 240
"""Width of a picture on the contact sheet."""
COLUMNS = 4
"""Blurry pictures per sequence on the contact sheet; as many sharp ones follow to their right."""


def write_sequence(path: Path, blurry: Tensor, sharp: Tensor) -> None:
    """Frames (T, 3, H, W) in [0, 1] -> path/{blur,sharp}/000000.png, under that name once complete."""
    with whole(path) as partial:
        for name, frames in (("blur", blurry), ("sharp", sharp)):
            folder = partial / name
            folder.mkdir(parents=True)
            for index, picture in enumerate(to_pictures(frames)):
                Image.fromarray(picture).save(folder / f"{index:06d}.png", compress_level=3)


def contact_sheet(sequences: Sequence[Path], target: Path) -> None:
    """One row per sequence: a few blurry frames, then the sharp ones of the same moments."""
    rows = [[_thumbnail(file) for file in _chosen(path)] for path in sequences]
    heights = [max(picture.height for picture in row) for row in rows]
    sheet = Image.new("RGB", (2 * COLUMNS * THUMBNAIL, sum(heights)), "white")
    top = 0
    for row, height in zip(rows, heights, strict=True):
        for column, picture in enumerate(row):
            sheet.paste(picture, (column * THUMBNAIL, top))
        top += height
    with whole(target) as partial:
        sheet.save(partial, format="PNG")


def _chosen(path: Path) -> list[Path]:
    files: list[Path] = []
    for kind in ("blur", "sharp"):
        frames = sorted((path / kind).glob("*.png"))
        files += [frames[i * len(frames) // COLUMNS] for i in range(COLUMNS)]
    return files


def _thumbnail(file: Path) -> Image.Image:
    with Image.open(file) as opened:
        picture = opened.convert("RGB")
    height = max(1, round(picture.height * THUMBNAIL / picture.width))
    return picture.resize((THUMBNAIL - 4, max(1, height - 4)), Image.Resampling.BICUBIC)
