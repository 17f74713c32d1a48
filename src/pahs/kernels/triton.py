"""Kernels in Triton for what PyTorch runs in several passes over memory. Import this only where Triton is installed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

SUM_TILE = 4096
"""Numbers that one program adds."""
PIXELS = 128
"""Pixels that one program convolves."""
TOKENS = 64
"""Tokens that one program scales."""
TAPS = 32
"""Inputs of a 3x3 convolution of three channels, 27, and its bias, padded to a power of two."""


@triton.jit  # type: ignore[untyped-decorator]
def _sum(  # type: ignore[no-untyped-def]
    y, bias, residual, pixels,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, HIGH: tl.constexpr, ADD: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * HIGH + tl.arange(0, HIGH)
    columns = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    at = rows.to(tl.int64)[:, None] * CHANNELS + columns[None, :]
    inside = (rows < pixels)[:, None]
    total = tl.load(y + at, mask=inside).to(tl.float32) + tl.load(bias + columns).to(tl.float32)[None, :]
    if ADD:
        total += tl.load(residual + at, mask=inside).to(tl.float32)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=inside)


def add_(y: Tensor, bias: Tensor, residual: Tensor | None) -> Tensor:
    """y += bias + residual. All channels-last and dense; the number of channels is a multiple of 8."""
    channels = y.shape[1]
    wide = min(channels & -channels, 128)  # the largest power of two that divides it
    high = SUM_TILE // wide
    pixels = y.numel() // channels
    grid = (triton.cdiv(pixels, high), channels // wide)
    with torch.cuda.device(y.device):
        _sum[grid](
            y, bias, y if residual is None else residual, pixels, channels, wide, high, residual is not None
        )
    return y


@triton.jit  # type: ignore[untyped-decorator]
def _from_rgb(  # type: ignore[no-untyped-def]
    x, weight, y, height, width, pixels, CHANNELS: tl.constexpr, TAPS: tl.constexpr, PIXELS: tl.constexpr
):
    here = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    tap = tl.arange(0, TAPS)
    down, right = tap // 9 - 1, (tap // 3) % 3 - 1
    row = ((here // width) % height)[:, None] + down[None, :]
    column = (here % width)[:, None] + right[None, :]
    inside = (here < pixels)[:, None] & (tap < 27)[None, :]
    inside = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    at = (here.to(tl.int64)[:, None] + (down * width + right)[None, :]) * 3 + (tap % 3)[None, :]
    seen = tl.load(x + at, mask=inside, other=0.0)
    seen = tl.where((tap == 27)[None, :], tl.full(seen.shape, 1.0, seen.dtype), seen)
    output = tl.arange(0, CHANNELS)
    total = tl.dot(seen, tl.load(weight + tap[:, None] * CHANNELS + output[None, :]))
    to = here.to(tl.int64)[:, None] * CHANNELS + output[None, :]
    tl.store(y + to, total.to(y.dtype.element_ty), mask=(here < pixels)[:, None])


def conv_from_rgb(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A 3x3 convolution of pictures (N, 3, H, W), channels-last, to 16, 32, 64 or 128 channels.

    cuDNN pads three channels to eight. Here the 27 inputs of a pixel are one row of a matrix product, and a 28th, which
    is 1, is multiplied by the bias.
    """
    N, _, H, W = x.shape
    channels = weight.shape[0]
    matrix = weight.permute(2, 3, 1, 0).reshape(27, channels)
    matrix = torch.cat([matrix, bias[None], matrix.new_zeros(TAPS - 28, channels)])
    y = torch.empty((N, channels, H, W), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    pixels = N * H * W
    with torch.cuda.device(x.device):
        _from_rgb[(triton.cdiv(pixels, PIXELS),)](x, matrix, y, H, W, pixels, channels, TAPS, PIXELS)
    return y


@triton.jit  # type: ignore[untyped-decorator]
def _conv(  # type: ignore[no-untyped-def]
    x, weight, bias, residual, y, height, width, pixels,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, COLUMNS: tl.constexpr,
    BIAS: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    here = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    row, column = (here // width) % height, here % width
    # A matrix product has at least 16 columns: with fewer outputs the rest are zeros that are not stored.
    inputs, outputs = tl.arange(0, INPUTS), tl.arange(0, COLUMNS)
    real = outputs < OUTPUTS
    total = tl.zeros((PIXELS, COLUMNS), tl.float32)
    for tap in range(9):
        down, right = tap // 3 - 1, tap % 3 - 1
        inside = (here < pixels) & (row + down >= 0) & (row + down < height)
        inside = inside & (column + right >= 0) & (column + right < width)
        at = (here + down * width + right).to(tl.int64)[:, None] * INPUTS + inputs[None, :]
        seen = tl.load(x + at, mask=inside[:, None], other=0.0)
        # A channels-last weight: output, tap, input.
        of_tap = weight + outputs[None, :] * (9 * INPUTS) + (tap * INPUTS + inputs)[:, None]
        part = tl.load(of_tap, mask=real[None, :], other=0.0)
        total = tl.dot(seen, part, total)
    if BIAS:
        total += tl.load(bias + outputs, mask=real, other=0.0).to(tl.float32)[None, :]
    to = here.to(tl.int64)[:, None] * OUTPUTS + outputs[None, :]
    inside = (here < pixels)[:, None] & real[None, :]
    if ADD:
        total += tl.load(residual + to, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(y + to, total.to(y.dtype.element_ty), mask=inside)


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """relu(conv(x) + bias + residual), 3x3, all channels-last.

    Inputs are powers of two from 16 to 64, outputs too, or fewer than 16.
    """
    N, inputs, H, W = x.shape
    outputs = weight.shape[0]
    y = torch.empty((N, outputs, H, W), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    amount = N * H * W
    size, warps, stages = (256, 4, 3)
    if inputs > 32:
        size, warps, stages = (128, 8, 3) if outputs > 32 else (128, 4, 2)
    with torch.cuda.device(x.device):
        _conv[(triton.cdiv(amount, size),)](
            x, weight, y if bias is None else bias, y if residual is None else residual, y, H, W, amount,
            inputs, outputs, max(16, outputs), bias is not None, residual is not None, relu, size,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return y


@triton.jit  # type: ignore[untyped-decorator]
def _select(  # type: ignore[no-untyped-def]
    query, mean, found, w1, b1, w2, b2, w3, b3, tokens,
    CHANNELS: tl.constexpr, HIDDEN: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    channel = tl.arange(0, CHANNELS)
    inside = (token < tokens)[:, None]
    first = tl.program_id(1).to(tl.int64) * tokens * CHANNELS
    at = first + token[:, None] * CHANNELS + channel[None, :]
    q = tl.load(query + at, mask=inside, other=0.0).to(tl.float32)
    k = tl.load(mean + tl.program_id(1) * CHANNELS + channel).to(tl.float32)
    score = tl.sum(q * k[None, :], 1)
    unit = tl.arange(0, HIDDEN)
    a = (
        score[:, None] * tl.load(w1 + unit).to(tl.float32)[None, :]
        + tl.load(b1 + unit).to(tl.float32)[None, :]
    )
    a = tl.maximum(a, 0.0).to(w2.dtype.element_ty)
    b = tl.dot(a, tl.load(w2 + unit[None, :] * HIDDEN + unit[:, None]))
    b = tl.maximum(b + tl.load(b2 + unit).to(tl.float32)[None, :], 0.0)
    total = tl.sum(b * tl.load(w3 + unit).to(tl.float32)[None, :], 1) + tl.load(b3).to(tl.float32)
    value = tl.load(found + at, mask=inside, other=0.0).to(tl.float32) * tl.sigmoid(total)[:, None]
    tl.store(found + at, value.to(found.dtype.element_ty), mask=inside)


def select_(found: Tensor, query: Tensor, mean: Tensor, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
    """found *= sigmoid(FC(query . mean)), SNLA's product with S_Sel, for contiguous (B, N, C) tokens.

    `layers` are weight and bias of the three linear layers, 1 -> 64 -> 64 -> 1; `mean` is (B, 1, C).
    """
    B, N, C = found.shape
    (w1, b1), (w2, b2), (w3, b3) = layers
    with torch.cuda.device(found.device):
        _select[(triton.cdiv(N, TOKENS), B)](
            query, mean, found, w1, b1, w2, b2, w3, b3, N, C, w2.shape[0], TOKENS
        )
    return found
