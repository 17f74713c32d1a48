"""How many times as fast as in float32 this CPU runs a network in another precision.

    python -m pahs.runtime.probe bfloat16

This is for a process of its own: some processors announce matrix instructions that they cannot run, and the process
dies of them. `pahs.runtime.cpu_speed` starts it.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor

from pahs.engine import stream
from pahs.networks import PRESETS, Deblurrer

MODEL, FRAMES, HEIGHT, WIDTH = "pahs-t", 3, 128, 192
"""Every kind of layer, and pictures large enough for the threads."""
TRIES = 3


def speed(dtype: torch.dtype) -> float:
    network = PRESETS[MODEL].config.build().eval()
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    frames = torch.rand(FRAMES, 3, HEIGHT, WIDTH)
    return seconds(network, frames) / seconds(network.to(dtype), frames)


def seconds(network: Deblurrer, frames: Tensor) -> float:
    """The shortest of a few tries, after one that does not count."""
    found = []
    for _ in range(1 + TRIES):
        started = time.perf_counter()
        list(stream(network, frames, scene_cuts=False))
        found.append(time.perf_counter() - started)
    return min(found[1:])


if __name__ == "__main__":
    print(speed(getattr(torch, sys.argv[1])))
