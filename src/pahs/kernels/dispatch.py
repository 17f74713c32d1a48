"""Which kernel computes an operation: a table is read from the top, and the first kernel that suits the call is chosen.

A choice depends on shapes, on the libraries that work on the GPU, and on whether a CUDA graph records the launch; never
on values. A band of a frame is described by the whole frame's size, because another kernel would round differently.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from pahs.kernels import cudnn, hopper

log = logging.getLogger(__name__)

HALF = (torch.bfloat16, torch.float16)
Capability = tuple[int, int]
RUNS_ON: dict[str, tuple[Capability, Capability]] = {
    "hopper": (hopper.CAPABILITY, hopper.CAPABILITY),  # its instructions are those of one generation
    "triton": ((7, 5), (99, 0)),
    "cudnn": ((7, 5), (99, 0)),
}
"""Lowest and highest compute capability that a library's kernels are tried on: from Turing (7.5) on, through Ampere
(8.0, 8.6), Ada (8.9) and Hopper (9.0), to whatever comes later."""


# Tuples rather than dataclasses, because one of each is made per launch.
class Convolution(NamedTuple):
    """relu(conv(x) + bias + residual)"""

    x: Tensor
    weight: Tensor
    """(outputs, inputs, rows, columns)"""
    bias: Tensor | None = None
    residual: Tensor | None = None
    relu: bool = False
    stride: int = 1
    padding: int = 1


class Call(NamedTuple):
    """What a choice may depend on."""

    inputs: int = 0
    """Channels read."""
    outputs: int = 0
    """Channels written."""
    kernel: int = 1
    """Rows and columns of a convolution's weight; 0 where they differ."""
    stride: int = 1
    padding: int = 0
    pixels: int = 0
    """Pixels read, of all frames of the batch, each counted as a whole even where only a band of it is computed."""
    columns: int = 0
    """Pixels in a row."""
    bias: bool = False
    residual: bool = False
    relu: bool = False
    dense: bool = True
    """All tensors are channels-last without gaps, which is how our kernels walk through memory."""
    aligned: bool = True
    """The weight begins at a multiple of 16 bytes."""
    recording: bool = False
    """A CUDA graph records the launch: the host's time does not count, because replays do without it."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """One row of a table."""

    name: str
    run: Callable[..., Tensor]
    """All kernels of a table take the same arguments."""
    suits: Callable[[Call], bool] = lambda call: True
    """Whether this kernel computes the call, and is the fastest of those below it in the table."""
    library: str | None = None
    """What the kernel needs besides PyTorch."""


class Table:
    """The kernels of one operation, in the order in which they are considered; the last one suits every call."""

    def __init__(self, *kernels: Kernel) -> None:
        self.kernels = kernels


@lru_cache(maxsize=4096)
def choose(table: Table, call: Call, libraries: Libraries | frozenset[str]) -> Kernel:
    """The first kernel of the table that suits the call and whose library is one of those that work on the GPU."""
    return next(
        kernel
        for kernel in table.kernels
        if kernel.suits(call) and (kernel.library is None or kernel.library in libraries)
    )


class _Thread(threading.local):
    recording = False
    band = (1, 1)
    """Rows of the band that is computed now, and rows of the whole frame."""
    capability: Capability | None = None
    """Of the GPU that this one shall behave like."""


_thread = _Thread()


@contextmanager
def _inside(**state: object) -> Iterator[None]:
    """Inside, this thread's state has these values; afterwards it is as before."""
    before = {name: getattr(_thread, name) for name in state}
    vars(_thread).update(state)
    try:
        yield
    finally:
        vars(_thread).update(before)


def recording() -> AbstractContextManager[None]:
    """Inside, this thread's launches are recorded by a CUDA graph."""
    return _inside(recording=True)


def band(rows: int, height: int) -> AbstractContextManager[None]:
    """Inside, the tensors of this thread show `rows` rows of a frame that has `height`."""
    return _inside(band=(rows, height))


def as_on(capability: Capability) -> AbstractContextManager[None]:
    """Inside, this thread chooses the kernels that it would choose on a GPU of that capability.

    Steps of a network that were recorded before keep their kernels.
    """
    return _inside(capability=capability)


def fused(x: Tensor, weight: Tensor) -> Libraries | None:
    """Libraries of fused kernels; None but for half precision on a CUDA GPU without gradients."""
    if torch.is_grad_enabled() or not x.is_cuda or torch.version.hip is not None:
        return None
    if x.dtype not in HALF or x.dtype != weight.dtype:
        return None
    device, capability = x.get_device(), _thread.capability
    return libraries(device) if capability is None else libraries(device, capability)


def describe(c: Convolution) -> Call:
    """What the choice of a kernel for this convolution depends on."""
    outputs, inputs, rows, columns = c.weight.shape
    # A weight in another memory format is copied before it is used, and a copy is aligned.
    aligned = c.weight.data_ptr() % 16 == 0 or not dense(c.weight)
    kernel, pixels = rows if rows == columns else 0, _whole_pixels(c.x)
    return Call(
        inputs, outputs, kernel, c.stride, c.padding, pixels, c.x.shape[3],
        c.bias is not None, c.residual is not None, c.relu, dense(c.x, c.residual), aligned, _thread.recording,
    )  # fmt: skip


def describe_transposed(x: Tensor, weight: Tensor) -> Call:
    """What the choice for a transposed convolution depends on; its weight is (inputs, outputs, rows, columns)."""
    inputs, outputs = weight.shape[:2]
    return Call(inputs, outputs, pixels=_whole_pixels(x), recording=_thread.recording)


def _whole_pixels(x: Tensor) -> int:
    """Pixels of a batch (N, C, H, W), as many as without bands."""
    rows, height = _thread.band
    return x.shape[0] * x.shape[2] * x.shape[3] * height // rows


def dense(*tensors: Tensor | None) -> bool:
    """Whether all are channels-last without gaps."""
    return all(x is None or x.is_contiguous(memory_format=torch.channels_last) for x in tensors)


class Libraries:
    """The libraries of kernels that work on one GPU; each is tried when it is first asked for."""

    def __init__(self, device: int, capability: Capability | None = None) -> None:
        self.device = device
        self.capability = capability or torch.cuda.get_device_capability(device)
        self.tried: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        if name not in self.tried:
            self.tried[str(name)] = self._works(str(name))
        return self.tried[str(name)]

    def _works(self, name: str) -> bool:
        lowest, highest = RUNS_ON[name]
        if not lowest <= self.capability <= highest:
            return False
        try:
            with torch.cuda.device(self.device), torch.inference_mode():
                TRIALS[name]()
            return True
        except Exception as error:  # whatever a missing compiler, another driver or another version raises
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            # Another version of cuDNN is no fault of the machine.
            level = logging.INFO if name == "cudnn" else logging.WARNING
            log.log(level, "running without %s kernels, which is slower: %s", name.capitalize(), reason)
            return False


libraries = cache(Libraries)
"""The libraries of a GPU, by its number, as on its own or on another capability."""


def _try_hopper() -> None:
    # One picture is computed in small tiles, many pictures in large ones.
    for channels, pictures in product(hopper.CHANNELS, (1, 512)):
        x = _ones(pictures, channels, 3, 8)
        y = hopper.conv(x, _ones(channels, channels, 3, 3))
        _check(y[-1, 0, 1, 1] == 9 * channels and y[-1, -1, 0, 0] == 4 * channels)


def _try_triton() -> None:
    from pahs.kernels import triton

    bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    x = _ones(1, 16, 4, 4).to(torch.bfloat16 if bf16 else torch.float16)
    bias, y = x[0, :, 0, 0].contiguous(), x.clone()
    triton.add_(y, bias, x)
    none = x.new_zeros(16, 16, 3, 3).to(memory_format=torch.channels_last)
    picture = x[:, :3].contiguous(memory_format=torch.channels_last)
    filled = triton.conv_from_rgb(picture, x.new_zeros(16, 3, 3, 3), bias)
    for result, expected in ((y, 3), (triton.conv(x, none, bias, x), 2), (filled, 1)):
        _check((result == expected).all())


def _try_cudnn() -> None:
    x = _ones(1, 8, 4, 4)
    y = cudnn.conv_add(x, _ones(8, 8, 1, 1), x[0, :, 0, 0].contiguous(), x, 1, 0)
    _check((y == 10).all())


def _ones(*shape: int) -> Tensor:
    x = torch.ones(shape, device="cuda", dtype=torch.bfloat16)
    return x.to(memory_format=torch.channels_last)


def _check(right: Tensor | bool) -> None:
    if not bool(right):
        raise RuntimeError("its sums are wrong")


TRIALS = {"hopper": _try_hopper, "triton": _try_triton, "cudnn": _try_cudnn}
"""Each raises where its library does not work."""
