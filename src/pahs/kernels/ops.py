"""The operations that networks are made of, each with PyTorch's version and with faster kernels for inference on a GPU.

PyTorch runs a convolution, its bias, its ReLU and the sum of a residual block one after the other, and at full
resolution each of the small ones takes as long as the convolution itself. A fused kernel writes the finished numbers at
once. The tables below say which kernel computes which call:

    native                 PyTorch: on a CPU, in float32, in training, and where a call is too small for the others
    pahs.kernels.hopper    CUDA for Hopper GPUs: 16, 32 and 64 channels, with everything fused
    pahs.kernels.triton    Triton: few channels, which leave most of a tile of cuDNN's empty, and sums
    cuDNN                  by PyTorch: bias and ReLU fused
    pahs.kernels.cudnn     cuDNN called directly: bias and residual sum fused
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.kernels import cuda_graph, cudnn, dispatch, hopper, training
from pahs.kernels.dispatch import Call, Convolution, Kernel, Table, choose
from pahs.kernels.streams import Tensors
from pahs.kernels.streams import side_by_side as side_by_side
from pahs.kernels.training import ping_pong as ping_pong

SMALL_PICTURE = 1 << 17
"""Pixels up to which Triton is as fast as cuDNN at 64 channels; measured on an H200, as are all choices here."""
WORTH = 1 << 23
"""Numbers from which a fused kernel pays: the host needs longer to launch one than to launch PyTorch's layers, 0.15 ms
for cuDNN called directly."""
WORTH_RECORDED = 1 << 22
"""The same for cuDNN called directly where the host's time does not count."""


def conv(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """layer(x)"""
    return _of_layer(layer, x)


def conv_add(layer: nn.Conv2d, x: Tensor, residual: Tensor) -> Tensor:
    """residual + layer(x)"""
    return _of_layer(layer, x, residual)


def residual_block(first: nn.Conv2d, second: nn.Conv2d, x: Tensor) -> Tensor:
    """x + second(relu(first(x)))"""
    if training.suits(x, first.weight):
        return training.residual_block(first, second, x)
    return conv_add(second, _of_layer(first, x, relu=True), x)


def trains_ping_pong(h: Tensor, weight: Tensor) -> bool:
    """Whether `ping_pong` computes such updates, and faster than one by one."""
    return training.suits(h, weight, any_width=False)


def conv_part(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """conv(x) + bias + residual, 3x3, by some of a layer's weight."""
    return _convolve(Convolution(x, weight, bias, residual))


def _of_layer(layer: nn.Conv2d, x: Tensor, residual: Tensor | None = None, relu: bool = False) -> Tensor:
    stride, padding = layer.stride, layer.padding
    square = stride[0] == stride[1] and not isinstance(padding, str) and padding[0] == padding[1]
    if square and layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros":
        padded = int(padding[0])
        return _convolve(Convolution(x, layer.weight, layer.bias, residual, relu, stride[0], padded))
    return _finish(layer._conv_forward(x, layer.weight, layer.bias), residual, relu)


def _convolve(c: Convolution) -> Tensor:
    libraries = dispatch.fused(c.x, c.weight)
    if libraries is None:
        return _native(c)
    kernel = choose(CONVOLUTION, dispatch.describe(c), libraries)
    if kernel is not NATIVE:
        c = Convolution(c.x, c.weight.contiguous(memory_format=torch.channels_last), *c[2:])
    return kernel.run(c)


def _native(c: Convolution) -> Tensor:
    return _finish(F.conv2d(c.x, c.weight, c.bias, c.stride, c.padding), c.residual, c.relu)


def _finish(y: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
    """relu(y + residual); without gradients in the memory of y, because a fresh page costs a CPU more than a sum."""
    gradients = torch.is_grad_enabled()
    if residual is not None:
        y = y + residual if gradients or y.dtype != residual.dtype else y.add_(residual)
    return F.relu(y, inplace=not gradients) if relu else y


def _cudnn_relu(c: Convolution) -> Tensor:
    stride, padding = (c.stride, c.stride), (c.padding, c.padding)
    return torch.cudnn_convolution_relu(c.x, c.weight, c.bias, stride, padding, (1, 1), 1)


def _conv_then_sum(c: Convolution) -> Tensor:
    y = _sum(F.conv2d(c.x, c.weight, None, c.stride, c.padding), c.bias, c.residual)
    return y.relu_() if c.relu else y


@cache
def _triton() -> ModuleType:
    """Imported where it is known to work: it needs a compiler."""
    from pahs.kernels import triton

    return triton


def _too_small(call: Call) -> bool:
    return not call.recording and call.pixels * call.inputs * max(1.0, call.outputs / call.inputs) < WORTH


def _keeps_size(call: Call) -> bool:
    return (call.kernel, call.stride, call.padding, call.dense) == (3, 1, 1, True)


def _suits_hopper(call: Call) -> bool:
    ours = _keeps_size(call) and call.inputs == call.outputs and call.inputs in hopper.CHANNELS
    return ours and call.columns % (hopper.VALUES // call.inputs) == 0 and call.aligned


def _suits_triton_rgb(call: Call) -> bool:
    bare = call.bias and not call.residual and not call.relu
    return _keeps_size(call) and call.inputs == 3 and call.outputs in (16, 32, 64, 128) and bare


def _suits_triton(call: Call) -> bool:
    equal = call.inputs == call.outputs and (call.inputs <= 32 or call.pixels <= SMALL_PICTURE)
    return _keeps_size(call) and call.inputs in (16, 32, 64) and (equal or call.outputs == 3)


def _suits_cudnn_add(call: Call) -> bool:
    least = WORTH_RECORDED if call.recording else WORTH
    large = call.pixels * call.outputs // call.stride**2 >= least
    eights = call.inputs % 8 == 0 and call.outputs % 8 == 0
    return call.bias and not call.relu and large and eights and call.dense


NATIVE = Kernel("native", _native, _too_small)
CONVOLUTION = Table(
    NATIVE,
    Kernel("hopper", lambda c: hopper.conv(*c[:5]), _suits_hopper, "hopper"),
    Kernel("triton-rgb", lambda c: _triton().conv_from_rgb(*c[:3]), _suits_triton_rgb, "triton"),
    Kernel("triton", lambda c: _triton().conv(*c[:5]), _suits_triton, "triton"),
    Kernel("cudnn-relu", _cudnn_relu, lambda call: call.relu and call.bias and not call.residual),
    Kernel("cudnn-add", lambda c: cudnn.conv_add(*c[:4], *c[5:]), _suits_cudnn_add, "cudnn"),
    Kernel("conv-then-sum", _conv_then_sum),
)


def conv_transpose(layer: nn.ConvTranspose2d, x: Tensor) -> Tensor:
    """layer(x)"""
    libraries = dispatch.fused(x, layer.weight)
    if libraries is None:
        return _transpose(layer, x, layer.bias)
    return choose(TRANSPOSED, dispatch.describe_transposed(x, layer.weight), libraries).run(layer, x)


def _transpose(layer: nn.ConvTranspose2d, x: Tensor, bias: Tensor | None) -> Tensor:
    more: tuple[Any, ...] = (layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation)
    return F.conv_transpose2d(x, layer.weight, bias, *more)


def _too_small_transpose(call: Call) -> bool:
    return not call.recording and call.pixels * call.inputs * max(1.0, call.inputs / call.outputs) < WORTH


TRANSPOSED = Table(
    Kernel("native", lambda layer, x: _transpose(layer, x, layer.bias), _too_small_transpose),
    Kernel("transpose-then-sum", lambda layer, x: _sum(_transpose(layer, x, None), layer.bias)),
)


def _sum(y: Tensor, bias: Tensor | None, residual: Tensor | None = None) -> Tensor:
    """y + bias + residual, in the memory of y; only where there are fused kernels."""
    libraries = dispatch.fused(y, y)
    assert libraries is not None
    call = Call(outputs=y.shape[1], bias=bias is not None, dense=dispatch.dense(y, residual))
    return choose(SUM, call, libraries).run(y, bias, residual)


def _native_sum(y: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    y = y if bias is None else y.add_(bias[:, None, None])
    return y if residual is None else y.add_(residual)


def _suits_triton_sum(call: Call) -> bool:
    return call.bias and call.outputs % 8 == 0 and call.dense


SUM = Table(
    Kernel("triton", lambda y, *added: _triton().add_(y, *added), _suits_triton_sum, "triton"),
    Kernel("native", _native_sum),
)


def select(found: Tensor, query: Tensor, key: Tensor, filter_: nn.Sequential) -> Tensor:
    """S_Sel * found for (B, N, C) tokens, where S_Sel = sigmoid(filter(query . mean(key))); may overwrite `found`.

    `filter_` is linear, ReLU, linear, ReLU, linear.
    """
    mean = key.mean(1, keepdim=True)
    libraries = dispatch.fused(found, next(filter_.parameters()))
    if libraries is None:
        return _native_select(found, query, mean, filter_)
    return choose(SELECTION, Call(found.shape[2]), libraries).run(found, query, mean, filter_)


def _native_select(found: Tensor, query: Tensor, mean: Tensor, filter_: nn.Sequential) -> Tensor:
    return torch.sigmoid(filter_((query * mean).sum(2, keepdim=True))) * found


def _triton_select(found: Tensor, query: Tensor, mean: Tensor, filter_: nn.Sequential) -> Tensor:
    layers = [(x.weight, x.bias) for x in filter_ if isinstance(x, nn.Linear)]
    y: Tensor = _triton().select_(found.contiguous(), query, mean, layers)
    return y


SELECTION = Table(
    Kernel("triton", _triton_select, lambda call: call.inputs in (16, 32, 64, 128), "triton"),
    Kernel("native", _native_select),
)


def sweep(cell: cuda_graph.Steps, reads: Iterable[Tensors], state: Tensors) -> Iterator[Tensors]:
    """The state after every frame; valid until the next is asked for, so whoever keeps one keeps a copy.

    `reads` may lie in the host's memory. On a GPU the steps are replays of a CUDA graph, where one can be recorded.
    """
    if cuda_graph.possible(state[0]):
        yield from cuda_graph.sweep(cell, reads, state)
        return
    for read in reads:
        state = cell.step(tuple(x.to(state[0].device, non_blocking=True) for x in read), state)
        yield state
