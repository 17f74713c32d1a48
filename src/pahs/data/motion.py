"""Smooth random motion of a camera and of objects, as one homography per sub-frame.

A pose has six axes: two of translation (pixels), roll (radians), log zoom, and two of perspective (how much
the depth changes from the middle of the frame to its edge). Each axis moves with a velocity that is a drift plus
a few slow sinusoids, integrated in closed form: paths bend within one exposure, as a hand's do, and continue
from one frame to the next.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

AXES = 6
WAVES = 3
"""Sinusoids per axis."""
GROUPS = (0, 0, 1, 2, 3, 3)
"""Which rate each axis follows: translation, roll, zoom, perspective."""


@lru_cache(maxsize=256)
def constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """`values` as a vector on `device`, to be read only: a copy inside a training step would wait for the device."""
    return torch.tensor(values, device=device, dtype=dtype)


def exposure_times(frames: int, sub_frames: int, duty: Tensor, count: Tensor | None = None) -> Tensor:
    """(B,) share of the interval with open shutter -> (B, T, S) times in frames; the middle one is the frame's.

    count  (B,) odd number of moments of each clip, evenly over its exposure; those beyond it lie outside
    """
    slots = torch.arange(sub_frames, device=duty.device, dtype=duty.dtype) - sub_frames // 2
    within = slots / (sub_frames if count is None else count[:, None])
    start = torch.arange(frames, device=duty.device, dtype=duty.dtype)
    return start[:, None] + (duty[:, None] * within)[:, None]


def exposure_weights(sub_frames: int, count: Tensor) -> Tensor:
    """(B, S): what each moment counts in the average, when only `count` (B,) of them lie within the exposure."""
    slots = torch.arange(sub_frames, device=count.device) - sub_frames // 2
    return (slots.abs() <= count[:, None] // 2) / count[:, None]


def paths(
    times: Tensor, rates: Tensor, shake: Tensor, frequency: Tensor, normal: Tensor, phase: Tensor
) -> Tensor:
    """Positions (B, L, 6, T, S) of L layers at `times` (B, T, S), with mean zero over the clip.

    rates      (B, L, 4) root mean square velocity of each group of axes, per frame
    shake      (B, L) share of the motion's energy that oscillates; the rest drifts steadily
    frequency  (B, L, WAVES) cycles per frame
    normal     (B, L, 6, 1 + WAVES) standard normal: how much of the drift and of each wave
    phase      (B, L, 6, WAVES) in [0, 1]
    """
    spread = torch.cat(
        [(1 - shake)[..., None], (2 / WAVES * shake)[..., None].expand(*shake.shape, WAVES)], -1
    )
    velocity = normal * spread.sqrt()[:, :, None]
    energy = velocity[..., 0].square() + velocity[..., 1:].square().sum(-1) / 2
    groups = constant(GROUPS, times.device, torch.int64)
    together = (groups[:, None] == groups).to(energy.dtype)
    energy = (energy[:, :, None] * together).sum(-1).clamp_min(1e-12)
    velocity = velocity * (rates[:, :, groups] / energy.sqrt())[..., None]

    clock = times.flatten(1)[:, None, None, None]
    omega = 2 * math.pi * frequency[:, :, None, :, None]
    waves = torch.sin(omega * clock + 2 * math.pi * phase[..., None]) / omega
    position = velocity[..., :1] * clock[..., 0, :] + (velocity[..., 1:, None] * waves).sum(-2)
    centred = position - position.mean(-1, keepdim=True)
    return centred.view(*centred.shape[:3], *times.shape[1:])


def homographies(pose: Tensor, pitch: Tensor, tilt: Tensor, height: int, width: int) -> Tensor:
    """Poses (B, L, 6, T, S) -> matrices (B, L, T, S, 3, 3) from frame pixels to texture pixels, both about 0.

    pitch  (B, L) texture pixels per frame pixel
    tilt   (B, L, 2) standing perspective: a slanted plane whose near side moves faster than its far side
    """
    x, y, roll, zoom, gx, gy = pose.unbind(2)
    slant = 2 / max(height, width)
    gx = (gx + tilt[..., 0, None, None]) * slant
    gy = (gy + tilt[..., 1, None, None]) * slant
    cos, sin = zoom.exp() * roll.cos(), zoom.exp() * roll.sin()
    one = torch.ones_like(x)
    # Perspective comes first, then the plane slides in its own coordinates, so that w stays positive.
    rows = [cos - x * gx, -sin - x * gy, -x, sin - y * gx, cos - y * gy, -y, gx, gy, one]
    matrix = torch.stack(rows, -1).view(*x.shape, 3, 3)
    scale = torch.stack([pitch, pitch, torch.ones_like(pitch)], -1)
    return matrix * scale[:, :, None, None, :, None]


def pixel_grid(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(H, W, 2): right and down of each pixel from the middle of the picture."""
    y = torch.arange(height, device=device, dtype=dtype) - (height - 1) / 2
    x = torch.arange(width, device=device, dtype=dtype) - (width - 1) / 2
    return torch.stack([x.expand(height, width), y[:, None].expand(height, width)], -1)


def sampling_grid(matrices: Tensor, height: int, width: int, texture: tuple[int, int]) -> Tensor:
    """Matrices (N, 3, 3) -> a grid (N, H, W, 2) for `grid_sample(align_corners=False)` from a texture of that size."""
    # Sums instead of a matrix product: TF32 would round the coordinates to a quarter of a pixel.
    y = torch.arange(height, device=matrices.device, dtype=matrices.dtype) - (height - 1) / 2
    x = torch.arange(width, device=matrices.device, dtype=matrices.dtype) - (width - 1) / 2
    unit = constant((2 / texture[1], 2 / texture[0], 1.0), matrices.device, matrices.dtype)
    m = matrices * unit[:, None]
    along = m[:, None, :, 0] * x[:, None] + m[:, None, :, 2]
    down = m[:, None, :, 1] * y[:, None]
    point = along[:, None] + down[:, :, None]
    return point[..., :2] / point[..., 2:]
