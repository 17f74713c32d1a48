"""Two independent pieces of work at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

A = TypeVar("A")


def side_by_side(
    first: Callable[[], A], second: Callable[[], list[Tensor]], device: torch.device
) -> tuple[A, list[Tensor]]:
    """Both results. On a CUDA device each piece has a stream of its own: a recurrence alone cannot fill a GPU."""
    if device.type != "cuda":
        return first(), second()
    here = torch.cuda.current_stream(device)
    side: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(here)
    a = first()
    with torch.cuda.stream(side):
        b = second()
    here.wait_stream(side)
    for x in b:
        x.record_stream(here)
    return a, b
