"""How many times as fast as in float32 this CPU runs a network in another precision.

    python -m pahs.runtime.probe bfloat16

`pahs.runtime.precision.cpu_speed` runs this in a process of its own, because some processors announce matrix
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
