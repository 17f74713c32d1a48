"""Comparison pictures: a few frames of a sequence as rows of blurry, output and sharp."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pahs.files import write_whole

STRIP_FRAMES = 3
STRIP_SIZE = 256
"""Side of a crop in pixels."""


class Strip:
    """Three frames of a sequence as rows of blurry | output | sharp, cropped to the most blurred window."""

    def __init__(self, frames: int) -> None:
        rows = min(STRIP_FRAMES, frames)
        self._wanted = frozenset((2 * row + 1) * frames // (2 * rows) for row in range(rows))
        self._rows: dict[int, NDArray[np.uint8]] = {}

    def offer(
        self, index: int, blurry: NDArray[np.uint8], output: NDArray[np.uint8], sharp: NDArray[np.uint8]
    ) -> None:
        """Keep the crops of this frame if it is in the picture."""
        if index in self._wanted:
            window = _worst_window(blurry, sharp)
            self._rows[index] = np.concatenate(
                [picture[window] for picture in (blurry, output, sharp)], axis=1
            )

    def write(self, path: Path) -> None:
        picture = Image.fromarray(np.concatenate([self._rows[index] for index in sorted(self._rows)]))
        write_whole(path, lambda partial: picture.save(partial, format="PNG"))


def _worst_window(blurry: NDArray[np.uint8], sharp: NDArray[np.uint8]) -> tuple[slice, slice]:
    """The window, on a grid of quarters of its side, where the two pictures differ most."""
    height, width = min(STRIP_SIZE, blurry.shape[0]), min(STRIP_SIZE, blurry.shape[1])
    difference = np.abs(blurry.astype(np.int32) - sharp).sum(axis=2)
    sums = np.pad(difference.cumsum(0, dtype=np.int64).cumsum(1), ((1, 0), (1, 0)))
    total = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    step = STRIP_SIZE // 4
    top, left = np.unravel_index(int(total[::step, ::step].argmax()), total[::step, ::step].shape)
    return slice(int(top) * step, int(top) * step + height), slice(int(left) * step, int(left) * step + width)
