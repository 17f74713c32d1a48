"""ESTRNN: residual dense recurrence and global spatio-temporal attention (Zhong et al., 2020).

    f_B_t = encoder(B_t)                                                (4n, H/4, W/4)
    H_t   = F_R([f_B_t, s_{t-1}])                                       (5n), B residual dense blocks
    s_t   = F_h(H_t)                                                    (n)
    L_t   = decoder(attention(H_{t-2} .. H_{t+2}))                      (25n) -> (3, H, W)

The attention needs the features of two future frames; they are computed once and kept in the state. Where it reaches
over an end of the clip, the feature of the first or last frame stands in for what is missing, so that every frame is
returned. s is zero before the first frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import conv, double
from pahs.networks.contract import Contract, Deblurrer, Tensors, per_frame

REACH = 2
"""Frames that the attention takes from either side of its centre."""
LAYERS = 3
"""Convolutions in a residual dense block."""


@dataclass(frozen=True)
class ESTRNNConfig:
    """The defaults are C80B15."""

    width: int = 16
    """n: channels at full resolution, and of the hidden state. C = 5n."""
    blocks: int = 15
    """B: residual dense blocks in F_R."""
    global_skip: bool = False
    """L_t = B_t + output. The published network has none."""

    def __post_init__(self) -> None:
        if self.width < 2 or self.width % 2:
            raise ValueError(f"width is {self.width}; it must be even, 2 or more")
        at_least(1, self, "blocks")

    def build(self) -> ESTRNN:
        return ESTRNN(self)


class DenseBlock(nn.Module):
    """A residual dense block: every layer reads all before it, a 1x1 convolution merges them, + x."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv(channels + i * growth, growth) for i in range(LAYERS))
        self.merge = conv(channels + LAYERS * growth, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        known = x
        for layer in self.layers:
            known = torch.cat([known, F.gelu(layer(known))], 1)
        y: Tensor = self.merge(known)
        return x + y


class DenseStack(nn.Module):
    """F_R: the outputs of all blocks, merged."""

    def __init__(self, channels: int, growth: int, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DenseBlock(channels, growth) for _ in range(count))
        self.merge = nn.Sequential(conv(count * channels, channels, 1), conv(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        y: Tensor = self.merge(torch.cat(outputs, 1))
        return y


class Attention(nn.Module):
    """Global spatio-temporal attention: each neighbour adds to the centre, gated by the global means of both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        pair = 2 * channels
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), conv(pair, 2 * pair, 1), nn.GELU(), conv(2 * pair, pair, 1), nn.Sigmoid()
        )
        self.body = nn.Sequential(conv(pair, 2 * pair, 1), nn.GELU(), conv(2 * pair, pair, 1))
        self.out = conv(pair, channels, 1)
        self.merge = conv((2 * REACH + 1) * channels, (2 * REACH + 1) * channels, 1)

    def compare(self, centre: Tensor, neighbour: Tensor) -> Tensor:
        both = torch.cat([centre, neighbour], 1)
        y: Tensor = self.out(self.body(both) * self.gate(both))
        return y

    def forward(self, window: list[Tensor]) -> Tensor:
        """`window` is H_{t-2} .. H_{t+2} of a batch of frames."""
        centre = window[REACH]
        parts = [self.compare(centre, H) for i, H in enumerate(window) if i != REACH]
        y: Tensor = self.merge(torch.cat([*parts, centre], 1))
        return y


class ESTRNN(Deblurrer):
    """A causal recurrence whose output looks two frames to either side; two frames of delay."""

    config: ESTRNNConfig

    def __init__(self, config: ESTRNNConfig) -> None:
        super().__init__()
        self.config = config
        n = config.width
        self.encoder = nn.Sequential(
            conv(3, n, 5),
            DenseBlock(n, n),
            conv(n, 2 * n, 5, stride=2),
            DenseBlock(2 * n, 3 * n // 2),
            conv(2 * n, 4 * n, 5, stride=2),
        )
        self.residual = DenseStack(5 * n, 2 * n, config.blocks)
        self.to_hidden = nn.Sequential(conv(5 * n, n), DenseBlock(n, n), conv(n, n))
        self.attention = Attention(5 * n)
        self.decoder = nn.Sequential(
            double(25 * n, 2 * n), nn.GELU(), double(2 * n, n), nn.GELU(), conv(n, 3, 5)
        )
        self.contract = Contract(
            family="recurrent", look_ahead=REACH, multiple_of=4, extract_halo=32, reconstruct_halo=16
        )

    def extract(self, frames: Tensor) -> Tensors:
        return frames, per_frame(self.encoder, frames.to(self.attention.merge.weight.dtype))

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        """The state is s after the last frame seen, H of the two frames before the next, and H of those seen ahead."""
        frames, f_B = features
        known: list[Tensor] = []
        if state is None:
            s = torch.zeros_like(f_B[:, 0, : self.config.width])
        else:
            s, past, ahead = state
            known += ahead.unbind(1)
        for t in range(len(known), min(keep + REACH, f_B.shape[1])):
            known.append(self.residual(torch.cat([f_B[:, t], s], 1)))
            s = self.to_hidden(known[-1])
        before = [known[0]] * REACH if state is None else list(past.unbind(1))
        after = [known[-1]] * (keep + REACH - len(known))
        H = torch.stack([*before, *known, *after], 1)
        window = [H[:, k : k + keep].flatten(0, 1) for k in range(2 * REACH + 1)]
        fused = self.attention(window).unflatten(0, (H.shape[0], keep))
        # Copies, because views would keep the whole chunk in memory until the next one has come.
        past, ahead = H[:, keep : keep + REACH].clone(), H[:, keep + REACH : REACH + len(known)].clone()
        return (frames[:, :keep], fused), (s, past, ahead)

    def first_state(self, features: Tensors) -> Tensors:
        """s = 0, the first frame's H for those before it, and nothing ahead."""
        f_B = features[1][:, 0]
        s = torch.zeros_like(f_B[:, : self.config.width])
        H = self.residual(torch.cat([f_B, s], 1)).unsqueeze(1)
        return s, H.expand(-1, REACH, -1, -1, -1), H[:, :0]

    def reconstruct(self, latents: Tensors) -> Tensor:
        frames, fused = latents
        image = per_frame(self.decoder, fused).to(frames.dtype)
        return frames + image if self.config.global_skip else image
