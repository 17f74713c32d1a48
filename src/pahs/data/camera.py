"""How a camera stores light: clipping, sensor noise, the curve, and the loss of a codec."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pahs.data.degrade import add_noise, compress
from pahs.data.gamma import to_display
from pahs.data.synthesis_config import Range, SynthesisConfig


@dataclass(frozen=True)
class CameraResponse:
    """How the cameras of a batch of clips store light."""

    gamma: Tensor
    """(B,) curve of each clip: 1 averages stored values, 0 is sRGB."""
    shot: Tensor
    """(B,) noise variance per light."""
    read: Tensor
    """(B,) noise deviation in the dark."""
    normal: Tensor
    """(B, T, 3, H, W) standard normal, the noise to be scaled."""
    quality: Tensor
    """(B,) of the codec; 0 for none."""


def draw_response(config: SynthesisConfig, size: int, generator: torch.Generator) -> CameraResponse:
    """Cameras for `size` clips, from the ranges of `config`, on the generator's device."""
    c = config
    u = torch.rand((8, size), generator=generator, device=generator.device)
    gamma, srgb, linear, noisy, shot, read, coded, quality = u.unbind()
    gamma = between(gamma, c.gamma).masked_fill(srgb < c.srgb_share, 0)
    shape = size, c.frames, 3, c.height, c.width
    return CameraResponse(
        gamma=gamma.masked_fill(linear >= c.linear_share, 1),
        shot=between_logs(shot, c.shot_noise) * (noisy < c.noise_share),
        read=between_logs(read, c.read_noise) * (noisy < c.noise_share),
        normal=torch.randn(shape, generator=generator, device=generator.device),
        quality=between(quality, c.codec_quality) * (coded < c.codec_share),
    )


def finish(response: CameraResponse, average: Tensor, middle: Tensor) -> tuple[Tensor, Tensor]:
    """Light -> what the file holds: (blurry, sharp). Only the blurry frames are noisy and compressed."""
    clip = (slice(None), None, None, None, None)
    gamma = response.gamma[clip]
    noisy = add_noise(average.clamp(0, 1), response.shot[clip], response.read[clip], response.normal)
    blurry, sharp = to_display(noisy, gamma), to_display(middle, gamma)
    quality = response.quality[:, None].expand(blurry.shape[:2]).flatten()
    coded = compress(blurry.flatten(0, 1), quality.clamp_min(1)).view_as(blurry)
    return torch.where(response.quality[clip] > 0, coded, blurry), sharp


def between(u: Tensor, limits: Range) -> Tensor:
    """`u` in [0, 1] -> evenly within the limits."""
    return limits[0] + (limits[1] - limits[0]) * u


def between_logs(u: Tensor, limits: Range) -> Tensor:
    """`u` in [0, 1] -> within the limits, evenly in the logarithm."""
    return limits[0] * torch.exp(math.log(limits[1] / limits[0]) * u)
