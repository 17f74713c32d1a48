"""Comparison pictures: a few frames of a sequence as rows of blurry, output and sharp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pahs.files import whole

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
            window = most_changed(blurry, sharp, STRIP_SIZE, STRIP_SIZE, step=STRIP_SIZE // 4)
            self._rows[index] = np.concatenate(
                [picture[window] for picture in (blurry, output, sharp)], axis=1
            )

    def write(self, path: Path) -> None:
        picture = Image.fromarray(np.concatenate([self._rows[index] for index in sorted(self._rows)]))
        with whole(path) as partial:
            picture.save(partial, format="PNG")


def most_changed(
    before: NDArray[Any], after: NDArray[Any], height: int, width: int, step: int = 1
) -> tuple[slice, slice]:
    """The window, not larger than the pictures and on a grid of `step` pixels, where the two differ most."""
    height, width = min(height, before.shape[0]), min(width, before.shape[1])
    difference = np.abs(before.astype(np.int32) - after).sum(axis=2)
    sums = np.pad(difference.cumsum(0, dtype=np.int64).cumsum(1), ((1, 0), (1, 0)))
    total = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    top, left = np.unravel_index(int(total[::step, ::step].argmax()), total[::step, ::step].shape)
    return np.s_[top * step : top * step + height, left * step : left * step + width]
