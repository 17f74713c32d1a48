"""How a windowed network reads other frames of the video and other pixels of a picture.

Time: `timeline` lays a chunk of a clip out with the neighbours that its first and last frames need.
Space: warping, cost volume, modulated deformable convolution and correlation, in plain torch, so that they run
wherever torch runs. Positions are pixels, computed in float32 at least, whatever the precision of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.networks.contract import Tensors


def timeline(features: Tensors, past: Tensors | None, before: int, after: int, keep: int) -> list[Tensors]:
    """The frames around the first `keep` ones: the window of frame t is `line[t : t + before + 1 + after]`.

    `past` holds the features of the `before` frames that came last, as `remember` returned them. At the start
    of a video or scene there are none, at its end frames to look ahead to are missing: the nearest frame stands
    in for each of them.
    """
    length = features[0].shape[1]
    frames = [tuple(x[:, t] for x in features) for t in range(length)]
    head = [frames[0]] * before if past is None else [tuple(x[:, t] for x in past) for t in range(before)]
    return head + frames + [frames[-1]] * (keep + after - length)


def remember(frames: Sequence[Tensors]) -> Tensors:
    """Frames of a timeline as state: one tensor (batch, time, ...) per feature."""
    return tuple(torch.stack(feature, 1) for feature in zip(*frames, strict=True))


def widen(x: Tensor) -> Tensor:
    """In float32 or better: half precision cannot tell neighbouring pixels of a wide frame apart."""
    return x if x.dtype == torch.float64 else x.float()


def pixel_grid(height: int, width: int, like: Tensor) -> Tensor:
    """(2, height, width): x and y of every pixel."""
    y = torch.arange(height, device=like.device, dtype=like.dtype)
    x = torch.arange(width, device=like.device, dtype=like.dtype)
    return torch.stack((x.expand(height, width), y[:, None].expand(height, width)))


def sample(x: Tensor, positions: Tensor) -> Tensor:
    """Bilinear values of x (B, C, H, W) at pixel positions (B, 2, h, w), x first; zero outside the picture."""
    height, width = x.shape[-2:]
    across, down = widen(positions).unbind(1)
    # With align_corners=False a picture of one row or column needs no special case.
    grid = torch.stack(((2 * across + 1) / width - 1, (2 * down + 1) / height - 1), -1)
    common = torch.promote_types(x.dtype, grid.dtype)
    values = F.grid_sample(x.to(common), grid.to(common), padding_mode="zeros", align_corners=False)
    return values.to(x.dtype)


def warp(x: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
    """x (B, C, H, W) fetched along flow (B, 2, H, W) in pixels, and where that lies inside the picture.

    Value at p: x(p + flow(p)). The mask (B, 1, H, W) is 1 where all of the value comes from inside the picture;
    elsewhere it is 0, and so is the value.
    """
    height, width = x.shape[-2:]
    flow = widen(flow)
    positions = pixel_grid(height, width, flow) + flow
    across, down = positions.chunk(2, 1)
    inside = (across >= 0) & (across <= width - 1) & (down >= 0) & (down <= height - 1)
    mask = inside.to(x.dtype)
    return sample(x, positions) * mask, mask


def cost_volume(first: Tensor, second: Tensor, reach: int = 4) -> Tensor:
    """Mean product of first(p) and second(p + d) for every d up to `reach` pixels away in x and y.

    (B, C, H, W) twice -> (B, (2 reach + 1)^2, H, W), d in row-major order; zero outside the picture.
    """
    height, width = first.shape[-2:]
    side = 2 * reach + 1
    columns = F.pad(second, (reach,) * 4).unfold(3, width, 1)  # a view: (B, C, H + 2 reach, side, W)
    # Row by row: all displacements at once would hold side^2 copies of the features.
    rows = [(first[:, :, :, None] * columns[:, :, y : y + height]).mean(1) for y in range(side)]
    return torch.stack([row.transpose(1, 2) for row in rows], 1).flatten(1, 2)


def correlation_gather(reference: Tensor, neighbour: Tensor, pool: int) -> Tensor:
    """For each pixel of the reference, the neighbour's feature where the two agree.

    The all-pairs correlation volume f_ref . f_nbr / sqrt(C), averaged over pool x pool cells of the neighbour's
    axes, softmax over those cells, then the mean of the cells' features under it. Averaging the volume over cells
    is correlating with averaged features, because the product is linear: so this is attention with the reference
    as query and the pooled neighbour as key and value, and the N x N volume is never built.
    """
    if pool > 1:
        # A cell that the border cuts off averages the pixels it has.
        neighbour = F.avg_pool2d(neighbour, pool, ceil_mode=True, count_include_pad=False)
    # Channels last and contiguous: the kernels that need no volume take no other tensors.
    query = reference.flatten(2).transpose(1, 2).contiguous()[:, None]
    cells = neighbour.flatten(2).transpose(1, 2).contiguous()[:, None]
    gathered = F.scaled_dot_product_attention(query, cells, cells, scale=1 / math.sqrt(query.shape[-1]))
    return gathered[:, 0].transpose(1, 2).reshape(reference.shape)


def deformable_conv(x: Tensor, offsets: Tensor, masks: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution whose taps are moved and weighted at every pixel (Deformable ConvNets v2), stride 1.

    x (B, C, H, W); offsets (B, G, K, 2, H, W) in pixels, x first; masks (B, G, K, H, W); weight (O, C, k, k)
    with K = k * k taps in row-major order. The C channels fall into G groups in order, each with its own offsets
    and masks. Zero outside the picture.
    """
    batch, channels, height, width = x.shape
    groups, taps = offsets.shape[1:3]
    side = weight.shape[-1]
    offsets = widen(offsets)
    steps = (pixel_grid(side, side, offsets) - side // 2).flatten(1).T.reshape(taps, 2, 1, 1)
    positions = offsets + steps + pixel_grid(height, width, offsets)
    # One sampling for all taps: groups count as batch, taps as rows below each other.
    rows = positions.flatten(0, 1).transpose(1, 2).flatten(2, 3)
    values = sample(x.reshape(batch * groups, channels // groups, height, width), rows)
    values = values.reshape(batch, groups, channels // groups, taps, height, width) * masks[:, :, None]
    return F.conv2d(
        values.reshape(batch, channels * taps, height, width), weight.flatten(1)[..., None, None], bias
    )


class DeformableConv(nn.Module):
    """A 3x3 modulated deformable convolution that predicts its offsets and masks from a guide.

    The prediction starts at zero: an ordinary convolution at half strength.
    """

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.taps = nn.Conv2d(channels, channels, 3, padding=1)
        self.predict = nn.Conv2d(channels, groups * 9 * 3, 3, padding=1)
        nn.init.zeros_(self.predict.weight)
        if self.predict.bias is not None:
            nn.init.zeros_(self.predict.bias)

    def forward(self, x: Tensor, guide: Tensor) -> Tensor:
        predicted: Tensor = self.predict(guide).unflatten(1, (self.groups, 9, 3))
        offsets, masks = predicted[:, :, :, :2], predicted[:, :, :, 2].sigmoid()
        assert self.taps.bias is not None
        return deformable_conv(x, offsets, masks, self.taps.weight, self.taps.bias)
