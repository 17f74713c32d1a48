"""Training samples: the same random piece of T consecutive frames from the blurry and the sharp side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from pahs.errors import PahsError

if TYPE_CHECKING:
    from pahs.data.layouts import PairedDataset


class CropDataset(Dataset[tuple[Tensor, Tensor]]):
    """Every window of T consecutive frames once per epoch, cropped, flipped, turned and reversed at random.

    Item `i` depends on (seed, epoch, i) alone, so the number of workers changes nothing. The epoch lies in shared
    memory: `set_epoch` reaches workers that are already running.
    """

    def __init__(
        self, dataset: PairedDataset, frames: int, size: int = 256, seed: int = 0, augment: bool = True
    ) -> None:
        if frames < 1 or size < 1 or seed < 0:
            raise PahsError(f"crops need frames >= 1, size >= 1, seed >= 0; got {frames}, {size}, {seed}")
        for sequence in dataset.sequences:
            if len(sequence) < frames:
                raise PahsError(
                    f"{sequence.blurry[0].parent}: sequence {sequence.name} has {len(sequence)} frames, "
                    f"training asks for {frames}; use fewer frames or remove it"
                )
            if min(sequence.size) < size:
                raise PahsError(
                    f"{sequence.blurry[0].parent}: sequence {sequence.name} is {sequence.size[1]}x{sequence.size[0]}, "
                    f"too small for crops of {size}x{size}; use smaller crops or remove it"
                )
        self.sequences = dataset.sequences
        self.frames = frames
        self.size = size
        self.seed = seed
        self.augment = augment
        self._ends = np.cumsum([len(sequence) - frames + 1 for sequence in dataset.sequences], dtype=np.int64)
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def set_epoch(self, epoch: int) -> None:
        """Draw other crops from now on; call it before iterating over the loader."""
        self._epoch.fill_(epoch)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """(blurry, sharp), each (T, 3, size, size) in [0, 1]."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = int(np.searchsorted(self._ends, index, side="right"))
        sequence = self.sequences[number]
        first = index - (int(self._ends[number - 1]) if number else 0)
        random = np.random.default_rng((self.seed, int(self._epoch), index))
        top, left = (int(random.integers(extent - self.size + 1)) for extent in sequence.size)
        window = np.s_[top : top + self.size, left : left + self.size]
        blurry, sharp = (np.empty((self.frames, self.size, self.size, 3), np.uint8) for _ in range(2))
        for t in range(self.frames):
            blurry[t] = sequence.read_blurry(first + t)[window]
            sharp[t] = sequence.read_sharp(first + t)[window]
        if self.augment:
            flip, reverse = random.integers(2, size=2)
            turns = int(random.integers(4))
            blurry, sharp = (
                np.rot90(clip[:: -1 if reverse else 1, :, :: -1 if flip else 1], turns, axes=(1, 2))
                for clip in (blurry, sharp)
            )
        blurry, sharp = (np.ascontiguousarray(clip.transpose(0, 3, 1, 2)) for clip in (blurry, sharp))
        return torch.from_numpy(blurry).float().div_(255), torch.from_numpy(sharp).float().div_(255)
