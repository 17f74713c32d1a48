"""An endless source of blurry and sharp clips made from sharp video, on whichever device holds it.

Real scenes have what moved photos lack: depth, people who walk, things that appear from behind others. The
moments between the frames of each video are interpolated once (`flow`) and kept as bytes; a clip is then a window of
them, averaged around each frame of the video, so that no truth is ever an interpolated frame.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.data.camera import CameraResponse, draw_response, finish
from pahs.data.flow import disagreement, interpolate, optical_flow
from pahs.data.gamma import to_light
from pahs.data.synthesis_config import SynthesisConfig
from pahs.errors import PahsError
from pahs.levels import to_levels

AT_ONCE = 4
"""Pairs of neighbouring frames that are interpolated together."""


@dataclass(frozen=True)
class FootageConfig:
    """Sharp videos from which a share of the clips is made, besides those from photos."""

    root: str = ""
    """A folder of sharp videos, or of folders that hold a video's numbered frames; empty: photos only."""
    share: float = 0.25
    """Share of the clips of a batch that come from the videos, rounded to whole clips."""
    short_side: int = 720
    """Larger frames are shrunk to this."""
    most_frames: int = 400
    """Frames kept of all videos together; each frame of 1280x720 takes 2.8 MB times `moments` on the device."""
    moments: int = 10
    """Moments from one frame to the next, the frame itself included."""
    average: tuple[int, int] = (5, 11)
    """Fewest and most moments averaged per exposure; odd numbers are drawn."""
    stride: tuple[int, int] = (1, 2)
    """Fewest and most frames from one exposure to the next, which lasts that much longer too: faster motion."""
    shrink: tuple[int, int] = (1, 3)
    """Least and most by which a clip is shrunk: small pictures of fine detail and short motion, or large ones."""
    unreliable: float = 0.5
    """Share of pixels that may lack a trustworthy flow before two neighbouring frames are not joined."""

    def __post_init__(self) -> None:
        for name in ("average", "stride", "shrink"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise PahsError(
                    f"footage {name}: give (least, most) with 1 <= least <= most, not {(low, high)}"
                )
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not 0 < self.share <= 1:
            raise PahsError(f"footage share: must be above 0 and at most 1, got {self.share}")
        low, high = self.average
        if not (low % 2 and high % 2):
            raise PahsError(f"footage average: give two odd numbers, not {self.average}")
        if high > 2 * self.moments - 1:
            raise PahsError(
                f"footage average: at most {2 * self.moments - 1} moments lie between a frame's neighbours "
                f"with moments = {self.moments}, got {high}"
            )

    def clips_of(self, batch: int) -> int:
        """How many of a batch of clips come from the videos."""
        return round(self.share * batch) if self.root else 0


@dataclass(frozen=True)
class Take:
    """Consecutive frames of one scene, with the moments between them."""

    moments: Tensor
    """(frames * per_frame + 1, 3, H, W) uint8; every `per_frame`-th is a frame of the video, the first and last too."""
    per_frame: int

    @property
    def frames(self) -> int:
        return len(self.moments) // self.per_frame + 1

    def spare(self, exposures: int, stride: int) -> int:
        """How many clips of so many exposures it holds, each with a stride of frames before and after it."""
        return self.frames - (exposures + 1) * stride

    def fits(self, exposures: int, stride: int, side: int) -> bool:
        return self.spare(exposures, stride) > 0 and min(self.moments.shape[-2:]) >= side


@torch.no_grad()
def takes(frames: Sequence[Tensor], config: FootageConfig, device: torch.device | str) -> list[Take]:
    """Interpolate a video, frames (3, H, W) uint8, and cut it where its motion cannot be followed."""
    runs: list[list[Tensor]] = []
    joined = False
    for start in range(0, len(frames) - 1, AT_ONCE):
        both = torch.stack([f.to(device) for f in frames[start : start + AT_ONCE + 1]])
        first, second = both[:-1].float() / 255, both[1:].float() / 255
        there, back = optical_flow(first, second), optical_flow(second, first)
        followed = (disagreement(there, back) > 1).float().mean((1, 2, 3)) <= config.unreliable
        between = [
            to_levels(interpolate(first, second, there, back, moment / config.moments))
            for moment in range(1, config.moments)
        ]
        for pair, known in enumerate(followed.tolist()):
            if not known:
                joined = False
                continue
            if not joined:
                runs.append([both[pair][None]])
            runs[-1] += [*(m[pair][None] for m in between), both[pair + 1][None]]
            joined = True
    return [Take(torch.cat(run), config.moments) for run in runs]


class FootageSource:
    """Clips without end: `batch(n)` gives (blurry, sharp), each (n, T, 3, H, W) float32 in [0, 1].

    Seeding `generator` decides all that follows, as with photos; windows are drawn on the host, from its seed.
    """

    def __init__(self, pool: Sequence[Take], video: FootageConfig, config: SynthesisConfig) -> None:
        self.video, self.config = video, config
        side = self._side(video.shrink[0])
        self.pool = [take for take in pool if take.fits(config.frames, video.stride[0], side)]
        if not self.pool:
            raise PahsError(
                f"{video.root}: no video can be followed over {(config.frames + 1) * video.stride[0] + 1} frames of "
                f"at least {side} pixels; give longer or larger sharp video, or lower data.frames"
            )
        self.generator = torch.Generator(self.pool[0].moments.device)

    @torch.no_grad()
    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """The next `size` clips: blurry and sharp."""
        draw = random.Random(self.generator.initial_seed())
        response = draw_response(self.config, size, self.generator)
        light = [self._expose(draw, response, clip) for clip in range(size)]
        average, middle = (torch.stack(x) for x in zip(*light, strict=True))
        return finish(response, average, middle)

    def _expose(self, draw: random.Random, response: CameraResponse, clip: int) -> tuple[Tensor, Tensor]:
        """Average light and middle light of one clip's exposures, (T, 3, H, W) each."""
        c, video = self.config, self.video
        take = draw.choices(self.pool, [take.spare(c.frames, video.stride[0]) for take in self.pool])[0]
        shrink, stride = draw.randint(*video.shrink), draw.randint(*video.stride)
        while not take.fits(c.frames, stride, self._side(video.shrink[0])):
            stride -= 1
        while not take.fits(c.frames, stride, self._side(shrink)):
            shrink -= 1
        hop = take.per_frame * stride
        reach = draw.randrange(video.average[0], video.average[1] + 1, 2) // 2 * stride
        swap, H, W = draw.random() < 0.5, c.height * shrink, c.width * shrink
        H, W = (W, H) if swap else (H, W)
        down = draw.randint(0, take.moments.shape[-2] - H)
        right = draw.randint(0, take.moments.shape[-1] - W)
        first = draw.randrange(take.spare(c.frames, stride)) * take.per_frame + hop
        last = first + (c.frames - 1) * hop
        window = take.moments[first - reach : last + reach + 1, :, down : down + H, right : right + W]
        brightness = draw.uniform(*c.brightness)
        gains = [brightness * draw.uniform(1 - c.tint, 1 + c.tint) for _ in range(3)]
        gain = torch.tensor(gains).to(window.device, non_blocking=True)[:, None, None] / 255
        light = to_light((window * gain).clamp_(0, 1), response.gamma[clip])
        average = light.unfold(0, 2 * reach + 1, hop).mean(-1)
        middle = light[reach::hop][: c.frames]
        flips = [axis for axis in (0, -2, -1) if draw.random() < 0.5]
        return self._view(average, shrink, swap, flips), self._view(middle, shrink, swap, flips)

    def _view(self, light: Tensor, shrink: int, swap: bool, flips: list[int]) -> Tensor:
        small = F.avg_pool2d(light, shrink) if shrink > 1 else light
        return (small.transpose(-2, -1) if swap else small).flip(flips)

    def _side(self, shrink: int) -> int:
        return max(self.config.height, self.config.width) * shrink
