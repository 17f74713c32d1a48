"""PSNR and SSIM in float64, equal to scikit-image, and flicker.

Pictures are numpy arrays (H, W) or (H, W, C), or tensors (H, W) or (C, H, W); bytes range to 255, floats to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Picture: TypeAlias = NDArray[Any] | Tensor

PSNR_CAP = 100.0
"""In dB. A frame that equals its ground truth, or nearly does, counts as this in a mean, which so stays finite."""

_SIGMA = 1.5
_RADIUS = 5
_WINDOW = 2 * _RADIUS + 1


def psnr(a: Picture, b: Picture, data_range: float | None = None) -> float:
    """Peak signal-to-noise ratio in dB; infinite for identical pictures."""
    x, y, peak = _prepare(a, b, data_range)
    error = float(torch.mean((x - y) ** 2))
    return math.inf if error == 0 else 10 * math.log10(peak**2 / error)


def capped(decibels: float) -> float:
    """The PSNR of one frame as it counts in a mean."""
    return min(decibels, PSNR_CAP)


def mean_psnr(decibels: Iterable[float]) -> float:
    """The mean PSNR of frames, each of them capped; nan for no frames."""
    values = [capped(x) for x in decibels]
    return math.fsum(values) / len(values) if values else math.nan


def ssim(a: Picture, b: Picture, data_range: float | None = None) -> float:
    """Structural similarity of Wang et al. (2004): Gaussian window of 11, sigma 1.5, mean over pixels and channels.

    The border counts only where the whole window fits. scikit-image calls this
    `gaussian_weights=True, sigma=1.5, use_sample_covariance=False`.
    """
    x, y, peak = _prepare(a, b, data_range)
    if min(x.shape[-2:]) < _WINDOW:
        raise ValueError(
            f"SSIM needs pictures of at least {_WINDOW}x{_WINDOW}, not {x.shape[-1]}x{x.shape[-2]}"
        )
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    total = 0.0
    # One channel at a time: five maps of all channels of a large frame would leave the cache.
    for u, v in zip(x, y, strict=True):
        mean_u, mean_v, uu, vv, uv = _blur(torch.stack([u, v, u * u, v * v, u * v]))
        product, squares = mean_u * mean_v, mean_u**2 + mean_v**2
        score = (2 * product + c1) * (2 * (uv - product) + c2)
        score /= (squares + c1) * (uu + vv - squares + c2)
        total += float(score.mean())
    return total / len(x)


def flicker(last: Tensor, now: Tensor, true_last: Tensor, true_now: Tensor) -> float:
    """Mean absolute difference of the change between two frames from the true change, in levels of the pictures."""
    change = now.double() - last.double()
    true_change = true_now.double() - true_last.double()
    return float((change - true_change).abs().mean())


def _prepare(a: Picture, b: Picture, data_range: float | None) -> tuple[Tensor, Tensor, float]:
    if isinstance(a, Tensor) is not isinstance(b, Tensor):
        raise ValueError("compare two arrays or two tensors: their channels lie on different axes")
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(f"pictures differ: {tuple(a.shape)} {a.dtype} and {tuple(b.shape)} {b.dtype}")
    if a.ndim not in (2, 3) or 0 in a.shape:
        raise ValueError(f"a picture has two or three axes and some pixels, not {tuple(a.shape)}")
    x, y = _planes(a), _planes(b)
    return x, y, _peak(a) if data_range is None else data_range


def _peak(picture: Picture) -> float:
    kind = torch.from_numpy(np.empty(0, picture.dtype)) if isinstance(picture, np.ndarray) else picture
    if kind.dtype == torch.uint8:
        return 255.0
    if kind.is_floating_point():
        return 1.0
    raise ValueError(f"give data_range for pictures of {picture.dtype}")


def _planes(picture: Picture) -> Tensor:
    """(C, H, W) in float64, on the picture's device."""
    if isinstance(picture, np.ndarray):
        picture = torch.from_numpy(np.ascontiguousarray(picture))
        picture = picture.permute(2, 0, 1) if picture.ndim == 3 else picture
    picture = picture.detach().to(torch.float64)
    return picture if picture.ndim == 3 else picture[None]


def _blur(x: Tensor) -> Tensor:
    """Gaussian mean over the last two axes, where the whole window fits."""
    offsets = torch.arange(_RADIUS + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * ((_RADIUS - offsets) / _SIGMA) ** 2)
    half = (weights / (2 * weights.sum() - weights[-1])).tolist()
    for axis in (-2, -1):
        length = x.shape[axis] - 2 * _RADIUS
        # The window is symmetric, so 6 products do; convolutions in float64 are slow on CPUs.
        y = x.narrow(axis, _RADIUS, length) * half[_RADIUS]
        for i in range(_RADIUS):
            y.add_(x.narrow(axis, i, length) + x.narrow(axis, 2 * _RADIUS - i, length), alpha=half[i])
        x = y
    return x
