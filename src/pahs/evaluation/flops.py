"""How much arithmetic a network does, counted without doing it."""

from __future__ import annotations

import copy

import torch
from torch.utils.flop_counter import FlopCounterMode

from pahs.networks.contract import Deblurrer

CLIP = 8
"""Frames in the clip that is counted: enough for any window of the zoo."""


def parameters(model: torch.nn.Module) -> int:
    """Weights that were learned; the paper's "MB" are millions of these."""
    return sum(x.numel() for x in model.parameters())


def flops_per_frame(model: Deblurrer, height: int, width: int) -> float:
    """Floating-point operations for one frame of this size, a multiplication and an addition counting as two.

    Convolutions, matrix products and attention count; the frame is padded as the engine does. A clip runs through
    a copy whose tensors have shapes but no values, where attention is two plain products: a fused kernel on the
    real device would escape the counter.
    """
    rows, columns = model.contract.padded(height, width)
    hollow = copy.deepcopy(model).to("meta")
    dtype = next((x.dtype for x in model.parameters()), torch.float32)
    clip = torch.empty(1, CLIP, 3, rows, columns, device="meta", dtype=dtype)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        hollow(clip)
    return float(counter.get_total_flops()) / CLIP
