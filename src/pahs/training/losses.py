"""How far a restored clip is from the sharp one."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

CHARBONNIER_EPSILON = 1e-6


def restoration_loss(
    output: Tensor, sharp: Tensor, kind: Literal["l1", "charbonnier"] = "l1", frequency_weight: float = 0.0
) -> Tensor:
    """Mean over all pixels, frames and clips, in float32; the paper's loss is l1 alone.

    The frequency term compares the orthonormal 2-D spectra, so its weight does not depend on the crop's size.
    """
    output, sharp = output.float(), sharp.float()
    if kind == "l1":
        loss = F.l1_loss(output, sharp)
    else:
        loss = (output - sharp).square().add(CHARBONNIER_EPSILON).sqrt().mean()
    if frequency_weight:
        difference = torch.fft.rfft2(output - sharp, norm="ortho")
        loss = loss + frequency_weight * torch.view_as_real(difference).abs().mean()
    return loss
