"""EDVR (Wang et al. 2019), as configured for deblurring: five frames -> the centre frame, no recurrence.

    extract      conv, two strided convs, pre-deblur pyramid, residual blocks -> features at 1/4, 1/8, 1/16
    propagate    PCD aligns each of the five frames to the centre; TSA weighs and fuses them
    reconstruct  residual blocks, two pixel shuffles, + the centre frame

PCD: pyramid, cascading and deformable alignment. TSA: temporal and spatial attention. Where the window reaches
past an end of the clip, the nearest frame is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import SLOPE, ResidualBlock, conv, leaky, residual_blocks
from pahs.networks.contract import Contract, Deblurrer, Tensors, per_frame
from pahs.networks.sampling import DeformableConv, remember, timeline

LEVELS = 3


@dataclass(frozen=True)
class EDVRConfig:
    """Everything that tells one EDVR from another; the defaults are the large network for deblurring."""

    width: int = 128
    """Channels of every feature."""
    reach: int = 2
    """Frames of the window on each side of the centre."""
    groups: int = 8
    """Groups of channels that move together in a deformable convolution."""
    predeblur: bool = True
    """A pyramid of residual blocks before alignment."""
    strided_convs: bool = True
    """Two convolutions of stride 2 lead to 1/4. Without them, as in the network for super-resolution, the first
    convolution has stride 4 here, because the input of that network is small already."""
    extract_blocks: int = 5
    """Residual blocks of each frame before alignment."""
    trunk_blocks: int = 40
    """Residual blocks after fusion."""
    output_width: int = 64
    """Channels at full size."""

    def __post_init__(self) -> None:
        if self.groups < 1 or self.width < 1 or self.width % self.groups:
            raise ValueError(f"width is {self.width}; it must be a multiple of groups, {self.groups}")
        at_least(1, self, "reach")

    def build(self) -> EDVR:
        return EDVR(self)


def up(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class Predeblur(nn.Module):
    """A pyramid over 1/4, 1/8 and 1/16 with 5, 2 and 1 residual blocks, the coarse joined into the fine."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_eighth = conv(width, width, stride=2)
        self.to_sixteenth = conv(width, width, stride=2)
        self.sixteenth = ResidualBlock(width)
        self.eighth = nn.ModuleList(residual_blocks(2, width))
        self.before_join = residual_blocks(2, width)
        self.after_join = residual_blocks(3, width)

    def forward(self, quarter: Tensor) -> Tensor:
        eighth = leaky(self.to_eighth(quarter))
        sixteenth = self.sixteenth(leaky(self.to_sixteenth(eighth)))
        eighth = self.eighth[1](self.eighth[0](eighth) + up(sixteenth))
        y: Tensor = self.after_join(self.before_join(quarter) + up(eighth))
        return y


class Extractor(nn.Module):
    """One frame -> its features at 1/4, 1/8 and 1/16."""

    def __init__(self, config: EDVRConfig) -> None:
        super().__init__()
        c = config.width
        two = [conv(3, c), conv(c, c, stride=2), conv(c, c, stride=2)]
        self.shrink = nn.ModuleList(two if config.strided_convs else [conv(3, c, stride=4)])
        self.predeblur = (
            nn.Sequential(Predeblur(c), nn.Conv2d(c, c, 1)) if config.predeblur else nn.Identity()
        )
        self.residual = residual_blocks(config.extract_blocks, c)
        self.coarser = nn.ModuleList(
            nn.Sequential(conv(c, c, stride=2), nn.LeakyReLU(SLOPE), conv(c, c), nn.LeakyReLU(SLOPE))
            for _ in range(LEVELS - 1)
        )

    def forward(self, x: Tensor) -> Tensors:
        for layer in self.shrink:
            x = leaky(layer(x))
        levels = [self.residual(self.predeblur(x))]
        for layers in self.coarser:
            levels.append(layers(levels[-1]))
        return tuple(levels)


class AlignLevel(nn.Module):
    """Alignment at one scale, helped by the offsets and the result of the next coarser one."""

    def __init__(self, width: int, groups: int, coarsest: bool) -> None:
        super().__init__()
        self.compare = conv(2 * width, width)
        self.join_offsets = None if coarsest else conv(2 * width, width)
        self.offsets = conv(width, width)
        self.move = DeformableConv(width, groups)
        self.join_features = None if coarsest else conv(2 * width, width)

    def forward(self, neighbour: Tensor, centre: Tensor, coarser: Tensors | None) -> Tensors:
        """The features that offsets are predicted from, and the aligned neighbour before its activation."""
        offsets = leaky(self.compare(torch.cat((neighbour, centre), 1)))
        if coarser is not None and self.join_offsets is not None:
            # A pixel of the coarser level is two pixels here.
            offsets = leaky(self.join_offsets(torch.cat((offsets, 2 * up(coarser[0])), 1)))
        offsets = leaky(self.offsets(offsets))
        aligned: Tensor = self.move(neighbour, offsets)
        if coarser is not None and self.join_features is not None:
            aligned = self.join_features(torch.cat((aligned, up(leaky(coarser[1]))), 1))
        return offsets, aligned


class PCD(nn.Module):
    """Alignment of a neighbour to the centre frame from 1/16 to 1/4, then once more at 1/4."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList(AlignLevel(width, groups, i == LEVELS - 1) for i in range(LEVELS))
        self.compare = conv(2 * width, width)
        self.offsets = conv(width, width)
        self.move = DeformableConv(width, groups)

    def forward(self, neighbour: Tensors, centre: Tensors) -> Tensor:
        coarser: Tensors | None = None
        for i in reversed(range(LEVELS)):
            coarser = self.levels[i](neighbour[i], centre[i], coarser)
        assert coarser is not None
        aligned = coarser[1]
        offsets = leaky(self.offsets(leaky(self.compare(torch.cat((aligned, centre[0]), 1)))))
        return leaky(self.move(aligned, offsets))


class TSA(nn.Module):
    """Fusion: frames weighed by how well they agree with the centre, then a pyramid of spatial attention."""

    def __init__(self, width: int, frames: int) -> None:
        super().__init__()
        c = width
        self.of_centre = conv(c, c)
        self.of_frame = conv(c, c)
        self.fuse = nn.Conv2d(frames * c, c, 1)
        self.enter = nn.Conv2d(frames * c, c, 1)
        self.to_half = nn.Conv2d(2 * c, c, 1)
        self.at_half = conv(c, c)
        self.to_quarter = nn.Conv2d(c, c, 1)
        self.at_quarter = nn.ModuleList([conv(2 * c, c), conv(c, c)])
        self.from_half = nn.Conv2d(c, c, 1)
        self.leave = conv(c, c)
        self.add = nn.ModuleList([nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)])

    def forward(self, aligned: Sequence[Tensor]) -> Tensor:
        wanted = self.of_centre(aligned[len(aligned) // 2])
        weighed = [x * (self.of_frame(x) * wanted).sum(1, keepdim=True).sigmoid() for x in aligned]
        stacked = torch.cat(weighed, 1)
        fused = leaky(self.fuse(stacked))
        half = leaky(self.to_half(halve(leaky(self.enter(stacked)))))
        quarter = leaky(self.at_quarter[0](halve(leaky(self.to_quarter(half)))))
        quarter = leaky(self.at_quarter[1](quarter))
        half = leaky(self.from_half(leaky(self.at_half(half)) + up(quarter)))
        attention: Tensor = self.leave(up(half))
        addition: Tensor = self.add[1](leaky(self.add[0](attention)))
        return fused * attention.sigmoid() * 2 + addition


def halve(x: Tensor) -> Tensor:
    """Half the size, by maximum and by mean."""
    return torch.cat((F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1)), 1)


class EDVR(Deblurrer):
    """The network. Its state: features of the last `reach` frames."""

    config: EDVRConfig

    def __init__(self, config: EDVRConfig) -> None:
        super().__init__()
        self.config = config
        c, out = config.width, config.output_width
        self.extractor = Extractor(config)
        self.align = PCD(c, config.groups)
        self.fuse = TSA(c, 2 * config.reach + 1)
        self.trunk = residual_blocks(config.trunk_blocks, c)
        self.decoder = nn.Sequential(
            *(conv(c, 4 * c), nn.PixelShuffle(2), nn.LeakyReLU(SLOPE)),
            *(conv(c, 4 * out), nn.PixelShuffle(2), nn.LeakyReLU(SLOPE)),
            *(conv(out, out), nn.LeakyReLU(SLOPE)),
            conv(out, 3),
        )
        # Pixels of context: the sum over the layers of (kernel - 1) / 2 times the layer's scale.
        shrink, predeblur, coarser = 4, 108 if config.predeblur else 0, 36
        self.contract = Contract(
            family="windowed",
            look_ahead=config.reach,
            extract_halo=whole(shrink + predeblur + 8 * config.extract_blocks + coarser),
            reconstruct_halo=whole(8 * config.trunk_blocks + 8),
        )

    def extract(self, frames: Tensor) -> Tensors:
        """The frames themselves (they are added at the end), then their features at 1/4, 1/8 and 1/16."""
        # The frames keep their own precision: the skip must not round them to that of the weights.
        levels = self.extractor(frames.flatten(0, 1).to(self.align.compare.weight.dtype))
        return frames, *(x.reshape(*frames.shape[:2], *x.shape[1:]) for x in levels)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        frames, *levels = features
        reach = self.config.reach
        line = timeline(tuple(levels), state, reach, reach, keep)
        fused = []
        for t in range(keep):
            window = line[t : t + 2 * reach + 1]
            fused.append(self.fuse([self.align(neighbour, window[reach]) for neighbour in window]))
        return (frames[:, :keep], torch.stack(fused, 1)), remember(line[keep : keep + reach])

    def reconstruct(self, latents: Tensors) -> Tensor:
        frames, fused = latents
        change = per_frame(self.decoder, per_frame(self.trunk, fused))
        return frames + change.to(frames.dtype)


def whole(pixels: int) -> int:
    """The halo, rounded up to whole pixels of the coarsest level."""
    return -(-pixels // 16) * 16
