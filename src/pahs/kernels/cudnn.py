"""A convolution with bias and residual sum in one kernel of cuDNN, which PyTorch offers only together with a ReLU.

    y = conv(x) + bias + residual

PyTorch has already loaded cuDNN. This module calls one function of its C interface directly:
cudnnConvolutionBiasActivationForward, with the activation "identity". That function chooses its kernel at every call,
which takes the host about 0.15 ms, so it is for large batches and for CUDA graphs.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_void_p
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

MAJOR = 9
"""Version of the C interface that defines the constants below."""
NHWC, CROSS_CORRELATION, TENSOR_OPERATIONS, IDENTITY, PRECOMPUTED_GEMM = 1, 1, 1, 5, 1
FLOAT, TYPES = 0, {torch.float16: 2, torch.bfloat16: 9}

Sizes = tuple[int, ...]
ONE, ZERO = c_float(1.0), c_float(0.0)
_local = threading.local()


class CudnnError(RuntimeError):
    """cuDNN returned an error."""


@lru_cache(maxsize=1)
def library() -> Any:
    """cuDNN as PyTorch has loaded it; raises where it is another version or cannot be reached."""
    version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    if version is None or version // 10_000 != MAJOR:
        raise CudnnError(f"cuDNN is {version}, not {MAJOR}")
    found = ctypes.CDLL(f"libcudnn.so.{MAJOR}")
    found.cudnnGetErrorString.restype = ctypes.c_char_p
    found.cudnnSetActivationDescriptor.argtypes = [c_void_p, c_int, c_int, c_double]
    return found


def conv_add(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, stride: int, padding: int
) -> Tensor:
    """All channels-last and of one type; `residual` has the shape of the result."""
    N, _, H, W = x.shape
    K, _, R, _ = weight.shape
    rows, columns = ((size + 2 * padding - R) // stride + 1 for size in (H, W))
    y = torch.empty((N, K, rows, columns), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    with torch.cuda.device(x.device):
        handle = _handle(x.device)
        sizes = tuple(x.shape), tuple(weight.shape), tuple(y.shape)
        descriptors, size = _shape(x.device, x.dtype, *sizes, stride, padding)
        here, there, kernel, convolution, line, identity = descriptors
        workspace = torch.empty(max(1, size.value), dtype=torch.uint8, device=x.device)
        added = y if residual is None else residual
        # fmt: off
        _call(
            "cudnnConvolutionBiasActivationForward", handle,
            byref(ONE), here, _at(x), kernel, _at(weight), convolution, PRECOMPUTED_GEMM, _at(workspace), size,
            byref(ZERO if residual is None else ONE), there, _at(added), line, _at(bias), identity, there, _at(y),
        )
        # fmt: on
    return y


def _call(name: str, *arguments: object) -> None:
    status = getattr(library(), name)(*arguments)
    if status:
        raise CudnnError(f"{name}: {library().cudnnGetErrorString(status).decode()}")


def _at(x: Tensor) -> c_void_p:
    return c_void_p(x.data_ptr())


def _handle(device: torch.device) -> c_void_p:
    """This thread's handle for the device, set to the current stream."""
    handles: dict[torch.device, c_void_p] = _local.__dict__.setdefault("handles", {})
    if device not in handles:
        handles[device] = _made("cudnnCreate")
    _call("cudnnSetStream", handles[device], c_void_p(torch.cuda.current_stream(device).cuda_stream))
    return handles[device]


@lru_cache(maxsize=256)
def _shape(
    device: torch.device, dtype: torch.dtype, x: Sizes, weight: Sizes, y: Sizes, stride: int, padding: int
) -> tuple[tuple[c_void_p, ...], c_size_t]:
    """Descriptors of input, output, kernel, convolution, bias and activation, which live until the process ends.

    And bytes of workspace, which are asked for once because the answer takes as long as launching the convolution.
    """
    kind = TYPES[dtype]
    here, there, line = (_made("cudnnCreateTensorDescriptor") for _ in range(3))
    for descriptor, size in ((here, x), (there, y), (line, (1, weight[0], 1, 1))):
        _call("cudnnSetTensor4dDescriptor", descriptor, NHWC, kind, *size)
    kernel = _made("cudnnCreateFilterDescriptor")
    _call("cudnnSetFilter4dDescriptor", kernel, kind, NHWC, *weight)
    convolution = _made("cudnnCreateConvolutionDescriptor")
    _call(
        "cudnnSetConvolution2dDescriptor", convolution,
        padding, padding, stride, stride, 1, 1, CROSS_CORRELATION, FLOAT,
    )  # fmt: skip
    _call("cudnnSetConvolutionMathType", convolution, TENSOR_OPERATIONS)
    identity = _made("cudnnCreateActivationDescriptor")
    _call("cudnnSetActivationDescriptor", identity, IDENTITY, 0, 0.0)
    workspace = c_size_t()
    _call(
        "cudnnGetConvolutionForwardWorkspaceSize", _handle(device),
        here, kernel, convolution, there, PRECOMPUTED_GEMM, byref(workspace),
    )  # fmt: skip
    return (here, there, kernel, convolution, line, identity), workspace


def _made(create: str) -> c_void_p:
    made = c_void_p()
    _call(create, byref(made))
    return made
