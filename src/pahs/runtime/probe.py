"""How many times as fast as in float32 a device runs a network in another precision; 0 where the frames are wrong.

    python -m pahs.runtime.probe bfloat16 cpu

`pahs.runtime.precision.probed_speed` runs this in a process of its own, because some processors announce matrix
instructions that they cannot run, and a process that uses them is killed.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor

from pahs.engine import stream
from pahs.networks import PRESETS, Deblurrer

MODEL, FRAMES, HEIGHT, WIDTH = "pahs-t", 3, 128, 192
"""This network has every kind of layer, and these frames are large enough to keep all threads busy."""
TRIES = 3
CLOSE = 0.02
"""The largest mean difference from float32, of frames in [0, 1]: rounding makes much less, wrong layers far more."""


def speed(dtype: torch.dtype, device: str = "cpu") -> float:
    network = PRESETS[MODEL].config.build().eval().to(device)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    frames = torch.rand(FRAMES, 3, HEIGHT, WIDTH, device=device)
    slow, right = timed(network, frames)
    fast, found = timed(network.to(dtype), frames)
    return slow / fast if close(found, right) else 0.0


def close(found: Tensor, right: Tensor) -> bool:
    """Whether frames are finite and nearly those of float32."""
    return bool(found.isfinite().all()) and float((found - right).abs().mean()) < CLOSE


def timed(network: Deblurrer, frames: Tensor) -> tuple[float, Tensor]:
    """The shortest of a few tries in seconds, after one that does not count, and the frames."""
    found = []
    for _ in range(1 + TRIES):
        started = time.perf_counter()
        restored = torch.stack(list(stream(network, frames, scene_cuts=False))).float().cpu()
        found.append(time.perf_counter() - started)
    return min(found[1:]), restored


if __name__ == "__main__":
    print(speed(getattr(torch, sys.argv[1]), *sys.argv[2:]))
