"""Outlines of foreground objects: random blobs, polygons and bars with soft edges, some of them torn."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

HARMONICS = 4
SIDES = 6
OUTLINE_DRAWS = 6 + 2 * HARMONICS + 2 * SIDES
"""How many uniform numbers one outline takes."""
TEAR = 10
"""The tearing pattern is a random grid of so many cells each way."""


def outlines(u: Tensor, tear: Tensor, size: tuple[int, int], pixel: Tensor, radius: Tensor) -> Tensor:
    """Opacity (N, 1, h, w) in [0, 1] of N random shapes about the middle of their textures.

    u       (N, OUTLINE_DRAWS) in [0, 1]
    tear    (N, 1, TEAR, TEAR) standard normal
    pixel   (N,) frame pixels per texture pixel
    radius  (N,) frame pixels
    """
    h, w = size
    kind, angle, aspect, soft, torn, rough = u[:, :6].unbind(-1)
    harmonic = u[:, 6 : 6 + 2 * HARMONICS].reshape(-1, 2, HARMONICS)
    sides = u[:, 6 + 2 * HARMONICS :].reshape(-1, 2, SIDES)

    y = (torch.arange(h, device=u.device) - (h - 1) / 2)[:, None] * pixel[:, None, None]
    x = (torch.arange(w, device=u.device) - (w - 1) / 2)[None, :] * pixel[:, None, None]
    turn = angle[:, None, None] * math.pi
    stretch = (1 + 1.5 * aspect.square())[:, None, None]  # the median shape is half as wide as long
    scale = radius[:, None, None]
    across = (x * turn.cos() + y * turn.sin()) / (scale * stretch)
    along = (y * turn.cos() - x * turn.sin()) * stretch / scale

    theta = torch.atan2(along, across)[:, None]
    order = torch.arange(1, HARMONICS + 1, device=u.device)[:, None, None]
    weight = 0.45 * rough[:, None, None, None] * harmonic[:, 0, :, None, None] / order
    wobble = (weight * torch.cos(order * theta + 2 * math.pi * harmonic[:, 1, :, None, None])).sum(1)
    distance = torch.hypot(across, along)
    blob = distance - 1 - wobble

    facing = 2 * math.pi / SIDES * (torch.arange(SIDES, device=u.device) + 0.7 * sides[:, 0])[..., None, None]
    reach = (0.5 + 0.5 * sides[:, 1])[..., None, None]
    polygon = (across[:, None] * facing.cos() + along[:, None] * facing.sin() - reach).amax(1)

    outside = torch.where(kind[:, None, None] < 0.5, blob, polygon) * scale / stretch
    edge = (1 + 2 * soft.square())[:, None, None]
    opacity = (0.5 - outside / edge).clamp(0, 1)
    holes = F.interpolate(tear, size=size, mode="bicubic", align_corners=False)[:, 0]
    holes = (holes * 8 + 2).clamp(0, 1).masked_fill(torn[:, None, None] > 0.2, 1)
    return (opacity * holes)[:, None]
