"""Parameters and floating-point operations of a network, counted without computing anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from pahs.networks.contract import Deblurrer

DeblurrerT = TypeVar("DeblurrerT", bound=Deblurrer)

CLIP = 8
"""Frames in the clip that is counted: more than any window of the zoo."""


def parameters(model: torch.nn.Module) -> int:
    """The number of learned weights; the paper's "MB" are millions of these."""
    return sum(x.numel() for x in model.parameters())


def flops_per_frame(model: Deblurrer, height: int, width: int) -> float:
    """Floating-point operations for one frame of this size, a multiplication and an addition counting as two.

    Convolutions, matrix products and attention of a whole clip are counted. Frames are padded as in the engine.
    """
    rows, columns = model.contract.padded(height, width)
    clip = torch.empty(1, CLIP, 3, rows, columns, device="meta", dtype=model.dtype)
    hollow = without_values(model)
    return count(lambda: hollow(clip)) / CLIP


def without_values(model: DeblurrerT) -> DeblurrerT:
    """A copy on the meta device, where tensors have shapes only and attention is two plain products.

    On the real device a fused attention kernel would escape the counter.
    """
    return copy.deepcopy(model).to("meta")


def count(work: Callable[[], object]) -> int:
    """Floating-point operations that `work` executes."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())
