"""Faster training on one CUDA device: the whole step as a CUDA graph, the network's stages compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pahs.training.step import EagerStep, Objective
from pahs.training.update import Update

WARM_UP = 3
"""Steps before the capture, in which libraries choose their kernels and allocate memory."""


class CapturedStep:
    """Records the step on one CUDA device once, then replays it: the same kernels without the time between them."""

    def __init__(self, objective: Objective, update: Update) -> None:
        self.step = EagerStep(objective, update, torch.autograd.backward, lambda loss: loss)
        self.update = update
        self.graph: torch.cuda.CUDAGraph | None = None

    def prepare(self, blurry: Tensor, sharp: Tensor, *resets: Tensor) -> None:
        self.batch = frames_last(blurry), frames_last(sharp), *(x.clone() for x in resets)
        # The warm-up runs on a side stream on purpose; newer versions of torch would warn about it.
        warns = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if warns is not None:
            warns(False)
        with self.update.rehearsed():
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self.step(*self.batch)
            torch.cuda.current_stream().wait_stream(side)
            # The graph must allocate the gradients itself: its replay then overwrites them instead of adding.
            self.update.optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            # Other threads, such as a data loader's, may use the device during the capture.
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.loss = self.step(*self.batch)

    def __call__(self, *batch: Tensor) -> Tensor:
        """Returns the loss, which lies in the graph's memory: the next step overwrites it."""
        assert self.graph is not None, "prepare first"
        for mine, given in zip(self.batch, batch, strict=True):
            mine.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.loss


Step = EagerStep | CapturedStep


def frames_last(clip: Tensor) -> Tensor:
    """A copy of (B, T, 3, H, W) whose frames, taken as one batch of images, are channels-last."""
    frames = clip.flatten(0, 1).clone(memory_format=torch.channels_last)
    return frames.view(clip.shape)


class Compiled:
    """Compiles the network's stages in place.

    Stages and cells are compiled, not the whole network: an unrolled recurrence compiles for minutes, its cell for
    seconds. A cell is any module with a `start` and a `step`.
    """

    def __init__(self, model: nn.Module) -> None:
        parts: list[tuple[nn.Module, str]] = [(model, "extract"), (model, "reconstruct")]
        parts += [(m, "step") for m in model.modules() if hasattr(m, "step") and hasattr(m, "start")]
        # A cell is compiled once per direction, once more for its first frame, whose state has no gradient, and
        # once more for passes without gradients.
        torch._dynamo.config.cache_size_limit = max(32, torch._dynamo.config.cache_size_limit)
        self.parts = [(m, name, torch.compile(getattr(m, name), dynamic=False)) for m, name in parts]
        self.use()

    def use(self) -> None:
        for module, name, function in self.parts:
            setattr(module, name, function)

    def leave(self) -> None:
        """Restore the class's own methods."""
        for module, name, _ in self.parts:
            delattr(module, name)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Used for validation: its sizes would each be compiled again, which takes longer than it saves."""
        self.leave()
        try:
            yield
        finally:
            self.use()
