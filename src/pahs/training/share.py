"""Which clips of a batch a process makes, and the seeds of what is drawn for them.

Clips are numbered over the whole batch. What is drawn for one depends on the recipe, the step and its number, never on
how many processes share the batch: a training may continue on more of them, or on fewer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from pahs.errors import PahsError

Batch = tuple[Tensor, Tensor]
"""Blurry and sharp clips, (n, T, 3, H, W) in [0, 1]."""
Inputs = tuple[Tensor, ...]
"""What a step takes: a batch, with [states] the resets of its clips' states, and what its loss draws at random."""


@dataclass(frozen=True)
class Share:
    """The part of every batch that this process makes."""

    rank: int = 0
    world: int = 1

    def clips(self, batch: int) -> slice:
        """The numbers of this process's clips; the parts of two processes differ by one clip at most."""
        if batch < self.world:
            raise PahsError(
                f"train.batch = {batch} is less than a clip for each of {self.world} processes; "
                "raise it, or start fewer processes"
            )
        return slice(self.rank * batch // self.world, (self.rank + 1) * batch // self.world)


def divided(inputs: Inputs, at_once: int) -> list[Inputs]:
    """A batch in passes of at most `at_once` clips. Frames have the clips first, resets have them last."""
    parts = [torch.split(x, at_once, 0 if x.dim() == 5 else -1) for x in inputs]
    return list(zip(*parts, strict=True))


def mixed_seed(*numbers: int) -> int:
    """One well-spread seed from several numbers, the same on every machine."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
