"""STFAN: spatio-temporal filter adaptive network (Zhou et al., 2019).

    E_t      = encoder(B_t)                                             (128, H/4, W/4)
    T        = kernel encoder([B_t, B_{t-1}, L_{t-1}])                  (128)
    K_align  = conv, 2 residual blocks, conv1x1 (T)                     (128 x 25)
    K_deblur = conv, 2 residual blocks, conv1x1 ([T, conv1x1(K_align)]) (128 x 25)
    a        = FAC(conv(fused_{t-1}), K_align)                          the past, aligned
    d        = FAC(E_t, K_deblur)
    fused_t  = [d, a]                                                   (256), also the state
    L_t      = B_t + decoder(fused_t)

Before the first frame, B_0 = L_0 = B_1 and fused_0 = [E_1, E_1]. The restored frame is an input of the next one, so the
decoder is part of the recurrence. With `refine`, conv(fused_{t-1}) goes through refiner(E_t, fused_{t-1}, .) before
it is aligned; with `refine_aligned`, a goes through it instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import SLOPE, conv, leaky
from pahs.networks.contract import Contract, Deblurrer, Tensors
from pahs.networks.fac import filter_adaptive_conv
from pahs.networks.refine import RefineConfig, Refiner

BLOCKS = 2
"""Residual blocks at every scale and in both kernel branches."""


@dataclass(frozen=True)
class STFANConfig:
    """The defaults are the published network."""

    width: int = 32
    """Channels at full resolution; 2 and 4 times as many at 1/2 and 1/4."""
    filter_size: int = 5
    """Height and width of the adaptive filters, odd."""
    refine: RefineConfig | None = None
    """PPRNN and SNLA on the feature of the past before it is aligned; None: the published network."""
    refine_aligned: bool = False
    """Refine after the alignment instead. The paper refines a hidden state where it is received: before."""

    def __post_init__(self) -> None:
        at_least(1, self, "width")
        if self.filter_size < 1 or self.filter_size % 2 == 0:
            raise ValueError(f"filter_size is {self.filter_size}; it must be odd")
        if self.refine_aligned and self.refine is None:
            raise ValueError("refine_aligned is set, but nothing is refined; set refine too")

    def build(self) -> STFAN:
        return STFAN(self)


class LeakyBlock(nn.Module):
    """x + conv(leaky relu(conv(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = conv(channels, channels)
        self.second = conv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(leaky(self.first(x)))
        return x + y


def stage(layer: nn.Module, channels: int) -> nn.Sequential:
    """A layer, its activation, and the residual blocks that follow it."""
    return nn.Sequential(layer, nn.LeakyReLU(SLOPE), *(LeakyBlock(channels) for _ in range(BLOCKS)))


def encoder(inputs: int, width: int) -> nn.Sequential:
    """(inputs, H, W) -> (4 width, H/4, W/4)."""
    return nn.Sequential(
        stage(conv(inputs, width), width),
        stage(conv(width, 2 * width, stride=2), 2 * width),
        stage(conv(2 * width, 4 * width, stride=2), 4 * width),
    )


def decoder(width: int) -> nn.Sequential:
    """(8 width, H/4, W/4) -> (3, H, W)."""
    return nn.Sequential(
        stage(nn.ConvTranspose2d(8 * width, 2 * width, 4, stride=2, padding=1), 2 * width),
        stage(nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), width),
        conv(width, 3),
    )


class STFAN(Deblurrer):
    """One frame in, one frame out, without delay."""

    config: STFANConfig

    def __init__(self, config: STFANConfig) -> None:
        super().__init__()
        self.config = config
        width, deep = config.width, 4 * config.width
        taps = deep * config.filter_size**2
        self.encoder = encoder(3, width)
        self.kernel_encoder = encoder(9, width)
        self.to_align = nn.Sequential(stage(conv(deep, deep), deep), conv(deep, taps, 1))
        self.from_align = nn.Sequential(conv(taps, deep, 1), nn.LeakyReLU(SLOPE))
        self.to_deblur = nn.Sequential(stage(conv(2 * deep, deep), deep), conv(deep, taps, 1))
        self.recall = nn.Sequential(conv(2 * deep, deep), nn.LeakyReLU(SLOPE))
        self.refiner = None if config.refine is None else Refiner(deep, 2 * deep, deep, config.refine)
        self.decoder = decoder(width)
        self.contract = Contract(
            family="recurrent",
            look_ahead=0,
            multiple_of=4 if config.refine is None else 16,
            extract_halo=48,
            reconstruct_halo=0,
        )

    def extract(self, frames: Tensor) -> Tensors:
        """The frames, E_t, and what the refiner reads from E_t."""
        E = self.encoder(frames.flatten(0, 1).to(next(self.parameters()).dtype))
        parts: Tensors = (E,) if self.refiner is None else (E, *self.refiner.read(E))
        return frames, *(x.reshape(*frames.shape[:2], *x.shape[1:]) for x in parts)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        """The latents are the restored frames themselves; the state is (B, L, fused) of the last frame."""
        frames, E, *reads = features
        if state is None:
            state = self.first_state(features)
        restored = []
        for t in range(keep):
            B, (B_last, L_last, fused) = frames[:, t], state
            fused = self.step(
                torch.cat([B, B_last, L_last], 1), E[:, t], tuple(x[:, t] for x in reads), fused
            )
            L = B + self.decoder(fused).to(B.dtype)
            restored.append(L)
            state = (B, L, fused)
        # A copy of B, because a view would keep the whole chunk in memory until the next one has come.
        return (torch.stack(restored, 1),), (state[0].clone(), *state[1:])

    def first_state(self, features: Tensors) -> Tensors:
        """B_0 = L_0 = B_1, fused_0 = [E_1, E_1]."""
        B, E = features[0][:, 0], features[1][:, 0]
        return B, B, torch.cat([E, E], 1)

    def step(self, seen: Tensor, E: Tensor, reads: Tensors, fused: Tensor) -> Tensor:
        """The fused feature of this frame, from the nine channels seen, E_t and the last fused feature."""
        size = self.config.filter_size
        T = self.kernel_encoder(seen.to(E.dtype))
        K_align = self.to_align(T)
        K_deblur = self.to_deblur(torch.cat([T, self.from_align(K_align)], 1))
        past = self.recall(fused)
        if self.refiner is not None and not self.config.refine_aligned:
            past = self.refiner.step(reads, fused, past)
        a = filter_adaptive_conv(past, K_align, size)
        if self.refiner is not None and self.config.refine_aligned:
            a = self.refiner.step(reads, fused, a)
        d = filter_adaptive_conv(E, K_deblur, size)
        return torch.cat([d, a], 1)

    def reconstruct(self, latents: Tensors) -> Tensor:
        """The latents as they are: `propagate` has restored the frames, because each needs the one before."""
        return latents[0]
