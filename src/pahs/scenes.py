"""Where one shot ends and the next begins."""

from __future__ import annotations

from collections import deque

import torch.nn.functional as F
from torch import Tensor

THUMBNAIL = 16
FIRST = 0.15
LEAST = 0.08
JUMP = 3.0


class CutDetector:
    """Compares thumbnails of consecutive frames, so that motion hardly counts and a new picture does.

    A cut is a difference well above those just before it: a fast pan differs from frame to frame all along.
    """

    def __init__(self) -> None:
        self._last: Tensor | None = None
        self._recent: deque[float] = deque(maxlen=5)

    def is_cut(self, frame: Tensor) -> bool:
        """Whether `frame`, (3, H, W) in [0, 1], starts a new scene."""
        thumbnail = F.adaptive_avg_pool2d(frame, THUMBNAIL)
        last, self._last = self._last, thumbnail
        if last is None:
            return False
        difference = float((thumbnail - last).abs().mean())
        usual = max(self._recent, default=FIRST / JUMP)
        if difference > max(LEAST, JUMP * usual):
            self._recent.clear()
            return True
        self._recent.append(difference)
        return False
