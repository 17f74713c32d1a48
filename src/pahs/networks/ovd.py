"""OVD: online video deblurring with dynamic temporal blending (Kim et al., 2017).

    f_B_n = encoder([B_{n-2} .. B_{n+2}])                          (32, H/2, W/2)
    h_n   = 4 residual blocks([f_B_n, f_{n-1}])                    (64)
    w_n   = clamp(|tanh(conv5x5([h_n, h~_{n-1}]))| + beta, 0, 1)
    h~_n  = w_n h_n + (1 - w_n) h~_{n-1}                           dynamic temporal blending
    d_n   = 4 residual blocks(h~_n)                                (64)
    f_n   = relu(conv3x3(d_n)),  L_n = image head(d_n)             (32), (3, H, W)

The window needs two future frames. Where it reaches over an end of the clip, the clip's first or last frame stands in
for what is missing, so that every frame is returned. Both states are zero before the first frame.

With `refine`, h~_{n-1} is replaced by refiner(f_B_n, f_{n-1}, h~_{n-1}) before the blending.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import conv
from pahs.networks.contract import Contract, Deblurrer, Tensors, per_frame
from pahs.networks.refine import RefineConfig, Refiner

REACH = 2
"""Frames that the window takes from either side of its centre."""


@dataclass(frozen=True)
class OVDConfig:
    """The defaults are the published network."""

    width: int = 64
    """Channels of h, even; f has half as many."""
    blocks: int = 4
    """Residual blocks in the encoder, and again in the decoder."""
    global_skip: bool = False
    """L_n = B_n + output. The published network has none."""
    refine: RefineConfig | None = None
    """PPRNN and SNLA on the blended state; None: the published network."""

    def __post_init__(self) -> None:
        if self.width < 2 or self.width % 2:
            raise ValueError(f"width is {self.width}; it must be even, 2 or more")
        at_least(1, self, "blocks")

    def build(self) -> OVD:
        return OVD(self)


class NormalisedBlock(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x))))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(channels, channels),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            conv(channels, channels),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


def normalised_blocks(count: int, channels: int) -> nn.Sequential:
    return nn.Sequential(*(NormalisedBlock(channels) for _ in range(count)))


class Blending(nn.Module):
    """Dynamic temporal blending: how much of the new state to take, per position and channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.compare = conv(2 * channels, channels, 5)
        self.beta = nn.Parameter(torch.zeros(()))

    def forward(self, new: Tensor, old: Tensor) -> Tensor:
        weight = torch.tanh(self.compare(torch.cat([new, old], 1))).abs() + self.beta
        weight = weight.clamp(0, 1)
        return weight * new + (1 - weight) * old


class OVD(Deblurrer):
    """Five frames in, the centre frame out; two frames of delay."""

    config: OVDConfig

    def __init__(self, config: OVDConfig) -> None:
        super().__init__()
        self.config = config
        width, half = config.width, config.width // 2
        self.encoder = nn.Sequential(
            conv(3 * (2 * REACH + 1), width, 5), nn.ReLU(), conv(width, half, stride=2), nn.ReLU()
        )
        self.residual = normalised_blocks(config.blocks, width)
        self.refiner = None if config.refine is None else Refiner(half, half, width, config.refine)
        self.blending = Blending(width)
        self.decoder = normalised_blocks(config.blocks, width)
        self.to_feature = conv(width, half)
        self.to_image = nn.Sequential(
            nn.ConvTranspose2d(width, width, 4, stride=2, padding=1), nn.ReLU(), conv(width, 3)
        )
        self.contract = Contract(
            family="recurrent",
            look_ahead=REACH,
            multiple_of=2 if config.refine is None else 8,
            extract_halo=0,
            reconstruct_halo=8,
        )

    def extract(self, frames: Tensor) -> Tensors:
        """The frames as they are: the first layer already reads the whole window."""
        return (frames,)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        (frames,) = features
        past = frames[:, :1].expand(-1, REACH, -1, -1, -1) if state is None else state[0]
        missing = max(0, keep + REACH - frames.shape[1])
        film = torch.cat([past, frames, frames[:, -1:].expand(-1, missing, -1, -1, -1)], 1)
        windows = torch.cat([film[:, k : k + keep] for k in range(2 * REACH + 1)], 2)
        f_B = per_frame(self.encoder, windows.to(self.to_feature.weight.dtype))
        reads: Tensors = ()
        if self.refiner is not None:
            parts = self.refiner.read(f_B.flatten(0, 1))
            reads = tuple(x.reshape(*f_B.shape[:2], *x.shape[1:]) for x in parts)
        if state is None:
            f = torch.zeros_like(f_B[:, 0])
            h = torch.cat([f, f], 1)
        else:
            _, f, h = state
        latents = []
        for t in range(keep):
            d, f, h = self.step(f_B[:, t], tuple(x[:, t] for x in reads), f, h)
            latents.append(d)
        # A copy, because a view would keep the whole chunk in memory until the next one has come.
        return (frames[:, :keep], torch.stack(latents, 1)), (film[:, keep : keep + REACH].clone(), f, h)

    def first_state(self, features: Tensors) -> Tensors:
        """The first frame again for the frames before it, f = 0, h~ = 0."""
        (frames,) = features
        b, _, _, height, width = frames.shape
        h = frames.new_zeros(b, self.config.width, height // 2, width // 2)
        return frames[:, :1].expand(-1, REACH, -1, -1, -1), h[:, ::2], h

    def step(self, f_B: Tensor, reads: Tensors, f: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One frame: d_n for the image, then f_n and h~_n for the next frame."""
        if self.refiner is not None:
            h = self.refiner.step(reads, f, h)
        h = self.blending(self.residual(torch.cat([f_B, f], 1)), h)
        d: Tensor = self.decoder(h)
        return d, F.relu(self.to_feature(d)), h

    def reconstruct(self, latents: Tensors) -> Tensor:
        frames, d = latents
        image = per_frame(self.to_image, d).to(frames.dtype)
        return frames + image if self.config.global_skip else image
