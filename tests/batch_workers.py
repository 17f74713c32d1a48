"""Workers of batches that do what real ones never should: sleep instead of computing, die, or stop in the middle."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from pahs.cluster.manifest import Segment, Settings, Video
from pahs.cluster.pool import Counting, Failed, Worker
from pahs.cluster.work import Done
from pahs.networks import Deblurrer
from pahs.networks.contract import Contract, Tensors

SLEEP = "PAHS_TEST_SLEEP"
"""Seconds for a frame of a sleeping network."""
MARK = "PAHS_TEST_MARK"
"""A file that says that a worker has died already."""


class Sleeping(Deblurrer):
    """Gives back what it gets, after a while."""

    def __init__(self) -> None:
        super().__init__()
        self.anywhere = nn.Parameter(torch.zeros(1))
        self.contract = Contract(family="recurrent", look_ahead=0)

    def extract(self, frames: Tensor) -> Tensors:
        return (frames,)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        time.sleep(keep * float(os.environ.get(SLEEP, "0.01")))
        return (features[0][:, :keep],), ()

    def reconstruct(self, latents: Tensors) -> Tensor:
        return latents[0]


class _SleepingRunner(Counting):
    def load(self) -> Deblurrer:
        return Sleeping().eval()


class SleepingWorker(Worker):
    """Everything is real but the network."""

    def make_runner(self, settings: Settings) -> Counting:
        return _SleepingRunner(settings)


class DyingWorker(Worker):
    """The first that restores a second segment is killed while it writes."""

    def do(self, kind: str, video: Video, segment: Segment | None) -> Done | Failed:
        mark = Path(os.environ[MARK])
        if segment is not None and segment.number == 1 and not mark.exists():
            mark.touch()
            real = self.runner.network().reconstruct

            def dying(latents: Tensors) -> Tensor:
                restored = real(latents)
                os.kill(os.getpid(), signal.SIGKILL)
                return restored

            self.runner.network().reconstruct = dying  # type: ignore[method-assign]
        return super().do(kind, video, segment)
