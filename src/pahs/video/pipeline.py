"""From file to file: decode, let a function change the pictures, encode, and copy everything else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch
from torch import Tensor

from pahs.choices import Compare, EncodeOptions
from pahs.errors import PahsError, Stopped
from pahs.files import os_errors
from pahs.progress import Advance, Stop
from pahs.video.batches import Batch, Changed, FrameFunction, batch_size, changed, in_batches
from pahs.video.channel import Channel, Closed
from pahs.video.compare import ComparedSink
from pahs.video.cut import Part, open_source
from pahs.video.frames import FrameSink, FrameSource, VideoInfo
from pahs.video.images import refuse_single_image
from pahs.video.paths import comparison_name, gives_images
from pahs.video.sinks import open_sink, try_first

_QUEUE = 8
"""Frames and packets that wait between two threads: enough to overlap, too few to fill the memory."""
OVERWRITE = "--overwrite (in Python overwrite=True)"
STOP_SECONDS = 0.1
"""How often a job looks whether it is to stop."""
_BURST, _BURST_BYTES = 256, 1 << 29
"""A GPU returns frames in long bursts: so many frames, or bytes, may wait for the encoder, so that the GPU need not."""


@dataclass(frozen=True)
class TransformReport:
    """What `transform` did."""

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
    comparison: Path | None = None
    """The comparison that was written next to it, if one was asked for."""
    sharpness: tuple[float, float] | None = None
    """Mean sharpness of some frames before and after, where it was measured and can be told."""

    @property
    def rate(self) -> float:
        """Frames per second, from file to file."""
        return self.frames / self.seconds if self.seconds else 0.0


def transform(
    src: Path | str,
    dst: Path | str,
    fn: FrameFunction,
    *,
    encode: EncodeOptions | None = None,
    device: torch.device | str = "cpu",
    overwrite: bool = False,
    advance: Advance | None = None,
    stop: Stop | None = None,
    part: Part | None = None,
    rate: float | None = None,
    strength: float = 1.0,
    deinterlace: bool = False,
    compare: Compare = "off",
) -> TransformReport:
    """Write `src` to `dst` with its pictures changed by `fn`.

    `fn` sees frames as float32 tensors on `device`, nominally in [0, 1]. Only what it changes is changed: see
    `pahs.video.color`; `strength` is the share of the change that is made. `part` is all that is read and written;
    `rate` is how many frames per second a folder of images stands for. `deinterlace` makes whole pictures of
    interlaced ones before `fn` sees them. `compare` writes a second video that shows each frame before and after.
    Decoding and encoding run in threads of their own; memory depends on how far `fn` reads ahead, not on the length
    of the video. Once `stop` is set, the job ends with `Stopped`, and no file or thread is left.
    """
    start = time.perf_counter()
    advance = advance or Advance()
    advance.enter("opening")
    src, dst = Path(src), Path(dst)
    try:
        check_targets(src, dst, encode, overwrite=overwrite, compare=compare)
    except OSError as error:
        raise PahsError(f"{error.filename or dst}: cannot be used ({error.strerror})") from None
    with open_source(src, part, rate, deinterlace) as source:
        with os_errors(f"{dst}: its folder cannot be created", "; choose another output"):
            dst.parent.mkdir(parents=True, exist_ok=True)
        lost = try_first(dst, source, encode)
        with open_sink(dst, source, encode, compare) as sink:
            # Another job may have finished this very output before its name was locked.
            check_targets(src, dst, encode, overwrite=overwrite, compare=compare)
            advance.expect(source.info.frame_count)
            frames = pump(source, sink, fn, torch.device(device), advance, stop, strength)
            if frames == 0:
                raise PahsError(f"{src}: no frame can be decoded; the file is damaged or incomplete")
            if stop is not None and stop.is_set():
                raise Stopped(f"{src}: stopped")
    warnings = [*source.warnings, *sink.warnings, *lost]
    if source.lost:
        warnings.append(f"{src.name}: {source.lost} damaged or missing frames were left out")
    seconds = time.perf_counter() - start
    comparison = None if compare == "off" else comparison_name(dst)
    return TransformReport(dst, frames, source.lost, seconds, tuple(warnings), comparison)


def check_targets(
    src: Path, dst: Path, encode: EncodeOptions | None, *, overwrite: bool, compare: Compare = "off"
) -> None:
    """Refuse what would lose the user's files, before any work is done."""
    if not src.exists():
        raise PahsError(f"{src}: no such file or folder")
    refuse_single_image(src)
    images = gives_images(src, dst, True if encode is not None and encode.images else None)
    _check_target(src, dst, images, overwrite)
    if compare != "off":
        _check_target(src, comparison_name(dst), images, overwrite)


def _check_target(src: Path, dst: Path, images: bool, overwrite: bool) -> None:
    if dst.exists() and dst.samefile(src):
        raise PahsError(f"{dst}: is the input itself; choose another output")
    if images:
        if dst.is_file():
            raise PahsError(f"{dst}: is a file, but a folder of images is written to a folder")
        if dst.is_dir() and any(dst.iterdir()) and not overwrite:
            raise PahsError(f"{dst}: exists and is not empty; choose another output or add {OVERWRITE}")
        return
    if dst.is_dir():
        raise PahsError(f"{dst}: is a folder; name the file to write")
    if dst.exists() and not dst.is_file():
        raise PahsError(f"{dst}: is a pipe or a device; name a file")
    if dst.exists() and not overwrite:
        raise PahsError(f"{dst}: exists; choose another output or add {OVERWRITE}")


def pump(
    source: FrameSource,
    sink: FrameSink,
    fn: FrameFunction,
    device: torch.device,
    advance: Advance,
    stop: Stop | None,
    strength: float,
) -> int:
    """Run all stages side by side; returns the number of frames. Whatever fails, no thread stays behind."""
    count = 0
    info, batch = source.info, batch_size(source.info, device)
    decoded: Channel[Batch] = Channel(max(2, _QUEUE // batch))
    finished: Channel[list[Any]] = Channel(_QUEUE if device.type == "cpu" else max(2, _burst(info) // batch))
    ready: Channel[list[Any]] = Channel(2)

    def looked_ahead(frames: Iterator[Tensor]) -> Iterator[Tensor]:
        for read, frame in enumerate(frames, 1):
            if not count:
                advance.enter("looking ahead", read)
            yield frame

    keep = isinstance(sink, ComparedSink)
    work = changed(decoded, lambda frames: fn(looked_ahead(frames)), info.pixels, device, strength, keep)

    def read() -> None:
        try:
            for gathered in in_batches(source.items(), batch, device):
                decoded.put(gathered)
        except Closed:
            return
        except BaseException as error:
            decoded.close(error)
        decoded.close()

    def prepare() -> None:
        try:
            for items in finished:
                ready.put([sink.prepare(x.finish()) if isinstance(x, Changed) else x for x in items])
        except BaseException as error:
            finished.close(error, drop=True)
        ready.close()

    def write() -> None:
        try:
            for items in ready:
                for item in items:
                    sink.put(item)
        except BaseException as error:
            ready.close(error, drop=True)

    def watch() -> None:
        while True:
            with suppress(Empty):
                return ended.get(timeout=STOP_SECONDS)
            if stop is not None and stop.is_set():
                # Closing the queues wakes whoever waits at one of them.
                for queue in (decoded, finished, ready):
                    queue.close(Stopped(f"{info.path}: stopped"), drop=True)
                return None

    ended: SimpleQueue[None] = SimpleQueue()  # an Event has a lock, which Ctrl-C can leave taken
    targets = [read, prepare, write, *([watch] if stop is not None else [])]
    threads = [threading.Thread(target=t, name=f"pahs-{t.__name__}", daemon=True) for t in targets]
    try:
        for thread in threads:
            thread.start()
        for items in work:
            finished.put(items)
            frames = sum(isinstance(item, Changed) for item in items)
            if frames and not count:
                advance.enter("restoring")
            count += frames
            if frames:
                advance(frames)
        advance.enter("finishing")
        finished.close()
    except BaseException:
        finished.close(drop=True)
        raise
    finally:
        decoded.close(drop=True)
        for thread in threads:
            if thread.name == "pahs-watch":
                ended.put(None)
            if thread.is_alive():  # an interrupt may have come before it was started
                thread.join()
        work.close()
    finished.raise_error()
    ready.raise_error()
    return count


def _burst(info: VideoInfo) -> int:
    """How many frames may wait for the encoder."""
    vertical, horizontal = info.pixels.subsampling
    planes = 1 if info.pixels.family == "gray" else 1 + 2 / (vertical * horizontal)
    frame_bytes = info.width * info.height * planes * (1 if info.pixels.depth == 8 else 2)
    return max(_QUEUE, min(_BURST, int(_BURST_BYTES / frame_bytes)))
