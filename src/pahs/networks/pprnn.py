"""Ping-Pong RNN (paper, section 3.1; supplementary table "PPRNN" and algorithm 1).

    h(0) = h_{t-1}
    g(i) = M_P(f_B_t,     h(i-1))
    h(i) = M_P(f_L_{t-1}, g(i))        i = 1 .. n

M_P, shared by all steps: concat, conv 3x3, one residual block, conv 3x3. Its first convolution is linear in the
concatenation, so the part that reads f_B or f_L is computed once per frame (`read`) and not once per step.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Literal

from torch import Tensor, nn

from pahs.kernels import ops
from pahs.networks.blocks import ResidualBlock, SplitConv, conv

Inputs = Literal["both", "current", "past", "none"]
Order = Literal["current-first", "past-first"]


class PPRNN(nn.Module):
    """Refines a hidden state by looking at the current and the past feature in turns."""

    def __init__(self, feature: int, hidden: int, count: int, inputs: Inputs, order: Order) -> None:
        super().__init__()
        self.count = count
        self.inputs = inputs
        self.order = order
        self.mix = SplitConv(feature, hidden, hidden)
        self.residual = ResidualBlock(hidden)
        self.out = conv(hidden, hidden)

    def read(self, feature: Tensor) -> Tensor:
        """The part of M_P that depends on a feature (f_B or f_L) alone."""
        return self.mix.of_first(feature)

    def block(self, read: Tensor, h: Tensor, weight: Tensor | None = None) -> Tensor:
        """M_P, with the feature already read; `weight` is that of `mix.second`."""
        h = self.out(self.residual(self.mix.add_second(read, h, weight)))
        return h

    def forward(self, current: Tensor | None, past: Tensor | None, h: Tensor) -> Tensor:
        """`current` is `read(f_B_t)` and `past` is `read(f_L_{t-1})`; None for an input that is switched off.

        With one input only, every ping and every pong reads it: the number of updates stays the same.
        """
        turns = [current, past] if self.order == "current-first" else [past, current]
        used = [read for read in turns if read is not None]
        weight, block = self.mix.second(), self.residual
        if ops.trains_ping_pong(h, weight):
            return ops.ping_pong(h, used, 2 * self.count, weight, block.first, block.second, self.out)
        for read in islice(cycle(used), 2 * self.count):
            h = self.block(read, h, weight)
        return h
