"""How a video is cut up to fit the memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pahs.networks.contract import Deblurrer

MAX_CHUNK = {"cpu": 32, "cuda": 64}  # other GPUs as a CPU: none has been measured
"""Frames of the longest chunk. Longer ones repeat less of the backward sweep, (chunk + look-ahead) / chunk, but hold
more features, and an encoder waits longer for its first frame."""
BATCH_PIXELS = {"cpu": 1 << 18, "cuda": 1 << 23, "xpu": 1 << 21, "mps": 1 << 21}
"""Pixels in one batch of a frame-wise stage: enough to fill the device, small enough for its caches and memory."""
MEMORY_SHARE = 0.6
"""Share of the free memory for the queue of features and for the latents that the sweeps make of them."""
STAGE_COPIES = 6
"""Tensors of the largest size that a frame-wise stage holds at the same time on a CPU, what oneDNN takes included."""
WORTH_BANDS = 1 << 19
"""Pixels of a frame from which the memory of a stage counts. oneDNN can crash where memory runs out, so on a CPU the
first number of bands is chosen by the free memory."""
SHORT_CHUNK, LEAST_CHUNK = 16, 2
"""Frames restored by one backward sweep: rather than fewer, features are offloaded, from a GPU's memory to the host's
(`SHORT_CHUNK`) or from the host's to the disk (`LEAST_CHUNK`)."""
CGROUP = Path("/sys/fs/cgroup")
_SHORTAGE = (
    "DefaultCPUAllocator",
    "could not create a primitive",
    "could not execute a primitive",
    "bad_alloc",
    "MPS backend out of memory",
)


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
    """The queue of features lies in the host's memory instead of a GPU's, or on the disk instead of a CPU's."""

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
    if device.type in ("cuda", "xpu"):
        backend = getattr(torch, device.type)
        free, total = backend.mem_get_info(device)
        used = backend.memory_allocated(device)
        allowed = int(backend.get_per_process_memory_fraction(device) * total)
        return int(min(free + backend.memory_reserved(device), allowed) - used)
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    free = 2 << 30
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([free, *(left for _, left in _limits()), *_left_by_container()])


def _limits() -> Iterator[tuple[int, int]]:
    """The limits of this process (`ulimit -v`, `--memory`), and what each leaves, on Linux."""
    if sys.platform != "linux":
        return
    import resource

    for kind, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit, max(0, limit - process_memory(field))


def _left_by_container() -> Iterator[int]:
    with suppress(OSError, ValueError):
        allowed, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        yield max(0, allowed - used)


def limited() -> bool:
    """Whether this process may allocate less than there is."""
    if not any(_limits()):
        return False
    return min(limit for limit, _ in _limits()) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def process_memory(field: str) -> int:
    """A number of bytes that Linux tells about this process, such as VmSize."""
    value = told_by_linux("self/status", field)
    return 1024 * int(value.split()[0]) if value else 0


def told_by_linux(file: str, field: str) -> str:
    """A field of a file in /proc, the first of its name, or nothing."""
    with suppress(OSError):
        for line in Path("/proc", file).read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else (result,):
            if isinstance(x, Tensor):
                self.bytes = max(self.bytes, x.numel() * x.element_size())
        return result


def stage_bytes(model: Deblurrer) -> float:
    """Bytes that a frame-wise stage takes for a pixel on a CPU, about: tried on a small frame."""
    side = 4 * model.contract.multiple_of
    with torch.inference_mode(), _Largest() as largest:
        model.extract(torch.zeros(1, 1, 3, side, side, device=model.device))
    return float(STAGE_COPIES * largest.bytes / side**2)


def is_shortage(error: BaseException) -> bool:
    """Whether memory has run out: on a CPU, PyTorch and oneDNN have no exception of their own for it."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _SHORTAGE)
