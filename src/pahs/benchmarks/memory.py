"""Memory of a GPU in use during a measurement; on a CPU nothing is measured."""

from __future__ import annotations

import gc

import torch


def allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_since(before: int, device: torch.device) -> int | None:
    """Most bytes in use since `reset_peak`, less those in use before; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
