"""Between the host's memory and a device's, beside other work.

Only page-locked memory can be copied that way, and only by streams of their own do the copies run while a GPU computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
A = TypeVar("A")


def room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory of the host for what goes to the device or comes from it."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")


def upload(tensors: Tensors, device: torch.device) -> Tensors:
    """Begin to copy to the device, whose next steps wait for it and the host does not."""
    if device.type != "cuda":
        return tuple(x.to(device) for x in tensors)
    here, (copying, _) = torch.cuda.current_stream(device), _streams(device)
    with torch.cuda.stream(copying):
        there = tuple(x.to(device, non_blocking=True) for x in tensors)
    here.wait_stream(copying)
    for x in there:
        x.record_stream(here)
    return there


def fetch(tensors: Tensors) -> Callable[[], Tensors]:
    """Begin to copy to the host; the function waits until it is done."""
    device = tensors[0].device
    if device.type != "cuda":
        return lambda: tensors
    _, copying = _streams(device)
    copying.wait_stream(torch.cuda.current_stream(device))
    here = tuple(room(x.shape, x.dtype, device) for x in tensors)
    with torch.cuda.stream(copying):
        for mine, x in zip(here, tensors, strict=True):
            mine.copy_(x, non_blocking=True)
            x.record_stream(copying)
    # A host that waits must not keep a processor busy with asking: the codecs need them all.
    ready: torch.cuda.Event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    ready.record(copying)

    def wait() -> Tensors:
        ready.synchronize()
        return here

    return wait


@cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """For copies up and for copies down: a GPU has an engine for each direction."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


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
