"""The update of a training step: gradients change the weights and their average.

Nothing here waits for the device: counts and sums are kept in tensors, and `Update.read` fetches them now and then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pahs.training.recipe import OptimSection


@dataclass(frozen=True)
class Report:
    """Figures of the steps since the last report."""

    loss: float
    """Mean over the steps that counted; nan when none did."""
    gradient_norm: float
    """The norm of the last step, before clipping."""
    skipped: int
    """Steps that were not finite since this process began."""
    skipped_now: int
    """Steps that were not finite since the last report."""
    longest_row: int
    """The longest row of such steps, as far as it reaches into this report."""


class Update:
    """Clips the gradients, runs Adam, averages the weights; a step that is not finite changes nothing.

    The decision to skip is a tensor, which the fused optimizers take as `found_inf`, as they do for gradient scaling.
    """

    def __init__(self, model: nn.Module, optim: OptimSection) -> None:
        self.parameters: list[Tensor] = list(model.parameters())
        self.buffers: list[Tensor] = list(model.buffers())
        self.clip = optim.clip
        device = self.parameters[0].device
        self.lr = torch.tensor(optim.lr, device=device)
        make = torch.optim.AdamW if optim.name == "adamw" else torch.optim.Adam
        self.optimizer: torch.optim.Optimizer = make(
            self.parameters,
            lr=self.lr,
            betas=optim.betas,
            eps=optim.eps,
            weight_decay=optim.weight_decay,
            fused=True,
            capturable=device.type == "cuda",
        )
        self.ema = [p.detach().clone() for p in self.parameters] if optim.ema else []
        self.ema_gain = torch.zeros((), device=device)
        self.rehearsal = torch.zeros((), device=device)
        """1 while warming up and capturing: then nothing below changes."""
        self._skip = torch.zeros((), device=device)
        self._norm, self._loss_sum, self._counted, self._skipped, self._row, self._longest = (
            torch.zeros((), device=device) for _ in range(6)
        )
        self._reported = 0
        self._use_skip()

    def set(self, lr: float, ema_decay: float) -> None:
        self.lr.fill_(lr)
        self.ema_gain.fill_(1 - ema_decay)

    @torch.no_grad()
    def apply(self, loss: Tensor) -> None:
        """Apply the gradients of the parameters. `loss` is the mean over all processes."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.clip:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
        bad = 1 - (torch.isfinite(loss) & torch.isfinite(norm)).float()
        self._skip.copy_(torch.maximum(bad, self.rehearsal))
        self.optimizer.step()
        if self.ema:
            change = torch._foreach_sub(self.parameters, self.ema)
            torch._foreach_mul_(change, self.ema_gain * (1 - self._skip))
            torch._foreach_add_(self.ema, change)

        self._norm.copy_(norm)
        self._loss_sum.add_(torch.where(self._skip > 0, torch.zeros_like(loss), loss))
        self._counted.add_(1 - self._skip)
        bad = bad * (1 - self.rehearsal)
        self._skipped.add_(bad)
        self._row.add_(1).mul_(bad)
        self._longest.copy_(torch.maximum(self._longest, self._row))

    def read(self) -> Report:
        """Report on the steps since the last call; this waits for the device."""
        tensors = (self._loss_sum, self._counted, self._norm, self._skipped, self._longest)
        loss, counted, norm, skipped, longest = torch.stack(tensors).tolist()
        self._loss_sum.zero_()
        self._counted.zero_()
        self._longest.copy_(self._row)
        now, self._reported = int(skipped) - self._reported, int(skipped)
        return Report(loss / counted if counted else math.nan, norm, int(skipped), now, int(longest))

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """Steps inside change nothing: no weight, no running statistic, no later random number."""
        kept = [x.clone() for x in self.buffers]
        self.rehearsal.fill_(1)
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            self.rehearsal.fill_(0)
            for buffer, value in zip(self.buffers, kept, strict=True):
                buffer.copy_(value)

    def load(self, optimizer: dict[str, Any], ema: list[Tensor]) -> None:
        """Continue from a checkpoint, by this recipe's options; without a stored average it starts at the weights."""
        options = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(optimizer)
        for group, kept in zip(self.optimizer.param_groups, options, strict=True):
            group.update(kept)  # a state brings the options along that it was made with
        self._use_skip()
        if self.ema:
            for mine, stored in zip(self.ema, ema or self.parameters, strict=True):
                mine.copy_(stored.detach())

    def _use_skip(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr  # loading a state replaces it by a copy
        self.optimizer.found_inf = self._skip  # type: ignore[attr-defined]
        self.optimizer.grad_scale = None  # type: ignore[attr-defined]

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model holds the averaged weights inside; they are copied, since a captured step reads fixed addresses."""
        if not self.ema:
            yield
            return
        kept = [p.detach().clone() for p in self.parameters]
        self._put(self.ema)
        try:
            yield
        finally:
            self._put(kept)

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)
