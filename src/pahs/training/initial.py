"""Initial weights of a network, each drawn from a generator seeded by (seed, the parameter's name).

Two networks that have a parameter in common, by name and shape, begin with the same values in it: what is compared
between them is then not the luck of the draw.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from pahs.networks import Deblurrer
from pahs.networks.blocks import ResidualBlock
from pahs.networks.edvr import EDVRConfig
from pahs.networks.stfan import STFANConfig

ALWAYS_ADD = STFANConfig, EDVRConfig
"""Networks that add the frame to their output without being asked to."""
QUIET = 0.1
"""Scale of the last convolution of each residual block."""

Layer = nn.Conv2d | nn.ConvTranspose2d | nn.Linear


@torch.no_grad()
def draw_weights(model: Deblurrer, seed: int) -> None:
    """Draw PyTorch's own initial weights; a parameter that its network starts as a constant stays one."""
    for name, layer in model.named_modules():
        if isinstance(layer, Layer):
            if is_drawn(layer.weight):
                nn.init.kaiming_uniform_(
                    layer.weight, a=math.sqrt(5), generator=generator(seed, f"{name}.weight")
                )
            if layer.bias is not None and is_drawn(layer.bias):
                fan_in, _ = nn.init._calculate_fan_in_and_fan_out(layer.weight)
                bound = fan_in**-0.5
                layer.bias.uniform_(-bound, bound, generator=generator(seed, f"{name}.bias"))


@torch.no_grad()
def scale_weights(model: Deblurrer, seed: int = 0) -> None:
    """Draw weights that let learning start within a few steps.

    Each convolution keeps the variance of its input, residual blocks begin near the identity, and a network with a
    global skip begins as the identity. PyTorch's own weights divide the variance by three in every convolution.
    """
    draw_weights(model, seed)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            reads = layer.in_channels // layer.groups * layer.kernel_size[0] * layer.kernel_size[1]
            if isinstance(layer, nn.ConvTranspose2d):
                reads //= layer.stride[0] * layer.stride[1]
            if is_drawn(layer.weight):
                layer.weight.normal_(std=max(1, reads) ** -0.5, generator=generator(seed, f"{name}.weight"))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    for layer in model.modules():
        if isinstance(layer, ResidualBlock):
            layer.second.weight.mul_(QUIET)
    if getattr(model.config, "global_skip", isinstance(model.config, ALWAYS_ADD)):
        last = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.out_channels == 3][-1]
        nn.init.zeros_(last.weight)


def generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest) >> 1)


def is_drawn(parameter: Tensor) -> bool:
    """Not a constant that its network has chosen, such as offsets that begin at zero."""
    return parameter.numel() == 1 or bool((parameter != parameter.flatten()[0]).any())
