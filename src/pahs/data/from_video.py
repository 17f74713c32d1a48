"""Blur from sharp video, as GOPRO was made: neighbouring frames are averaged, the one in the middle is the truth.

GOPRO averages 7 to 15 frames of 240 per second. Slower video is brought to that rate first (`flow.interpolate`);
exposures are then centred on frames of the video itself, so that no truth is ever an interpolated frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.data.flow import interpolate, optical_flow, unreliable_share
from pahs.data.gamma import to_display, to_light
from pahs.errors import PahsError

CUT = 0.15
"""Mean absolute difference between two frames, eight times smaller, above which they belong to different takes."""

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class VideoBlurConfig:
    """How sharp video becomes blurry video."""

    average: tuple[int, int] = (7, 15)
    """Fewest and most moments averaged per exposure; odd numbers are drawn, so that there is a middle."""
    rate: float = 240.0
    """Moments per second; slower video is interpolated to about this rate."""
    linear_share: float = 0.5
    """Share of sequences averaged as light; the others are averaged as stored values."""
    gamma: tuple[float, float] = (1.8, 2.4)
    """Exponent of the curve between the two."""
    unreliable: float = 0.25
    """Share of pixels that may lack a trustworthy flow before a pair of frames is skipped."""
    short_side: int = 720
    """Larger frames are shrunk to this: it hides the noise and the codec of the source."""

    def __post_init__(self) -> None:
        low, high = self.average
        if not 1 <= low <= high or (low == high and low % 2 == 0):
            raise PahsError(
                f"video average: give (fewest, most) with an odd number between, not {self.average}"
            )
        if self.rate <= 0:
            raise PahsError(f"video rate: must be above 0, got {self.rate}")
        if not (0 <= self.linear_share <= 1 and 0 <= self.unreliable <= 1):
            raise PahsError("video linear_share, unreliable: are shares between 0 and 1")
        if not 0 < self.gamma[0] <= self.gamma[1]:
            raise PahsError(f"video gamma: give (low, high) with 0 < low <= high, not {self.gamma}")
        if self.short_side < 16:
            raise PahsError(f"video short_side: must be at least 16, got {self.short_side}")

    def factor(self, rate: float) -> int:
        """Moments per frame for a video of `rate` frames per second."""
        return max(1, round(self.rate / rate))

    def frames_needed(self, exposures: int, rate: float) -> int:
        """Frames of the video that hold so many exposures of the longest kind."""
        factor = self.factor(rate)
        return (exposures - 1) * _hop(self.average[1], factor) + 1 + 2 * _reach(self.average[1], factor)


def expose_video(
    frames: Sequence[Tensor], *, factor: int, average: int, gamma: float = 1.0, unreliable: float = 0.25
) -> list[Pair]:
    """(blurry, sharp) pairs, each frame (3, H, W) in [0, 1], of the longest stretch that can be followed.

    frames   (3, H, W) each, uint8 or float in [0, 1]
    factor   moments per frame; above 1 the ones in between are interpolated
    average  moments per exposure, odd
    gamma    1 averages stored values, 0 light by the sRGB curve, else light by this exponent
    """
    if average % 2 == 0:
        raise PahsError(f"video average: must be odd, got {average}")
    reach = _reach(average, factor)
    intervals = [_Interval(a, b, factor, unreliable) for a, b in pairwise(frames)]
    best = _longest_run(intervals, reach, _hop(average, factor))
    curve = torch.tensor(gamma)
    return [(_average(frames, intervals, c, factor, average, curve), _as_float(frames[c])) for c in best]


def _longest_run(intervals: Sequence[_Interval], reach: int, hop: int) -> list[int]:
    """Centres of exposures, `hop` frames apart, with nothing lost from the first one's start to the last one's end."""
    best: list[int] = []
    run: list[int] = []

    def followed(begin: int, end: int) -> bool:
        return all(interval.followed for interval in intervals[begin:end])

    for centre in range(reach, len(intervals) + 1 - reach, hop):
        if run and not followed(run[-1], centre + reach):
            run = []
        if run or followed(centre - reach, centre + reach):
            run.append(centre)
            best = max(best, run.copy(), key=len)
    return best


class _Interval:
    """Two neighbouring frames and the motion between them."""

    def __init__(self, first: Tensor, second: Tensor, factor: int, unreliable: float) -> None:
        self.first, self.second = first, second
        a, b = _as_float(first)[None], _as_float(second)[None]
        if factor == 1:
            # Neighbours of a fast video look alike, so that a plain difference finds the cuts.
            self.followed = float(F.avg_pool2d(a - b, 8, ceil_mode=True).abs().mean()) < CUT
        else:
            self.there, self.back = optical_flow(a, b), optical_flow(b, a)
            self.followed = unreliable_share(self.there, self.back) <= unreliable

    def at(self, moment: float) -> Tensor:
        a, b = _as_float(self.first)[None], _as_float(self.second)[None]
        return interpolate(a, b, self.there, self.back, moment)[0]


def _average(
    frames: Sequence[Tensor],
    intervals: Sequence[_Interval],
    centre: int,
    factor: int,
    average: int,
    gamma: Tensor,
) -> Tensor:
    total = torch.zeros_like(_as_float(frames[centre]))
    for moment in range(centre * factor - average // 2, centre * factor + average // 2 + 1):
        index, part = divmod(moment, factor)
        seen = intervals[index].at(part / factor) if part else _as_float(frames[index])
        total += to_light(seen.clamp(0, 1), gamma)
    return to_display(total / average, gamma)


def _as_float(frame: Tensor) -> Tensor:
    return frame.float() / 255 if frame.dtype == torch.uint8 else frame


def _reach(average: int, factor: int) -> int:
    """Frames that an exposure touches on either side of its centre."""
    return -(-(average // 2) // factor)


def _hop(average: int, factor: int) -> int:
    """Frames from one exposure to the next, which must not overlap."""
    return -(-average // factor)
