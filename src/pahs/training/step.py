"""One training step: a batch goes in, the weights and averaged weights change.

`EagerStep` launches kernel by kernel. `capture.CapturedStep` replays the same kernels as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pahs.networks import Tensors
from pahs.training.losses import restoration_loss
from pahs.training.recipe import OptimSection
from pahs.training.update import Update


@dataclass(frozen=True)
class Objective:
    """Computes the loss of a batch in the run's precision."""

    outputs: Callable[..., Tensors]
    """A network's `training_outputs`, or its `warm_outputs`, which takes resets too."""
    autocast: Callable[[], AbstractContextManager[Any]]
    optim: OptimSection

    def __call__(self, blurry: Tensor, sharp: Tensor, *resets: Tensor) -> Tensor:
        with self.autocast():
            outputs = self.outputs(blurry, *resets)
        kind, frequency_weight = self.optim.loss, self.optim.frequency_weight
        losses = [restoration_loss(x, sharp, kind, frequency_weight) for x in outputs]
        return torch.stack(losses).mean()


@dataclass(frozen=True)
class EagerStep:
    """Launches a step kernel by kernel; several processes can train with this step only."""

    objective: Objective
    update: Update
    backward: Callable[[Tensor], None]
    mean: Callable[[Tensor], Tensor]
    """The mean of a loss over all processes."""

    def prepare(self, *batch: Tensor) -> None:
        """Run once without effect, so that a step that cannot work fails here."""
        with self.update.rehearsed():
            self(*batch)

    def __call__(self, *batch: Tensor) -> Tensor:
        self.update.optimizer.zero_grad(set_to_none=True)
        loss = self.objective(*batch)
        self.backward(loss)
        loss = self.mean(loss.detach())
        self.update.apply(loss)
        return loss
