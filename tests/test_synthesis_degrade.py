"""Sensor noise and codec loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from pahs.data.degrade import BLOCK, add_noise, compress
from pahs.data.photos import PhotoPool
from pahs.data.synthesis import PhotoSource
from pahs.data.synthesis_config import SynthesisConfig


def test_noise_has_the_variance_of_the_formula() -> None:
    normal = torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    shot, read = torch.tensor(2e-3), torch.tensor(0.01)
    for level in (0.0, 0.2, 0.9):
        noisy = add_noise(torch.full_like(normal, level), shot, read, normal)
        assert float(noisy.mean()) == pytest.approx(level, abs=2e-4)
        assert float(noisy.var()) == pytest.approx(2e-3 * level + 1e-4, rel=0.02)


def ramp_and_texture(height: int = 64, width: int = 80) -> Tensor:
    """A smooth picture with grain: what compression flattens."""
    random = np.random.default_rng(0)
    small = Image.fromarray(random.integers(0, 256, (5, 6, 3), np.uint8)).resize((width, height))
    grain = random.normal(0, 6, (height, width, 1))
    pixels = np.clip(np.asarray(small, np.float64) + grain, 0, 255) / 255
    return torch.from_numpy(pixels).permute(2, 0, 1)[None]


def mean_error(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().mean())


def test_best_quality_is_nearly_the_same_picture() -> None:
    """What is left is the halved chroma: a grey picture comes back exactly."""
    grey = ramp_and_texture().mean(1, keepdim=True).expand(-1, 3, -1, -1).contiguous()
    assert mean_error(compress(grey, torch.tensor([100.0])), grey) < 1e-4
    colour = ramp_and_texture()
    assert mean_error(compress(colour, torch.tensor([100.0])), colour) < 0.02


def test_low_quality_shows_blocks() -> None:
    """Steps between neighbours gather at the edges of 8x8 blocks."""
    frame = ramp_and_texture().mean(1, keepdim=True).expand(-1, 3, -1, -1).contiguous()
    coded = compress(frame, torch.tensor([8.0]))
    steps = coded[0, 0].diff(dim=-1).abs()
    edge = torch.arange(steps.shape[-1]) % BLOCK == BLOCK - 1
    assert float(steps[:, edge].mean()) > 2 * float(steps[:, ~edge].mean())
    before = frame[0, 0].diff(dim=-1).abs()
    assert float(before[:, edge].mean()) < 1.3 * float(before[:, ~edge].mean())


def test_loss_grows_as_quality_falls_and_is_per_frame() -> None:
    frames = ramp_and_texture().expand(4, -1, -1, -1).contiguous()
    coded = compress(frames, torch.tensor([95.0, 60.0, 30.0, 8.0]).double())
    errors = [mean_error(c, f) for c, f in zip(coded, frames, strict=True)]
    assert errors == sorted(errors)
    assert errors[3] > 2 * errors[0]


def test_quantisation_agrees_with_a_real_jpeg() -> None:
    """Same tables, same blocks: a grey picture loses about as much as in Pillow's encoder."""
    import io

    grey = (ramp_and_texture().mean(1)[0] * 255).round()
    file = io.BytesIO()
    Image.fromarray(grey.byte().numpy()).save(file, "JPEG", quality=40)
    jpeg = torch.from_numpy(np.array(Image.open(file), np.float64))
    ours = compress((grey / 255).expand(1, 3, -1, -1).contiguous(), torch.tensor([40.0]).double())[0, 0] * 255
    assert mean_error(ours, jpeg) < 0.35 * mean_error(grey, jpeg)


@pytest.mark.parametrize("size", [(16, 16), (17, 30), (9, 8)])
def test_any_size_comes_back(size: tuple[int, int]) -> None:
    frame = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(0))
    coded = compress(frame, torch.tensor([50.0]))
    assert coded.shape == frame.shape
    assert 0 <= float(coded.amin()) <= float(coded.amax()) <= 1


def test_only_the_blurry_frames_of_the_chosen_clips_are_degraded() -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)).resize((80, 80))
    pool = PhotoPool.from_images([picture])
    clean = SynthesisConfig(
        frames=2,
        height=16,
        width=16,
        sub_frames=3,
        noise_share=0,
        codec_share=0,
        still_share=0,
        linear_share=0,
    )
    worn = replace(clean, noise_share=0.5, codec_share=0.5, codec_quality=(10, 20), read_noise=(0.02, 0.03))
    (clean_blurry, clean_sharp), (blurry, sharp) = (PhotoSource(pool, c, 0).batch(24) for c in (clean, worn))
    assert torch.equal(clean_sharp, sharp)
    touched = (blurry - clean_blurry).abs().amax((1, 2, 3, 4)) > 1e-6
    assert 8 <= int(touched.sum()) <= 23
