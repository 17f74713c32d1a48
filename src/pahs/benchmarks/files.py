"""`pahs bench --file` and `--clip`: frames per second from file to file, and of each of the three stages alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch

from pahs.benchmarks.conditions import Say, conditions, has_weights, moving_texture, settle
from pahs.benchmarks.options import BenchConfig
from pahs.engine import stream
from pahs.errors import PahsError
from pahs.evaluation.tables import table
from pahs.networks import Deblurrer
from pahs.runtime.load import load

T = TypeVar("T")

TRIES = 3
"""Measurements of each stage and of the whole; the fastest counts, because others use the machine too."""
HELD = 256
"""At most this many frames of a file are held in memory to time the single stages."""
LOOP = 64
"""Different frames in a clip that is made for the measurement."""


@dataclass(frozen=True)
class FileRates:
    """Frames per second, all measured on one file."""

    name: str
    size: tuple[int, int]
    """Width and height."""
    frames: int
    """Frames of the file."""
    held: int
    """First frames of the file, on which the single stages were timed."""
    decode: float
    restore: float
    """Colour conversion to RGB and back, and the network."""
    encode: float
    file_to_file: float
    """As in `pahs deblur`, which runs the three stages at the same time."""

    @property
    def slowest(self) -> float:
        return min(self.decode, self.restore, self.encode)


@dataclass(frozen=True)
class Video:
    """A video that is measured from file to file."""

    path: Path
    option: str
    """The option of the command line that names it."""


@contextmanager
def open_video(file: Path | None, clip: int | None, config: BenchConfig, say: Say) -> Iterator[Video | None]:
    """The file that was named, or a clip of so many frames that is made here and removed afterwards, or nothing."""
    if file is not None:
        check_file(file)
        yield Video(file, f"--file {file}")
    elif clip is not None:
        check_pyav("--clip")
        with TemporaryDirectory(prefix="pahs-bench-") as folder:
            path = Path(folder) / "clip.mp4"
            say(f"making a clip of {clip} frames")
            make_clip(path, clip, config.width, config.height)
            yield Video(path, f"--clip {clip}")
    else:
        yield None


def file_report(model: str, video: Video, config: BenchConfig, say: Say) -> tuple[str, dict[str, object]]:
    """One network from file to file: the table and the numbers."""
    config = settle(config)
    trained = has_weights(model)
    rates = measure_file(load(model, config.device, config.precision, not trained), video.path, say)
    lines = [
        file_markdown(rates),
        "",
        conditions(config, f"--model {model} {video.option}"),
        f"{model}, {'trained' if trained else 'random'} weights; each figure is the fastest of {TRIES} tries.",
    ]
    return "\n".join(lines), {"model": model, "conditions": lines[2], **asdict(rates)}


def check_file(file: Path) -> None:
    """Refuse an unusable file before anything slow has run."""
    if not file.is_file():
        raise PahsError(f"--file {file}: no such video file")
    check_pyav("--file")


def check_pyav(option: str) -> None:
    if find_spec("av") is None:
        raise PahsError(
            f"{option} needs PyAV to read and write videos; install the package `av`, or leave it out"
        )


def make_clip(path: Path, frames: int, width: int, height: int) -> None:
    """A moving texture of even size. Its frames run forward and backward, so that a long clip has no cut."""
    from pahs.video import EncodeOptions
    from pahs.video.write_video import write_video

    texture = moving_texture(min(frames, LOOP), height // 2 * 2, width // 2 * 2, torch.device("cpu"))
    there_and_back = texture + texture[-2:0:-1]
    write_video(path, islice(cycle(there_and_back), frames), 30, EncodeOptions(crf=18, preset="veryfast"))


def measure_file(network: Deblurrer, file: Path, say: Say) -> FileRates:
    """Time each stage alone and then all together; the written videos are deleted."""
    from pahs.deblur import DeblurOptions, deblur
    from pahs.video import Frame, VideoReader, VideoWriter
    from pahs.video.batches import batch_size, changed, in_batches

    device = network.device
    with VideoReader(file) as reader:
        info, pixels = reader.info, reader.info.pixels

    def decode() -> list[Frame]:
        with VideoReader(file) as reader:
            return list(islice(reader, HELD))

    def restore(frames: list[Frame]) -> list[Frame]:
        batches = in_batches(frames, batch_size(info, device), device)
        work = list(changed(batches, lambda x: stream(network, x), pixels, device))
        return [picture.finish() for pictures in work for picture in pictures]

    def encode(frames: list[Frame], target: Path) -> None:
        with VideoWriter(target, info) as writer:
            for picture in frames:
                writer.write(picture)

    times: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = work()
        times[stage] = min(time.perf_counter() - started, times.get(stage, float("inf")))
        return result

    with TemporaryDirectory(prefix="pahs-bench-") as folder:
        alone, whole = (Path(folder) / f"{name}{file.suffix}" for name in ("alone", "whole"))
        # The stages take turns, so that a machine which slows down does so for all of them.
        for number in range(1, TRIES + 1):
            pictures = timed("decode", decode)
            if not pictures:
                raise PahsError(f"--file {file}: no frame can be decoded; the file is damaged or incomplete")
            restored = timed("restore", lambda: restore(pictures))  # noqa: B023 - called at once
            timed("encode", lambda: encode(restored, alone))  # noqa: B023
            report = timed("whole", lambda: deblur(file, whole, DeblurOptions(overwrite=True), network))
            say(f"{file.name}: {report.frames / times['whole']:.3f} frames/s file to file [{number}/{TRIES}]")
    count = len(pictures)
    return FileRates(
        file.name,
        (info.width, info.height),
        report.frames,
        count,
        decode=count / times["decode"],
        restore=count / times["restore"],
        encode=count / times["encode"],
        file_to_file=report.frames / times["whole"],
    )


def file_markdown(rates: FileRates) -> str:
    width, height = rates.size
    rows = [f"{x}, alone | {rates.held} | {getattr(rates, x):.2f}" for x in ("decode", "restore", "encode")]
    rows.append(f"file to file | {rates.frames} | {rates.file_to_file:.2f}")
    share = 100 * rates.file_to_file / rates.slowest
    lines = table(f"{rates.name}, {width}x{height} | frames | frames/s", rows)
    return "\n".join([*lines, "", f"File to file runs at {share:.0f} % of the slowest single stage."])
