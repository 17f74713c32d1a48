"""Metrics against scikit-image, and the cases it does not define."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from pahs.evaluation.metrics import PSNR_CAP, mean_psnr, psnr, ssim

extents = st.integers(11, 40)
seeds = st.integers(0, 2**31)


def oracle_ssim(a: np.ndarray, b: np.ndarray, data_range: float) -> float:
    return float(
        structural_similarity(
            a,
            b,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=data_range,
            channel_axis=2 if a.ndim == 3 else None,
        )
    )


def two_pictures(height: int, width: int, seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    a = random.random((height, width, 3))
    return a, np.clip(a + noise * random.standard_normal(a.shape), 0, 1)


@settings(deadline=None, max_examples=40)
@given(extents, extents, seeds, st.floats(0.001, 0.5))
def test_floats_equal_scikit_image(height: int, width: int, seed: int, noise: float) -> None:
    a, b = two_pictures(height, width, seed, noise)
    assert psnr(a, b) == pytest.approx(peak_signal_noise_ratio(a, b, data_range=1), abs=1e-6)
    assert ssim(a, b) == pytest.approx(oracle_ssim(a, b, 1.0), abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(extents, extents, seeds, st.floats(0.01, 0.5))
def test_bytes_equal_scikit_image(height: int, width: int, seed: int, noise: float) -> None:
    a, b = ((x * 255).round().astype(np.uint8) for x in two_pictures(height, width, seed, noise))
    assert psnr(a, b) == pytest.approx(peak_signal_noise_ratio(a, b, data_range=255), abs=1e-6)
    assert ssim(a, b) == pytest.approx(oracle_ssim(a, b, 255.0), abs=1e-6)
    tensors = [torch.from_numpy(x).permute(2, 0, 1) for x in (a, b)]
    assert psnr(*tensors) == pytest.approx(psnr(a, b), abs=1e-9)
    assert ssim(*tensors) == pytest.approx(ssim(a, b), abs=1e-9)


def test_one_channel_and_other_ranges() -> None:
    a, b = (x[..., 0] for x in two_pictures(30, 17, 3, 0.1))
    assert ssim(a, b) == pytest.approx(oracle_ssim(a, b, 1.0), abs=1e-6)
    deep_a, deep_b = ((x * 1023).round().astype(np.int32) for x in (a, b))
    assert ssim(deep_a, deep_b, data_range=1023) == pytest.approx(
        oracle_ssim(deep_a.astype(np.float64), deep_b.astype(np.float64), 1023.0), abs=1e-6
    )
    assert psnr(deep_a, deep_b, 1023) == pytest.approx(
        peak_signal_noise_ratio(deep_a, deep_b, data_range=1023), abs=1e-6
    )
    with pytest.raises(ValueError, match="data_range"):
        psnr(deep_a, deep_b)


def test_known_value_and_identity() -> None:
    black = np.zeros((16, 16, 3), np.uint8)
    assert psnr(black, black + 1) == pytest.approx(20 * math.log10(255))
    picture, _ = two_pictures(16, 16, 0, 0.1)
    assert psnr(picture, picture) == math.inf
    assert ssim(picture, picture) == pytest.approx(1)


def test_a_perfect_frame_leaves_the_mean_finite() -> None:
    assert mean_psnr([math.inf, 20.0, PSNR_CAP + 50]) == pytest.approx((2 * PSNR_CAP + 20) / 3)
    assert math.isnan(mean_psnr([]))


def test_single_precision_is_computed_in_double() -> None:
    a, b = two_pictures(24, 24, 5, 0.05)
    x, y = (torch.from_numpy(p).permute(2, 0, 1).float().requires_grad_() for p in (a, b))
    doubled = [p.detach().double().permute(1, 2, 0).numpy() for p in (x, y)]
    assert ssim(x, y) == pytest.approx(oracle_ssim(*doubled, 1.0), abs=1e-9)


def test_pictures_that_cannot_be_compared() -> None:
    a = np.zeros((16, 16, 3), np.uint8)
    with pytest.raises(ValueError, match="differ"):
        psnr(a, a[:15])
    with pytest.raises(ValueError, match="differ"):
        psnr(a, a.astype(np.float64))
    with pytest.raises(ValueError, match="arrays or two tensors"):
        psnr(a, torch.from_numpy(a))
    with pytest.raises(ValueError, match="axes"):
        psnr(a[None], a[None])
    with pytest.raises(ValueError, match="11x11"):
        ssim(a[:10], a[:10])
