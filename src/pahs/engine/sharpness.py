"""How sharp a picture is when nobody knows the sharp one.

The measure of Crete et al. 2007 ("The blur effect"): a picture is blurred again, and the fewer of its differences
between neighbours that takes away, the blurrier it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW = 11
"""Samples of the box that blurs again."""
LEAST_DETAIL = 0.004
"""A picture with a smaller mean difference between neighbours, such as black or fog, has no sharpness."""
EVERY = 10
"""One frame of so many is measured while a video is restored."""
MIDDLE = 480, 640
"""Rows and columns in the middle of that frame that are measured."""
_LUMA = (0.299, 0.587, 0.114)


def sharpness(image: Tensor) -> float | None:
    """0 (blurry) to 1 for an RGB frame (3, H, W) in [0, 1], in its blurriest direction; None without detail."""
    found = score(image).item()
    return None if math.isnan(found) else found


def score(image: Tensor) -> Tensor:
    """`sharpness` as a tensor on the image's device, which the host need not wait for; NaN without detail."""
    red, green, blue = image.float()
    grey = _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue
    return 1 - torch.maximum(_kept(grey[None, None]), _kept(grey.t()[None, None]))


class Gain:
    """Measures some frames on their way into a network, and the same ones on their way out."""

    def __init__(self) -> None:
        self._before: list[Tensor] = []
        self._after: list[Tensor] = []

    def before(self, frames: Iterable[Tensor]) -> Iterator[Tensor]:
        return self._measured(frames, self._before)

    def after(self, frames: Iterable[Tensor]) -> Iterator[Tensor]:
        return self._measured(frames, self._after)

    def means(self) -> tuple[float, float] | None:
        """Mean sharpness before and after, of the frames that have any; None if there are none."""
        if not self._after:
            return None
        pairs = torch.stack([torch.stack(self._before[: len(self._after)]), torch.stack(self._after)])
        told = pairs[:, ~pairs.isnan().any(0)]
        if not told.numel():
            return None
        before, after = told.mean(1).tolist()
        return before, after

    @staticmethod
    def _measured(frames: Iterable[Tensor], found: list[Tensor]) -> Iterator[Tensor]:
        for number, frame in enumerate(frames):
            if number % EVERY == 0:
                found.append(score(_middle(frame)))
            yield frame


def _middle(frame: Tensor) -> Tensor:
    """The middle of a large frame: enough to tell, and it takes little of a small memory."""
    top, left = (max(0, (size - most) // 2) for size, most in zip(frame.shape[1:], MIDDLE, strict=True))
    return frame[:, top : top + MIDDLE[0], left : left + MIDDLE[1]]


def _kept(x: Tensor) -> Tensor:
    """The share of the differences along the last axis that another blur leaves as they were."""
    if x.shape[-1] <= WINDOW or x.shape[-2] <= WINDOW:
        return x.new_full((), math.nan)
    half = WINDOW // 2
    blurred = F.avg_pool2d(F.pad(x, (half, half, 0, 0), mode="reflect"), (1, WINDOW), stride=1)
    before, after = (torch.diff(_smooth(y), dim=-1).abs() for y in (x, blurred))
    total = before.mean()
    share = 1 - (before - after).clamp_(min=0).mean() / total
    return torch.where(total < LEAST_DETAIL, math.nan, share)


def _smooth(x: Tensor) -> Tensor:
    """Averages of neighbours across the measured direction, so that noise counts less than edges."""
    return 0.25 * (x[..., :-2, :] + x[..., 2:, :]) + 0.5 * x[..., 1:-1, :]
