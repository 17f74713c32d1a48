"""The device that a network runs on: chosen here, once, for every front end."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from pahs.choices import check_memory
from pahs.engine.plan import process_memory, told_by_linux
from pahs.errors import PahsError

GPUS: dict[str, Callable[[], bool]] = {
    "cuda": lambda: torch.cuda.is_available(),  # AMD's GPUs too: a ROCm build of PyTorch calls them cuda
    "xpu": lambda: torch.xpu.is_available(),
    "mps": lambda: torch.backends.mps.is_available(),
}
"""Whether this PyTorch sees such a GPU, in the order in which `auto` prefers them."""
MAKERS = {"cuda": "CUDA", "xpu": "Intel", "mps": "Apple"}


def choose_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device(next((kind for kind, found in GPUS.items() if found()), "cpu"))
    kind, _, number = device.partition(":")
    if kind not in ("cpu", *GPUS) or not (device == kind or number.isdecimal()):
        raise PahsError(
            f"--device {device}: choose auto, cpu, cuda, xpu or mps, or one of several as in cuda:1"
        )
    if kind != "cpu" and not GPUS[kind]():
        raise PahsError(f"--device {kind}: this PyTorch sees no {MAKERS[kind]} GPU; use --device cpu or auto")
    return torch.device(device)


def runs_our_kernels(device: torch.device) -> bool:
    """Whether this is an NVIDIA GPU; all others run PyTorch's own layers, and are tried before they are trusted."""
    return device.type == "cuda" and torch.version.hip is None


def cpu_name() -> str:
    """The processor's own name where the system tells it, else its architecture."""
    return told_by_linux("cpuinfo", "model name") or platform.processor() or platform.machine()


def device_name(device: torch.device) -> str:
    """The name of the GPU or of the processor, for tables of results."""
    if device.type in ("cuda", "xpu"):
        return getattr(torch, device.type).get_device_name(device)  # type: ignore[no-any-return]
    if device.type == "mps":
        return f"Apple GPU ({cpu_name()})"
    return f"CPU ({cpu_name()}, threads: {torch.get_num_threads()})"


def limit_memory(device: torch.device, gib: float) -> None:
    """Use no more memory than that, of this GPU or in this process; the engine then cuts its work to fit.

    On a CPU the limit holds for all that the process allocates, as Linux counts it; other systems have none.
    """
    check_memory(gib)
    if device.type == "cpu":
        _limit_process(gib)
    elif device.type == "mps":
        torch.mps.set_per_process_memory_fraction(min(1.0, gib * 2**30 / torch.mps.recommended_max_memory()))
    else:
        backend = getattr(torch, device.type)
        number = backend.current_device() if device.index is None else device.index
        _, total = backend.mem_get_info(number)
        backend.set_per_process_memory_fraction(min(1.0, gib * 2**30 / total), number)


def _limit_process(gib: float) -> None:
    if sys.platform != "linux":
        raise PahsError(f"--memory {gib:g}: this system cannot limit the memory of a process; leave it out")
    import resource

    limit, used = int(gib * 2**30), process_memory("VmData")
    if limit <= used:
        raise PahsError(
            f"--memory {gib:g}: the program itself already takes {used / 2**30:.2f} GiB; allow more"
        )
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


@contextmanager
def limited_memory(device: torch.device, gib: float | None) -> Iterator[None]:
    """`limit_memory` for one job, if there is a limit. A process that continues gets back what it had."""
    if gib is None:
        yield
        return
    restore = _restore_memory(device)
    try:
        limit_memory(device, gib)
        yield
    finally:
        restore()


def _restore_memory(device: torch.device) -> Callable[[], None]:
    """A function that restores the limit that holds now."""
    if device.type == "mps":
        usual = float(os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO", 1.7))  # PyTorch does not tell it
        return lambda: torch.mps.set_per_process_memory_fraction(usual)
    if device.type != "cpu":
        backend = getattr(torch, device.type)
        number = backend.current_device() if device.index is None else device.index
        fraction = backend.get_per_process_memory_fraction(number)
        return lambda: backend.set_per_process_memory_fraction(fraction, number)
    if sys.platform != "linux":
        return lambda: None
    import resource

    limits = resource.getrlimit(resource.RLIMIT_DATA)
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, limits)
