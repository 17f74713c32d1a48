"""Comparison videos, images from videos and videos from images, and many files in one go."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image

import pahs
from clips import decoded, make_clip, packets_of, raw_planes
from pahs.cli import main
from pahs.networks import Deblurrer, PAHSConfig
from pahs.runtime import weights
from pahs.video import transform

LOSSLESS = pahs.EncodeOptions(lossless=True)


@pytest.fixture(scope="module")
def net() -> Deblurrer:
    torch.manual_seed(1)
    return PAHSConfig(width=6, global_skip=True, shared_extractor=True).build().eval()


@pytest.fixture(scope="module")
def net_file(net: Deblurrer, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("net") / "net.safetensors"
    weights.save(net, file)
    return str(file)


def brighter(frames):  # type: ignore[no-untyped-def]
    return (x + 0.1 for x in frames)


def shown(frame: av.VideoFrame) -> np.ndarray:
    """The luma as a viewer sees it, turned by the display matrix."""
    return np.rot90(raw_planes(frame)[0], frame.rotation // 90 % 4)


@pytest.mark.parametrize("rotation", [0, 90, 180, -90])
@pytest.mark.parametrize(
    ("mode", "pix_fmt"), [("side", "yuv420p"), ("split", "yuv422p"), ("split", "yuv420p10le")]
)
def test_each_half_of_a_comparison_has_the_samples_of_its_frame(
    tmp_path: Path, mode: str, pix_fmt: str, rotation: int
) -> None:
    source = make_clip(
        tmp_path / "clip.mp4", frames=5, width=96, height=128, rotation=rotation, pix_fmt=pix_fmt, audio="aac"
    )
    out = tmp_path / "out.mp4"
    report = transform(source.path, out, brighter, encode=LOSSLESS, compare=mode)  # type: ignore[arg-type]
    assert report.comparison == tmp_path / "out-compare.mp4"
    before, after, both = decoded(source.path), decoded(out), decoded(report.comparison)
    assert [f.pts * f.time_base for f in both] == [f.pts * f.time_base for f in before]
    assert packets_of(report.comparison, "audio") == packets_of(out, "audio") == source.audio
    for a, b, c in zip(before, after, both, strict=True):
        left, right, joined = shown(a), shown(b), shown(c)
        height, width = left.shape
        free = slice(height // 3, None)  # below the labels
        if mode == "side":
            assert joined.shape == (height, 2 * width)
            assert np.array_equal(joined[free, :width], left[free])
            assert np.array_equal(joined[free, width:], right[free])
        else:
            middle = width // 2
            assert joined.shape == (height, width)
            assert np.array_equal(joined[free, :middle], left[free, :middle])
            assert np.array_equal(joined[free, middle + 2 :], right[free, middle + 2 :])
            assert len(np.unique(joined[free, middle : middle + 2])) == 1, "a line between the halves"
        top = joined[: height // 4].astype(int)
        assert top.max() >= 235 * 2 ** (10 - 8 if "10" in pix_fmt else 0), "a white label"


def test_a_comparison_is_there_with_its_result_or_not_at_all(tmp_path: Path) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=5).path

    def failing(frames):  # type: ignore[no-untyped-def]
        yield next(frames)
        raise pahs.PahsError("broken")

    with pytest.raises(pahs.PahsError, match="broken"):
        transform(source, tmp_path / "out.mp4", failing, compare="side")
    (tmp_path / "out-compare.mp4").touch()
    with pytest.raises(pahs.PahsError, match=r"out-compare\.mp4: exists"):
        transform(source, tmp_path / "out.mp4", brighter, compare="side")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["clip.mp4", "out-compare.mp4"]


def test_results_and_comparisons_are_not_taken_as_sources(tmp_path: Path, net_file: str) -> None:
    make_clip(tmp_path / "a.mp4", frames=2)
    arguments = ["deblur", str(tmp_path), "--model", net_file, "--compare", "side"]
    assert main(arguments) == 0
    names = ["a-deblurred-compare.mp4", "a-deblurred.mp4", "a.mp4"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert main([*arguments, "--overwrite"]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == names


@pytest.mark.parametrize("format", ["png", "tif", "jpg"])
def test_a_video_becomes_a_folder_of_images_as_it_is_shown(tmp_path: Path, format: str) -> None:
    source = make_clip(
        tmp_path / "clip.mp4", frames=3, rotation=90, matrix=1, color_range=1, audio="aac"
    ).path
    options = pahs.EncodeOptions(images=format)  # type: ignore[arg-type]
    report = transform(source, tmp_path / "out", lambda frames: frames, encode=options)
    assert sorted(p.name for p in report.dst.iterdir()) == [f"00000{i}.{format}" for i in (1, 2, 3)]
    assert any("sound" in warning for warning in report.warnings)
    frame = decoded(source)[1]
    expected = np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90 % 4).astype(int)
    with Image.open(report.dst / f"000002.{format}") as image:
        found = np.asarray(image.convert("RGB")).astype(int)
    assert found.shape == expected.shape
    # FFmpeg's own conversion repeats chroma samples, ours interpolates: edges differ.
    assert abs(found.mean((0, 1)) - expected.mean((0, 1))).max() < 4
    assert np.median(abs(found - expected)) <= 6


def test_deep_video_becomes_16_bit_images(tmp_path: Path) -> None:
    source = make_clip(tmp_path / "clip.mkv", frames=2, pix_fmt="yuv420p10le", codec="libx265").path
    options = pahs.EncodeOptions(images="png")
    transform(source, tmp_path / "out", lambda frames: frames, encode=options)
    assert decoded(tmp_path / "out" / "000001.png")[0].format.name == "rgb48be"


@pytest.mark.parametrize(("fps", "rate"), [(None, 25), (10, 10), (23.976, Fraction(24000, 1001))])
def test_a_folder_of_images_becomes_a_video_that_plays_everywhere(
    tmp_path: Path, net: Deblurrer, fps: float | None, rate: Fraction
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    colours = [(200, 30, 40), (20, 180, 60), (30, 60, 190)]
    for i, colour in enumerate(colours):
        Image.new("RGB", (64, 48), colour).save(folder / f"{i}.png")
    report = pahs.deblur(folder, tmp_path / "out.mp4", pahs.DeblurOptions(fps=fps, strength=0), model=net)
    frames = decoded(report.dst)
    assert [f.pts * f.time_base for f in frames] == [i / Fraction(rate) for i in range(3)]
    assert frames[0].format.name == "yuv420p" and frames[0].colorspace == 1
    for frame, colour in zip(frames, colours, strict=True):
        seen = frame.reformat(format="rgb24", src_colorspace="ITU709").to_ndarray()
        assert abs(seen.astype(int) - colour).max() <= 4


def test_fps_alone_makes_a_video_next_to_the_folder(tmp_path: Path, net_file: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(2):
        Image.new("RGB", (64, 48), (90, 90, 90)).save(folder / f"{i}.png")
    assert main(["deblur", str(folder), "--fps", "12", "--model", net_file]) == 0
    assert len(decoded(tmp_path / "in-deblurred.mp4")) == 2
    clip = make_clip(tmp_path / "clip.mp4", frames=2).path
    assert main(["deblur", str(clip), "--fps", "12", "--model", net_file]) == 2


def test_a_tree_is_repeated_and_a_failure_does_not_stop_the_rest(
    tmp_path: Path, net_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "in"
    for below in ("a.mp4", "one/b.mkv", "one/two/c.mp4"):
        (root / below).parent.mkdir(parents=True, exist_ok=True)
        make_clip(root / below, frames=2)
    (root / "one" / "broken.mp4").write_bytes(b"nothing")
    (root / "pictures").mkdir()
    Image.new("RGB", (64, 48), (90, 90, 90)).save(root / "pictures" / "1.png")
    out = tmp_path / "out"
    arguments = ["deblur", str(root), "-o", str(out), "--recursive", "--model", net_file]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert "broken.mp4" in told.err and "1 of 5 inputs" in told.err
    rows = [line.split() for line in told.out.split("\n\n")[1].splitlines()]
    assert rows[0] == ["file", "frames", "time", "result"]
    assert {Path(row[0]).name: row[3] for row in rows[1:]} == {
        "a.mp4": "done", "b.mkv": "done", "broken.mp4": "failed", "c.mp4": "done", "pictures": "done",
    }  # fmt: skip
    made = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    assert made == [
        "a-deblurred.mp4", "one/b-deblurred.mkv", "one/two/c-deblurred.mp4", "pictures-deblurred/1.png",
    ]  # fmt: skip
    times = {p: (out / p).stat().st_mtime_ns for p in made}
    (out / "a-deblurred.mp4").unlink()
    make_clip(root / "one" / "broken.mp4", frames=2)
    assert main([*arguments, "--skip-existing"]) == 0
    table = capsys.readouterr().out.split("\n\n")[1]
    assert table.count("skipped") == 3 and table.count("done") == 2
    assert len(decoded(out / "a-deblurred.mp4")) == 2 and (out / "one/broken-deblurred.mp4").is_file()
    assert all((out / p).stat().st_mtime_ns == times[p] for p in made[1:])


def test_a_job_tells_how_much_sharper_it_became(tmp_path: Path, net: Deblurrer) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=12).path
    report = pahs.deblur(source, tmp_path / "out.mp4", model=net)
    assert report.sharpness is not None and all(0 < x < 1 for x in report.sharpness)
    half = pahs.deblur(source, tmp_path / "half.mp4", pahs.DeblurOptions(strength=0.5), model=net)
    assert half.sharpness is None


@pytest.mark.parametrize(
    ("codec", "name", "pix_fmt", "layout"),
    [
        ("av1", "out.mp4", "yuv420p", "yuv420p"),
        ("av1", "out.mkv", "yuv420p10le", "yuv420p10le"),
        ("prores", "out.mov", "yuv420p", "yuv422p10le"),
        ("prores", "out.mov", "yuv422p10le", "yuv422p10le"),
    ],
)
def test_encoders_that_people_ask_for(
    tmp_path: Path, codec: str, name: str, pix_fmt: str, layout: str
) -> None:
    source = make_clip(tmp_path / "clip.mkv", frames=5, width=96, height=64, pix_fmt=pix_fmt).path
    options = pahs.EncodeOptions(codec=codec)  # type: ignore[arg-type]
    transform(source, tmp_path / name, lambda frames: frames, encode=options)
    before, after = decoded(source), decoded(tmp_path / name)
    assert len(after) == 5 and after[0].format.name == layout
    for a, b in zip(before, after, strict=True):
        depths = [2 ** (f.format.components[0].bits - 8) for f in (a, b)]
        difference = raw_planes(a)[0] / depths[0] - raw_planes(b)[0] / depths[1]
        assert abs(difference).mean() < 5, "the test texture is hard for ProRes"
    with pytest.raises(pahs.PahsError, match="--lossless"):
        both = pahs.EncodeOptions(codec=codec, lossless=True)  # type: ignore[arg-type]
        transform(source, tmp_path / f"x{name}", lambda frames: frames, encode=both)


def test_hardware_that_is_not_there_is_refused_and_never_replaced(tmp_path: Path) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=2).path
    with pytest.raises(pahs.PahsError, match="this machine does not offer"):
        transform(
            source,
            tmp_path / "out.mp4",
            lambda frames: frames,
            encode=pahs.EncodeOptions(codec="hevc_videotoolbox"),
        )
    assert [p.name for p in tmp_path.iterdir()] == ["clip.mp4"]
