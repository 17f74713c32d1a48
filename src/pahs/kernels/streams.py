"""CUDA streams: copies between the host's memory and a GPU's while the GPU computes, and two computations at a time.

A copy runs while the GPU computes only from or to page-locked memory, and only on a stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
A = TypeVar("A")


def host_buffer(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A buffer in the host's memory for copies to and from the device."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")


def upload(tensors: Tensors, device: torch.device) -> Tensors:
    """Begin to copy to the device. Its next kernels wait for the copy; the host does not."""
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
    """Begin to copy to the host; the returned function waits until the copy is done."""
    device = tensors[0].device
    if device.type != "cuda":
        return lambda: tuple(x.cpu() for x in tensors)
    _, copying = _streams(device)
    copying.wait_stream(torch.cuda.current_stream(device))
    here = tuple(host_buffer(x.shape, x.dtype, device) for x in tensors)
    with torch.cuda.stream(copying):
        for mine, x in zip(here, tensors, strict=True):
            mine.copy_(x, non_blocking=True)
            x.record_stream(copying)
    # A blocking event: a host that polled would keep a core busy, and the codecs need all of them.
    ready: torch.cuda.Event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    ready.record(copying)

    def wait() -> Tensors:
        ready.synchronize()
        return here

    return wait


@cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """A stream for copies to the GPU and one for copies from it: the GPU has a copy engine for each direction."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def side_by_side(
    first: Callable[[], A], second: Callable[[], list[Tensor]], device: torch.device
) -> tuple[A, list[Tensor]]:
    """Both results. On a GPU each function has a stream of its own, because one recurrence cannot fill it."""
    if device.type != "cuda":
        return first(), second()
    here = torch.cuda.current_stream(device)
    # Sums of gradients wait on the current stream for both: neither may run there, or it would wait for the other.
    own = [torch.cuda.Stream(device) for _ in range(1 + torch.is_grad_enabled())]  # type: ignore[no-untyped-call]
    for stream in own:
        stream.wait_stream(here)
    with torch.cuda.stream(own[1] if len(own) > 1 else here):
        a = first()
    with torch.cuda.stream(own[0]):
        b = second()
    for stream in own:
        here.wait_stream(stream)
    for x in b:
        x.record_stream(here)
    return a, b
