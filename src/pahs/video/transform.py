"""The whole job: decode, let a function change the pictures, encode, keep everything else."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pahs.errors import PahsError
from pahs.video.channel import Channel, Closed
from pahs.video.color import begin_change, to_rgb
from pahs.video.encoder import EncodeOptions
from pahs.video.frames import Frame, FrameSink, FrameSource, Planes
from pahs.video.images import ImageFolderReader, ImageFolderWriter, refuse_single_image
from pahs.video.reader import VideoReader
from pahs.video.writer import VideoWriter

FrameFunction = Callable[[Iterator[Tensor]], Iterator[Tensor]]
"""Maps RGB frames (3, H, W) to as many, in order; it may read ahead of what it yields."""

_QUEUE = 8
"""Frames and packets that wait between two threads: enough to overlap, too few to fill the memory."""
_BURST, _BURST_BYTES = 256, 1 << 28
"""A GPU gives frames back in long bursts: so many, or so much, may wait for the encoder, which works on them while the
GPU goes on."""


@dataclass(frozen=True)
class TransformReport:
    """What was done."""

    dst: Path
    """The file or folder that was written."""
    frames: int
    """Frames written."""
    lost: int
    """Frames of the source that could not be decoded."""
    seconds: float
    """Time from start to end."""
    warnings: tuple[str, ...]
    """What could not be kept, each in one line."""


def transform(
    src: Path | str,
    dst: Path | str,
    fn: FrameFunction,
    *,
    encode: EncodeOptions | None = None,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] | None = None,
    overwrite: bool = False,
) -> TransformReport:
    """Write `src` to `dst` with its pictures changed by `fn`.

    `fn` sees frames as float32 tensors on `device`, nominally in [0, 1]. Only what it changes is changed: see
    `pahs.video.color`. `progress` is called with 1 for every finished frame. Decoding and encoding run in threads
    of their own; memory depends on how far `fn` reads ahead, not on the length of the video.
    """
    start = time.perf_counter()
    src, dst = Path(src), Path(dst)
    try:
        check_target(src, dst, overwrite=overwrite)
    except OSError as error:
        raise PahsError(f"{error.filename or dst}: cannot be used ({error.strerror})") from None
    source: FrameSource
    sink: FrameSink
    if src.is_dir():
        source = images = ImageFolderReader(src)
        _make_parent(dst)
        sink = ImageFolderWriter(dst, images.info)
    else:
        source = video = VideoReader(src)
        try:
            _make_parent(dst)
            sink = VideoWriter(dst, video.info, encode, video)
        except BaseException:
            video.close()
            raise
    try:
        frames = _pump(source, sink, fn, torch.device(device), progress)
        if frames == 0:
            raise PahsError(f"{src}: no frame can be decoded; the file is damaged or incomplete")
        sink.close()
    finally:
        sink.abort()
        source.close()
    warnings = list(source.warnings) + list(sink.warnings)
    if source.lost:
        warnings.append(f"{src.name}: {source.lost} damaged or missing frames were left out")
    return TransformReport(dst, frames, source.lost, time.perf_counter() - start, tuple(warnings))


def check_target(src: Path, dst: Path, *, overwrite: bool) -> None:
    """Refuse what would lose the user's files, before any work is done."""
    if not src.exists():
        raise PahsError(f"{src}: no such file or folder")
    refuse_single_image(src)
    if dst.exists() and dst.samefile(src):
        raise PahsError(f"{dst}: is the input itself; choose another output")
    if src.is_dir():
        if dst.is_file():
            raise PahsError(f"{dst}: is a file, but a folder of images is written to a folder")
        if dst.is_dir() and any(dst.iterdir()) and not overwrite:
            raise PahsError(f"{dst}: exists and is not empty; choose another output or allow overwriting")
        return
    if dst.is_dir():
        raise PahsError(f"{dst}: is a folder; name the file to write")
    if dst.exists() and not overwrite:
        raise PahsError(f"{dst}: exists; choose another output or allow overwriting")


def _make_parent(dst: Path) -> None:
    try:
        dst.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PahsError(
            f"{dst}: its folder cannot be created ({error.strerror}); choose another output"
        ) from None


def _pump(
    source: FrameSource,
    sink: FrameSink,
    fn: FrameFunction,
    device: torch.device,
    progress: Callable[[int], None] | None,
) -> int:
    """Run the three stages side by side; returns the number of frames. Whatever fails, no thread stays behind."""
    decoded: Channel[Any] = Channel(_QUEUE)
    finished: Channel[Any] = Channel(_QUEUE if device.type == "cpu" else _burst(source))
    pixels = source.info.pixels
    # Frames that `fn` has taken and not given back yet, and the packets between them, in file order: they leave
    # together, so that sound stays beside its pictures however far `fn` reads ahead.
    waiting: deque[Any] = deque()

    def read() -> None:
        try:
            for item in source.items():
                decoded.put(item)
        except Closed:
            return
        except BaseException as error:
            decoded.close(error)
        decoded.close()

    def write() -> None:
        try:
            for item in finished:
                if isinstance(item, _Changed):
                    sink.write(replace(item.frame, planes=item.planes()))
                else:
                    sink.copy(item)
        except BaseException as error:
            finished.close(error, drop=True)

    def pictures() -> Iterator[Tensor]:
        for item in decoded:
            waiting.append(item)
            if isinstance(item, Frame):
                yield to_rgb(item.planes, pixels, device)

    threads = [threading.Thread(target=t, name=f"pahs-{t.__name__}", daemon=True) for t in (read, write)]
    for thread in threads:
        thread.start()
    outputs: Iterator[Tensor] | None = None
    count = 0
    try:
        outputs = fn(pictures())
        for output in outputs:
            frame = _next_frame(waiting, finished)
            # Computed again rather than kept: a second conversion costs less than float frames in memory.
            rgb_in = to_rgb(frame.planes, pixels, device)
            if output.shape != rgb_in.shape:
                raise ValueError(
                    f"the function gave {tuple(output.shape)} for a frame of {tuple(rgb_in.shape)}"
                )
            finished.put(_Changed(frame, begin_change(frame.planes, rgb_in, output.to(device), pixels)))
            count += 1
            if progress is not None:
                progress(1)
        for item in chain(waiting, decoded):
            if isinstance(item, Frame):
                raise ValueError(f"the function gave only {count} frames back")
            finished.put(item)
        finished.close()
    except BaseException:
        finished.close(drop=True)
        raise
    finally:
        decoded.close(drop=True)
        for thread in threads:
            thread.join()
        close = getattr(outputs, "close", None)
        if close is not None:
            close()
    finished.raise_error()
    return count


@dataclass(frozen=True)
class _Changed:
    """A frame on its way back."""

    frame: Frame
    planes: Callable[[], Planes]
    """Waits for the new samples."""


def _burst(source: FrameSource) -> int:
    """Frames that may wait for the encoder."""
    info = source.info
    samples = 3 * info.width * info.height * (1 if info.pixels.depth == 8 else 2)
    return max(_QUEUE, min(_BURST, _BURST_BYTES // samples))


def _next_frame(waiting: deque[Any], finished: Channel[Any]) -> Frame:
    """The oldest frame that waits; packets before it go to the writer."""
    while waiting:
        item = waiting.popleft()
        if isinstance(item, Frame):
            return item
        finished.put(item)
    raise ValueError("the function gave more frames back than it took")
