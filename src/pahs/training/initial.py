"""Initial weights of a network."""

from __future__ import annotations

import torch
from torch import nn

from pahs.networks import Deblurrer
from pahs.networks.blocks import ResidualBlock

QUIET = 0.1
"""Scale of the last convolution of each residual block."""


@torch.no_grad()
def scale_weights(model: Deblurrer) -> None:
    """Draw weights that let learning start within a few steps.

    Each convolution keeps the variance of its input, residual blocks begin near the identity, and a network with a
    global skip begins as the identity. PyTorch's own weights divide the variance by three in every convolution.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            reads = layer.in_channels // layer.groups * layer.kernel_size[0] * layer.kernel_size[1]
            if isinstance(layer, nn.ConvTranspose2d):
                reads //= layer.stride[0] * layer.stride[1]
            nn.init.normal_(layer.weight, std=max(1, reads) ** -0.5)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    for layer in model.modules():
        if isinstance(layer, ResidualBlock):
            layer.second.weight.mul_(QUIET)
    if getattr(model.config, "global_skip", False):
        last = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.out_channels == 3][-1]
        nn.init.zeros_(last.weight)
