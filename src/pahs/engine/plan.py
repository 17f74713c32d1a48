"""How a video is cut up to fit the memory."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch

MAX_CHUNK = {"cpu": 32, "cuda": 64}
"""Frames of the longest chunk. Longer ones repeat less of the backward sweep, (chunk + look-ahead) / chunk, but hold
more features, and an encoder waits longer for its first frame."""
BATCH_PIXELS = {"cpu": 1 << 18, "cuda": 1 << 23}
"""Pixels in one batch of a frame-wise stage: enough to fill the device, small enough for its caches and memory."""
MEMORY_SHARE = 0.6
"""Share of the free memory for the queue of features and for the latents that the sweeps make of them."""
SHORT_CHUNK = 16
"""Features are offloaded to the host's memory rather than restoring fewer frames by one backward sweep."""


@dataclass(frozen=True)
class Plan:
    """How a video is cut up to fit the memory. Any plan gives the same frames for the same chunk."""

    chunk: int
    """Frames restored by one backward sweep."""
    batch: int
    """Frames in one call of a frame-wise stage."""
    bands: int = 1
    """Horizontal bands in one call of a frame-wise stage."""
    offload: bool = False
    """The queue of features lies in the host's memory instead of the device's."""

    def smaller(self, framewise: bool, max_bands: int, may_offload: bool) -> Plan | None:
        """The next plan to try when memory runs out: the change comes first that helps that stage and costs least."""
        batch = replace(self, batch=self.batch // 2) if self.batch > 1 else None
        bands = replace(self, bands=min(2 * self.bands, max_bands)) if self.bands < max_bands else None
        offload = replace(self, offload=True) if may_offload and not self.offload else None
        chunk = replace(self, chunk=self.chunk // 2) if self.chunk > 1 else None
        order = (batch, bands, offload, chunk) if framewise else (offload, chunk, batch, bands)
        return next((plan for plan in order if plan is not None), None)


def longest_chunk(device: torch.device) -> int:
    """Frames of a chunk where memory is no limit."""
    return MAX_CHUNK.get(device.type, MAX_CHUNK["cpu"])


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on a device."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        used = torch.cuda.memory_allocated(device)
        allowed = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        return min(free + torch.cuda.memory_reserved(device), allowed) - used
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2 << 30
