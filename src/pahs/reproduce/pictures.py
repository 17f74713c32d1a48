"""Arrays for the report's figures, small enough to keep: they are drawn anywhere, without the network.

of all arms      blurry, sharp: (clips, H, W, 3) uint8, the middle frame of the clips that are shown
of an arm        restored: the same frames
                 maps: (clips, 4, H/4, W/4) uint8: f_B, h, h after PPRNN, h after SNLA, forward
                 attention: (clips, H/16, W/16) float32, one point's to all tokens; point (clips, 2): its row and column
                 selection: (clips, H/16, W/16) float32
of a filmed arm  blurry, restored: (T, H, W, 3) uint8, the first clip
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pahs.networks import PAHS, Deblurrer
from pahs.networks.steps import Look, look
from pahs.reproduce.material import Material
from pahs.reproduce.measure import restorer

SHOWN = 3
"""Clips in the pictures: the first ones, never chosen by result."""


Arrays = dict[str, NDArray[np.generic]]


def shown(material: Material) -> Arrays:
    """What is given to every arm, and the truth."""
    clips = material.clips
    middle = clips.blurry.shape[1] // 2
    return {name: arrays(x[:SHOWN, middle]) for name, x in (("blurry", clips.blurry), ("sharp", clips.sharp))}


def pictures(model: Deblurrer, material: Material) -> Arrays:
    """What a trained network makes of it, and how."""
    blurry = material.clips.blurry[:SHOWN]
    middle = blurry.shape[1] // 2
    found: Arrays = {"restored": arrays(restorer(model, material)(blurry)[:, middle])}
    if isinstance(model, PAHS):
        step = look(model, blurry.float().div(255), [middle])["forward"][0]
        found |= inside(step, blurry[:, middle])
    return found


def film(model: Deblurrer, material: Material) -> Arrays:
    """A whole clip for the report's video."""
    blurry = material.clips.blurry[:1]
    return {"blurry": arrays(blurry[0]), "restored": arrays(restorer(model, material)(blurry)[0])}


def inside(step: Look, frames: Tensor, asking: tuple[int, int] | None = None) -> Arrays:
    """Maps of one step of the forward cell; `asking` is a token's row and column, else the busiest one asks."""
    maps = torch.stack([magnitude(x) for x in (step.feature, step.h, step.h_pprnn, step.h_snla)], 1)
    found: Arrays = {"maps": (maps * 255).round().to(torch.uint8).cpu().numpy()}
    if step.query is None:
        return found
    rows, columns = step.grid
    points = torch.tensor([asking or busiest_token(frame, step.grid) for frame in frames])
    attention = torch.stack(
        [step.attention(int(r * columns + c))[i] for i, (r, c) in enumerate(points.tolist())]
    )
    found |= {
        "attention": attention.view(-1, rows, columns).float().cpu().numpy(),
        "point": points.numpy(),
    }
    if step.selection is not None:
        found["selection"] = step.selection.view(-1, rows, columns).float().cpu().numpy()
    return found


def magnitude(x: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, h, w) in [0, 1]: mean absolute value over channels, 1st to 99th percentile."""
    mean = x.float().abs().mean(1)
    low, high = (mean.flatten(1).quantile(q, 1)[:, None, None] for q in (0.01, 0.99))
    return ((mean - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)


def busiest_token(frame: Tensor, grid: tuple[int, int]) -> tuple[int, int]:
    """Row and column of the token with the largest gradient; tokens at the border do not count."""
    grey = frame.float().mean(0)
    change = grey.diff(dim=0)[:, :-1].abs() + grey.diff(dim=1)[:-1].abs()
    sums = torch.nn.functional.adaptive_avg_pool2d(change[None, None], grid)[0, 0]
    if min(grid) > 2:
        inner = torch.zeros_like(sums)
        inner[1:-1, 1:-1] = sums[1:-1, 1:-1]
        sums = inner
    row, column = divmod(int(sums.argmax()), grid[1])
    return row, column


def arrays(frames: Tensor) -> NDArray[np.uint8]:
    """(..., 3, H, W) uint8 -> (..., H, W, 3)."""
    picture: NDArray[np.uint8] = frames.movedim(-3, -1).cpu().numpy()
    return picture
