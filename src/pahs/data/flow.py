"""Dense optical flow and frame interpolation in plain torch: ordinary video -> video of a high frame rate.

Averaging the frames of a 30 frames-per-second video gives ghosts, not blur, because things jump by many pixels
between frames. So the moments in between are made first: Lucas-Kanade flow from coarse to fine in both
directions, both frames warped to the moment and blended where each of them shows the scene.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.data.motion import pixel_grid

COARSEST = 12
"""Short side of the coarsest level of the pyramid, pixels."""
ITERATIONS = 5
"""Updates per level."""
WINDOW = 2.0
"""Standard deviation of the window over which motion is taken as constant, pixels of each level."""
STIFFNESS = 2e-4
"""Added to the structure tensor: where there is no texture the flow of the coarser level stays."""
TOLERANCE = 1.0
"""Forward and backward flow may disagree by so many pixels, and 5 % of their length, before it counts as wrong."""


def optical_flow(first: Tensor, second: Tensor) -> Tensor:
    """Flow (N, 2, H, W) in pixels (right, down): what is at x in `first` is at x + flow in `second`.

    Frames are (N, C, H, W) in [0, 1].
    """
    levels = [(first.mean(1, keepdim=True), second.mean(1, keepdim=True))]
    while min(levels[-1][0].shape[-2:]) >= 2 * COARSEST:
        levels.append((_halve(levels[-1][0]), _halve(levels[-1][1])))
    flow = first.new_zeros(first.shape[0], 2, *levels[-1][0].shape[-2:])
    for a, b in reversed(levels):
        h, w = a.shape[-2:]
        if flow.shape[-2:] != (h, w):
            ratio = flow.new_tensor([w / flow.shape[-1], h / flow.shape[-2]])[:, None, None]
            flow = F.interpolate(flow, size=(h, w), mode="bilinear", align_corners=False) * ratio
        flow = _refine(a, b, flow)
    return flow


def warp(picture: Tensor, flow: Tensor) -> Tensor:
    """`picture` (N, C, H, W) read at x + flow, edges repeated."""
    H, W = picture.shape[-2:]
    grid = pixel_grid(H, W, picture.device, picture.dtype) + flow.movedim(1, -1)
    scale = grid.new_tensor([2 / W, 2 / H])
    return F.grid_sample(picture, grid * scale, mode="bilinear", padding_mode="border", align_corners=False)


def disagreement(there: Tensor, back: Tensor) -> Tensor:
    """(N, 1, H, W): the forward-backward error of a flow, divided by what is tolerated; above 1 the flow is wrong."""
    returned = there + warp(back, there)
    length = there.square().sum(1, keepdim=True).sqrt()
    return returned.square().sum(1, keepdim=True).sqrt() / (TOLERANCE + 0.05 * length)


def unreliable_share(there: Tensor, back: Tensor) -> float:
    """Share of pixels whose flow cannot be trusted: occluded, or beyond what the method can follow."""
    return float((disagreement(there, back) > 1).float().mean())


def interpolate(first: Tensor, second: Tensor, there: Tensor, back: Tensor, moment: float) -> Tensor:
    """The frame (N, C, H, W) at `moment` in (0, 1) between two frames with flow `there` and `back`."""
    forth = _flow_at(there, -moment)
    reverse = _flow_at(back, moment - 1)
    missed_there, missed_back = disagreement(there, back), disagreement(back, there)
    total, weights = torch.zeros_like(first), torch.zeros_like(first[:, :1])
    # There are two estimates of the motion at this moment, and each one samples both frames.
    for to_first, to_second in (
        (-moment * forth, (1 - moment) * forth),
        (moment * reverse, (moment - 1) * reverse),
    ):
        views = (
            (warp(first, to_first), warp(missed_there, to_first), 1 - moment),
            (warp(second, to_second), warp(missed_back, to_second), moment),
        )
        agree = (-8 * (views[0][0] - views[1][0]).abs().mean(1, keepdim=True)).exp()
        for seen, missed, near in views:
            # A point that does not return to itself is occluded in the other frame, so its flow is wrong.
            weight = near * agree * (-(missed.square())).exp() + 1e-6 * near
            total = total + weight * seen
            weights = weights + weight
    return total / weights


def _flow_at(flow: Tensor, share: float) -> Tensor:
    """The flow on the pixel grid of a moment `-share` along it, by fixed-point iteration."""
    moved = flow
    for _ in range(3):
        moved = warp(flow, share * moved)
    return moved


def _refine(a: Tensor, b: Tensor, flow: Tensor) -> Tensor:
    for _ in range(ITERATIONS):
        seen = warp(b, flow)
        gx, gy = _gradient((a + seen) / 2)
        change = seen - a
        # Large differences come from occlusions and noise, so they count less.
        trust = 1 / (1 + (change / 0.1).square())
        products = torch.cat([gx * gx, gx * gy, gy * gy, gx * change, gy * change], 1) * trust
        xx, xy, yy, xt, yt = _smooth(products, WINDOW)[:, :, None].unbind(1)
        xx, yy = xx + STIFFNESS, yy + STIFFNESS
        determinant = xx * yy - xy * xy
        step = torch.cat([xy * yt - yy * xt, xy * xt - xx * yt], 1) / determinant
        flow = _median(flow + step.clamp(-2, 2))
    return flow


def _gradient(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = F.pad(x, (1, 1, 1, 1), mode="replicate")
    return (wide[..., 1:-1, 2:] - wide[..., 1:-1, :-2]) / 2, (wide[..., 2:, 1:-1] - wide[..., :-2, 1:-1]) / 2


def _halve(x: Tensor) -> Tensor:
    size = math.ceil(x.shape[-2] / 2), math.ceil(x.shape[-1] / 2)
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False, antialias=True)


def _smooth(x: Tensor, sigma: float) -> Tensor:
    radius = round(2.5 * sigma)
    offset = torch.arange(-radius, radius + 1, device=x.device, dtype=x.dtype)
    kernel = torch.exp(-(offset**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(x.shape[1], 1, 1, -1)
    wide = F.pad(x, (radius, radius, radius, radius), mode="replicate")
    return F.conv2d(F.conv2d(wide, kernel, groups=x.shape[1]), kernel.transpose(2, 3), groups=x.shape[1])


def _median(flow: Tensor) -> Tensor:
    """Median over the pixel and its four neighbours: removes strays and keeps motion boundaries."""
    wide = F.pad(flow, (1, 1, 1, 1), mode="replicate")
    H, W = flow.shape[-2:]
    cross = [wide[..., y : y + H, x : x + W] for y, x in ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))]
    return torch.stack(cross).median(0).values
