"""Between display values and light: a sensor adds light, a file stores it through a curve."""

from __future__ import annotations

import torch
from torch import Tensor


def srgb_to_linear(x: Tensor) -> Tensor:
    """The sRGB curve (IEC 61966-2-1), display value in [0, 1] -> light."""
    return torch.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055).clamp_min(0).pow(2.4))


def linear_to_srgb(x: Tensor) -> Tensor:
    """Inverse of `srgb_to_linear`."""
    return torch.where(x <= 0.0031308, x * 12.92, 1.055 * x.clamp_min(0).pow(1 / 2.4) - 0.055)


def to_light(x: Tensor, gamma: Tensor) -> Tensor:
    """Display values in [0, 1] -> light by a power law; `gamma` 0 stands for the sRGB curve, 1 changes nothing."""
    return torch.where(gamma == 0, srgb_to_linear(x), x.pow(gamma))


def to_display(x: Tensor, gamma: Tensor) -> Tensor:
    """Inverse of `to_light`; light beyond white is clipped first."""
    x = x.clamp(0, 1)
    return torch.where(gamma == 0, linear_to_srgb(x), x.pow(1 / gamma.masked_fill(gamma == 0, 1)))
