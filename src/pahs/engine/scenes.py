"""Where one shot ends and the next begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.kernels.streams import fetch

THUMBNAIL = 16
"""Rows and columns of the thumbnails that are compared."""
FIRST = 0.15
"""Mean difference that is a cut where no frames before it say what is usual."""
LEAST = 0.08
"""A smaller difference is never a cut."""
JUMP = 3.0
"""A cut differs by this factor more than the frames before it."""


class CutDetector:
    """Compares thumbnails of consecutive frames, so that motion hardly counts and a new picture does.

    A cut is a difference well above those just before it: a fast pan differs from frame to frame all along.
    """

    def __init__(self) -> None:
        self._last: Tensor | None = None
        self._recent: deque[float] = deque(maxlen=5)

    def cuts(self, frames: Sequence[Tensor]) -> Callable[[], list[bool]]:
        """Which of the next frames, each (3, H, W) in [0, 1], start a new scene.

        The device begins to compare them; the returned function waits for the answer. Call these functions in order.
        """
        first = self._last is None
        thumbnails = torch.stack([F.adaptive_avg_pool2d(frame, THUMBNAIL) for frame in frames])
        before = thumbnails[:1] if self._last is None else self._last
        self._last = thumbnails[-1:]
        wait = fetch(((thumbnails - torch.cat([before, thumbnails[:-1]])).abs().mean((1, 2, 3)),))

        def answer() -> list[bool]:
            (differences,) = wait()
            return [False] * first + [self._is_cut(x) for x in differences.tolist()[first:]]

        return answer

    def _is_cut(self, difference: float) -> bool:
        usual = max(self._recent, default=FIRST / JUMP)
        if difference > max(LEAST, JUMP * usual):
            self._recent.clear()
            return True
        self._recent.append(difference)
        return False


class KnownCuts:
    """The same answers where somebody has seen all frames before."""

    def __init__(self, cuts: Collection[int], start: int = 0) -> None:
        """`cuts` are numbers of frames, `start` is that of the next frame."""
        self._cuts, self._next = frozenset(cuts), start

    def cuts(self, frames: Sequence[Tensor]) -> Callable[[], list[bool]]:
        """Which of the next frames start a new scene."""
        numbers = range(self._next, self._next + len(frames))
        self._next = numbers.stop
        return lambda: [number in self._cuts for number in numbers]
