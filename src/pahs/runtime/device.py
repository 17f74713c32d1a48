"""The device that a network runs on: chosen here, once, for every front end."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

import torch

from pahs.errors import PahsError


def choose_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise PahsError(f"--device {device}: choose auto, cpu or cuda") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise PahsError("--device cuda: this PyTorch sees no CUDA GPU; use --device cpu or auto")
    return chosen


def cpu_name() -> str:
    """The processor's own name where the system tells it, else its architecture."""
    return cpuinfo("model name") or platform.processor() or platform.machine()


def cpuinfo(field: str) -> str:
    """What Linux says of the first processor, or nothing."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""


def device_name(device: torch.device) -> str:
    """The name of the GPU or of the processor, for tables of results."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({cpu_name()}, threads: {torch.get_num_threads()})"


def limit_memory(device: torch.device, gib: float) -> None:
    """Use no more memory of this GPU than that; the engine then cuts its work to fit."""
    if device.type != "cuda":
        raise PahsError(
            f"--memory {gib:g}: it limits the memory of a GPU, and this runs on the CPU; leave it out"
        )
    number = torch.cuda.current_device() if device.index is None else device.index
    _, total = torch.cuda.mem_get_info(number)
    if gib <= 0:
        raise PahsError(f"--memory {gib:g}: it must be above 0")
    torch.cuda.set_per_process_memory_fraction(min(1.0, gib * 2**30 / total), number)
