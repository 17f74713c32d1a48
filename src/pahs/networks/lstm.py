"""A convolutional LSTM between IFI-RNN's encoder and decoder ("LSTM" in the paper's generalisation table).

    x             = F_B(B_t)                                       (60, H/4, W/4)
    i, f, o, g    = conv3x3([x, h])                                (80 each)
    c             = sigmoid(f) c + sigmoid(i) tanh(g)
    h             = sigmoid(o) tanh(c)
    f_L           = residual blocks(h),  L_t = F_L(f_L)            (80)

Both states are zero before the first frame. With `refine`, h~ = refiner(x, f_L_{t-1}, h) enters the gates; c is left
alone. f_L is then part of the recurrence; without `refine` it is not, and all frames are decoded as one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import conv, residual_blocks
from pahs.networks.contract import Contract, Deblurrer, Tensors, per_frame
from pahs.networks.ifirnn import DECODER_HALO, ENCODER_HALO, decoder, encoder
from pahs.networks.refine import RefineConfig, Refiner

QUARTER = 4


@dataclass(frozen=True)
class LSTMConfig:
    """The sizes follow IFI-RNN; the paper gives none."""

    width: int = 20
    """Channels at full resolution; 3 times as many enter the gates, 4 times as many are in h and c."""
    kernel: int = 3
    """Size of the gates' convolution, odd."""
    blocks: int = 6
    """Residual blocks of the decoder at 1/4 resolution."""
    global_skip: bool = False
    """L_t = B_t + output."""
    refine: RefineConfig | None = None
    """PPRNN and SNLA on h before the gates; None: the plain LSTM."""

    def __post_init__(self) -> None:
        at_least(1, self, "width", "blocks")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; it must be odd")

    def build(self) -> LSTM:
        return LSTM(self)


class Gates(nn.Module):
    """One step of a convolutional LSTM."""

    def __init__(self, inputs: int, hidden: int, kernel: int) -> None:
        super().__init__()
        self.conv = conv(inputs + hidden, 4 * hidden, kernel)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        # The half that reads x is not computed ahead: the queue would hold five times as much for every frame.
        i, f, o, g = self.conv(torch.cat([x, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class LSTM(Deblurrer):
    """One frame in, one frame out, without delay."""

    config: LSTMConfig

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        inputs, self.hidden = 3 * config.width, 4 * config.width
        self.encoder = encoder(config.width)
        self.gates = Gates(inputs, self.hidden, config.kernel)
        self.residual = residual_blocks(config.blocks, self.hidden)
        self.decoder = decoder(config.width)
        self.refiner = (
            None if config.refine is None else Refiner(inputs, self.hidden, self.hidden, config.refine)
        )
        # Two 3x3 convolutions a block, one position of 1/4 resolution each; rounded up to whole tokens of SNLA.
        in_reconstruct = 0 if self.refiner is not None else -(-2 * QUARTER * config.blocks // 16) * 16
        self.contract = Contract(
            family="recurrent",
            look_ahead=0,
            multiple_of=QUARTER if config.refine is None else 16,
            extract_halo=ENCODER_HALO,
            reconstruct_halo=DECODER_HALO + in_reconstruct,
        )

    def extract(self, frames: Tensor) -> Tensors:
        """The frames, x, and what the refiner reads from x."""
        x = self.encoder(frames.flatten(0, 1).to(self.gates.conv.weight.dtype))
        parts: Tensors = (x,) if self.refiner is None else (x, *self.refiner.read(x))
        return frames, *(y.reshape(*frames.shape[:2], *y.shape[1:]) for y in parts)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        frames, xs, *reads = features
        if state is None:
            state = self.first_state(features)
        latents = []
        for t in range(keep):
            h, c, *past = state
            if self.refiner is None:
                state = self.gates(xs[:, t], h, c)
                latents.append(state[0])
            else:
                h = self.refiner.step(tuple(read[:, t] for read in reads), past[0], h)
                h, c = self.gates(xs[:, t], h, c)
                state = h, c, self.residual(h)
                latents.append(state[2])
        return (frames[:, :keep], torch.stack(latents, 1)), state

    def first_state(self, features: Tensors) -> Tensors:
        """h = 0, c = 0, and with a refiner f_L = 0."""
        xs = features[1]
        zero = xs.new_zeros(xs.shape[0], self.hidden, *xs.shape[3:])
        return (zero, zero) if self.refiner is None else (zero, zero, zero)

    def reconstruct(self, latents: Tensors) -> Tensor:
        """The decoder reads h, or f_L where the recurrence has computed it already."""
        frames, latent = latents
        f_L = per_frame(self.residual, latent) if self.refiner is None else latent
        image = per_frame(self.decoder, f_L).to(frames.dtype)
        return frames + image if self.config.global_skip else image
