"""How sharp a picture is when nobody knows the sharp one.

The measure of Crete et al. 2007 ("The blur effect"): a picture is blurred again, and the fewer of its differences
between neighbours that takes away, the blurrier it was.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW = 11
"""Samples of the box that blurs again."""
LEAST_DETAIL = 0.004
"""A picture with a smaller mean difference between neighbours, such as black or fog, has no sharpness."""
_LUMA = (0.299, 0.587, 0.114)


def sharpness(image: Tensor) -> float | None:
    """0 (blurry) to 1 for an RGB frame (3, H, W) in [0, 1], in its blurriest direction; None without detail."""
    red, green, blue = image.float()
    grey = _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue
    kept = [_kept(x[None, None]) for x in (grey, grey.t())]
    if any(x is None for x in kept):
        return None
    return 1 - max(x for x in kept if x is not None)


def _kept(x: Tensor) -> float | None:
    """The share of the differences along the last axis that another blur leaves as they were."""
    if x.shape[-1] <= WINDOW:
        return None
    blurred = F.avg_pool2d(F.pad(x, (WINDOW // 2, WINDOW // 2, 0, 0), mode="reflect"), (1, WINDOW), stride=1)
    before, after = (torch.diff(_smooth(y), dim=-1).abs() for y in (x, blurred))
    total = before.mean().item()
    if total < LEAST_DETAIL:
        return None
    return 1 - (before - after).clamp_(min=0).mean().item() / total


def _smooth(x: Tensor) -> Tensor:
    """Averages of neighbours across the measured direction, so that noise counts less than edges."""
    kernel = x.new_tensor([0.25, 0.5, 0.25]).view(1, 1, 3, 1)
    return F.conv2d(x, kernel)
