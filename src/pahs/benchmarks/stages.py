"""The cost of a network's stages: operations are counted, and times are taken while the engine runs them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from pahs.benchmarks.conditions import time_work, wait
from pahs.benchmarks.reference import literal_stream
from pahs.evaluation.flops import count, without_values
from pahs.networks import PAHS, Deblurrer

STAGES = ("extract", "propagate", "reconstruct")
MATRIX = {"cuda": 8192, "cpu": 1024}
"""Rows of the square matrices whose product gives a device's rate of arithmetic."""
MATRIX_SECONDS = 0.3


@dataclass(frozen=True)
class Work:
    """Floating-point operations of the stages for one frame, a multiplication and an addition counting as two."""

    extract: int
    forward: int
    """One step of the forward sweep, which carries the state."""
    backward: int
    """One step of the backward sweep; 0 for a network without one."""
    reconstruct: int

    def propagate(self, steps: float) -> float:
        """Operations for an output frame if the backward sweep makes `steps` steps for each."""
        return self.forward + steps * self.backward

    def frame(self, steps: float) -> float:
        return self.extract + self.propagate(steps) + self.reconstruct


def count_work(network: Deblurrer, height: int, width: int) -> Work:
    """Count the operations of each stage for one frame."""
    hollow = without_values(network)
    rows, columns = network.contract.padded(height, width)
    clip = torch.empty(1, 2, 3, rows, columns, device="meta")
    with torch.inference_mode():
        features = hollow.extract(clip)
        one = tuple(x[:, :1] for x in features)
        latents, state = hollow.propagate(one, None, 1)
        short = count(lambda: hollow.propagate(one, state, 1))
        backward = count(lambda: hollow.propagate(features, state, 1)) - short
        return Work(
            extract=count(lambda: hollow.extract(clip[:, :1])),
            forward=short - backward,
            backward=backward,
            reconstruct=count(lambda: hollow.reconstruct(latents)),
        )


def count_literal(network: PAHS, height: int, width: int, keep_features: bool = False) -> int:
    """Count the operations of the literal reference for one frame in the middle of a video."""
    hollow = without_values(network)
    frame = torch.empty(3, height, width, device="meta")
    outputs = literal_stream(hollow, iter(lambda: frame, None), keep_features=keep_features)
    next(outputs)
    return count(lambda: next(outputs))


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second in a large matrix product, the limit for arithmetic on this device."""
    rows = MATRIX.get(device.type, MATRIX["cpu"])
    a, b = (torch.rand(rows, rows, device=device).to(dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    best, ends = float("inf"), time.perf_counter() + MATRIX_SECONDS
    while time.perf_counter() < ends:
        best = min(best, time_work(lambda: a @ b, device))
    return 2 * rows**3 / best


@dataclass
class Laps:
    """Times that a stopwatch has added up."""

    seconds: dict[str, float]
    kept: int = 0
    """Frames that the recurrence restored."""
    swept: int = 0
    """Frames that the recurrence was given; those of the look-ahead are given, and counted, several times."""


@contextmanager
def stopwatch(network: PAHS, device: torch.device) -> Iterator[Laps]:
    """Time the stages of this network while the engine calls them.

    The host waits for the GPU before and after each stage, so that stages do not overlap: the whole is slower than
    without the stopwatch.
    """
    laps = Laps(dict.fromkeys(STAGES, 0.0))

    # Features in the host's memory are propagated frame by frame.
    methods = {name: name for name in STAGES} | {"propagate_frames": "propagate"}

    def watched(method: str, stage: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            wait(device)
            started = time.perf_counter()
            result = stage(*arguments)
            wait(device)
            laps.seconds[methods[method]] += time.perf_counter() - started
            if methods[method] == "propagate":
                features, _, keep = arguments
                laps.kept += keep
                laps.swept += len(features) if method == "propagate_frames" else features[0].shape[1]
            return result

        return call

    for name in methods:
        setattr(network, name, watched(name, getattr(network, name)))
    try:
        yield laps
    finally:
        for name in methods:
            delattr(network, name)


def take(outputs: Iterator[Tensor], frames: int, device: torch.device) -> float:
    """Seconds for the next frames of a stream."""
    return time_work(lambda: deque(islice(outputs, frames), maxlen=0), device)
