"""A folder of photographs, held on the device so that training cuts its textures there.

The pool is one flat list of pixels with a table of where each picture starts. Every photo is there at several
sizes: a smaller texture is cut from the nearest size instead of being shrunk on the fly, which keeps sharp frames
sharp and free of aliasing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from pahs.data.threads import map_in_threads
from pahs.errors import PahsError

log = logging.getLogger(__name__)

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff"})
WORKERS = 8
"""Threads that decode and shrink photos."""
LEVEL_RATIO = 0.8
"""Size of each level of the pyramid relative to the one above: a texture is at most 12 % from the wanted size."""


@dataclass(frozen=True)
class PhotoPool:
    """Photos as uint8 on one device, each at every scale of `scales`."""

    pixels: Tensor
    """(all pixels of all levels, 3) uint8."""
    offsets: Tensor
    """(levels, photos) int64: first pixel of each picture."""
    heights: Tensor
    """(levels, photos) int64."""
    widths: Tensor
    """(levels, photos) int64."""
    scales: Tensor
    """(levels,) float32, falling from 1."""

    @staticmethod
    def load(
        folder: Path | str,
        device: torch.device | str = "cpu",
        *,
        short_side: int = 704,
        long_side: int = 1280,
        smallest_scale: float = 0.4,
    ) -> PhotoPool:
        """Read every image under `folder` (recursively), shrunk to fit `short_side` and `long_side` pixels."""
        photos = read_photos(find_photos(Path(folder)), short_side=short_side, long_side=long_side)
        return PhotoPool.from_images(photos, device, smallest_scale=smallest_scale)

    @staticmethod
    def from_images(
        photos: Sequence[Image.Image], device: torch.device | str = "cpu", *, smallest_scale: float = 0.4
    ) -> PhotoPool:
        """A pool of RGB pictures that are in memory already."""
        count = 1 + max(0, round(math.log(smallest_scale) / math.log(LEVEL_RATIO)))
        scales = [LEVEL_RATIO**level for level in range(count)]
        levels = [map_in_threads(partial(_samples, scale=scale), photos, WORKERS) for scale in scales]
        sizes = np.array([[picture.shape[:2] for picture in level] for level in levels], np.int64)
        ends = sizes.prod(-1).ravel().cumsum()
        pixels = torch.empty((int(ends[-1]), 3), dtype=torch.uint8, device=device)
        starts = np.concatenate([[0], ends[:-1]])
        for start, picture in zip(starts, (p for level in levels for p in level), strict=True):
            flat = torch.from_numpy(picture).flatten(0, 1)
            pixels[start : start + len(flat)] = flat
        return PhotoPool(
            pixels=pixels,
            offsets=torch.from_numpy(starts.reshape(count, -1)).to(device),
            heights=torch.from_numpy(sizes[..., 0].copy()).to(device),
            widths=torch.from_numpy(sizes[..., 1].copy()).to(device),
            scales=torch.tensor(scales, device=device),
        )

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    @property
    def count(self) -> int:
        """How many photos there are."""
        return self.offsets.shape[1]

    def crop(
        self,
        photo: Tensor,
        level: Tensor,
        centre: Tensor,
        turn: Tensor,
        height: int,
        width: int,
        view: Tensor,
    ) -> Tensor:
        """Cut windows (N, 3, height, width), float32 in [0, 1], mirrored where they leave the picture.

        photo, level   (N,) int64
        centre         (N, 2) in [0, 1]: position of the window between the picture's edges, down and right
        turn           (N, 3) in [0, 1]: above one half: flip down, flip right, swap rows and columns
        view           (N, 2) pixels of the window that must stay inside the picture when it is large enough
        """
        flat = level * self.count + photo
        offset, H, W = (table.flatten()[flat] for table in (self.offsets, self.heights, self.widths))
        flip = turn > 0.5
        rows = torch.arange(height, device=self.device) - height // 2
        cols = torch.arange(width, device=self.device) - width // 2
        down = torch.where(flip[:, :1], -rows, rows)[:, :, None]
        right = torch.where(flip[:, 1:2], -cols, cols)[:, None, :]
        swap = flip[:, 2, None, None]
        down, right = torch.where(swap, right, down), torch.where(swap, down, right)
        view = torch.where(flip[:, 2:], view.flip(-1), view)
        y = _reflect(down + _middle(centre[:, 0], H, view[:, 0]), H)
        x = _reflect(right + _middle(centre[:, 1], W, view[:, 1]), W)
        index = offset[:, None, None] + y * W[:, None, None] + x
        cut = self.pixels.index_select(0, index.flatten()).view(*index.shape, 3)
        return cut.movedim(-1, 1).float().div_(255)


def find_photos(folder: Path) -> list[Path]:
    """Every image file under `folder`, in the order of their names."""
    if not folder.is_dir():
        raise PahsError(f"{folder}: no such folder of photos")
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not files:
        raise PahsError(f"{folder}: holds no photos (looked for {', '.join(sorted(SUFFIXES))})")
    return files


def read_photos(files: Sequence[Path], *, short_side: int, long_side: int) -> list[Image.Image]:
    """RGB pictures shrunk to fit; a file that cannot be read is left out with a warning that names it."""
    read = map_in_threads(partial(_read, short_side=short_side, long_side=long_side), files, WORKERS)
    photos = [photo for photo in read if photo is not None]
    if not photos:
        raise PahsError(
            f"{files[0]}: cannot be read, nor any other of {len(files)} photos; give intact images"
        )
    return photos


def _middle(position: Tensor, size: Tensor, view: Tensor) -> Tensor:
    """Middle of a window of `view` pixels in [0, size), (N, 1, 1) int64; the picture's middle if it is too small."""
    half = torch.minimum(view, size.float()) / 2
    return (half + position * (size - 2 * half)).long()[:, None, None]


def _reflect(index: Tensor, size: Tensor) -> Tensor:
    size = size[:, None, None]
    index = index.remainder(2 * size)
    return torch.minimum(index, 2 * size - 1 - index)


def _read(file: Path, short_side: int, long_side: int) -> Image.Image | None:
    try:
        with Image.open(file) as opened:
            photo = ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        log.warning("skipped %s: not a readable image (%s)", file, error)
        return None
    return _shrunk(photo, min(1.0, short_side / min(photo.size), long_side / max(photo.size)))


def _samples(photo: Image.Image, scale: float) -> NDArray[np.uint8]:
    return np.array(_shrunk(photo, scale))


def _shrunk(photo: Image.Image, scale: float) -> Image.Image:
    size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
    # Pillow widens the kernel by the factor of reduction: no aliasing.
    return photo if size == photo.size else photo.resize(size, Image.Resampling.BICUBIC)
