"""IFI-RNN: intra-frame iterations (Nah et al., 2019), configuration C2H3.

    f_B = F_B(B_t)                                              (60, H/4, W/4), each cell its own
    f_L = F_R([f_B, h]),  h = F_h(f_L)                          one pass of a cell: (80), (20)

For every frame the first cell passes once and the second cell three times, all on the same frame, each replacing h.
Only the last f_L is decoded: L_t = F_L(f_L). The hidden state before the first frame is zero.

With `refine`, the first pass begins with h~ = refiner(f_B, f_L_{t-1}, h), where f_B is that of the first cell; all else
stays as it is. With `iterations_replaced`, PPRNN replaces the iterations: one cell, one pass, on h~.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import ResidualBlock, conv, double, residual_blocks
from pahs.networks.contract import Contract, Deblurrer, Tensors, per_frame
from pahs.networks.refine import RefineConfig, Refiner

# Context in pixels of the frame (8 for the convolutions either way, 12 with the refiner's), in whole tokens of SNLA.
ENCODER_HALO = 16
DECODER_HALO = 16


@dataclass(frozen=True)
class IFIRNNConfig:
    """The defaults are the published C2H3."""

    width: int = 20
    """Channels at full resolution, and of the hidden state; 2 and 3 times as many at 1/2 and 1/4."""
    blocks: int = 6
    """Residual blocks in F_R."""
    iterations: int = 3
    """H: passes of the second cell on one frame. Without effect when they are replaced."""
    global_skip: bool = False
    """L_t = B_t + output. The published network has none."""
    refine: RefineConfig | None = None
    """PPRNN and SNLA before the first pass; None: the published network."""
    iterations_replaced: bool = False
    """PPRNN and SNLA in place of the iterations: the first cell is left out and the second passes once."""

    def __post_init__(self) -> None:
        at_least(1, self, "width", "blocks", "iterations")
        if self.iterations_replaced and self.refine is None:
            raise ValueError("iterations_replaced is set, but nothing replaces them; set refine too")

    def build(self) -> IFIRNN:
        return IFIRNN(self)


def encoder(width: int) -> nn.Sequential:
    """F_B: (3, H, W) -> (3 width, H/4, W/4)."""
    return nn.Sequential(
        conv(3, width, 5),
        nn.ReLU(),
        conv(width, 2 * width, 5, stride=2),
        nn.ReLU(),
        conv(2 * width, 3 * width, 5, stride=2),
    )


def decoder(width: int) -> nn.Sequential:
    """F_L: (4 width, H/4, W/4) -> (3, H, W)."""
    return nn.Sequential(
        double(4 * width, 2 * width),
        nn.ReLU(),
        double(2 * width, width),
        nn.ReLU(),
        conv(width, 3, 5),
    )


class Cell(nn.Module):
    """One pass over a frame, from f_B and h to f_L and the next h."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.encoder = encoder(width)
        self.residual = residual_blocks(blocks, 4 * width)
        self.to_hidden = nn.Sequential(conv(4 * width, width), ResidualBlock(width), conv(width, width))

    def forward(self, f_B: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        f_L: Tensor = self.residual(torch.cat([f_B, h], 1))
        return f_L, self.to_hidden(f_L)


class IFIRNN(Deblurrer):
    """One frame in, one frame out, without delay."""

    config: IFIRNNConfig

    def __init__(self, config: IFIRNNConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.opening = None if config.iterations_replaced else Cell(width, config.blocks)
        self.cell = Cell(width, config.blocks)
        self.refiner = None if config.refine is None else Refiner(3 * width, 4 * width, width, config.refine)
        self.decoder = decoder(width)
        self.contract = Contract(
            family="recurrent",
            look_ahead=0,
            multiple_of=4 if config.refine is None else 16,
            extract_halo=ENCODER_HALO,
            reconstruct_halo=DECODER_HALO,
        )

    def extract(self, frames: Tensor) -> Tensors:
        """The frames, f_B of the iterated cell, f_B of the opening cell, and what the refiner reads from the latter."""
        images = frames.flatten(0, 1).to(next(self.parameters()).dtype)
        f_B = self.cell.encoder(images)
        parts: Tensors = (f_B,)
        if self.opening is not None:
            f_B = self.opening.encoder(images)
            parts += (f_B,)
        if self.refiner is not None:
            parts += self.refiner.read(f_B)
        return frames, *(x.reshape(*frames.shape[:2], *x.shape[1:]) for x in parts)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        frames, f_B, *others = features
        f_L, h = self.first_state(features) if state is None else state
        latents = []
        for t in range(keep):
            other = tuple(x[:, t] for x in others)
            f_L, h = self.step(f_B[:, t], other, f_L, h)
            latents.append(f_L)
        return (frames[:, :keep], torch.stack(latents, 1)), (f_L, h)

    def first_state(self, features: Tensors) -> Tensors:
        """The state before the first frame: f_L = 0, h = 0."""
        f_B, channels = features[1], self.config.width
        b, _, _, height, width = f_B.shape
        return f_B.new_zeros(b, 4 * channels, height, width), f_B.new_zeros(b, channels, height, width)

    def step(self, f_B: Tensor, other: Tensors, f_L: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One frame: all passes, with f_L of the last one."""
        opening, reads = (other[:1], other[1:]) if self.opening is not None else ((), other)
        if self.refiner is not None:
            h = self.refiner.step(reads, f_L, h)
        if self.opening is None:
            return self.cell(f_B, h)  # type: ignore[no-any-return]
        _, h = self.opening(*opening, h)
        for _ in range(self.config.iterations):
            f_L, h = self.cell(f_B, h)
        return f_L, h

    def reconstruct(self, latents: Tensors) -> Tensor:
        frames, f_L = latents
        image = per_frame(self.decoder, f_L).to(frames.dtype)
        return frames + image if self.config.global_skip else image
