"""Convolutions together with what follows them, for inference on a GPU: the same numbers in fewer passes over memory.

PyTorch runs a convolution, its bias, its ReLU and the sum of a residual block one after the other. At full resolution
each of the small ones takes as long as the convolution itself. Ways around that, whichever suits a shape best:

    pahs.kernels.hopper    CUDA, for one kind of GPU: 16, 32 and 64 channels, everything at once
    PyTorch's cuDNN         bias and ReLU while the result is written
    pahs.kernels.cudnn     bias and residual sum, the same way
    pahs.kernels.triton   Triton: few channels, where cuDNN fills its tiles with nothing, and loose sums

Elsewhere (CPU, float32, training) these are the plain layers; without gradients they reuse memory, because on a CPU a
fresh page costs more than the sum that is written to it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

log = logging.getLogger(__name__)

HALF = (torch.bfloat16, torch.float16)
SMALL_PICTURE = 1 << 17
"""Pixels up to which Triton is as fast as cuDNN at 64 channels; measured on an H200, as are the choices below."""
WORTH = 1 << 23
"""Numbers from which a fused kernel pays: launching one keeps the host busy longer than PyTorch's layers do, cuDNN's
for 0.15 ms."""
WORTH_RECORDED = 1 << 22
"""The same for cuDNN's where the host's time does not count."""


class _Thread(threading.local):
    recording = False
    part = (1, 1)
    """Rows that are computed now, and rows of the whole frame."""


_thread = _Thread()


@contextmanager
def recording() -> Iterator[None]:
    """Inside, the host's time does not count: what it launches is replayed later without it."""
    before, _thread.recording = _thread.recording, True
    try:
        yield
    finally:
        _thread.recording = before


@contextmanager
def part(rows: int, height: int) -> Iterator[None]:
    """Inside, pictures are a band of a frame, and take the way that the frame would take: another rounds otherwise."""
    before, _thread.part = _thread.part, (rows, height)
    try:
        yield
    finally:
        _thread.part = before


def _of_whole(numbers: int) -> int:
    """How many there would be without bands."""
    rows, height = _thread.part
    return numbers * height // rows


def possible(x: Tensor, weight: Tensor) -> bool:
    """Whether there are fused kernels for these: half precision on a CUDA GPU, without gradients."""
    if torch.is_grad_enabled() or not x.is_cuda or torch.version.hip is not None:
        return False
    return x.dtype in HALF and x.dtype == weight.dtype


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether the fused kernels are faster for this convolution."""
    if not possible(x, weight):
        return False
    return _thread.recording or _of_whole(x.numel()) * max(1.0, weight.shape[0] / weight.shape[1]) >= WORTH


def conv(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """layer(x)"""
    if _suits(layer, x):
        return _of_layer(layer, x)
    y: Tensor = layer._conv_forward(x, layer.weight, layer.bias)
    return y


def conv_relu(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """relu(layer(x))"""
    if _suits(layer, x):
        return _of_layer(layer, x, relu=True)
    return F.relu(layer(x), inplace=not torch.is_grad_enabled())


def conv_add(layer: nn.Conv2d, x: Tensor, residual: Tensor) -> Tensor:
    """residual + layer(x)"""
    return _of_layer(layer, x, residual) if _suits(layer, x) else add(layer(x), residual)


def add(y: Tensor, residual: Tensor) -> Tensor:
    """y + residual; in the memory of y, which nobody else may need, unless gradients do."""
    if torch.is_grad_enabled() or y.dtype != residual.dtype:
        return y + residual
    return y.add_(residual)


def _of_layer(layer: nn.Conv2d, x: Tensor, residual: Tensor | None = None, relu: bool = False) -> Tensor:
    stride, padding = layer.stride[0], int(layer.padding[0])
    return convolve(x, layer.weight, layer.bias, residual, relu, stride, padding)


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    relu: bool = False,
    stride: int = 1,
    padding: int = 1,
) -> Tensor:
    """relu(conv(x) + bias + residual) by the fastest way there is; only for what `pays`."""
    weight = weight.contiguous(memory_format=torch.channels_last)
    outputs, inputs, rows, _ = weight.shape
    if (rows, stride, padding) == (3, 1, 1) and _ordered(x, residual):
        own = _by_own_kernel(x, weight, bias, residual, relu)
        if own is not None:
            return own
    if relu and bias is not None and residual is None:
        return torch.cudnn_convolution_relu(x, weight, bias, (stride, stride), (padding, padding), (1, 1), 1)
    least = WORTH_RECORDED if _thread.recording else WORTH
    large = _of_whole(x.numel()) // inputs * outputs // stride**2 >= least
    if (
        bias is not None
        and not relu
        and large
        and inputs % 8 == 0
        and outputs % 8 == 0
        and _ordered(x, residual)
    ):
        direct = direct_cudnn()
        if direct is not None:
            return direct(x, weight, bias, residual, stride, padding)
    y = plus(F.conv2d(x, weight, None, stride, padding), bias, residual)
    return y.relu_() if relu else y


def _by_own_kernel(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, relu: bool
) -> Tensor | None:
    """The same for 3x3 and few channels; None where none of our kernels is the fastest way."""
    outputs, inputs = weight.shape[:2]
    y: Tensor
    hopper = for_hopper()
    if hopper is not None and hopper.suits(x, weight):
        y = hopper.conv(x, weight, bias, residual, relu)
        return y
    own = kernels()
    if own is None:
        return None
    bare = bias is not None and residual is None and not relu
    if inputs == 3 and outputs in (16, 32, 64, 128) and bare:
        y = own.conv_from_rgb(x, weight, bias)
        return y
    small = _of_whole(x.shape[0] * x.shape[2] * x.shape[3]) <= SMALL_PICTURE
    equal = inputs == outputs and (inputs <= 32 or small)
    if inputs in (16, 32, 64) and (equal or outputs == 3):
        y = own.conv(x, weight, bias, residual, relu)
        return y
    return None


def plus(y: Tensor, bias: Tensor | None, residual: Tensor | None = None) -> Tensor:
    """y + bias + residual, in the memory of y."""
    if bias is None:
        return y if residual is None else y.add_(residual)
    own = kernels()
    if own is not None and y.shape[1] % 8 == 0 and _ordered(y, residual):
        own.add_(y, bias, residual)
        return y
    y.add_(bias[:, None, None])
    return y if residual is None else y.add_(residual)


def _suits(layer: nn.Conv2d, x: Tensor) -> bool:
    """A convolution with nothing unusual about it, for which the fused kernels pay."""
    square = layer.stride[0] == layer.stride[1] and layer.padding[0] == layer.padding[1]
    usual = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
    return square and usual and not isinstance(layer.padding, str) and pays(x, layer.weight)


def _ordered(x: Tensor, residual: Tensor | None) -> bool:
    """Channels-last without gaps, which is how the kernels walk through memory."""
    return all(t is None or t.is_contiguous(memory_format=torch.channels_last) for t in (x, residual))


@cache
def for_hopper() -> ModuleType | None:
    """`pahs.kernels.hopper`, tried once; None on other GPUs, and where it cannot be compiled."""
    try:
        from pahs.kernels import hopper

        if torch.cuda.get_device_capability() != hopper.CAPABILITY:
            return None
        with torch.inference_mode():
            for channels in hopper.CHANNELS:
                x = torch.ones(1, channels, 3, 8, device="cuda", dtype=torch.bfloat16)
                x = x.to(memory_format=torch.channels_last)
                y = hopper.conv(x, x.new_ones(channels, channels, 3, 3).to(memory_format=torch.channels_last))
                if y[0, 0, 1, 1] != 9 * channels or y[0, -1, 0, 0] != 4 * channels:
                    raise RuntimeError("its sums are wrong")
        return hopper
    except Exception as error:  # whatever a missing compiler or another driver raises
        log.warning("running without the kernels for Hopper, which is slower: %s", _first_line(error))
        return None


@cache
def kernels() -> ModuleType | None:
    """`pahs.kernels.triton`, tried once; None where they cannot be compiled, which is said in one line."""
    try:
        from pahs.kernels import triton as own

        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        with torch.inference_mode():
            x = torch.ones(1, 16, 4, 4, device="cuda", dtype=torch.bfloat16 if bf16 else torch.float16)
            x = x.to(memory_format=torch.channels_last)
            bias, y = x[0, :, 0, 0].contiguous(), x.clone()
            own.add_(y, bias, x)
            none = x.new_zeros(16, 16, 3, 3).to(memory_format=torch.channels_last)
            convolved = own.conv(x, none, bias, x)
            picture = x[:, :3].contiguous(memory_format=torch.channels_last)
            filled = own.conv_from_rgb(picture, x.new_zeros(16, 3, 3, 3), bias)
            if not all(bool((z == n).all()) for z, n in ((y, 3), (convolved, 2), (filled, 1))):
                raise RuntimeError("its sums are wrong")
        return own
    except Exception as error:  # whatever a missing or half-installed compiler raises
        log.warning("running without Triton, which is slower: %s", _first_line(error))
        return None


Convolution = Callable[[Tensor, Tensor, Tensor, Tensor | None, int, int], Tensor]


@cache
def direct_cudnn() -> Convolution | None:
    """`pahs.kernels.cudnn.conv_add`, tried once; None where it is out of reach."""
    try:
        from pahs.kernels.cudnn import conv_add

        x = torch.ones(1, 8, 4, 4, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        weight = torch.ones(8, 8, 1, 1, device="cuda", dtype=torch.bfloat16).to(
            memory_format=torch.channels_last
        )
        y = conv_add(x, weight, x[0, :, 0, 0].contiguous(), x, 1, 0)
        if not bool((y == 10).all()):
            raise RuntimeError("its sums are wrong")
        return conv_add
    except Exception as error:  # whatever another version of cuDNN, or none, raises
        log.info("running without fused residual sums: %s", _first_line(error))
        return None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
