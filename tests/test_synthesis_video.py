"""Blur from sharp video, and the datasets that `synthesize` writes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from pahs.data.flow import interpolate, optical_flow, unreliable_share, warp
from pahs.data.from_video import VideoBlurConfig, expose_video
from pahs.data.layouts import open_dataset
from pahs.data.synthesis_config import SynthesisConfig
from pahs.errors import PahsError
from pahs.synthesize import synthesize

SMALL = SynthesisConfig(frames=3, height=16, width=24, sub_frames=3)
HEIGHT, WIDTH = 72, 96


def texture(seed: int, x: Tensor, y: Tensor) -> Tensor:
    """A pattern that can be evaluated anywhere: the same scene at any moment, without resampling."""
    g = torch.Generator().manual_seed(seed)
    value = torch.zeros(3, *x.shape)
    for _ in range(24):
        angle = 2 * math.pi * float(torch.rand(1, generator=g))
        pitch = 2 * math.pi / (5 + 30 * float(torch.rand(1, generator=g)))
        wave = torch.sin(pitch * (x * math.cos(angle) + y * math.sin(angle)) + 7 * torch.rand(1, generator=g))
        value += torch.rand(3, 1, 1, generator=g) * wave
    return 0.5 + 0.5 * torch.tanh(value / 2)


def moving(moment: float, speed: tuple[float, float] = (6.0, 2.0), ball: float = -5.0) -> Tensor:
    """A panning background and a ball that goes the other way, at any moment (in frames)."""
    y, x = torch.meshgrid(torch.arange(HEIGHT) * 1.0, torch.arange(WIDTH) * 1.0, indexing="ij")
    back = texture(1, x + speed[0] * moment, y + speed[1] * moment)
    cx, cy = WIDTH / 2 + ball * (moment - 2), HEIGHT / 2
    inside = (16.5 - torch.hypot(x - cx, y - cy)).clamp(0, 1)
    return torch.lerp(back, texture(2, x - cx, y - cy), inside)


def psnr(a: Tensor, b: Tensor) -> float:
    return -10 * math.log10(float((a - b).square().mean()))


# ---------------------------------------------------------------- flow and interpolation


def test_flow_finds_a_known_motion() -> None:
    first, second = moving(0, ball=-6.0)[None], moving(1, ball=-6.0)[None]
    flow = optical_flow(first, second)[0]
    edge = flow[:, 12:-12, 12:40]
    assert float((edge[0] + 6).abs().median()) < 0.2
    assert float((edge[1] + 2).abs().median()) < 0.2
    assert psnr(warp(second, flow[None])[..., 12:-12, 12:40], first[..., 12:-12, 12:40]) > 30


def test_flow_of_a_still_scene_is_zero_and_trusted() -> None:
    frame = moving(0)[None]
    flow = optical_flow(frame, frame)
    assert float(flow.abs().max()) < 1e-3
    assert unreliable_share(flow, flow) == 0
    assert torch.allclose(interpolate(frame, frame, flow, flow, 0.3), frame, atol=1e-4)


def test_flow_between_different_scenes_is_not_trusted() -> None:
    first, second = moving(0)[None], moving(0)[None].flip(-1).rot90(2, (-2, -1))
    assert unreliable_share(optical_flow(first, second), optical_flow(second, first)) > 0.25


def test_interpolation_removes_the_ghosts() -> None:
    """The numbers in docs/synthesis.md: against the true average of a video eight times as fast."""
    factor, average = 8, 15
    frames = [moving(i) for i in (1, 2, 3)]
    moments = [2 + k / factor for k in range(-(average // 2), average // 2 + 1)]
    true = torch.stack([moving(m) for m in moments]).mean(0)
    [(blurry, sharp)] = expose_video(frames, factor=factor, average=average, unreliable=0.5)
    assert torch.equal(sharp, frames[1])
    plain = torch.stack(frames).mean(0)
    inner = (..., slice(12, -12), slice(12, -12))
    ours, ghosts = psnr(blurry[inner], true[inner]), psnr(plain[inner], true[inner])
    print(f"against the true average: frames averaged {ghosts:.1f} dB, interpolated first {ours:.1f} dB")
    assert ours > ghosts + 8


# ---------------------------------------------------------------- exposures


def test_fast_video_is_averaged_as_it_is() -> None:
    frames = [(moving(i / 8) * 255).round().to(torch.uint8) for i in range(11)]
    pairs = expose_video(frames, factor=1, average=5)
    assert len(pairs) == 2
    for index, (blurry, sharp) in enumerate(pairs):
        own = torch.stack(frames[5 * index : 5 * index + 5]).float() / 255
        assert torch.allclose(blurry, own.mean(0), atol=1e-6)
        assert torch.equal(sharp, own[2])


def test_light_and_stored_averages_follow_their_formulas() -> None:
    black, white = torch.zeros(3, 16, 16), torch.full((3, 16, 16), 0.12)
    frames = [black, black, white]
    for gamma, expected in ((1.0, 0.04), (2.0, 0.12 / math.sqrt(3))):
        [(blurry, _)] = expose_video(frames, factor=1, average=3, gamma=gamma, unreliable=1)
        assert float(blurry.mean()) == pytest.approx(expected, abs=1e-5)


def test_a_cut_ends_the_stretch() -> None:
    take = [moving(i / 8) for i in range(12)]
    other = [1 - frame for frame in take[:6]]
    pairs = expose_video(other + take, factor=1, average=3)
    assert len(pairs) == 4
    assert all(any(torch.equal(sharp, frame) for frame in take) for _, sharp in pairs)
    assert expose_video([take[0], other[0], take[0]], factor=4, average=5) == []


def test_motion_that_cannot_be_followed_gives_nothing() -> None:
    noise = torch.Generator().manual_seed(0)
    frames = [torch.rand(3, 48, 48, generator=noise) for _ in range(5)]
    assert expose_video(frames, factor=8, average=9) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("average", (0, 5)),
        ("average", (4, 4)),
        ("rate", 0),
        ("linear_share", 2),
        ("unreliable", -0.1),
        ("gamma", (0, 2)),
        ("short_side", 4),
    ],
)
def test_wrong_video_configuration_names_the_field(field: str, value: object) -> None:
    with pytest.raises(PahsError, match=field):
        VideoBlurConfig(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(PahsError, match="odd"):
        expose_video([moving(0)], factor=1, average=4)


def test_factor_brings_ordinary_video_to_the_rate() -> None:
    config = VideoBlurConfig()
    assert [config.factor(rate) for rate in (23.976, 30, 60, 240, 960)] == [10, 8, 4, 1, 1]


# ---------------------------------------------------------------- datasets


def save_photos(folder: Path, count: int = 4) -> Path:
    folder.mkdir(parents=True)
    for index in range(count):
        grain = np.random.default_rng(index).integers(0, 256, (8, 10, 3), np.uint8)
        Image.fromarray(grain).resize((80, 64), Image.Resampling.BICUBIC).save(folder / f"{index}.png")
    return folder


def save_frames(folder: Path, count: int, step: float) -> Path:
    folder.mkdir(parents=True)
    for index in range(count):
        pixels = (moving(index * step) * 255).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(folder / f"frame_{index}.png")
    return folder


def test_photos_become_a_gopro_tree(tmp_path: Path) -> None:
    report = synthesize(
        [save_photos(tmp_path / "photos")], tmp_path / "out", count=4, config=SMALL, test_share=0.25
    )
    assert (report.written, report.kept) == (4, 0)
    train, test = (open_dataset(tmp_path / "out", "gopro", split) for split in ("train", "test"))
    assert [len(s) for s in train.sequences] == [3, 3, 3]
    assert [len(s) for s in test.sequences] == [3]
    blurry, sharp = (read(0) for read in (train.sequences[0].read_blurry, train.sequences[0].read_sharp))
    assert blurry.shape == sharp.shape == (16, 24, 3)
    assert not np.array_equal(blurry, sharp)
    with Image.open(report.contact_sheet) as sheet:
        assert sheet.width > sheet.height > 100
        assert np.asarray(sheet).std() > 10
    assert not list((tmp_path / "out").rglob("*.partial*"))


def files_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*.png"))}


def test_stopped_run_continues_to_the_same_dataset(tmp_path: Path) -> None:
    photos = save_photos(tmp_path / "photos")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    synthesize([photos], whole, count=3, config=SMALL, seed=5)
    synthesize([photos], parts, count=3, config=SMALL, seed=5)
    lost = parts / "train" / "photos_00001"
    before = lost / "blur" / "000000.png"
    kept = (parts / "train" / "photos_00000" / "blur" / "000000.png").stat().st_mtime_ns
    before.unlink()
    lost.rename(lost.with_name(".photos_00001.partial"))
    report = synthesize([photos], parts, count=3, config=SMALL, seed=5)
    assert (report.written, report.kept) == (1, 2)
    assert (parts / "train" / "photos_00000" / "blur" / "000000.png").stat().st_mtime_ns == kept
    assert files_of(parts) == files_of(whole)


def test_other_options_need_overwrite(tmp_path: Path) -> None:
    photos, out = save_photos(tmp_path / "photos"), tmp_path / "out"
    synthesize([photos], out, count=3, config=SMALL)
    with pytest.raises(PahsError, match="other options"):
        synthesize([photos], out, count=2, config=SMALL)
    report = synthesize([photos], out, count=2, config=SMALL, overwrite=True)
    assert (report.written, report.kept) == (2, 0)
    assert json.loads((out / "synthesis.json").read_text())["count"] == 2
    assert len(open_dataset(out, "gopro", "train").sequences) == 2


def test_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    photos, out = save_photos(tmp_path / "photos"), tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    with pytest.raises(PahsError, match="not empty"):
        synthesize([photos], out, count=1, config=SMALL)
    synthesize([photos], out, count=1, config=SMALL, overwrite=True)
    assert (out / "mine.txt").read_text() == "keep"


def test_folder_of_frames_is_a_video(tmp_path: Path) -> None:
    frames = save_frames(tmp_path / "take", 27, 1 / 8)
    video = VideoBlurConfig(average=(3, 3), linear_share=0)
    report = synthesize([frames], tmp_path / "out", config=SMALL, video=video, folder_rate=240, test_share=0)
    assert report.written == 3
    data = open_dataset(tmp_path / "out", "gopro", "train")
    read = [np.asarray(Image.open(frames / f"frame_{i}.png"), float) for i in range(3)]
    assert np.array_equal(data.sequences[0].read_sharp(0), read[1])
    assert np.abs(data.sequences[0].read_blurry(0) - np.mean(read, 0)).max() <= 0.51
    again = synthesize([frames], tmp_path / "out", config=SMALL, video=video, folder_rate=240, test_share=0)
    assert (again.written, again.kept) == (0, 3)


def test_video_file_is_interpolated_and_shrunk(tmp_path: Path) -> None:
    av = pytest.importorskip("av", reason="needs PyAV, which pahs installs")
    path = tmp_path / "clip.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=60, options={"crf": "10"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for index in range(12):
            pixels = (moving(index / 3) * 255).round().byte().permute(1, 2, 0).contiguous().numpy()
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    video = VideoBlurConfig(average=(7, 7), short_side=48, unreliable=0.6)
    report = synthesize([tmp_path], tmp_path / "out", config=SMALL, video=video, test_share=0)
    assert report.written >= 1
    sequence = open_dataset(tmp_path / "out", "gopro", "train").sequences[0]
    assert sequence.read_sharp(0).shape == (48, 64, 3)
    assert sequence.read_blurry(0).astype(float).std() < sequence.read_sharp(0).astype(float).std()


def test_video_without_usable_motion_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "noise"
    folder.mkdir()
    for index in range(8):
        grain = np.random.default_rng(index).integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(grain).save(folder / f"{index}.png")
    with pytest.raises(PahsError, match="noise"):
        synthesize([folder], tmp_path / "out", config=SMALL, folder_rate=30)


def test_videos_of_one_name_do_not_mix(tmp_path: Path) -> None:
    for side in ("a", "b"):
        save_frames(tmp_path / side / "take", 9, 1 / 8)
    video = VideoBlurConfig(average=(3, 3))
    sources = [tmp_path / "a", tmp_path / "b"]
    report = synthesize(sources, tmp_path / "out", config=SMALL, video=video, folder_rate=240, test_share=0)
    assert report.written == 2
    assert {p.name for p in (tmp_path / "out" / "train").iterdir()} == {"take_000", "take-2_000"}


def names_in(out: Path, split: str) -> list[str]:
    return sorted(p.name for p in (out / split).iterdir()) if (out / split).is_dir() else []


@pytest.mark.parametrize(("count", "share", "held_out"), [(8, 0.25, {2, 6}), (3, 0.1, {1}), (3, 0.0, set())])
def test_whole_videos_are_held_out(tmp_path: Path, count: int, share: float, held_out: set[int]) -> None:
    """Also if they are short, so that none of them has a tenth sequence."""
    takes = [save_frames(tmp_path / f"take{number}", 18, 1 / 8) for number in range(count)]
    video = VideoBlurConfig(average=(3, 3))
    synthesize(takes, tmp_path / "out", config=SMALL, video=video, folder_rate=240, test_share=share)
    expected = {number: [f"take{number}_000", f"take{number}_001"] for number in range(count)}
    assert names_in(tmp_path / "out", "test") == [n for k in sorted(held_out) for n in expected[k]]
    assert names_in(tmp_path / "out", "train") == [
        n for k in range(count) if k not in held_out for n in expected[k]
    ]


@pytest.mark.parametrize(
    ("sequences", "share", "train", "test"),
    [(10, 0.2, range(7), (8, 9)), (3, 0.5, (0,), (2,)), (2, 0.5, (0, 1), ()), (4, 0.0, range(4), ())],
)
def test_a_single_video_is_tested_on_its_end_after_a_gap(
    tmp_path: Path, sequences: int, share: float, train: range, test: range, caplog: pytest.LogCaptureFixture
) -> None:
    take = save_frames(tmp_path / "take", 9 * sequences, 1 / 8)
    video = VideoBlurConfig(average=(3, 3))
    synthesize([take], tmp_path / "out", config=SMALL, video=video, folder_rate=240, test_share=share)
    assert names_in(tmp_path / "out", "train") == [f"take_{index:03d}" for index in train]
    assert names_in(tmp_path / "out", "test") == [f"take_{index:03d}" for index in test]
    assert ("too short for test sequences" in caplog.text) == (sequences < 3)


def test_wrong_use_names_what_is_wrong(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    photos = save_photos(tmp_path / "photos", 1)
    with pytest.raises(PahsError, match="missing"):
        synthesize([tmp_path / "missing"], out)
    with pytest.raises(PahsError, match="empty"):
        synthesize([tmp_path / "empty"], out)
    with pytest.raises(PahsError, match=r"notes\.txt"):
        synthesize([tmp_path / "notes.txt"], out)
    with pytest.raises(PahsError, match="no source"):
        synthesize([], out)
    with pytest.raises(PahsError, match="count"):
        synthesize([photos], out, count=0)
    with pytest.raises(PahsError, match="test share"):
        synthesize([photos], out, test_share=0.9)
    with pytest.raises(PahsError, match="folder rate"):
        synthesize([photos], out, folder_rate=0)
    with pytest.raises(PahsError, match="is a file"):
        synthesize([photos], tmp_path / "notes.txt", count=1)
    assert not out.exists()
    single = synthesize([photos / "0.png"], out, count=1, config=SMALL)
    assert single.written == 1


def test_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(PahsError, match="cannot be written"):
        synthesize([save_photos(tmp_path / "photos")], blocked / "out", count=1, config=SMALL)
