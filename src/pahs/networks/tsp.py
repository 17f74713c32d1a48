"""TSP (Pan et al. 2020, CDVD-TSP): cascaded deblurring of five frames with a temporal sharpness prior.

ONE net restores the middle of three frames. It is used four times in a window of five: on the blurry frames for
frames 2, 3 and 4, then on these three results for frame 3. The neighbours are warped to the middle one by PWC-Net,
which is trained jointly. A first result depends on three blurry frames alone, so windows that overlap share it: in
a stream each frame costs two uses of the net and four flows, not four and eight.

    extract      the frame, and its PWC-Net pyramid
    propagate    first stage of the frames around; flow, warp and sharpness prior of the second stage
    reconstruct  the net of the second stage

Where the window reaches past an end of the clip, the nearest blurry frame is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import ResidualBlock, conv, double
from pahs.networks.contract import Contract, Deblurrer, Tensors
from pahs.networks.pwcnet import PWCConfig
from pahs.networks.sampling import remember, timeline, warp

KERNEL = 5
MIDDLE = slice(3, 6)
"""Channels of the middle frame in the net's input."""


@dataclass(frozen=True)
class TSPConfig:
    """Everything that tells one TSP from another; the defaults are the published network."""

    width: int = 32
    """Channels at full size; the scales below have two and four times as many."""
    blocks: int = 3
    """Residual blocks of each of the six stages."""
    global_skip: bool = False
    """Add the middle frame to the output: the network learns what to change. Not in the published network."""
    flow: PWCConfig = field(default_factory=PWCConfig)
    """PWC-Net."""

    def __post_init__(self) -> None:
        at_least(1, self, "width", "blocks")

    def build(self) -> TSP:
        return TSP(self)


class RestorationNet(nn.Module):
    """Ten channels (three aligned frames and the prior) -> the middle frame, sharp."""

    def __init__(self, config: TSPConfig) -> None:
        super().__init__()
        full, half, quarter = config.width, 2 * config.width, 4 * config.width

        def blocks(channels: int) -> list[nn.Module]:
            return [ResidualBlock(channels, KERNEL) for _ in range(config.blocks)]

        self.enter = nn.Sequential(conv(10, full, KERNEL), nn.ReLU(), *blocks(full))
        self.to_half = nn.Sequential(conv(full, half, KERNEL, stride=2), nn.ReLU(), *blocks(half))
        self.to_quarter = nn.Sequential(conv(half, quarter, KERNEL, stride=2), nn.ReLU(), *blocks(quarter))
        self.from_quarter = nn.Sequential(*blocks(quarter), double(quarter, half), nn.ReLU())
        self.from_half = nn.Sequential(*blocks(half), double(half, full), nn.ReLU())
        self.leave = nn.Sequential(*blocks(full), conv(full, 3, KERNEL))

    @property
    def precision(self) -> torch.dtype:
        """The type of the weights."""
        return next(self.parameters()).dtype

    def forward(self, x: Tensor) -> Tensor:
        full = self.enter(x)
        half = self.to_half(full)
        half = self.from_quarter(self.to_quarter(half)) + half
        y: Tensor = self.leave(self.from_half(half) + full)
        return y


def sharpness_prior(middle: Tensor, warped: Tensors, inside: Tensors) -> Tensor:
    """exp(-sqrt(sum over neighbours and colours of (I_i - I_mid)^2 / 2)) where all warped neighbours are valid.

    Near one where the frames agree after warping, which they do where they are sharp. I is 5x5 mean-filtered; no
    gradient passes.
    """
    centre = smooth(middle)
    apart = torch.cat([(smooth(x) - centre) ** 2 for x in warped], 1).sum(1, keepdim=True)
    valid = torch.cat(inside, 1).amin(1, keepdim=True)
    return torch.exp(-torch.sqrt(apart / 2)) * valid


def smooth(image: Tensor) -> Tensor:
    """5x5 mean; at the border, the mean of the pixels inside."""
    return F.avg_pool2d(image.detach(), 5, stride=1, padding=2, count_include_pad=False)


class TSP(Deblurrer):
    """The network. Its state: the first results of the last frame and of the one to come, with their pyramids."""

    config: TSPConfig

    def __init__(self, config: TSPConfig) -> None:
        super().__init__()
        self.config = config
        self.flow = config.flow.build()
        self.net = RestorationNet(config)
        # Pixels of context: a block reaches 4 at its scale, an entry 2, a transposed convolution 1.
        blocks = 4 * config.blocks * 2 * (1 + 2 + 4)
        self.contract = Contract(
            family="windowed",
            look_ahead=2,
            multiple_of=4,
            reconstruct_halo=blocks + 2 + 2 + 4 + 4 + 2 + 2,
        )

    def extract(self, frames: Tensor) -> Tensors:
        """The frames, then their PWC-Net pyramids."""
        pyramid = self.pyramid(frames.flatten(0, 1))
        return frames, *(x.reshape(*frames.shape[:2], *x.shape[1:]) for x in pyramid)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        """Latents: the first result of the frame between its warped neighbours', and their sharpness prior."""
        line = timeline(features, None, 1, 2, keep)
        if state is None:
            # Before the first frame stands a copy of it, with copies of it for neighbours.
            firsts = [self.restored(line[0], line[0], line[0]), self.restored(*line[:3])]
        else:
            firsts = [tuple(x[:, i] for x in state) for i in range(2)]
        stacks = []
        for t in range(keep):
            # line[t + 1] is frame t, and the last first result that frame t needs is frame t + 1's.
            firsts = [*firsts[-2:], self.restored(*line[t + 1 : t + 4])]
            stacks.append(self.stack(*firsts))
        return (torch.stack(stacks, 1),), remember(firsts[-2:])

    def reconstruct(self, latents: Tensors) -> Tensor:
        (stacks,) = latents
        images = self.restore(stacks.flatten(0, 1))
        return images.reshape(*stacks.shape[:2], *images.shape[1:])

    def training_outputs(self, clip: Tensor) -> Tensors:
        """First and second results of a whole clip: the published loss is taken on both."""
        (stacks,), _ = self.propagate(self.extract(clip), None, clip.shape[1])
        return stacks[:, :, MIDDLE], self.reconstruct((stacks,))

    def pyramid(self, images: Tensor) -> Tensors:
        return self.flow.pyramid(images.to(self.net.precision))

    def stack(self, before: Tensors, middle: Tensors, after: Tensors) -> Tensor:
        """Three frames with their pyramids -> the net's ten channels."""
        # Both neighbours at once, as a batch of twice the size.
        others = [torch.cat(pair) for pair in zip(before, after, strict=True)]
        flow = self.flow(tuple(torch.cat((x, x)) for x in middle[1:]), tuple(others[1:]))
        warped, inside = (x.chunk(2) for x in warp(others[0], flow))
        prior = sharpness_prior(middle[0], warped, inside)
        return torch.cat((warped[0], middle[0], warped[1], prior), 1)

    def restore(self, stack: Tensor) -> Tensor:
        # The stack keeps the frames' precision, which the weights' may be too coarse for.
        sharp: Tensor = self.net(stack.to(self.net.precision)).to(stack.dtype)
        return stack[:, MIDDLE] + sharp if self.config.global_skip else sharp

    def restored(self, before: Tensors, middle: Tensors, after: Tensors) -> Tensors:
        """The first result for the middle frame, with its pyramid."""
        image = self.restore(self.stack(before, middle, after))
        return image, *self.pyramid(image)
