"""A clip of VapourSynth through the engine.

VapourSynth asks for frames by number, from several threads and in any order; the engine gives them one after the other.
So one stream runs along, what it has given is kept for a while, and a jump begins another stream a little earlier.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pahs.engine import stream
from pahs.errors import PahsError
from pahs.networks import Deblurrer
from pahs.runtime.load import load

if TYPE_CHECKING:
    from vapoursynth import VideoFrame, VideoNode

BEFORE = 16
"""Frames that the stream sees before the one that is asked for after a jump."""
AHEAD = 64
"""Frames that are restored and kept rather than jumped over."""
KEPT = 96
"""Restored frames that are kept: VapourSynth's threads ask for some of them out of order."""


def deblur(
    clip: VideoNode,
    model: str | Path | Deblurrer = "auto",
    *,
    device: str = "auto",
    precision: str = "auto",
    look_ahead: int | None = None,
    chunk: int | None = None,
    scene_cuts: bool = True,
) -> VideoNode:
    """Deblur an RGB clip of VapourSynth; the result has its format, length and frame properties.

    `model` is a name, a weights file, or a network that `pahs.load` returned; the other options are those of
    `pahs.load` and `pahs.stream`. Requested in order, the frames are those of `pahs.stream` over the whole clip. After
    a jump the stream begins 16 frames earlier, so that an editor need not wait for everything before.
    """
    vs = _vapoursynth()
    if not isinstance(clip, vs.VideoNode):
        raise PahsError(f"pahs.vapoursynth.deblur: got {type(clip).__name__}; give a clip of VapourSynth")
    if clip.format is None or not clip.width or not clip.height:
        raise PahsError("the clip changes its format or size; give each part of it on its own")
    if clip.format.color_family != vs.RGB:
        raise PahsError(
            f"the clip is {clip.format.name}; convert it first: clip.resize.Bicubic(format=vs.RGBS), with matrix_in_s "
            "where the clip does not know its matrix"
        )
    network = model if isinstance(model, Deblurrer) else load(model, device, precision)
    smallest = network.contract.min_size
    if min(clip.width, clip.height) < smallest:
        raise PahsError(f"the clip is {clip.width}x{clip.height}; the smallest is {smallest}x{smallest}")
    source = clip if clip.format.id == vs.RGBS else clip.resize.Point(format=vs.RGBS)

    def fetch(number: int) -> Tensor:
        with source.get_frame(number) as frame:
            return torch.from_numpy(np.stack([np.asarray(frame[plane]) for plane in range(3)]))

    def restored(frames: Iterator[Tensor]) -> Iterator[Tensor]:
        return stream(network, frames, look_ahead=look_ahead, chunk=chunk, scene_cuts=scene_cuts)

    frames = Restored(fetch, restored, clip.num_frames)

    def write(n: int, f: VideoFrame) -> Any:
        image, result = frames[n].numpy(), f.copy()
        for plane in range(3):
            np.asarray(result[plane])[:] = image[plane]
        return result

    result = source.std.ModifyFrame(source, write)
    return result if source is clip else result.resize.Point(format=clip.format.id)


class Restored:
    """Frames of a stream by their number, from any thread."""

    def __init__(
        self,
        fetch: Callable[[int], Tensor],
        restored: Callable[[Iterator[Tensor]], Iterator[Tensor]],
        length: int,
    ) -> None:
        self._fetch, self._restored, self._length = fetch, restored, length
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Tensor] = OrderedDict()
        self._asked: list[int] = []
        """What threads wait for: the lock is not fair, and others may go on far beyond a frame before its turn."""
        self._stream: Iterator[Tensor] = iter(())
        self._next = length
        """The number of the frame that the stream gives next."""

    def __getitem__(self, number: int) -> Tensor:
        self._asked.append(number)
        try:
            with self._lock:
                if number not in self._kept:
                    if not self._next <= number < self._next + AHEAD:
                        self._begin(max(0, number - BEFORE))
                    while self._next <= number:
                        self._keep()
                return self._kept[number]
        finally:
            self._asked.remove(number)

    def _begin(self, start: int) -> None:
        self._stream = self._restored(self._fetch(t) for t in range(start, self._length))
        self._next = start

    def _keep(self) -> None:
        try:
            self._kept[self._next] = next(self._stream).cpu()
        except BaseException:
            # It gives nothing more: whatever is asked for next begins another.
            self._stream, self._next = iter(()), self._length
            raise
        self._kept.move_to_end(self._next)
        self._next += 1
        for number in [t for t in self._kept if t not in self._asked][: max(0, len(self._kept) - KEPT)]:
            del self._kept[number]


def _vapoursynth() -> Any:
    try:
        import vapoursynth
    except ImportError:
        raise PahsError(
            "pahs.vapoursynth needs VapourSynth: pip install 'pahs[vapoursynth]', with Python 3.12 or newer"
        ) from None
    return vapoursynth
