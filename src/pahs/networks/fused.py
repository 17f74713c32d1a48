"""Convolutions together with what follows them, for inference on a GPU: the same numbers in fewer passes over memory.

PyTorch runs a convolution, its bias, its ReLU and the sum of a residual block one after the other. At full resolution
each of the small ones takes as long as the convolution itself. cuDNN computes bias and ReLU while it writes the result;
the rest are Triton kernels (`pahs.networks.kernels`). Elsewhere (CPU, float32, training) these are the plain layers.
"""

from __future__ import annotations

import logging
from functools import cache
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

log = logging.getLogger(__name__)

HALF = (torch.bfloat16, torch.float16)


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether the fused kernels are for this convolution."""
    half = x.dtype in HALF and x.dtype == weight.dtype
    return half and x.is_cuda and not torch.is_grad_enabled() and torch.version.hip is None


def conv(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """layer(x)"""
    if not pays(x, layer.weight):
        return F.conv2d(
            x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups
        )
    own = kernels()
    if own is not None and layer.bias is not None and _from_rgb(layer, x):
        y: Tensor = own.conv_from_rgb(x, layer.weight, layer.bias)
        return y
    return plus(_bare(layer, x), layer.bias)


def conv_relu(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """relu(layer(x))"""
    if not pays(x, layer.weight):
        return F.relu(layer(x))
    arguments: tuple[Any, ...] = (layer.stride, layer.padding, layer.dilation, layer.groups)
    return torch.cudnn_convolution_relu(x, layer.weight, layer.bias, *arguments)


def conv_add(layer: nn.Conv2d, x: Tensor, residual: Tensor) -> Tensor:
    """residual + layer(x)"""
    if not pays(x, layer.weight):
        y: Tensor = residual + layer(x)
        return y
    return plus(_bare(layer, x), layer.bias, residual)


def plus(y: Tensor, bias: Tensor | None, residual: Tensor | None = None) -> Tensor:
    """y + bias + residual, in the memory of y."""
    if bias is None:
        return y if residual is None else y.add_(residual)
    own = kernels()
    last = torch.channels_last
    dense = y.is_contiguous(memory_format=last) and (
        residual is None or (residual.is_contiguous(memory_format=last) and residual.shape == y.shape)
    )
    if own is not None and dense and y.shape[1] % 8 == 0:
        own.add_(y, bias, residual)
        return y
    y.add_(bias[:, None, None])
    return y if residual is None else y.add_(residual)


def _bare(layer: nn.Conv2d, x: Tensor) -> Tensor:
    return F.conv2d(x, layer.weight, None, layer.stride, layer.padding, layer.dilation, layer.groups)


def _from_rgb(layer: nn.Conv2d, x: Tensor) -> bool:
    plain = (layer.kernel_size, layer.stride, layer.padding) == (
        (3, 3),
        (1, 1),
        (1, 1),
    ) and layer.in_channels == 3
    return (
        plain
        and layer.out_channels in (16, 32, 64, 128)
        and x.is_contiguous(memory_format=torch.channels_last)
    )


@cache
def kernels() -> ModuleType | None:
    """`pahs.networks.kernels`, tried once; None where they cannot be compiled, which is said in one line."""
    try:
        from pahs.networks import kernels as own

        y = torch.ones(1, 8, 2, 2, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        own.add_(y, y[0, :, 0, 0].contiguous(), y.clone())
        if not bool((y == 3).all()):
            raise RuntimeError("its sums are wrong")
        return own
    except Exception as error:  # whatever a missing or half-installed compiler raises
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        log.warning("running without Triton, which is slower: %s", reason)
        return None
