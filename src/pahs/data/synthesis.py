"""An endless source of blurry and sharp clips made from photos, on whichever device holds them.

Each clip shows a small moving scene: a photo as the background, up to three objects cut from other photos, a camera
that drifts and shakes. Every sub-frame of an exposure is drawn sharp, objects over background; the blurry frame
is their average, in light or in stored values, and the sharp frame is the one in the middle.

    draw    random numbers -> Layers, CameraResponse    textures, homographies, curves
    expose  Layers -> light                             average and middle of each exposure
    finish  light, CameraResponse -> frames             clipping, noise, curve, codec

Everything is batched over clips, frames and sub-frames; the loops are over layers and, to bound memory, over runs
of frames. Nothing waits for the device.
"""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.data.camera import CameraResponse, between, between_logs, draw_response, finish
from pahs.data.gamma import to_light
from pahs.data.motion import (
    AXES,
    WAVES,
    constant,
    exposure_times,
    exposure_weights,
    homographies,
    paths,
    sampling_grid,
)
from pahs.data.outlines import OUTLINE_DRAWS, TEAR, outlines
from pahs.data.photos import LEVEL_RATIO, PhotoPool
from pahs.data.synthesis_config import SynthesisConfig
from pahs.errors import PahsError

OVERSAMPLING = 2
"""Textures are held at twice their resolution: bilinear sampling then hardly softens them."""
PITCH = LEVEL_RATIO**-0.5
"""Most texture pixels per frame pixel: half a level of the pyramid."""
CHUNK_PIXELS = 32_000_000
"""Most sub-frame pixels drawn at once: about 1.2 GB of working memory."""


@dataclass(frozen=True)
class Layers:
    """What a batch of clips shows: textures and their motion. Layer 0 is the background."""

    background: Tensor
    """(B, 3, h, w) light."""
    objects: Tensor
    """(B, L, 4, h, w) light times opacity, and opacity; later ones lie in front."""
    matrices: Tensor
    """(B, 1 + L, T, S, 3, 3) from frame pixels to texture pixels, both counted from the middle."""
    weights: Tensor | None = None
    """(B, S) of each moment in the average; None: all alike."""


ClipDraws = namedtuple("ClipDraws", "duty open count still highlight gain objects")
"""Uniform random numbers, each (B,), for what all layers of a clip share."""
LayerDraws = namedtuple(
    "LayerDraws",
    "scale tilt tilt_angle speed rotation zoom perspective shake parallax followed start_right start_down "
    "contrast brightness red green blue",
)
"""Uniform random numbers, each (B, layers), for the motion and the colours of one layer."""


class PhotoSource:
    """Clips without end: `batch(n)` gives (blurry, sharp), each (n, T, 3, H, W) float32 in [0, 1]."""

    def __init__(self, pool: PhotoPool, config: SynthesisConfig, seed: int) -> None:
        if config.scale[0] * PITCH < float(pool.scales[-1]) * 0.99:
            raise PahsError(
                f"synthesis scale: {config.scale[0]} is smaller than the photos were loaded for; "
                f"load them with smallest_scale={config.scale[0]}"
            )
        self.pool = pool
        self.config = config
        self.generator = torch.Generator(pool.device)
        self.generator.manual_seed(seed)

    @torch.no_grad()
    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """The next `size` clips: blurry and sharp."""
        layers, response = self.draw(size)
        average, middle = expose(layers, self.config.height, self.config.width)
        return finish(response, average, middle)

    def draw(self, size: int) -> tuple[Layers, CameraResponse]:
        """Everything random about the next `size` clips."""
        c = self.config
        H, W, B, L = c.height, c.width, size, c.objects[1]
        clip = ClipDraws(*self._uniform(B, len(ClipDraws._fields)).unbind(-1))
        layer = LayerDraws(*self._uniform(B, 1 + L, len(LayerDraws._fields)).unbind(-1))
        duty = between(clip.duty.sqrt(), c.duty).masked_fill(clip.open < c.open_share, 1)
        count = _odd(clip.count, c.fewest_sub_frames, c.sub_frames) if c.fewest_sub_frames else None
        times = exposure_times(c.frames, c.sub_frames, duty, count)

        scale = between_logs(layer.scale, c.scale)
        level = (scale.log() / math.log(LEVEL_RATIO)).round().long().clamp(0, len(self.pool.scales) - 1)
        pitch = self.pool.scales[level] / scale
        poses = self._poses(times, layer, clip.still)
        slants = _slants(layer.tilt, layer.tilt_angle, c.tilt)
        matrices = homographies(poses, pitch * OVERSAMPLING, slants, H, W)

        response = draw_response(c, B, self.generator)
        gamma = response.gamma
        gain = between(clip.gain, c.highlight_gain) * (clip.highlight < c.highlight_share)

        # The texture covers the camera's travel up to a limit; beyond it, and beyond a photo's edge, it is mirrored.
        travel = min(c.speed[1] * c.frames / 2, 0.6 * max(H, W))
        texture = _even(H * PITCH + 2 * travel), _even(W * PITCH + 2 * travel)
        behind = LayerDraws(*(x[:, :1] for x in layer))
        background = self._textures(behind, level[:, :1], pitch[:, :1], texture, gamma, gain)[:, 0]
        objects = background.new_zeros(B, 0, 4, 1, 1)
        if L:
            reach = _even(1.25 * max(H, W))
            front = LayerDraws(*(x[:, 1:] for x in layer))
            colour = self._textures(front, level[:, 1:], pitch[:, 1:], (reach, reach), gamma, gain)
            opacity = self._opacities(pitch[:, 1:], reach, clip.objects)
            objects = torch.cat([colour * opacity, opacity], 2)
        weights = None if count is None else exposure_weights(c.sub_frames, count)
        return Layers(background, objects, matrices, weights), response

    def _poses(self, times: Tensor, layer: LayerDraws, still: Tensor) -> Tensor:
        """(B, 1 + L, 6, T, S): the camera's path, then each object's as seen by that camera."""
        c = self.config
        B, layers = layer.speed.shape
        speed = torch.cat(
            [between_logs(layer.speed[:, :1], c.speed), between_logs(layer.speed[:, 1:], c.object_speed)], 1
        )
        rotation, zoom = layer.rotation.square() * c.rotation, layer.zoom.square() * c.zoom
        others = torch.stack([rotation, zoom, layer.perspective * c.perspective], -1)
        slow = (1 - 0.95 * (still < c.still_share))[:, None, None]
        rates = torch.cat([speed[..., None], others], -1) * slow
        frequency = between_logs(self._uniform(B, layers, WAVES), c.frequency)
        normal = torch.randn(B, layers, AXES, 1 + WAVES, generator=self.generator, device=times.device)
        phase = self._uniform(B, layers, AXES, WAVES)
        own = paths(times, rates, between(layer.shake, c.shake), frequency, normal, phase)
        camera, objects = own[:, :1], own[:, 1:]
        parallax = between(layer.parallax[:, 1:], c.parallax) * (layer.followed[:, 1:] >= c.followed_share)
        start = torch.stack([layer.start_right, layer.start_down], -1)[:, 1:] - 0.5
        start = start * constant((c.width, c.height), times.device, times.dtype)
        carried = camera[:, :, :2] * parallax[..., None, None, None] + start[..., None, None]
        # Objects do not follow the camera's perspective, because it would only add to their own slant.
        turned = camera[:, :, 2:4].expand(-1, layers - 1, -1, -1, -1)
        seen = torch.cat([carried, turned, torch.zeros_like(carried)], 2)
        return torch.cat([camera, objects + seen], 1)

    def _textures(
        self,
        layer: LayerDraws,
        level: Tensor,
        pitch: Tensor,
        size: tuple[int, int],
        gamma: Tensor,
        gain: Tensor,
    ) -> Tensor:
        """Photo textures (B, L, 3, h, w) as light, at twice the resolution of the pyramid's level."""
        c = self.config
        B, L = pitch.shape
        height, width = size
        photo, centre, turn = torch.split(self._uniform(B * L * c.candidates, 6), [1, 2, 3], -1)
        view = constant((c.height, c.width), pitch.device, pitch.dtype) * pitch.flatten()[:, None]
        crops = self.pool.crop(
            (photo[:, 0] * self.pool.count).long().clamp_max(self.pool.count - 1),
            level.flatten().repeat_interleave(c.candidates),
            centre=centre,
            turn=turn,
            height=height,
            width=width,
            view=view.repeat_interleave(c.candidates, 0),
        )
        if c.candidates > 1:
            each = crops.view(B * L, c.candidates, 3, height, width)
            detail = each.diff(dim=-1).abs().mean((2, 3, 4))
            crops = each[torch.arange(B * L, device=pitch.device), detail.argmax(1)]
        crops = F.interpolate(crops, scale_factor=OVERSAMPLING, mode="bicubic", align_corners=False)
        contrast = between(layer.contrast.flatten(), c.contrast)[:, None]
        tint = torch.stack([layer.red, layer.green, layer.blue], -1).flatten(0, 1)
        factor = between(layer.brightness.flatten(), c.brightness)[:, None] * (1 + c.tint * (2 * tint - 1))
        shade = (factor * contrast)[..., None, None]
        shift = (factor * (0.5 - 0.5 * contrast))[..., None, None]
        seen = torch.addcmul(shift, crops, shade).clamp_(0, 1).view(B, L, *crops.shape[1:])
        light = to_light(seen, gamma[:, None, None, None, None])
        return light * (1 + gain[:, None, None, None, None] * light.square().square())

    def _opacities(self, pitch: Tensor, reach: int, count: Tensor) -> Tensor:
        """Opacity (B, L, 1, h, w) of each object; those beyond the clip's number are empty."""
        c = self.config
        B, L = pitch.shape
        radius = between_logs(self._uniform(B * L), c.object_size) * max(c.height, c.width)
        draws = self._uniform(B * L, OUTLINE_DRAWS)
        tear = torch.randn(B * L, 1, TEAR, TEAR, generator=self.generator, device=pitch.device)
        opacity = outlines(draws, tear, (reach, reach), 1 / pitch.flatten(), radius)
        opacity = F.interpolate(opacity, scale_factor=OVERSAMPLING, mode="bilinear", align_corners=False)
        number = c.objects[0] + count * (c.objects[1] - c.objects[0] + 1)
        exists = torch.arange(1, L + 1, device=pitch.device) <= number[:, None]
        return opacity.view(B, L, *opacity.shape[1:]) * exists[..., None, None, None]

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.pool.device)


def expose(layers: Layers, height: int, width: int) -> tuple[Tensor, Tensor]:
    """The average light of each exposure and the light of its middle moment, each (B, T, 3, H, W)."""
    B, _, T, S = layers.matrices.shape[:4]
    run = max(1, CHUNK_PIXELS // (B * S * height * width))
    averages, middles = [], []
    for start in range(0, T, run):
        matrices = layers.matrices[:, :, start : start + run]
        light = _sample(layers.background, matrices[:, 0], height, width, "reflection")
        for layer in range(layers.objects.shape[1]):
            front = _sample(layers.objects[:, layer], matrices[:, 1 + layer], height, width, "zeros")
            light.addcmul_(front[:, :, :, 3:], light, value=-1).add_(front[:, :, :, :3])
        middles.append(light[:, :, S // 2].clone())
        if layers.weights is None:
            averages.append(light.mean(2))
        else:
            averages.append(light.mul_(layers.weights[:, None, :, None, None, None]).sum(2))
    return torch.cat(averages, 1), torch.cat(middles, 1)


def _sample(texture: Tensor, matrices: Tensor, height: int, width: int, padding: str) -> Tensor:
    """Draw textures (B, C, h, w) through (B, T, S, 3, 3): (B, T, S, C, H, W)."""
    B, T, S = matrices.shape[:3]
    h, w = texture.shape[-2:]
    grid = sampling_grid(matrices.flatten(0, 2), height, width, (h, w)).view(B, T * S * height, width, 2)
    # One tall picture per clip: its sub-frames share the texture without a copy.
    drawn = F.grid_sample(texture, grid, mode="bilinear", padding_mode=padding, align_corners=False)
    return drawn.view(B, -1, T, S, height, width).permute(0, 2, 3, 1, 4, 5)


def _odd(u: Tensor, fewest: int, most: int) -> Tensor:
    return fewest + 2 * (u * ((most - fewest) // 2 + 1)).long()


def _slants(amount: Tensor, angle: Tensor, limit: float) -> Tensor:
    turn = 2 * math.pi * angle
    return limit * amount[..., None] * torch.stack([turn.cos(), turn.sin()], -1)


def _even(size: float) -> int:
    return 2 * math.ceil(size / 2)
