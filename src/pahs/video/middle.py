"""Between the decoder and the encoder: frames to a device as RGB, through a function, and back as samples.

A GPU is fed with many frames at a time, from and to page-locked memory: the host never waits for it here, and starts
few things on it. The host's own part is plain copying by one thread, because all others belong to the codecs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from pahs.transfer import fetch, room, upload
from pahs.video.color import Samples, as_arrays, as_tensors, change, rgb_of
from pahs.video.frames import Frame, PixelLayout, VideoInfo

FrameFunction = Callable[[Iterator[Tensor]], Iterator[Tensor]]
"""Maps RGB frames (3, H, W) to as many, in order; it may read ahead of what it yields."""

MOST, MOST_PIXELS = 32, 1 << 23
"""Frames that a GPU is given at a time, or as many as have so many pixels."""


@dataclass(frozen=True)
class Changed:
    """A frame on its way back."""

    frame: Frame
    """The source's, without its samples."""
    samples: Callable[[], Samples]
    """Waits for the new samples of all frames that were converted together."""
    number: int
    """Which of them is this one."""

    def finish(self) -> Frame:
        return replace(self.frame, planes=as_arrays(tuple(x[self.number] for x in self.samples())))


def batch_size(info: VideoInfo, device: torch.device) -> int:
    """Frames to convert together: on a CPU one, which is still in the cache when the next step needs it."""
    if device.type == "cpu":
        return 1
    return max(1, min(MOST, MOST_PIXELS // (info.width * info.height)))


def changed(
    batches: Iterable[list[Any]], fn: FrameFunction, pixels: PixelLayout, device: torch.device
) -> Generator[Any]:
    """Every frame, changed by `fn`, and what lies between frames (packets of other streams) as it is, in order."""
    # What `fn` has taken and not given back yet. Packets leave together with the frames beside them, so that sound
    # stays beside its pictures however far `fn` reads ahead.
    order: deque[Frame | Any] = deque()
    waiting: deque[_Batch] = deque()

    def pictures() -> Iterator[Tensor]:
        for items in batches:
            frames = [item for item in items if isinstance(item, Frame)]
            order.extend(replace(item, planes=()) if isinstance(item, Frame) else item for item in items)
            if frames:
                waiting.append(_gather(frames, device))
                yield from rgb_of(upload(waiting[-1], device), pixels)

    given = 0
    outputs: list[Tensor] = []
    restored = fn(pictures())
    try:
        for output in restored:
            if not waiting:
                raise ValueError("the function gave more frames back than it took")
            outputs.append(output.to(device))
            if len(outputs) < len(waiting[0][0]):
                continue
            samples = _change(waiting.popleft(), outputs, pixels, device)
            for number in range(len(outputs)):
                while not isinstance(order[0], Frame):
                    yield order.popleft()
                yield Changed(order.popleft(), samples, number)
            given, outputs = given + len(outputs), []
        # The function may have stopped before the end of the file: what is left must hold no frame.
        for item in chain(order, chain.from_iterable(batches)):
            if isinstance(item, Frame):
                raise ValueError(f"the function gave only {given + len(outputs)} frames back")
            yield item
    finally:
        close = getattr(restored, "close", None)
        if close is not None:
            close()


_Batch = Samples
"""Frames that are converted together: (count, h, w) for every plane, in the host's memory."""


def _gather(frames: list[Frame], device: torch.device) -> _Batch:
    """Put frames together, ready to be copied to the device."""
    samples = tuple(room((len(frames), *x.shape), x.dtype, device) for x in as_tensors(frames[0].planes))
    for target, planes in zip(as_arrays(samples), zip(*(f.planes for f in frames), strict=True), strict=True):
        for row, plane in zip(target, planes, strict=True):
            row[:] = plane
    return samples


def _change(
    batch: _Batch, outputs: list[Tensor], pixels: PixelLayout, device: torch.device
) -> Callable[[], Samples]:
    """Begin to turn what became of a batch into samples."""
    samples = upload(batch, device)
    # Computed again rather than kept: a second conversion costs less than float frames in memory.
    rgb_in = rgb_of(samples, pixels)
    for output in outputs:
        if output.shape != rgb_in.shape[1:]:
            raise ValueError(
                f"the function gave {tuple(output.shape)} for a frame of {tuple(rgb_in.shape[1:])}"
            )
    return fetch(change(samples, rgb_in, torch.stack(outputs), pixels))
