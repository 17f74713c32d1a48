"""How far a restored clip is from the sharp one."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LossKind = Literal["l1", "mse", "charbonnier", "psnr", "hard-example"]

CHARBONNIER_EPSILON = 1e-6
PSNR_SCALE = 0.05
"""Factor of the logarithm: its gradients are then about as large as those of l1, and one clipping norm suits both."""
PSNR_FLOOR = 3e-5
"""Added to the squared error, so that frames restored beyond 45 dB hardly change the gradient."""
HARD_WEIGHT = 2.0
RANDOM_SHARE = 0.1


def restoration_loss(
    output: Tensor,
    sharp: Tensor,
    kind: LossKind = "l1",
    frequency_weight: float = 0.0,
    drawn: Tensor | None = None,
) -> Tensor:
    """Mean over all pixels, frames and clips, in float32; the paper's loss is l1 alone.

    `drawn` are the random pixels of hard-example; without them they are drawn here.

    The frequency term compares the orthonormal 2-D spectra, so its weight does not depend on the crop's size.
    """
    output, sharp = output.float(), sharp.float()
    if kind == "l1":
        loss = F.l1_loss(output, sharp)
    elif kind == "mse":
        loss = F.mse_loss(output, sharp)
    elif kind == "charbonnier":
        loss = (output - sharp).square().add(CHARBONNIER_EPSILON).sqrt().mean()
    elif kind == "psnr":
        loss = PSNR_SCALE * (output - sharp).square().mean((-3, -2, -1)).add(PSNR_FLOOR).log().mean()
    else:
        error = (output - sharp).abs()
        loss = error.mean() + HARD_WEIGHT * (error * hard_examples(error, drawn)).mean()
    if frequency_weight:
        difference = torch.fft.rfft2(output - sharp, norm="ortho")
        loss = loss + frequency_weight * torch.view_as_real(difference).abs().mean()
    return loss


@torch.no_grad()
def hard_examples(error: Tensor, drawn: Tensor | None = None) -> Tensor:
    """A mask (B, T, 1, H, W): 1 at the worse half of every frame's pixels and at a random tenth of all, else 0.

    The random ones keep pixels in the loss that are good by chance.
    """
    residual = error.sum(-3, keepdim=True)
    limit = residual.flatten(-2).median(-1).values[..., None, None]
    chosen = torch.rand_like(residual) < RANDOM_SHARE if drawn is None else drawn
    return ((residual > limit) | chosen).to(error.dtype)
