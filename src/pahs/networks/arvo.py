"""ARVo (Li et al. 2021): an APPROXIMATION. No code was published, and its abstract leaves most of it open.

From the abstract: shared features; an all-pairs correlation volume pyramid between the reference frame and each
neighbour; a correlative aggregation that enhances the reference feature; reconstruction. Ours: everything else.

    extract      f = PAHS's extractor, one for all frames                             (c, H/4, W/4)
    propagate    per neighbour and pool 1, 2, 4, 8: what the correlation gathers;     1x1 conv([f, all of it])
    reconstruct  residual blocks, PAHS's reconstructor, + the reference frame

Extractor and reconstructor are PAHS's so that the two differ in how frames meet, and in nothing else. The number
of residual blocks is chosen to reach the parameters that the PAHS paper reports for ARVo. The adversarial part of
the published training is left out. Past an end of the clip, the nearest frame is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.blocks import residual_blocks
from pahs.networks.contract import Contract, Deblurrer, Tensors, per_frame
from pahs.networks.pahs import EXTRACT_HALO, RECONSTRUCT_HALO, extractor, reconstructor
from pahs.networks.sampling import correlation_gather, remember, timeline

POOLS = (1, 2, 4, 8)
"""The levels of the correlation pyramid: cells of the neighbour's axes."""


@dataclass(frozen=True)
class ARVoConfig:
    """Everything that tells one network from another; the defaults have the published size."""

    width: int = 192
    """c: channels of the features that are correlated."""
    trunk_blocks: int = 19
    """Residual blocks after aggregation."""
    global_skip: bool = True
    """Add the reference frame to the output: the network learns what to change."""

    def __post_init__(self) -> None:
        at_least(6, self, "width")

    def build(self) -> ARVo:
        return ARVo(self)


class ARVo(Deblurrer):
    """Approximation of ARVo with three frames. Its state: the feature of the last frame."""

    config: ARVoConfig

    def __init__(self, config: ARVoConfig) -> None:
        super().__init__()
        self.config = config
        c = config.width
        self.extractor = extractor(c)
        self.enhance = nn.Conv2d((1 + 2 * len(POOLS)) * c, c, 1)
        self.trunk = residual_blocks(config.trunk_blocks, c)
        self.reconstructor = reconstructor(c, directions=1)
        self.contract = Contract(
            family="windowed",
            look_ahead=1,
            extract_halo=EXTRACT_HALO,
            # Two convolutions a block, four pixels of the frame each.
            reconstruct_halo=8 * config.trunk_blocks + RECONSTRUCT_HALO,
        )

    def extract(self, frames: Tensor) -> Tensors:
        """The frames themselves (for the global skip), then their features."""
        # The frames keep their own precision: the skip must not round them to that of the weights.
        return frames, per_frame(self.extractor, frames.to(self.enhance.weight.dtype))

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        frames, f = features
        line = timeline((f,), state, 1, 1, keep)
        enhanced = [self.aggregate(*(x for (x,) in line[t : t + 3])) for t in range(keep)]
        return (frames[:, :keep], torch.stack(enhanced, 1)), remember(line[keep : keep + 1])

    def aggregate(self, before: Tensor, reference: Tensor, after: Tensor) -> Tensor:
        """The reference feature, enhanced by what each level of the correlation finds in its neighbours."""
        found = [correlation_gather(reference, x, pool) for x in (before, after) for pool in POOLS]
        y: Tensor = self.enhance(torch.cat((reference, *found), 1))
        return y

    def reconstruct(self, latents: Tensors) -> Tensor:
        frames, enhanced = latents
        change = per_frame(self.reconstructor, per_frame(self.trunk, enhanced)).to(frames.dtype)
        return frames + change if self.config.global_skip else change
