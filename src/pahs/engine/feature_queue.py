"""Features of frames that wait for their look-ahead, in buffers that are allocated once.

Buffers that live long are kept apart from tensors that come and go with every frame: the allocator then has no holes to
leave, and memory does not creep upwards over a long video. `FeatureQueue` keeps all frames in one buffer on the
network's device, which the sweeps read without a copy. `OffloadedQueue` keeps them in the host's page-locked memory,
for a GPU that is too small: the sweeps then fetch frame after frame.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from pahs.networks.contract import Tensors

FIRST_BUFFER = 64
"""Frames that the first buffer holds, if so many are expected."""


class FeatureQueue:
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
                # A look-ahead may be longer than the video: large buffers grow as they fill up.
                self._grow(features, max(total, min(most, max(FIRST_BUFFER, 2 * total))))
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


class OffloadedQueue:
    """The same queue in the host's memory; `frames` shows them one by one, each (1, C, h, w).

    The device's stream orders all copies, so the host neither reads what they move nor waits for them.
    """

    def __init__(self) -> None:
        self.frames: deque[Tensors] = deque()
        self._spare: list[Tensors] = []
        """Buffers of frames that were dropped."""

    @property
    def count(self) -> int:
        return len(self.frames)

    def add(self, features: Tensors, most: int) -> None:
        """Put (1, T, C, h, w) at the end. Each frame has buffers of its own, whatever `most` is."""
        for t in range(features[0].shape[1]):
            frame = tuple(x[:, t] for x in features)
            buffers = self._spare.pop() if self._spare else tuple(_host_buffer(x) for x in frame)
            for buffer, x in zip(buffers, frame, strict=True):
                buffer.copy_(x, non_blocking=True)
            self.frames.append(buffers)

    def drop(self, frames: int) -> None:
        """Forget the first frames."""
        for _ in range(frames):
            self._spare.append(self.frames.popleft())


def _host_buffer(x: Tensor) -> Tensor:
    """A buffer for a tensor in the host's memory, in the same memory format."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, pin_memory=x.is_cuda)
