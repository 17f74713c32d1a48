"""Blur from photos: the pool, the motion, the exposure, and what may not change about them."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pahs.data.camera import CameraResponse, finish
from pahs.data.gamma import linear_to_srgb, srgb_to_linear, to_display, to_light
from pahs.data.motion import AXES, WAVES, exposure_times, homographies, paths, sampling_grid
from pahs.data.outlines import OUTLINE_DRAWS, TEAR, outlines
from pahs.data.photos import PhotoPool
from pahs.data.synthesis import Layers, PhotoSource, expose
from pahs.data.synthesis_config import SynthesisConfig
from pahs.errors import PahsError

CLEAN = SynthesisConfig(
    frames=3, height=24, width=32, sub_frames=5, highlight_share=0, noise_share=0, codec_share=0
)


def picture(seed: int, height: int = 90, width: int = 120) -> Image.Image:
    """Smooth colours with some edges."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def pool() -> PhotoPool:
    return PhotoPool.from_images([picture(i) for i in range(4)])


def drawn_layers(pool: PhotoPool, config: SynthesisConfig, size: int = 1, seed: int = 0) -> Layers:
    return PhotoSource(pool, config, seed).draw(size)[0]


def drawn_response(pool: PhotoPool, config: SynthesisConfig, size: int) -> CameraResponse:
    return PhotoSource(pool, config, 0).draw(size)[1]


# ---------------------------------------------------------------- the pool


def save(path: Path, image: Image.Image) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def test_pool_reads_every_format_below_a_folder(tmp_path: Path) -> None:
    for name in ("a.png", "b.jpg", "below/c.webp", "below/deeper/d.TIFF"):
        save(tmp_path / name, picture(0))
    (tmp_path / "notes.txt").write_text("not a photo")
    pool = PhotoPool.load(tmp_path)
    assert pool.count == 4
    assert pool.pixels.dtype == torch.uint8


def test_pool_shrinks_to_both_sides_and_keeps_small_photos(tmp_path: Path) -> None:
    save(tmp_path / "large.png", picture(0, 200, 300))
    save(tmp_path / "long.png", picture(0, 50, 600))
    save(tmp_path / "small.png", picture(0, 40, 60))
    pool = PhotoPool.load(tmp_path, short_side=100, long_side=240)
    sizes = list(zip(pool.heights[0].tolist(), pool.widths[0].tolist(), strict=True))
    assert sizes == [(100, 150), (20, 240), (40, 60)]


def test_unreadable_photo_is_skipped_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path / "good.png", picture(0))
    (tmp_path / "broken.png").write_bytes(b"\x89PNG nothing")
    with caplog.at_level(logging.WARNING):
        assert PhotoPool.load(tmp_path).count == 1
    assert "broken.png" in caplog.text


def test_pool_errors_name_the_folder(tmp_path: Path) -> None:
    with pytest.raises(PahsError, match="missing"):
        PhotoPool.load(tmp_path / "missing")
    with pytest.raises(PahsError, match="holds no photos"):
        PhotoPool.load(tmp_path)
    (tmp_path / "broken.jpg").write_bytes(b"no")
    with pytest.raises(PahsError, match=r"broken\.jpg"):
        PhotoPool.load(tmp_path)


def test_levels_are_smaller_and_free_of_aliasing() -> None:
    """One-pixel stripes must turn grey when they are shrunk below what pixels can hold."""
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    pool = PhotoPool.from_images([Image.fromarray(stripes)], smallest_scale=0.4)
    last = len(pool.scales) - 1
    start, h, w = (int(t[last, 0]) for t in (pool.offsets, pool.heights, pool.widths))
    assert w == round(64 * float(pool.scales[last])) <= 28
    middle = pool.pixels[start : start + h * w].view(h, w, 3)[4:-4, 4:-4].float()
    assert middle.std() < 20
    assert abs(float(middle.mean()) - 127) < 5


@settings(max_examples=30, deadline=None)
@given(
    centre=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    turn=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    size=st.tuples(st.integers(2, 60), st.integers(2, 60)),
)
def test_crop_equals_a_padded_array_slice(
    centre: tuple[float, float], turn: tuple[bool, bool, bool], size: tuple[int, int]
) -> None:
    photo = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    pool = PhotoPool.from_images([Image.fromarray(photo)])
    cut = pool.crop(
        torch.tensor([0]),
        torch.tensor([0]),
        torch.tensor([centre]),
        torch.tensor([turn]).float(),
        height=size[0],
        width=size[1],
        view=torch.tensor([[6.0, 8.0]]),
    )
    need = (8, 6) if turn[2] else (6, 8)
    y, x = (
        int(v / 2 + torch.tensor(c) * (n - v)) for c, n, v in zip(centre, photo.shape[:2], need, strict=True)
    )
    pad = 200
    wide = np.pad(photo, ((pad, pad), (pad, pad), (0, 0)), mode="symmetric")
    expected = np.empty((*size, 3), np.uint8)
    for r in range(size[0]):
        for c in range(size[1]):
            down = -(r - size[0] // 2) if turn[0] else r - size[0] // 2
            right = -(c - size[1] // 2) if turn[1] else c - size[1] // 2
            if turn[2]:
                down, right = right, down
            expected[r, c] = wide[pad + y + down, pad + x + right]
    assert np.array_equal((cut[0].permute(1, 2, 0) * 255).round().byte().numpy(), expected)


# ---------------------------------------------------------------- light and motion


def test_srgb_curve_has_its_published_values() -> None:
    x = torch.tensor([0.0, 0.04045, 0.5, 1.0], dtype=torch.float64)
    expected = torch.tensor([0.0, 0.0031308, 0.2140411, 1.0], dtype=torch.float64)
    assert torch.allclose(srgb_to_linear(x), expected, atol=1e-6)
    assert torch.allclose(linear_to_srgb(srgb_to_linear(x)), x, atol=1e-6)


@given(st.floats(0, 1), st.sampled_from([0.0, 1.0, 1.8, 2.4]))
def test_light_and_display_are_inverse(value: float, gamma: float) -> None:
    x, g = torch.tensor([value], dtype=torch.float64), torch.tensor(gamma, dtype=torch.float64)
    assert torch.allclose(to_display(to_light(x, g), g), x, atol=1e-6)


def random_paths(times: Tensor, rate: float, shake: float, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    B = times.shape[0]
    return paths(
        times,
        torch.full((B, 1, 4), rate),
        torch.full((B, 1), shake),
        0.05 + 0.4 * torch.rand(B, 1, WAVES, generator=g),
        torch.randn(B, 1, AXES, 1 + WAVES, generator=g),
        torch.rand(B, 1, AXES, WAVES, generator=g),
    )


@pytest.mark.parametrize("shake", [0.0, 0.5, 1.0])
def test_paths_have_the_speed_that_was_asked_for(shake: float) -> None:
    times = torch.linspace(0, 400, 8001).expand(16, 1, -1)
    path = random_paths(times, 3.0, shake)
    velocity = path.diff(dim=-1) / 0.05
    speed = velocity[:, 0, :2].square().sum(1).mean(-1).sqrt()
    assert torch.allclose(speed, torch.full((16, 1), 3.0), rtol=0.05)
    roll = velocity[:, 0, 2].square().mean(-1).sqrt()
    assert torch.allclose(roll, torch.full((16, 1), 3.0), rtol=0.05)


def test_steady_drift_is_straight_and_shake_bends() -> None:
    times = exposure_times(4, 7, torch.ones(3))
    straight, bent = (random_paths(times, 5.0, s)[:, 0, :2].flatten(2) for s in (0.0, 1.0))
    assert straight.diff(n=2, dim=-1).abs().max() < 1e-4
    assert bent.diff(n=2, dim=-1).abs().max() > 1e-2


def test_path_continues_between_frames_at_full_duty() -> None:
    times = exposure_times(3, 5, torch.ones(1))
    steps = times.flatten().diff()
    assert torch.allclose(steps, steps[0].expand_as(steps), atol=1e-6)
    half = exposure_times(3, 5, torch.tensor([0.5]))
    assert torch.allclose(half[0, :, 2], torch.arange(3.0))
    assert float(half[0, 0].diff().sum()) == pytest.approx(0.5 * 4 / 5)


def test_homography_moves_turns_and_scales_about_the_middle() -> None:
    pose = torch.tensor([3.0, -2.0, math.pi / 2, math.log(2.0), 0.0, 0.0]).view(1, 1, 6, 1, 1)
    matrix = homographies(pose, torch.tensor([[0.5]]), torch.zeros(1, 1, 2), 8, 8)[0, 0, 0, 0]
    point = matrix @ torch.tensor([1.0, 0.0, 1.0])
    assert torch.allclose(point[:2] / point[2], 0.5 * torch.tensor([-3.0, 2.0 + 2.0]), atol=1e-5)


def test_sampling_grid_is_the_matrix_applied_to_every_pixel() -> None:
    matrix = torch.eye(3, dtype=torch.float64)[None] + 0.01 * torch.arange(9.0, dtype=torch.float64).view(
        1, 3, 3
    )
    grid = sampling_grid(matrix, 4, 6, (10, 20))
    for row in range(4):
        for col in range(6):
            p = matrix[0] @ torch.tensor([col - 2.5, row - 1.5, 1.0], dtype=torch.float64)
            expected = torch.stack([p[0] / p[2] * 2 / 20, p[1] / p[2] * 2 / 10])
            assert torch.allclose(grid[0, row, col], expected)


# ---------------------------------------------------------------- the exposure


def naive_sample(texture: Tensor, x: float, y: float, reflect: bool) -> Tensor:
    """Bilinear value of (C, h, w) at pixels x, y from its middle, written without a library."""
    C, h, w = texture.shape
    x, y = x + (w - 1) / 2, y + (h - 1) / 2
    if reflect:
        x, y = mirrored(x, w), mirrored(y, h)
    x0, y0 = math.floor(x), math.floor(y)
    value = torch.zeros(C, dtype=torch.float64)
    for dy in (0, 1):
        for dx in (0, 1):
            i, j = y0 + dy, x0 + dx
            weight = (1 - abs(y - i)) * (1 - abs(x - j))
            if 0 <= i < h and 0 <= j < w:
                value += weight * texture[:, i, j]
    return value


def mirrored(v: float, n: int) -> float:
    v = abs(v + 0.5) % (2 * n)
    return min(max(min(v, 2 * n - v) - 0.5, 0), n - 1)


def test_exposure_equals_a_naive_one(pool: PhotoPool) -> None:
    """Every pixel of one clip again, sub-frame by sub-frame and layer by layer, in double precision."""
    config = replace(
        CLEAN, frames=2, height=8, width=10, sub_frames=3, objects=(2, 2), object_size=(0.4, 0.5)
    )
    layers = drawn_layers(pool, config, seed=3)
    double = Layers(layers.background.double(), layers.objects.double(), layers.matrices.double())
    average, middle = expose(double, 8, 10)
    assert float(double.objects[0, :, 3].amax()) > 0.9
    for t in range(2):
        for row in range(8):
            for col in range(10):
                moments = []
                for s in range(3):
                    light = torch.zeros(3, dtype=torch.float64)
                    for layer in range(3):
                        texture = double.background[0] if layer == 0 else double.objects[0, layer - 1]
                        p = double.matrices[0, layer, t, s] @ torch.tensor(
                            [col - 4.5, row - 3.5, 1.0], dtype=torch.float64
                        )
                        value = naive_sample(
                            texture, float(p[0] / p[2]), float(p[1] / p[2]), reflect=layer == 0
                        )
                        light = value if layer == 0 else value[:3] + (1 - value[3]) * light
                    moments.append(light)
                assert torch.allclose(average[0, t, :, row, col], torch.stack(moments).mean(0), atol=1e-9)
                assert torch.allclose(middle[0, t, :, row, col], moments[1], atol=1e-9)


def test_runs_of_frames_do_not_change_the_result(pool: PhotoPool, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = drawn_layers(pool, CLEAN, size=2)
    whole = expose(layers, 24, 32)
    monkeypatch.setattr("pahs.data.synthesis.CHUNK_PIXELS", 1)
    for a, b in zip(whole, expose(layers, 24, 32), strict=True):
        assert torch.equal(a, b)


def test_without_motion_blurry_is_sharp_and_frames_repeat(pool: PhotoPool) -> None:
    still = replace(
        CLEAN,
        speed=(1e-6, 1e-6),
        object_speed=(1e-6, 1e-6),
        rotation=0,
        zoom=0,
        perspective=0,
        linear_share=0,
    )
    blurry, sharp = PhotoSource(pool, still, 0).batch(4)
    assert torch.allclose(blurry, sharp, atol=1e-4)
    assert torch.allclose(sharp[:, 0], sharp[:, 2], atol=1e-4)
    assert sharp.std() > 0.05


def test_motion_blurs_and_longer_exposures_blur_more(pool: PhotoPool) -> None:
    def sharpness(frames: Tensor) -> float:
        return float(frames.diff(dim=-1).square().mean() + frames.diff(dim=-2).square().mean())

    short, long = (replace(CLEAN, speed=(12, 12), still_share=0, duty=(d, d)) for d in (0.3, 1.0))
    blurry_short, sharp_short = PhotoSource(pool, short, 0).batch(8)
    blurry_long, sharp_long = PhotoSource(pool, long, 0).batch(8)
    assert sharpness(blurry_long) < sharpness(blurry_short) < sharpness(sharp_short)
    assert torch.allclose(sharp_short.mean(), sharp_long.mean(), atol=0.05)


def test_sharp_video_moves_by_the_speed(pool: PhotoPool) -> None:
    """With a steady drift along a known direction the next frame is the last one shifted."""
    config = replace(
        CLEAN,
        shake=(0, 0),
        objects=(0, 0),
        rotation=0,
        zoom=0,
        perspective=0,
        tilt=0,
        still_share=0,
        speed=(4, 4),
    )
    middle = drawn_layers(pool, config).matrices[0, 0, :, config.sub_frames // 2]
    step = (middle[1, :2, 2] - middle[0, :2, 2]) / middle[0, 0, 0]
    assert float(step.norm()) == pytest.approx(4.0, rel=1e-3)
    assert torch.allclose(middle[2] - middle[1], middle[1] - middle[0], atol=1e-3)


def test_linear_and_stored_averages_differ_as_the_formula_says(pool: PhotoPool) -> None:
    """A frame half the time white and half black is 0.5 stored, and 0.5 ** (1 / gamma) as light."""
    response = replace(drawn_response(pool, CLEAN, 3), gamma=torch.tensor([1.0, 2.2, 0.0]))
    light = torch.full((3, 3, 3, 24, 32), 0.5)
    blurry, _ = finish(response, light, light)
    expected = torch.tensor([0.5, 0.5 ** (1 / 2.2), 0.735357])
    assert torch.allclose(blurry[:, 0, 0, 0, 0], expected, atol=1e-4)


def test_shares_choose_the_curve(pool: PhotoPool) -> None:
    stored = drawn_response(pool, replace(CLEAN, linear_share=0), 8)
    light = drawn_response(pool, replace(CLEAN, linear_share=1, srgb_share=0), 8)
    srgb = drawn_response(pool, replace(CLEAN, linear_share=1, srgb_share=1), 8)
    assert (stored.gamma == 1).all()
    assert ((light.gamma >= 1.8) & (light.gamma <= 2.4)).all()
    assert (srgb.gamma == 0).all()


def test_highlights_exceed_white_and_are_clipped(pool: PhotoPool) -> None:
    bright = replace(CLEAN, highlight_share=1, highlight_gain=(4, 4), brightness=(1.2, 1.2))
    source = PhotoSource(pool, bright, 0)
    layers, _ = source.draw(4)
    assert layers.background.amax() > 2
    blurry, sharp = source.batch(4)
    for frames in (blurry, sharp):
        assert float(frames.amax()) == 1
        assert float(frames.amin()) >= 0


def test_foreground_covers_background(pool: PhotoPool) -> None:
    layers = drawn_layers(pool, replace(CLEAN, objects=(1, 1)))
    opaque = torch.zeros_like(layers.objects)
    opaque[:, :, 0] = 1
    opaque[:, :, 3] = 1
    half = opaque.clone()
    half[..., : half.shape[-1] // 2] = 0
    matrices = torch.eye(3).expand_as(layers.matrices)
    bare, _ = expose(replace(layers, matrices=matrices, objects=torch.zeros_like(opaque)), 24, 32)
    covered, _ = expose(replace(layers, matrices=matrices, objects=opaque), 24, 32)
    split, _ = expose(replace(layers, matrices=matrices, objects=half), 24, 32)
    assert torch.allclose(covered, torch.tensor([1.0, 0, 0]).view(3, 1, 1).expand_as(covered))
    assert torch.allclose(split[..., 17:], covered[..., 17:])
    assert torch.allclose(split[..., :15], bare[..., :15])


def test_number_of_objects_follows_the_range(pool: PhotoPool) -> None:
    layers = drawn_layers(pool, replace(CLEAN, objects=(1, 3), object_size=(0.3, 0.4)), size=48)
    number = (layers.objects[:, :, 3].amax((-1, -2)) > 0.5).sum(1)
    assert set(number.tolist()) == {1, 2, 3}
    assert drawn_layers(pool, replace(CLEAN, objects=(0, 0))).objects.shape[1] == 0


def test_outlines_are_soft_solid_and_about_as_large_as_asked() -> None:
    g = torch.Generator().manual_seed(0)
    u = torch.rand(64, OUTLINE_DRAWS, generator=g)
    u[:, 4] = 1  # not torn
    tear = torch.randn(64, 1, TEAR, TEAR, generator=g)
    shape = outlines(u, tear, (96, 96), torch.ones(64), torch.full((64,), 20.0))
    assert float(shape.amin()) == 0
    assert float(shape.amax()) == 1
    area = shape.sum((1, 2, 3))
    assert float(area.median()) == pytest.approx(math.pi * 400, rel=0.5)
    assert (shape[:, 0, 47:49, 47:49] > 0.9).float().mean() > 0.8
    assert ((shape > 0.01) & (shape < 0.99)).any((1, 2, 3)).all()
    u[:, 4] = 0
    torn = outlines(u, tear, (96, 96), torch.ones(64), torch.full((64,), 20.0))
    assert float(torn.sum()) < 0.9 * float(shape.sum())


# ---------------------------------------------------------------- the source


def test_batch_has_the_promised_form_and_clips_differ(pool: PhotoPool) -> None:
    config = replace(SynthesisConfig(), frames=2, height=40, width=24, sub_frames=3)
    blurry, sharp = PhotoSource(pool, config, 0).batch(3)
    for frames in (blurry, sharp):
        assert frames.shape == (3, 2, 3, 40, 24)
        assert frames.dtype == torch.float32
        assert torch.isfinite(frames).all()
        assert 0 <= float(frames.amin()) <= float(frames.amax()) <= 1
        assert not torch.equal(frames[0], frames[1])
        assert not torch.equal(frames[0, 0], frames[0, 1])
    assert not torch.equal(blurry, sharp)


def test_seed_decides_and_state_restores_bit_for_bit(pool: PhotoPool) -> None:
    config = replace(SynthesisConfig(), frames=2, height=16, width=16, sub_frames=3)
    source = PhotoSource(pool, config, 7)
    first = source.batch(2)
    state = source.generator.get_state()
    second = source.batch(2)
    again = PhotoSource(pool, config, 7)
    assert all(torch.equal(a, b) for a, b in zip(first, again.batch(2), strict=True))
    other = PhotoSource(pool, config, 8)
    assert not torch.equal(other.batch(2)[0], first[0])
    other.generator.set_state(state)
    assert all(torch.equal(a, b) for a, b in zip(second, other.batch(2), strict=True))


class _NoWaiting(TorchDispatchMode):
    """Fails on anything that would make the host wait for the device or copy to it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = str(func)
        assert not name.startswith(("aten._local_scalar_dense", "aten.nonzero", "aten.lift_fresh")), name
        return func(*args, **(kwargs or {}))


def test_batch_never_waits_for_the_device(pool: PhotoPool) -> None:
    source = PhotoSource(pool, replace(SynthesisConfig(), frames=2, height=16, width=16, sub_frames=3), 0)
    source.batch(1)
    with _NoWaiting():
        source.batch(1)


def test_windows_with_detail_are_preferred() -> None:
    """Of a blank and a busy photo the blank one is used only where no other window was looked at."""
    pool = PhotoPool.from_images([picture(0), Image.new("RGB", (120, 90), "grey")])
    config = replace(CLEAN, objects=(0, 0))
    blank = []
    for candidates in (1, 2):
        textures = drawn_layers(pool, replace(config, candidates=candidates), 128).background
        blank.append(float((textures.std((1, 2, 3)) < 0.02).float().mean()))
    assert blank[0] == pytest.approx(0.5, abs=0.15)
    assert blank[1] == pytest.approx(0.25, abs=0.12)


def test_pool_without_small_levels_is_refused() -> None:
    large = PhotoPool.from_images([picture(0)], smallest_scale=0.8)
    with pytest.raises(PahsError, match=r"smallest_scale=0\.4"):
        PhotoSource(large, CLEAN, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frames", 0),
        ("candidates", 0),
        ("height", 4),
        ("sub_frames", 14),
        ("duty", (0.5, 1.5)),
        ("speed", (0.0, 3.0)),
        ("speed", (5.0, 3.0)),
        ("speed", (1.0, 2.0, 3.0)),
        ("noise_share", 1.5),
        ("zoom", -0.1),
        ("object_size", (0.1, 0.9)),
        ("tilt", 0.9),
        ("codec_quality", (0.0, 50.0)),
    ],
)
def test_wrong_configuration_names_the_field(field: str, value: object) -> None:
    with pytest.raises(PahsError, match=field):
        replace(SynthesisConfig(), **{field: value})  # type: ignore[arg-type]


def test_ranges_from_a_file_become_tuples() -> None:
    config = SynthesisConfig(speed=[2.0, 3.0])  # type: ignore[arg-type]
    assert config.speed == (2.0, 3.0)
    assert hash(config) == hash(SynthesisConfig(speed=(2.0, 3.0)))
