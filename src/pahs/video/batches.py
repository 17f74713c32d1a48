"""From decoded samples to RGB on a device, through a function, and back to samples for the encoder.

A GPU converts many frames at a time, and copies go through page-locked memory: the host never waits for the GPU here,
and starts few operations on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor

from pahs.kernels.streams import fetch, host_buffer, upload
from pahs.video.color import Samples, as_arrays, as_tensors, change, rgb_of
from pahs.video.frames import Frame, PixelLayout, VideoInfo

FrameFunction = Callable[[Iterator[Tensor]], Iterator[Tensor]]
"""Maps RGB frames (3, H, W) to as many, in order; it may read ahead of what it yields. It is called again for frames
that come after so many packets without any that these cannot wait."""

MOST, MOST_PIXELS = 32, 1 << 23
"""A GPU converts at most so many frames, or frames of so many pixels together, at a time."""
_TOGETHER = 256
"""Packets after which a batch is complete without another frame."""
_WAITING_BYTES, _PACKET_BYTES = 1 << 26, 512
"""Bytes of packets that wait for the frames before them while no more come; what a packet takes besides its own."""


@dataclass(frozen=True)
class Changed:
    """A frame whose new samples are being computed or copied."""

    frame: Frame
    """The source's, without its samples."""
    samples: Callable[[], Samples]
    """Waits for the new samples of all frames that were converted together."""
    number: int
    """Which of them is this one."""
    before: Samples | None = None
    """The samples of all of them before the change, if they are wanted."""

    def finish(self) -> Frame:
        before = None if self.before is None else as_arrays(tuple(x[self.number] for x in self.before))
        planes = as_arrays(tuple(x[self.number] for x in self.samples()))
        return replace(self.frame, planes=planes, before=before)


def batch_size(info: VideoInfo, device: torch.device) -> int:
    """How many frames are converted together. On a CPU one: it is still in the cache when the next step needs it."""
    if device.type == "cpu":
        return 1
    return max(1, min(MOST, MOST_PIXELS // (info.width * info.height)))


@dataclass(frozen=True)
class Batch:
    """Frames that are converted together, with the packets of other streams between them."""

    items: list[Any]
    """Frames without their samples, and packets, in the order of the file."""
    frames: int
    """How many frames there are among them."""
    samples: Samples
    """(frames, h, w) for every plane, in memory that copies to the device can start from; empty without frames."""


def in_batches(items: Iterable[Any], frames: int, device: torch.device) -> Iterator[Batch]:
    """Group so many frames, and the packets between them, into a batch; fewer where many packets follow a frame."""
    waiting: list[Any] = []
    held = packets = 0
    for item in items:
        waiting.append(item)
        held, packets = (held + 1, 0) if isinstance(item, Frame) else (held, packets + 1)
        if held == frames or packets == _TOGETHER:
            yield _gather(waiting, device)
            waiting, held, packets = [], 0, 0
    if waiting:
        yield _gather(waiting, device)


def _gather(items: list[Any], device: torch.device) -> Batch:
    frames = [item for item in items if isinstance(item, Frame)]
    samples: Samples = ()
    if frames:
        first = as_tensors(frames[0].planes)
        samples = tuple(host_buffer((len(frames), *x.shape), x.dtype, device) for x in first)
        planes = zip(*(frame.planes for frame in frames), strict=True)
        # NumPy copies on one core; PyTorch would take all cores, which the codecs need.
        for target, sources in zip(as_arrays(samples), planes, strict=True):
            for mine, plane in zip(target, sources, strict=True):
                mine[:] = plane
    bare = [replace(item, planes=()) if isinstance(item, Frame) else item for item in items]
    return Batch(bare, len(frames), samples)


def changed(
    batches: Iterable[Batch],
    fn: FrameFunction,
    pixels: PixelLayout,
    device: torch.device,
    strength: float = 1.0,
    keep_before: bool = False,
) -> Generator[list[Any]]:
    """Yield every frame, changed by a share (`strength`) of what `fn` changes, and every packet as it is.

    All come in order, batch by batch. `keep_before` keeps the samples before the change with each frame.
    Packets stay with the frames they came with, so sound stays with its pictures however far `fn` reads ahead. Where
    too much sound comes without pictures, the frames that `fn` sees end, and it is called again if more come.
    """
    batches = iter(batches)
    while True:
        packets = yield from _changed(batches, fn, pixels, device, strength, keep_before)
        for batch in packets:
            if batch.frames:
                batches = chain((batch,), packets)
                break
            yield batch.items
        else:
            return


def _changed(
    batches: Iterator[Batch],
    fn: FrameFunction,
    pixels: PixelLayout,
    device: torch.device,
    strength: float,
    keep_before: bool,
) -> Generator[list[Any], None, Iterator[Batch]]:
    """`changed` up to where the frames end, or many packets come without any. Returns the batches that are left."""
    waiting: deque[Batch] = deque()
    over = False

    def pictures() -> Iterator[Tensor]:
        nonlocal over
        held = 0
        for batch in batches:
            waiting.append(batch)
            if batch.frames:
                held = 0
                yield from rgb_of(upload(batch.samples, device), pixels)
                continue
            held += sum(getattr(packet, "size", 0) + _PACKET_BYTES for packet in batch.items)
            if held > _WAITING_BYTES:
                over = True
                return

    given = 0
    outputs: list[Tensor] = []
    restored = fn(pictures())
    try:
        for output in restored:
            while waiting and not waiting[0].frames:
                yield waiting.popleft().items
            if not waiting:
                raise ValueError("the function gave more frames back than it took")
            given += 1
            outputs.append(output.to(device))
            if len(outputs) < waiting[0].frames:
                continue
            batch = waiting.popleft()
            samples = _change(batch, outputs, pixels, device, strength)
            numbers, outputs = count(), []
            before = batch.samples if keep_before else None
            yield [
                Changed(x, samples, next(numbers), before) if isinstance(x, Frame) else x for x in batch.items
            ]
        # The function may have stopped before the end of the file: the remaining batches must hold no frame.
        for batch in waiting if over else chain(waiting, batches):
            if batch.frames:
                raise ValueError(f"the function gave only {given} frames back")
            yield batch.items
        return batches
    finally:
        close = getattr(restored, "close", None)
        if close is not None:
            close()


def _change(
    batch: Batch, outputs: list[Tensor], pixels: PixelLayout, device: torch.device, strength: float
) -> Callable[[], Samples]:
    """Start the conversion of a batch's outputs to samples."""
    samples = upload(batch.samples, device)
    # The conversion is repeated, because that costs less than keeping float frames in memory.
    rgb_in = rgb_of(samples, pixels)
    for output in outputs:
        if output.shape != rgb_in.shape[1:]:
            raise ValueError(
                f"the function gave {tuple(output.shape)} for a frame of {tuple(rgb_in.shape[1:])}"
            )
    rgb_out = torch.stack(outputs)
    if strength < 1:
        rgb_out = torch.lerp(rgb_in, rgb_out.float(), strength)
    return fetch(change(samples, rgb_in, rgb_out, pixels))
