"""One training step: a batch goes in, the weights and averaged weights change.

`EagerStep` launches kernel by kernel. `capture.CapturedStep` replays the same kernels as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pahs.networks import Tensors
from pahs.training.losses import restoration_loss
from pahs.training.recipe import OptimSection
from pahs.training.share import divided
from pahs.training.update import Update


@dataclass(frozen=True)
class Objective:
    """Computes the loss of a batch in the run's precision."""

    outputs: Callable[..., Tensors]
    """A network's `training_outputs`, or its `warm_outputs`, which takes resets too."""
    autocast: Callable[[], AbstractContextManager[Any]]
    optim: OptimSection

    def __call__(self, blurry: Tensor, sharp: Tensor, *more: Tensor) -> Tensor:
        """`more`: resets of states (passes, directions, B), and random pixels of the loss (B, T, 1, H, W)."""
        resets, pixels = [x for x in more if x.dim() == 3], [x for x in more if x.dim() == 5]
        with self.autocast():
            outputs = self.outputs(blurry, *resets)
        kind, frequency_weight = self.optim.loss, self.optim.frequency_weight
        losses = [restoration_loss(x, sharp, kind, frequency_weight, *pixels) for x in outputs]
        return torch.stack(losses).mean()


@dataclass(frozen=True)
class EagerStep:
    """Launches a step kernel by kernel; several processes can train with this step only."""

    objective: Objective
    update: Update
    backward: Callable[[Tensor], None]
    mean: Callable[[Tensor], Tensor]
    """The mean of a loss over all processes."""
    at_once: int = 0
    """Most clips in one forward and backward pass; the gradients of several passes are added up. 0: no limit."""
    clips: float = 0.0
    """Clips of a process on average, which a pass is weighed by; 0: those of its batch."""
    apart: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Inside, gradients are not exchanged; those of the last pass are, together with all before."""

    def prepare(self, *batch: Tensor) -> None:
        """Run once without effect, so that a step that cannot work fails here."""
        with self.update.rehearsed():
            self(*batch)

    def __call__(self, *batch: Tensor) -> Tensor:
        self.update.optimizer.zero_grad(set_to_none=True)
        count = len(batch[0])
        passes = divided(batch, self.at_once or count)
        losses = []
        for number, part in enumerate(passes, 1):
            weight = len(part[0]) / (self.clips or count)
            with nullcontext() if number == len(passes) else self.apart():
                loss = self.objective(*part)
                loss = loss if weight == 1 else loss * weight
                self.backward(loss)
            losses.append(loss.detach())
        loss = self.mean(losses[0] if len(losses) == 1 else torch.stack(losses).sum())
        self.update.apply(loss)
        return loss
