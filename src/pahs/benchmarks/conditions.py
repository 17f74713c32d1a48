"""What all measurements share: settings, frames, device, and the line that states them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.benchmarks.options import BenchConfig
from pahs.choices import Device, Precision
from pahs.errors import PahsError
from pahs.networks import PRESETS
from pahs.runtime import weights
from pahs.runtime.device import choose_device, device_name, limit_memory
from pahs.runtime.precision import choose_dtype, name_of_dtype

Say = Callable[[str], None]
"""Takes a line on how the measurement proceeds."""
PIXELS_PER_FRAME = 5
"""Distance that the texture moves from one frame to the next."""


def settle(config: BenchConfig) -> BenchConfig:
    """The same with the device and the precision that `auto` stands for here."""
    device = choose_device(config.device)
    dtype = choose_dtype(config.precision, device)
    if config.memory is not None:
        limit_memory(device, config.memory)
    precision = cast(Precision, name_of_dtype(dtype))
    return replace(config, device=cast(Device, device.type), precision=precision)


def check_model(name: str) -> None:
    if name not in PRESETS and not Path(name).is_file():
        raise PahsError(f"--model {name}: no model and no file of this name; `pahs models` lists the names")


def has_weights(model: str) -> bool:
    """Whether the model is a weights file or comes with one; a preset without one is measured with random weights."""
    return model not in PRESETS or weights.bundled(model) is not None


def moving_texture(frames: int, height: int, width: int, device: torch.device) -> list[Tensor]:
    """(3, H, W) frames in [0, 1]: random detail at many scales, moving diagonally."""
    random = torch.Generator(device).manual_seed(0)
    travel = PIXELS_PER_FRAME * frames
    rows, columns = height + travel, width + travel
    canvas = torch.zeros(1, 3, rows, columns, device=device)
    for scale in (2, 8, 32, 128):
        grid = (1, 3, max(2, rows // scale), max(2, columns // scale))
        coarse = torch.rand(grid, generator=random, device=device)
        canvas += F.interpolate(coarse, (rows, columns), mode="bilinear") / 4
    starts = [PIXELS_PER_FRAME * t for t in range(frames)]
    return [canvas[0, :, t : t + height, t : t + width].clone() for t in starts]


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether float32 products on a GPU may be rounded to TF32; on a CPU nothing changes."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def time_work(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that `work` takes, until the device has finished it too."""
    wait(device)
    started = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - started


def allocated(device: torch.device) -> int:
    """Bytes of a CUDA GPU in use; elsewhere nothing is measured."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_since(before: int, device: torch.device) -> int | None:
    """Most bytes in use since `reset_peak`, less those in use before; None but on a CUDA GPU."""
    return torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None


def free_memory() -> None:
    gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()


def conditions(config: BenchConfig, what: str) -> str:
    """Machine, versions and command in one line; `what` are the options that choose the measurement."""
    device = device_name(torch.device(config.device))
    return (
        f"{device}, torch {torch.__version__}, {config.precision}, {config.width}x{config.height}: "
        f"`pahs bench {what} --size {config.width} {config.height} --frames {config.frames} "
        f"--seconds {config.seconds:g} --device {config.device} --precision {config.precision}{config.limit}`"
    )
