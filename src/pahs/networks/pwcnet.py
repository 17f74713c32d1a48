"""PWC-Net (Sun et al. 2018): optical flow from a feature pyramid, warping and cost volumes; TSP's motion estimate.

    pyramid      one frame -> features at 1/4 ... 1/64 (1/2 is passed through)
    forward      two pyramids -> flow at full size, from the coarsest level to 1/4, then a context network

The pyramid is frame-wise, so a frame that takes part in several flows is analysed once. Odd sizes are rounded up
at each level and the doubled flow is cropped to the finer one, so that frames of any size work.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import SLOPE, conv, leaky
from pahs.networks.contract import Tensors
from pahs.networks.sampling import cost_volume, warp, widen

PYRAMID = (16, 32, 64, 96, 128, 196)
DECODER = (128, 128, 96, 64, 32)
CONTEXT = ((128, 1), (128, 2), (128, 4), (96, 8), (64, 16), (32, 1))
"""Channels and dilation of the context network."""
FINEST = 2
"""The level at which flow is estimated last: 1 / 2^2 of the frame."""
FLOW_UNIT = 20.0
"""The network's unit of flow in pixels of the full frame: it keeps what the layers predict near one."""


@dataclass(frozen=True)
class PWCConfig:
    """The defaults are the public network."""

    narrow: int = 1
    """Divides the channels of every layer."""
    reach: int = 4
    """How far the cost volume looks at each level, in that level's pixels."""

    def __post_init__(self) -> None:
        if not 1 <= self.narrow <= min(PYRAMID):
            raise ValueError(f"narrow is {self.narrow}; it must lie between 1 and {min(PYRAMID)}")
        at_least(1, self, "reach")

    def build(self) -> PWCNet:
        return PWCNet(self)


def active(*layers: nn.Module) -> nn.Sequential:
    """Each layer followed by LeakyReLU."""
    return nn.Sequential(*(module for layer in layers for module in (layer, nn.LeakyReLU(SLOPE))))


def doubled(channels: int) -> nn.ConvTranspose2d:
    """Two channels at twice the size."""
    return nn.ConvTranspose2d(channels, 2, 4, stride=2, padding=1)


class Decoder(nn.Module):
    """Flow at one level: densely connected convolutions; returns the flow and all that they computed."""

    def __init__(self, inputs: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        counts = [inputs + sum(widths[:i]) for i in range(len(widths) + 1)]
        self.dense = nn.ModuleList(conv(count, width) for count, width in zip(counts, widths, strict=False))
        self.outputs = counts[-1]
        self.flow = conv(self.outputs, 2)

    def forward(self, x: Tensor) -> Tensors:
        for layer in self.dense:
            x = torch.cat((leaky(layer(x)), x), 1)
        return self.flow(x), x


class PWCNet(nn.Module):
    """Flow from one frame to another, given the pyramids of both."""

    def __init__(self, config: PWCConfig) -> None:
        super().__init__()
        self.reach = config.reach
        volume = (2 * config.reach + 1) ** 2
        widths = [width // config.narrow for width in PYRAMID]
        dense = tuple(width // config.narrow for width in DECODER)
        self.levels = nn.ModuleList(
            active(conv(finer, width, stride=2), conv(width, width), conv(width, width))
            for finer, width in pairwise([3, *widths])
        )
        # From the finest level to the coarsest, which alone has no coarser flow and features to start from.
        decoders = [Decoder(volume + width + 4, dense) for width in widths[FINEST - 1 : -1]]
        decoders.append(Decoder(volume, dense))
        self.decoders = nn.ModuleList(decoders)
        self.double_flow = nn.ModuleList(doubled(2) for _ in decoders[1:])
        self.double_features = nn.ModuleList(doubled(decoder.outputs) for decoder in decoders[1:])
        context = [(width // config.narrow, dilation) for width, dilation in CONTEXT]
        inputs = [decoders[0].outputs, *(width for width, _ in context)]
        layers = (
            nn.Conv2d(count, width, 3, padding=dilation, dilation=dilation)
            for count, (width, dilation) in zip(inputs, context, strict=False)
        )
        self.context = nn.Sequential(active(*layers), conv(inputs[-1], 2))

    def pyramid(self, images: Tensor) -> Tensors:
        """(B, 3, H, W) -> features at 1/4, 1/8, ... 1/64."""
        levels = []
        x = images
        for level in self.levels:
            x = level(x)
            levels.append(x)
        return tuple(levels[FINEST - 1 :])

    def forward(self, first: Tensors, second: Tensors) -> Tensor:
        """Flow (B, 2, H, W) in pixels: what is at p in the first frame is at p + flow(p) in the second."""
        volume = leaky(cost_volume(first[-1], second[-1], self.reach))
        flow, features = self.decoders[-1](volume)
        for i in reversed(range(len(first) - 1)):
            height, width = first[i].shape[-2:]
            flow = self.double_flow[i](flow)[..., :height, :width]
            hint = self.double_features[i](features)[..., :height, :width]
            warped, _ = warp(second[i], widen(flow) * (FLOW_UNIT / 2 ** (FINEST + i)))
            volume = leaky(cost_volume(first[i], warped, self.reach))
            flow, features = self.decoders[i](torch.cat((volume, first[i], flow, hint), 1))
        flow = widen(flow) + widen(self.context(features))
        return F.interpolate(FLOW_UNIT * flow, scale_factor=2**FINEST, mode="bilinear", align_corners=False)
