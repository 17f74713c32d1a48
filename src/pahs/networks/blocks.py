"""Layers that several networks share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.kernels import ops

SLOPE = 0.1
"""Slope of every LeakyReLU."""


class Conv(nn.Conv2d):
    """A convolution; on a GPU its bias is fused."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.conv(self, x)


class ConvTranspose(nn.ConvTranspose2d):
    """A transposed convolution; on a GPU its bias is added in one pass."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        return ops.conv_transpose(self, x) if output_size is None else super().forward(x, output_size)


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> Conv:
    """A convolution that keeps the size, or divides it by `stride`."""
    return Conv(inputs, outputs, kernel, stride, padding=kernel // 2)


def double(inputs: int, outputs: int) -> ConvTranspose:
    """A 3x3 transposed convolution that doubles height and width."""
    return ConvTranspose(inputs, outputs, 3, stride=2, padding=1, output_padding=1)


def leaky(x: Tensor) -> Tensor:
    return F.leaky_relu(x, SLOPE)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(x))), without normalisation."""

    def __init__(self, channels: int, kernel: int = 3) -> None:
        super().__init__()
        self.first = conv(channels, channels, kernel)
        self.second = conv(channels, channels, kernel)

    def forward(self, x: Tensor) -> Tensor:
        return ops.residual_block(self.first, self.second, x)


def residual_blocks(count: int, channels: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(channels) for _ in range(count)))


class SplitConv(nn.Conv2d):
    """A 3x3 convolution over the concatenation [a, b] whose two halves can be computed separately.

    conv([a, b]) = conv_a(a) + conv_b(b), because a convolution is linear. Inside a recurrence this means
    that the half which does not depend on the state is computed once, ahead, for many frames.
    """

    def __init__(self, first: int, second: int, outputs: int) -> None:
        super().__init__(first + second, outputs, 3, padding=1)
        self.boundary = first

    def of_first(self, a: Tensor) -> Tensor:
        return ops.conv_part(a, self.weight[:, : self.boundary], self.bias)

    def second(self) -> Tensor:
        """The weight of the second half, in one piece: cut it once where it is used several times."""
        return self.weight[:, self.boundary :].contiguous(memory_format=torch.channels_last)

    def add_second(self, of_first: Tensor, b: Tensor, weight: Tensor | None = None) -> Tensor:
        """of_first + conv_b(b); `weight` is `second()`, if the caller has it at hand."""
        return ops.conv_part(b, self.second() if weight is None else weight, residual=of_first)
