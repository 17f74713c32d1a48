"""What a camera does to a frame after the exposure: sensor noise, and the loss of a video codec."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.data.motion import constant

BLOCK = 8
# The quantisation tables that Annex K of the JPEG standard gives as examples, for quality 50.
LUMA_STEPS = (
    *(16, 11, 10, 16, 24, 40, 51, 61),
    *(12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56),
    *(14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77),
    *(24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101),
    *(72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMA_STEPS = (
    *(17, 18, 24, 47, 99, 99, 99, 99),
    *(18, 21, 26, 66, 99, 99, 99, 99),
    *(24, 26, 56, 99, 99, 99, 99, 99),
    *(47, 66, 99, 99, 99, 99, 99, 99),
    *(99,) * 32,
)


def _dct_2d() -> tuple[float, ...]:
    """The orthonormal DCT-II of an 8x8 block as one 64x64 matrix, row by row."""
    wave = [
        [math.cos(math.pi / BLOCK * (x + 0.5) * k) * math.sqrt((2 if k else 1) / BLOCK) for x in range(BLOCK)]
        for k in range(BLOCK)
    ]
    each = range(BLOCK)
    return tuple(wave[k][y] * wave[m][x] for k in each for m in each for y in each for x in each)


_DCT = _dct_2d()


def add_noise(light: Tensor, shot: Tensor, read: Tensor, normal: Tensor) -> Tensor:
    """Poisson-Gaussian noise by its normal approximation: variance shot * light + read ** 2."""
    return light + normal * (shot * light.clamp_min(0) + read.square()).sqrt()


def compress(frames: Tensor, quality: Tensor) -> Tensor:
    """Frames (N, 3, H, W) in [0, 1] after 8x8 DCT quantisation with halved chroma; `quality` (N,) as in JPEG, 1-100.

    A stand-in for the intra frames of a video codec: its blocks, its ringing and its washed-out colour.
    """
    H, W = frames.shape[-2:]
    padded = F.pad(frames, (0, -W % (2 * BLOCK), 0, -H % (2 * BLOCK)), mode="replicate")
    r, g, b = padded.unbind(1)
    luma = 0.299 * r + 0.587 * g + 0.114 * b
    chroma = torch.stack([(b - luma) / 1.772, (r - luma) / 1.402], 1)
    chroma = F.avg_pool2d(chroma, 2)

    factor = torch.where(quality < 50, 50 / quality, 2 - quality / 50).clamp_min(1e-3)
    factor = factor[:, None, None, None, None]
    coded = _quantise((luma - 0.5)[:, None], LUMA_STEPS, factor)[:, 0] + 0.5
    colour = _quantise(chroma, CHROMA_STEPS, factor)
    cb, cr = F.interpolate(colour, scale_factor=2, mode="bilinear", align_corners=False).unbind(1)
    green = coded - (0.299 * 1.402 / 0.587) * cr - (0.114 * 1.772 / 0.587) * cb
    rgb = torch.stack([coded + 1.402 * cr, green, coded + 1.772 * cb], 1)
    return rgb[..., :H, :W].clamp(0, 1)


def _quantise(planes: Tensor, steps: tuple[float, ...], factor: Tensor) -> Tensor:
    """Round the DCT of each 8x8 block of (N, C, H, W) to multiples of `steps` * `factor` / 255."""
    step = constant(steps, planes.device, planes.dtype) * factor / 255
    dct = constant(_DCT, planes.device, planes.dtype).view(BLOCK**2, BLOCK**2)
    N, C, H, W = planes.shape
    down, across = H // BLOCK, W // BLOCK
    blocks = planes.view(N, C, down, BLOCK, across, BLOCK).transpose(3, 4)
    spectrum = torch.round(blocks.flatten(-2) @ dct.T / step) * step
    return (spectrum @ dct).view(N, C, down, across, BLOCK, BLOCK).transpose(3, 4).reshape(N, C, H, W)
