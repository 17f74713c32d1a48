"""How long this machine takes for a frame: measured once for a network and a size, and remembered."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass

import torch

from pahs.engine import stream
from pahs.networks import Deblurrer
from pahs.runtime.device import device_name
from pahs.runtime.precision import recall, remember

SMALL = 192, 112
"""Width and height of the first measurement, from which those that would take too long are extrapolated."""
MOST_SECONDS = 12.0
"""A measurement at the video's own size may take about so long."""
FRAMES = {"cpu": 5, "gpu": 40}
CHUNKS = {"cpu": (3, 2), "gpu": (25, 15)}
"""Chunk and look-ahead: the backward sweep covers about as many frames twice as it does in long videos."""


@dataclass(frozen=True)
class Speed:
    """How fast a network runs, without decoding and encoding."""

    frames_per_second: float
    measured: bool
    """At this size; otherwise extrapolated by pixels from a smaller one."""


def speed(network: Deblurrer, width: int, height: int, at_size: bool = True) -> Speed:
    """Frames per second at a size. Without `at_size`, a quick estimate unless it was measured before."""
    pixels, small = width * height, SMALL[0] * SMALL[1]
    known = recall(_key(network, width, height))
    if known:
        return Speed(1e6 / known, True)
    if pixels <= small:
        return Speed(1 / _measure(network, width, height), True)
    expected = (recall(_key(network, *SMALL)) or 0) / 1e6 or _measure(network, *SMALL)
    expected *= pixels / small
    if at_size and expected * FRAMES[_kind(network)] <= MOST_SECONDS:
        return Speed(1 / _measure(network, width, height), True)
    return Speed(1 / expected, False)


def _measure(network: Deblurrer, width: int, height: int) -> float:
    """Seconds per frame, remembered in microseconds."""
    device = network.device
    (chunk, look_ahead), frames = CHUNKS[_kind(network)], FRAMES[_kind(network)]
    clip = torch.rand(frames, 3, height, width, device=device)
    # The first run on a GPU compiles and records; on a CPU a single frame warms up the allocator.
    for images in (clip if device.type != "cpu" else clip[:1], clip):
        started = time.perf_counter()
        for _ in stream(network, images, look_ahead=look_ahead, chunk=chunk, scene_cuts=False):
            pass
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        seconds = (time.perf_counter() - started) / frames
    remember(_key(network, width, height), seconds * 1e6)
    return seconds


def _kind(network: Deblurrer) -> str:
    return "cpu" if network.device.type == "cpu" else "gpu"


def _key(network: Deblurrer, width: int, height: int) -> str:
    where = f" on {device_name(network.device)}" if network.device.type != "cpu" else ""
    config = zlib.crc32(repr(network.config).encode())
    return f"{network.kind} {config:08x} {network.dtype} {width}x{height}{where}, microseconds"
