"""Warmed-up hidden states for training, as a sweep has them in the middle of a long video.

A network that is trained on short clips, each from an empty state, knows nothing of the states that a long sweep
leads to: there it may diverge. So each direction first goes back and forth over the clip's features without
gradient, like a camera that turns round at either end, and the sweep that counts begins where this ended.

    passes = 4:    < > < > then the sweep that counts, >      "<" is against the direction's own order

The price, from operations: a pass is one forward sweep of the cells, since the features are there already, and forward
is a third of forward and backward. The cells do 22 % of the arithmetic of `pahs-s` (c = 96, one extractor), so four
passes add 4 x 22 / 3 = 30 % to a step. With two extractors (`pahs`) the cells do 15 %, and four passes add 20 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

Tensors = tuple[Tensor, ...]
Features = TypeVar("Features")

LIMIT = 100.0
"""A state with a larger value anywhere is diverging."""


def warm_state(
    there: Features,
    back: Features,
    start: Callable[[Features], Tensors],
    sweep: Callable[[Features, Tensors | None], Tensors],
    resets: Tensor,
) -> Tensors:
    """One direction's state after it has gone back and forth, once for every row of `resets`.

    `there` holds a clip's features in the direction's own order, `back` in reverse. `start` gives the state before
    the first frame, `sweep` the one after the last. `resets`, (passes, B) booleans, says which clips of the batch
    are reset after each pass; a state that is not finite or beyond LIMIT always is.
    """
    orders = (there, back)
    state: Tensors | None = None
    for number, chosen in enumerate(resets):
        left = len(resets) - number
        state = sweep(orders[left % 2], state)
        state = restarted(state, start(orders[(left - 1) % 2]), chosen)
    assert state is not None, "one pass or more"
    return state


def restarted(state: Tensors, start: Tensors, chosen: Tensor) -> Tensors:
    """`start` for the chosen clips of a batch and for those whose state has diverged, `state` for the others."""
    kept = ~chosen
    for x in state:
        if x.numel():
            kept = kept & (x.abs().amax(tuple(range(1, x.dim()))) <= LIMIT)  # false for nan
    return tuple(
        torch.where(kept.view(-1, *[1] * (x.dim() - 1)), x, first.to(x.dtype))
        for x, first in zip(state, start, strict=True)
    )


@contextmanager
def without_gradients(device: torch.device) -> Iterator[None]:
    """No gradients inside, and none lost afterwards.

    Autocast keeps the weights that it has rounded. One that was rounded here would have no gradient when it is used
    again.
    """
    kind = device.type
    dtype, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
    with torch.no_grad(), torch.autocast(kind, dtype, enabled, cache_enabled=False):
        yield


@contextmanager
def without_statistics(model: nn.Module) -> Iterator[None]:
    """Batch normalisation takes the means of the batch inside, as in training, but does not remember them.

    Each frame then counts once in the running statistics, in the sweep that the loss is taken of.
    """
    counting = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d) and m.track_running_stats]
    for module in counting:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in counting:
            module.track_running_stats = True
