"""One training step: batch in, weights and averaged weights changed.

`EagerStep` is the plain one. `CapturedStep` records forward, backward and update once in a CUDA graph and replays it:
the same tensor program without the time between kernels. Neither waits for the device; what happened is kept in
tensors and read rarely (`Update.read`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pahs.errors import PahsError
from pahs.networks import Tensors
from pahs.training.losses import restoration_loss
from pahs.training.recipe import OptimSection

WARM_UP = 3
"""Steps before the capture, in which libraries choose their kernels and allocate."""


@dataclass(frozen=True)
class Report:
    """What the steps since the last report did."""

    loss: float
    """Mean over the steps that counted; nan when none did."""
    gradient_norm: float
    """Of the last step, before clipping."""
    skipped: int
    """Steps that were not finite, since this process began."""
    skipped_now: int
    """Those since the last report."""
    longest_row: int
    """Most of them one after the other, since the last report."""


class Update:
    """Gradients to weights: clipping, Adam, averaging; a step that is not finite changes nothing.

    The decision to skip is a tensor: the fused optimizers take it as `found_inf`, as they do for gradient scaling.
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
        """Use the gradients that lie in the parameters. `loss` is the mean over all processes."""
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
        """Waits for the device."""
        tensors = (self._loss_sum, self._counted, self._norm, self._skipped, self._longest)
        loss, counted, norm, skipped, longest = torch.stack(tensors).tolist()
        self._loss_sum.zero_()
        self._counted.zero_()
        self._longest.copy_(self._row)
        now, self._reported = int(skipped) - self._reported, int(skipped)
        return Report(loss / counted if counted else math.nan, norm, int(skipped), now, int(longest))

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """Steps inside change nothing: no weight, no running statistic of a normalisation, no random number to come."""
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
        self.optimizer.load_state_dict(optimizer)
        self._use_skip()
        for mine, stored in zip(self.ema, ema, strict=True):
            mine.copy_(stored)

    def _use_skip(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr  # loading puts a copy in its place
        self.optimizer.found_inf = self._skip  # type: ignore[attr-defined]
        self.optimizer.grad_scale = None  # type: ignore[attr-defined]

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model holds the averaged weights inside; in place, since a captured step knows their addresses."""
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


@dataclass(frozen=True)
class Objective:
    """From a batch to the loss, in the run's precision."""

    outputs: Callable[[Tensor], Tensors]
    """A network's `training_outputs`."""
    autocast: Callable[[], AbstractContextManager[Any]]
    optim: OptimSection

    def __call__(self, blurry: Tensor, sharp: Tensor) -> Tensor:
        with self.autocast():
            outputs = self.outputs(blurry)
        wish = self.optim
        losses = [restoration_loss(x, sharp, wish.loss, wish.frequency_weight) for x in outputs]
        return torch.stack(losses).mean()


class EagerStep:
    """One step, kernel by kernel; the only one for several processes."""

    def __init__(
        self,
        objective: Objective,
        update: Update,
        backward: Callable[[Tensor], None],
        mean: Callable[[Tensor], Tensor],
    ) -> None:
        self.objective, self.update, self.backward, self.mean = objective, update, backward, mean

    def prepare(self, blurry: Tensor, sharp: Tensor) -> None:
        """Run once without effect: what cannot work fails here."""
        with self.update.rehearsed():
            self(blurry, sharp)

    def __call__(self, blurry: Tensor, sharp: Tensor) -> Tensor:
        self.update.optimizer.zero_grad(set_to_none=True)
        loss = self.objective(blurry, sharp)
        self.backward(loss)
        loss = self.mean(loss.detach())
        self.update.apply(loss)
        return loss


class CapturedStep:
    """The same step on one CUDA device, recorded once."""

    def __init__(self, objective: Objective, update: Update) -> None:
        self.step = EagerStep(objective, update, torch.autograd.backward, lambda loss: loss)
        self.update = update
        self.graph: torch.cuda.CUDAGraph | None = None

    def prepare(self, blurry: Tensor, sharp: Tensor) -> None:
        self.blurry, self.sharp = frames_last(blurry), frames_last(sharp)
        # Warming up beside the main stream is meant; newer versions of torch would warn about it.
        warns = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if warns is not None:
            warns(False)
        with self.update.rehearsed():
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self.step(self.blurry, self.sharp)
            torch.cuda.current_stream().wait_stream(side)
            # Gradients are to be allocated inside the graph, whose replay then writes instead of adding.
            self.update.optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            # Other threads, such as a data loader's, may go on talking to the device.
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.loss = self.step(self.blurry, self.sharp)

    def __call__(self, blurry: Tensor, sharp: Tensor) -> Tensor:
        """The loss lies in the graph's memory: the next step overwrites it."""
        assert self.graph is not None, "prepare first"
        self.blurry.copy_(blurry, non_blocking=True)
        self.sharp.copy_(sharp, non_blocking=True)
        self.graph.replay()
        return self.loss


Step = EagerStep | CapturedStep


def frames_last(clip: Tensor) -> Tensor:
    """A copy of (B, T, 3, H, W) whose frames, taken as one batch of images, are channels-last."""
    frames = clip.flatten(0, 1).clone(memory_format=torch.channels_last)
    return frames.view(clip.shape)


class Compiled:
    """The network's stages, compiled in place.

    Parts, not the whole: an unrolled recurrence compiles for minutes, its cell for seconds. A cell is any module
    with a `start` and a `step`.
    """

    def __init__(self, model: nn.Module) -> None:
        parts: list[tuple[nn.Module, str]] = [(model, "extract"), (model, "reconstruct")]
        parts += [(m, "step") for m in model.modules() if hasattr(m, "step") and hasattr(m, "start")]
        # A cell is compiled for each direction, and apart for its first frame, whose state has no gradient.
        torch._dynamo.config.cache_size_limit = max(32, torch._dynamo.config.cache_size_limit)
        self.parts = [(m, name, torch.compile(getattr(m, name), dynamic=False)) for m, name in parts]
        self.use()

    def use(self) -> None:
        for module, name, function in self.parts:
            setattr(module, name, function)

    def leave(self) -> None:
        """The class's own methods again."""
        for module, name, _ in self.parts:
            delattr(module, name)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For validation: other sizes would be compiled anew, which takes longer than it saves."""
        self.leave()
        try:
            yield
        finally:
            self.use()


def prepare(
    step: Step, compiled: Compiled | None, batch: tuple[Tensor, Tensor], say: Callable[[str], None]
) -> tuple[Step, Compiled | None]:
    """Make a step ready. What fails is said in one line and left out: first the compiler, then the capture."""
    while True:
        try:
            step.prepare(*batch)
            return step, compiled
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise PahsError(
                    f"the GPU's memory is too small for a step; lower train.batch ({reason})"
                ) from error
            if compiled is not None:
                say(f"going on without compiling, which failed ({reason})")
                compiled.leave()
                compiled = None
            elif isinstance(step, CapturedStep):
                say(f"going on without capturing, which failed ({reason})")
                step = step.step
            else:
                raise
            step.update.optimizer.zero_grad(set_to_none=True)
