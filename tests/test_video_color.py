"""Colour conversion against the textbook formula, and the promise that no change means no change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pahs.video import PixelLayout, apply_change, to_rgb
from pahs.video.frames import luma_weights

BT601, BT709, BT2020 = (0.299, 0.114), (0.2126, 0.0722), (0.2627, 0.0593)


def random_planes(pixels: PixelLayout, height: int, width: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    vertical, horizontal = pixels.subsampling
    small = (-(-height // vertical), -(-width // horizontal))
    count = 1 if pixels.family == "gray" else 3
    shapes = [(height, width)] + [small] * (count - 1)
    return tuple(rng.integers(0, 2**pixels.depth, shape).astype(pixels.dtype) for shape in shapes)


def naive_rgb(planes: tuple[np.ndarray, ...], pixels: PixelLayout) -> np.ndarray:
    """float64, one formula after the other, chroma placed by its position and np.interp."""
    samples = [p.astype(np.float64) for p in planes]
    unit = 2.0 ** (pixels.depth - 8)
    if pixels.family == "rgb":
        g, b, r = samples
        return np.stack((r, g, b)) / (256 * unit - 1)
    if pixels.full_range:
        y, spread = samples[0] / (256 * unit - 1), 256 * unit - 1
    else:
        y, spread = (samples[0] - 16 * unit) / (219 * unit), 224 * unit
    if pixels.family == "gray":
        return np.stack((y, y, y))
    height, width = y.shape
    vertical, horizontal = pixels.subsampling

    def spread_out(plane: np.ndarray) -> np.ndarray:
        offset = 0.0 if pixels.chroma_site == "left" or horizontal == 1 else 0.5
        columns = np.arange(plane.shape[1]) * horizontal + offset
        plane = np.stack([np.interp(np.arange(width), columns, row) for row in plane])
        rows = np.arange(plane.shape[0]) * vertical + (vertical - 1) / 2
        return np.stack([np.interp(np.arange(height), rows, column) for column in plane.T]).T

    cb, cr = (spread_out((p - 128 * unit) / spread) for p in samples[1:])
    kr, kb = pixels.luma_weights
    r = y + (2 - 2 * kr) * cr
    b = y + (2 - 2 * kb) * cb
    return np.stack((r, (y - kr * r - kb * b) / (1 - kr - kb), b))


@pytest.mark.parametrize("weights", [BT601, BT709, BT2020])
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("depth", [8, 10, 12, 16])
@pytest.mark.parametrize("family", ["yuv420", "yuv422", "yuv444", "gray", "rgb"])
def test_rgb_follows_the_textbook(weights, full_range, depth, family):
    for site in ("left", "center"):
        pixels = PixelLayout(family, depth, full_range, weights, site)
        planes = random_planes(pixels, 13, 18)
        rgb = to_rgb(planes, pixels)
        assert rgb.dtype == torch.float32
        np.testing.assert_allclose(rgb.numpy(), naive_rgb(planes, pixels), atol=2e-6)


def test_colours_that_rgb_cannot_show_survive():
    pixels = PixelLayout("yuv444")
    planes = tuple(np.full((2, 2), v, np.uint8) for v in (5, 250, 10))
    rgb = to_rgb(planes, pixels)
    assert rgb.min() < -0.5 and rgb.max() > 0.5


layouts = st.builds(
    PixelLayout,
    family=st.sampled_from(["yuv420", "yuv422", "yuv444", "gray", "rgb"]),
    depth=st.sampled_from([8, 10, 12, 16]),
    full_range=st.booleans(),
    luma_weights=st.sampled_from([BT601, BT709, BT2020]),
    chroma_site=st.sampled_from(["left", "center"]),
)


@settings(deadline=None, max_examples=60)
@given(layouts, st.integers(1, 17), st.integers(1, 17), st.integers(0, 99))
def test_no_change_gives_the_same_samples_back(pixels, height, width, seed):
    planes = random_planes(pixels, height, width, seed)
    rgb = to_rgb(planes, pixels)
    back = apply_change(planes, rgb, rgb.clone(), pixels)
    for before, after in zip(planes, back, strict=True):
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("family", ["yuv444", "rgb"])
@pytest.mark.parametrize("depth", [8, 10])
def test_a_change_arrives(family, depth):
    pixels = PixelLayout(family, depth, False, BT601)
    middle, step = 2 ** (depth - 1), 2 ** (depth - 8)
    rng = np.random.default_rng(1)
    planes = tuple(
        rng.integers(middle - 20 * step, middle + 20 * step, (8, 9)).astype(pixels.dtype) for _ in "yuv"
    )
    rgb = to_rgb(planes, pixels)
    wanted = rgb + 0.05 * torch.randn(rgb.shape, generator=torch.Generator().manual_seed(0))
    got = to_rgb(apply_change(planes, rgb, wanted, pixels), pixels)
    assert (got - wanted).abs().max() < 2.5 / (219 * step)


@pytest.mark.parametrize("site", ["left", "center"])
@pytest.mark.parametrize("family", ["yuv420", "yuv422"])
def test_a_smooth_change_arrives_through_subsampled_chroma(family, site):
    pixels = PixelLayout(family, 8, False, BT709, site)
    height, width = 15, 22
    planes = tuple(np.full_like(p, 128) for p in random_planes(pixels, height, width))
    rgb = to_rgb(planes, pixels)
    ramp = torch.linspace(-0.1, 0.1, width).expand(height, width)
    wanted = rgb + torch.stack((ramp, -ramp, 0.5 * ramp))
    got = to_rgb(apply_change(planes, rgb, wanted, pixels), pixels)
    # Half a step of rounding in each of three planes, and the ends of the ramp, where chroma is held constant.
    assert (got - wanted)[..., 2:-2].abs().max() < 2.5 / 219


def test_samples_stop_at_the_ends_of_the_scale_and_nan_changes_nothing():
    pixels = PixelLayout("yuv420", 10)
    planes = random_planes(pixels, 6, 6)
    rgb = to_rgb(planes, pixels)
    bright = apply_change(planes, rgb, rgb + 10, pixels)
    dark = apply_change(planes, rgb, rgb - 10, pixels)
    assert (bright[0] == 1023).all() and (dark[0] == 0).all()
    broken = apply_change(planes, rgb, torch.full_like(rgb, float("nan")), pixels)
    assert all(np.array_equal(a, b) for a, b in zip(planes, broken, strict=True))
    half = apply_change(planes, rgb, torch.full_like(rgb, float("inf")).half(), pixels)
    assert all(np.array_equal(a, b) for a, b in zip(planes, half, strict=True))


def test_unspecified_matrix_depends_on_the_size():
    assert luma_weights(2, 640, 480) == BT601
    assert luma_weights(2, 1280, 720) == BT709
    assert luma_weights(2, 720, 1280) == BT709
    assert luma_weights(9, 640, 480) == BT2020
    assert luma_weights(6, 1920, 1080) == BT601


def test_a_layout_knows_ffmpegs_name_and_refuses_odd_depths():
    assert PixelLayout("yuv422", 10).name == "yuv422p10le"
    assert PixelLayout("rgb").name == "gbrp"
    assert PixelLayout("gray", 12).name == "gray12le"
    with pytest.raises(ValueError, match="depth 9"):
        PixelLayout("yuv420", 9)
