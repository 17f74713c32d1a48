"""Milliseconds that something takes on this machine for a frame of the network that is timed.

    python -m pahs.backends.probe openvino int8

`pahs.backends.choose` runs this in a process of its own, because some processors announce instructions that they
cannot run, and a process that uses them is killed.
"""

from __future__ import annotations

import sys
from typing import cast

import torch

from pahs.backends.cache import cached
from pahs.backends.choose import TRIED
from pahs.backends.network import GraphNetwork
from pahs.backends.sessions import GraphBackend, knows_bf16
from pahs.networks import Deblurrer
from pahs.runtime import weights
from pahs.runtime.load import load
from pahs.runtime.probe import timed

FRAMES, HEIGHT, WIDTH = 4, 192, 320


def opened(backend: str, precision: str) -> Deblurrer:
    if backend == "torch":
        return load(TRIED, "cpu")
    folder = cached(weights.load(TRIED), "int8" if precision == "int8" else "fp32")
    return GraphNetwork.open(folder, cast(GraphBackend, backend), precision)


def milliseconds(backend: str, precision: str) -> float:
    """0 where it does not run."""
    if (backend, precision) == ("openvino", "bf16") and not knows_bf16():
        return 0.0
    seconds, _ = timed(opened(backend, precision), torch.rand(FRAMES, 3, HEIGHT, WIDTH))
    return 1000 / FRAMES * seconds


if __name__ == "__main__":
    print(milliseconds(*sys.argv[1:]))
