"""Layers that several networks share."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size, or divides it by `stride`."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)


def double(inputs: int, outputs: int) -> nn.ConvTranspose2d:
    """A 3x3 transposed convolution that doubles height and width."""
    return nn.ConvTranspose2d(inputs, outputs, 3, stride=2, padding=1, output_padding=1)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(x))), without normalisation."""

    def __init__(self, channels: int, kernel: int = 3) -> None:
        super().__init__()
        self.first = conv(channels, channels, kernel)
        self.second = conv(channels, channels, kernel)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(F.relu(self.first(x)))
        return x + y


def residual_blocks(count: int, channels: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(channels) for _ in range(count)))


class SplitConv(nn.Conv2d):
    """A 3x3 convolution over the concatenation [a, b] whose two halves can be computed apart.

    conv([a, b]) = of_first(a) + of_second(b), because a convolution is linear. Inside a recurrence this means
    that the half which does not depend on the state is computed once, ahead, for many frames.
    """

    def __init__(self, first: int, second: int, outputs: int) -> None:
        super().__init__(first + second, outputs, 3, padding=1)
        self.boundary = first

    def of_first(self, a: Tensor) -> Tensor:
        return F.conv2d(a, self.weight[:, : self.boundary], self.bias, padding=1)

    def of_second(self, b: Tensor) -> Tensor:
        return F.conv2d(b, self.weight[:, self.boundary :], padding=1)
