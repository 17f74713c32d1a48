"""Features of frames that wait for their look-ahead, in buffers that are allocated once.

Buffers that live long are kept apart from tensors that come and go with every frame: the allocator then leaves no
holes, and memory does not creep upwards over a long video. `FeatureQueue` keeps all frames in one buffer on the
network's device, which the sweeps read without a copy. `OffloadedQueue` keeps them in the host's page-locked memory,
for a GPU that is too small: the sweeps then fetch frame after frame. `SpooledQueue` keeps them on the disk, for a CPU.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, BinaryIO, Generic, TypeVar, overload

import torch
from torch import Tensor

from pahs.engine.plan import is_shortage
from pahs.files import os_errors
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
            except (RuntimeError, MemoryError) as error:
                if not is_shortage(error):
                    raise
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


FrameT = TypeVar("FrameT", bound=Sequence[Tensor])


class FrameQueue(ABC, Generic[FrameT]):
    """A queue in the host's memory or on the disk; `frames` shows its frames one by one, each (1, C, h, w)."""

    def __init__(self) -> None:
        self.frames: deque[FrameT] = deque()
        self._spare: list[FrameT] = []
        """Buffers of frames that were dropped."""

    @property
    def count(self) -> int:
        return len(self.frames)

    @abstractmethod
    def add(self, features: Tensors, most: int) -> None:
        """Put (1, T, C, h, w) at the end. Each frame has a buffer of its own, whatever `most` is."""

    def drop(self, frames: int) -> None:
        """Forget the first frames."""
        for _ in range(frames):
            self._spare.append(self.frames.popleft())


class OffloadedQueue(FrameQueue[Tensors]):
    """The same queue in the host's memory.

    The device's stream orders all copies, so the host neither reads what they move nor waits for them.
    """

    def add(self, features: Tensors, most: int) -> None:
        for t in range(features[0].shape[1]):
            frame = tuple(x[:, t] for x in features)
            buffers = self._spare.pop() if self._spare else tuple(_host_buffer(x) for x in frame)
            for buffer, x in zip(buffers, frame, strict=True):
                buffer.copy_(x, non_blocking=True)
            self.frames.append(buffers)


class SpooledFrame(Sequence[Tensor]):
    """A frame's features on the disk; each tensor is read when it is asked for, and nothing keeps it."""

    def __init__(self, file: BinaryIO, offset: int, like: Tensors) -> None:
        self._file = file
        self._like = tuple(torch.empty_like(x, device="meta") for x in like)
        sizes = [x.numel() * x.element_size() for x in like]
        self._offsets = [offset + sum(sizes[:i]) for i in range(len(sizes))]

    def __len__(self) -> int:
        return len(self._like)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> Tensors: ...
    def __getitem__(self, index: int | slice) -> Tensor | Tensors:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(len(self))[index])
        x = _host_buffer(self._like[index])
        self._file.seek(self._offsets[index])
        self._file.readinto(_memory(x))  # type: ignore[attr-defined]
        return x

    def write(self, features: Tensors) -> None:
        for x, like, offset in zip(features, self._like, self._offsets, strict=True):
            self._file.seek(offset)
            self._file.write(_memory(_host_buffer(like).copy_(x)))


class SpooledQueue(FrameQueue[SpooledFrame]):
    """The same queue in a temporary file, for a CPU whose memory is too small: `frames` reads them one by one."""

    def __init__(self) -> None:
        super().__init__()
        self._file = tempfile.TemporaryFile(prefix="pahs-", buffering=0)  # noqa: SIM115 - it lives as long as the queue
        self._end = 0

    def add(self, features: Tensors, most: int) -> None:
        for t in range(features[0].shape[1]):
            frame = tuple(x[:, t] for x in features)
            if not self._spare:
                self._spare.append(SpooledFrame(self._file, self._end, frame))
                self._end += sum(x.numel() * x.element_size() for x in frame)
            refused = f"{tempfile.gettempdir()}: memory is short, and features cannot be kept there either"
            with os_errors(refused, "; free some space, or set TMPDIR to a folder with more"):
                self._spare[-1].write(frame)
            self.frames.append(self._spare.pop())


def _memory(x: Tensor) -> memoryview:
    """The bytes of a dense tensor, in the order in which they lie."""
    order = sorted(range(x.ndim), key=lambda d: (x.stride()[d], x.shape[d]), reverse=True)
    array: Any = x.permute(order).view(torch.uint8).numpy()
    return memoryview(array).cast("B")


def _host_buffer(x: Tensor) -> Tensor:
    """A buffer for a tensor in the host's memory, in the same memory format."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, pin_memory=x.is_cuda)
