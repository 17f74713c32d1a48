"""Residual blocks and ping-pong recurrences with their gradients, in few passes over memory: for mixed precision.

Autograd runs a convolution, its bias, its ReLU and the residual sum one after the other, and again backwards. Here they
are epilogues of the convolution: of `pahs.kernels.hopper` for 16, 32 and 64 channels, of cuDNN for others. The gradient
with respect to the input is a convolution too, with the weights turned round. A ping-pong recurrence uses its weights
many times on small pictures: their gradients are taken once, over all uses together.

The operators are registered, so `torch.compile` takes them as they are. On a CPU they are plain convolutions, where the
formulas are tested in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.kernels import cudnn, hopper
from pahs.kernels.dispatch import HALF, libraries

_on = False


def enable(device: torch.device | None) -> bool:
    """Use these kernels in training if they work on the device; None: never. Call it before a step is compiled."""
    global _on
    works = libraries(device.index or 0) if device and device.type == "cuda" else ()
    _on = "hopper" in works and "cudnn" in works
    return _on


def suits(x: Tensor, weight: Tensor, any_width: bool = True) -> bool:
    """Whether these compute a 3x3 convolution of as many channels as it has inputs: in mixed precision on a GPU."""
    if not _on or not x.is_cuda or x.dtype not in HALF or not torch.is_autocast_enabled("cuda"):
        return False
    outputs, inputs, rows, columns = weight.shape
    square = inputs == outputs and rows == columns == 3
    return square and ((inputs % 8 == 0 and any_width) or _suits_hopper(inputs, x.shape[3]))


def _suits_hopper(channels: int, columns: int) -> bool:
    return channels in hopper.CHANNELS and columns % (hopper.VALUES // channels) == 0


def _convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    mask: Tensor | None = None,
    relu: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """relu(conv(x) + bias + residual), or conv(x) where `mask` is positive and 0 elsewhere; 3x3, channels-last."""
    if x.is_cuda and _suits_hopper(x.shape[1], x.shape[3]):
        return hopper.conv(x, weight, bias, residual, relu, mask, out)
    if x.is_cuda and relu and bias is not None:
        y = torch.cudnn_convolution_relu(x, weight, bias, (1, 1), (1, 1), (1, 1), 1)
    elif x.is_cuda and residual is not None:
        bias = x.new_zeros(weight.shape[0]) if bias is None else bias
        y = cudnn.conv_add(x, weight, bias, residual, 1, 1)
    else:
        y = F.conv2d(x, weight, bias, padding=1)
        if residual is not None:
            y = y + residual
        if mask is not None:
            y = torch.ops.aten.threshold_backward(y, mask, 0)
        if relu:
            y = F.relu(y)
    return _last(y) if out is None else out.copy_(y)


def _residual_block(
    x: Tensor, first: Tensor, first_bias: Tensor, second: Tensor, second_bias: Tensor
) -> tuple[Tensor, Tensor]:
    """x + conv(relu(conv(x))), and the block's middle."""
    x, first, second = _last(x), _last(first), _last(second)
    middle = _convolve(x, first, first_bias, relu=True)
    return _convolve(middle, second, second_bias, x), middle


def _residual_block_back(
    gradient: Tensor, middle: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of the block's input and of its middle before the ReLU; the weights are turned round already."""
    gradient, first, second = _last(gradient), _last(first), _last(second)
    g_middle = _convolve(gradient, second, mask=middle)
    return _convolve(g_middle, first, residual=gradient), g_middle


def _ping_pong(
    h: Tensor,
    reads: Sequence[Tensor],
    mix: Tensor,
    first: Tensor,
    first_bias: Tensor,
    second: Tensor,
    second_bias: Tensor,
    out: Tensor,
    out_bias: Tensor,
    updates: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """h after all updates; and of each update h before it, mix * h + read, the block's middle and its end."""
    mix, first, second, out = (_last(each) for each in (mix, first, second, out))
    reads = [_last(read) for read in reads]
    last = torch.empty_like(h, memory_format=torch.channels_last)
    hs, ps, as_, rs = (_stack(h, updates) for _ in range(4))
    hs[0] = h
    for u in range(updates):
        _convolve(hs[u], mix, residual=reads[u % len(reads)], out=ps[u])
        _convolve(ps[u], first, first_bias, relu=True, out=as_[u])
        _convolve(as_[u], second, second_bias, ps[u], out=rs[u])
        _convolve(rs[u], out, out_bias, out=hs[u + 1] if u + 1 < updates else last)
    return last, hs, ps, as_, rs


def _ping_pong_back(
    gradient: Tensor, middles: Tensor, mix: Tensor, first: Tensor, second: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of h, and of what each update made in the order of `_ping_pong`, its h afterwards first.

    The weights are turned round already.
    """
    mix, first, second, out = (_last(each) for each in (mix, first, second, out))
    updates = len(middles)
    g_h = torch.empty_like(gradient, memory_format=torch.channels_last)
    g_o, g_p, g_a, g_r = (_stack(gradient, updates) for _ in range(4))
    g_o[-1] = gradient
    for u in reversed(range(updates)):
        _convolve(g_o[u], out, out=g_r[u])
        _convolve(g_r[u], second, mask=middles[u], out=g_a[u])
        _convolve(g_a[u], first, residual=g_r[u], out=g_p[u])
        _convolve(g_p[u], mix, out=g_o[u - 1] if u else g_h)
    return g_h, g_o, g_p, g_a, g_r


def _new(like: Tensor) -> Tensor:
    return torch.empty_like(like, memory_format=torch.channels_last)


def _registered(function: Callable[..., Any], fake: Callable[..., Any], schema: str) -> Any:
    """An operator of PyTorch; `fake` gives tensors of the right shapes without values."""
    name = f"pahs::{function.__name__[1:]}"
    operator = torch.library.custom_op(name, function, mutates_args=(), schema=schema)
    operator.register_fake(fake)
    return operator


residual_block_op = _registered(
    _residual_block,
    lambda x, *weights: (_new(x), _new(x)),
    "(Tensor x, Tensor first, Tensor first_bias, Tensor second, Tensor second_bias) -> (Tensor, Tensor)",
)
residual_block_back_op = _registered(
    _residual_block_back,
    lambda gradient, *others: (_new(gradient), _new(gradient)),
    "(Tensor gradient, Tensor middle, Tensor first, Tensor second) -> (Tensor, Tensor)",
)
ping_pong_op = _registered(
    _ping_pong,
    lambda h, *others: (_new(h), *(_stack(h, others[-1]) for _ in range(4))),
    "(Tensor h, Tensor[] reads, Tensor mix, Tensor first, Tensor first_bias, Tensor second, "
    "Tensor second_bias, Tensor out, Tensor out_bias, int updates) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
ping_pong_back_op = _registered(
    _ping_pong_back,
    lambda gradient, middles, *weights: (_new(gradient), *(_stack(gradient, len(middles)) for _ in range(4))),
    "(Tensor gradient, Tensor middles, Tensor mix, Tensor first, Tensor second, Tensor out) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def _keep_block(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    x, first, _, second, _ = inputs
    ctx.save_for_backward(x, output[1], first, second)


def _block_gradients(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor, ...]:
    x, middle, first, second = ctx.saved_tensors
    g_x, g_middle = residual_block_back_op(gradient, middle, _turned(first), _turned(second))
    return g_x, *_of_layer(x, g_middle, first), *_of_layer(middle, gradient, second)


residual_block_op.register_autograd(_block_gradients, setup_context=_keep_block)


def _keep_ping_pong(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    _, reads, mix, first, _, second, _, out, _, _ = inputs
    ctx.save_for_backward(mix, first, second, out, *output[1:])
    ctx.reads = len(reads)


def _ping_pong_gradients(ctx: Any, gradient: Tensor, *_: None) -> tuple[Any, ...]:
    mix, first, second, out, *made = ctx.saved_tensors
    turned = (_turned(each) for each in (mix, first, second, out))
    g_h, *gradients = ping_pong_back_op(gradient, made[2], *turned)
    g_p = gradients[1]
    g_reads = [g_p[turn :: ctx.reads].sum(0) for turn in range(ctx.reads)]
    # The weights are the same in all updates: one product over all of them fills the GPU, many small ones do not.
    h, p, a, r = (x.flatten(0, 1) for x in made)
    g_o, g_p, g_a, g_r = (x.flatten(0, 1) for x in gradients)
    return (
        g_h,
        g_reads,
        _of_weight(h, g_p, mix),
        *_of_layer(p, g_a, first),
        *_of_layer(a, g_r, second),
        *_of_layer(r, g_o, out),
        None,
    )


ping_pong_op.register_autograd(_ping_pong_gradients, setup_context=_keep_ping_pong)


def residual_block(first: nn.Conv2d, second: nn.Conv2d, x: Tensor) -> Tensor:
    """x + second(relu(first(x)))"""
    parameters = (first.weight, first.bias, second.weight, second.bias)
    y: Tensor = residual_block_op(_last(x), *(each.to(x.dtype) for each in parameters if each is not None))[0]
    return y


def ping_pong(
    h: Tensor,
    reads: Sequence[Tensor],
    updates: int,
    mix: Tensor,
    first: nn.Conv2d,
    second: nn.Conv2d,
    out: nn.Conv2d,
) -> Tensor:
    """`updates` times h -> out(block(mix * h + read)), with `reads` in turns; `block` is the residual block."""
    parameters = (mix, first.weight, first.bias, second.weight, second.bias, out.weight, out.bias)
    weights = [each.to(h.dtype) for each in parameters if each is not None]
    y: Tensor = ping_pong_op(_last(h), [read.to(h.dtype) for read in reads], *weights, updates)[0]
    return y


def _stack(like: Tensor, count: int) -> Tensor:
    """A buffer for `count` tensors like this one, each channels-last."""
    B, C, H, W = like.shape
    return like.new_empty(count, B, H, W, C).movedim(-1, 2)


def _turned(weight: Tensor) -> Tensor:
    """The weights of the convolution that takes gradients back."""
    return _last(weight.transpose(0, 1).flip(2, 3))


def _of_weight(x: Tensor, g_y: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a 3x3 convolution's weight."""
    gradients = torch.ops.aten.convolution_backward(
        g_y, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]
    )
    y: Tensor = gradients[1]
    return y


def _of_layer(x: Tensor, g_y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of its weight and of its bias."""
    return _of_weight(x, g_y, weight), g_y.sum((0, 2, 3))


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
