"""Rounding to 8 bits, for everything that stores, scores or shows pictures."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_levels(images: Tensor) -> Tensor:
    """Floats -> uint8: clipped to [0, 1], scaled to 255, rounded to the nearest."""
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


def to_pictures(images: Tensor) -> NDArray[np.uint8]:
    """Floats (..., 3, H, W) -> arrays (..., H, W, 3) as image files hold them."""
    pictures: NDArray[np.uint8] = to_levels(images).movedim(-3, -1).cpu().numpy()
    return pictures
