"""Filter adaptive convolution: a filter of its own for every pixel and every channel (Zhou et al., 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def filter_adaptive_conv(x: Tensor, filters: Tensor, size: int) -> Tensor:
    """y[c, i, j] = sum over u, v of filters[c size^2 + u size + v, i, j] x[c, i + u - r, j + v - r], r = size // 2.

    x is (B, C, H, W) and filters are (B, C size^2, H, W). x is padded with its border values.
    """
    b, c, height, width = x.shape
    if filters.shape != (b, c * size * size, height, width):
        raise ValueError(
            f"filters are {tuple(filters.shape)}; x needs {(b, c * size * size, height, width)} for size {size}"
        )
    per_tap = filters.reshape(b, c, size * size, height, width)
    padded = F.pad(x, [size // 2] * 4, mode="replicate")
    # Tap by tap instead of unfolding x: the patches would need size^2 times its memory. The sum is kept in fp32 or
    # better, since 25 additions in bf16 would each round it.
    y = torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
    for tap in range(size * size):
        u, v = divmod(tap, size)
        y = y + padded[:, :, u : u + height, v : v + width] * per_tap[:, :, tap]
    return y.to(x.dtype)
