"""Features of frames that wait for their future, side by side in memory that is taken once.

What lives long is kept apart from what comes and goes with every frame: the allocator then has no holes to leave, and
memory does not creep upwards over a long video. The sweep reads all of it without a copy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pahs.networks.contract import Tensors

A_WHILE = 64
"""Frames for which room is taken at once, if so many are expected."""


class Waiting:
    """A queue of frames, each a tuple of tensors; `features` shows all of them as (1, count, C, h, w)."""

    def __init__(self) -> None:
        self.count = 0
        self._buffers: list[Tensor] = []

    @property
    def features(self) -> Tensors:
        """A view: valid until the next `add` or `drop`."""
        return tuple(buffer[:, : self.count] for buffer in self._buffers)

    def add(self, features: Tensors, most: int) -> None:
        """Put (1, T, C, h, w) at the end. `most` frames are expected at the same time."""
        total = self.count + features[0].shape[1]
        if not self._buffers or total > self._buffers[0].shape[1]:
            try:
                # A long look-ahead may be longer than the video: beyond a while, take room as it fills up.
                self._grow(features, max(total, min(most, max(A_WHILE, 2 * total))))
            except torch.OutOfMemoryError:
                self._grow(features, total)
        for buffer, x in zip(self._buffers, features, strict=True):
            buffer[:, self.count : total] = x
        self.count = total

    def drop(self, frames: int) -> None:
        """Forget the first frames."""
        self.count -= frames
        for buffer in self._buffers:
            for t in range(self.count):
                buffer[:, t] = buffer[:, t + frames]

    def _grow(self, like: Tensors, frames: int) -> None:
        old, count = self._buffers, self.count
        grown = []
        for x in like:
            # Frames keep their memory format: channels-last features stay channels-last.
            frame = torch.empty_like(x[0, 0], device="meta")
            strides = (frames * frame.numel(), frame.numel(), *frame.stride())
            grown.append(x.new_empty_strided((1, frames, *frame.shape), strides))
        for buffer, former in zip(grown, old, strict=False):
            buffer[:, :count] = former[:, :count]
        self._buffers = grown
