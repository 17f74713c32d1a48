"""Bias and residual sum of a channels-last tensor in one pass. Import it only where Triton is installed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Numbers that one program adds."""
MOST_CHANNELS = 128


@triton.jit  # type: ignore[untyped-decorator]
def _sum_kernel(  # type: ignore[no-untyped-def]
    y,
    bias,
    residual,
    pixels,
    CHANNELS: tl.constexpr,
    WIDE: tl.constexpr,
    HIGH: tl.constexpr,
    ADD: tl.constexpr,
):
    rows = tl.program_id(0) * HIGH + tl.arange(0, HIGH)
    columns = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    at = rows.to(tl.int64)[:, None] * CHANNELS + columns[None, :]
    inside = (rows < pixels)[:, None]
    total = tl.load(y + at, mask=inside).to(tl.float32) + tl.load(bias + columns).to(tl.float32)[None, :]
    if ADD:
        total += tl.load(residual + at, mask=inside).to(tl.float32)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=inside)


def add_(y: Tensor, bias: Tensor, residual: Tensor | None) -> None:
    """y += bias + residual. All channels-last and dense; the number of channels is a multiple of 8."""
    channels = y.shape[1]
    wide = min(channels & -channels, MOST_CHANNELS)  # the largest power of two that divides it
    high = TILE // wide
    pixels = y.numel() // channels
    grid = (triton.cdiv(pixels, high), channels // wide)
    with torch.cuda.device(y.device):
        _sum_kernel[grid](
            y, bias, y if residual is None else residual, pixels, channels, wide, high, residual is not None
        )
