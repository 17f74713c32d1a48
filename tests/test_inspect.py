"""What `pahs inspect` says is what `pahs deblur` then does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import pahs
from clips import decoded, make_clip
from pahs.cli import main
from pahs.errors import PahsError
from pahs.inspect import inspect
from pahs.networks import Deblurrer, PAHSConfig
from pahs.runtime import weights
from pahs.runtime.speed import SMALL, speed


@pytest.fixture(scope="module")
def net() -> Deblurrer:
    torch.manual_seed(1)
    return PAHSConfig(width=6, global_skip=True, shared_extractor=True).build().eval()


@pytest.mark.parametrize(
    ("name", "pix_fmt", "encoder", "layout"),
    [
        ("clip.mp4", "yuv420p", "libx264", "yuv420p"),
        ("clip.mkv", "yuv422p10le", "libx265", "yuv422p10le"),
        ("clip.ts", "yuv420p", "libx264", "yuv420p"),
    ],
)
def test_what_it_says_is_what_deblur_does(
    tmp_path: Path, net: Deblurrer, name: str, pix_fmt: str, encoder: str, layout: str
) -> None:
    source = make_clip(
        tmp_path / name, frames=30, width=96, height=64, pix_fmt=pix_fmt, audio="aac",
        settings={"qp": "0", "g": "10"}, metadata={"title": "a day"} if name != "clip.ts" else None,
    ).path  # fmt: skip
    found = inspect(source, model=net, measure=False)
    assert sorted(tmp_path.iterdir()) == [source], "nothing is written"
    assert (found.width, found.height, found.rate) == (96, 64, 25)
    assert found.frames == pytest.approx(30, abs=3), "Matroska tells the duration of the longest stream"
    assert (found.encoder, found.output_format, found.refused) == (encoder, layout, None)
    assert found.times == () and found.suits is None
    assert {s.kind: s.fate for s in found.streams} == {"video": "deblurred", "audio": "kept"}
    assert any(line.startswith("audio") for line in found.kept)
    report = pahs.deblur(source, model=net)
    assert report.dst == found.output
    assert decoded(report.dst)[0].format.name == found.output_format
    assert found.output_bytes == pytest.approx(report.dst.stat().st_size, rel=0.5)


def test_the_part_is_what_counts(tmp_path: Path, net: Deblurrer) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=50).path
    options = pahs.DeblurOptions(start=0.4, end=1.2)
    found = inspect(source, options, model=net, measure=False)
    assert (found.frames, found.seconds, found.start) == (20, 0.8, 0.4)


def test_what_is_lost_is_said(tmp_path: Path, net: Deblurrer) -> None:
    source = make_clip(tmp_path / "clip.mkv", frames=3, attachment=b"note").path
    found = inspect(source, target=tmp_path / "out.mp4", model=net, measure=False)
    assert any("attachment" in line for line in found.lost)
    assert [s.fate for s in found.streams if s.kind == "attachment"] == ["not kept"]


@pytest.mark.parametrize("target", ["out.avi", "out.nothing", "there.mp4"])
def test_what_deblur_refuses_is_refused_here_too(tmp_path: Path, net: Deblurrer, target: str) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=3).path
    (tmp_path / "there.mp4").touch()
    found = inspect(source, target=tmp_path / target, model=net, measure=False)
    with pytest.raises(PahsError) as error:
        pahs.deblur(source, tmp_path / target, model=net)
    assert found.refused == str(error.value)


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video")
    for name in ("text.mp4", "missing.mp4"):
        with pytest.raises(PahsError, match=name):
            inspect(tmp_path / name)


def test_a_folder_of_images(tmp_path: Path, net: Deblurrer) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i, frame in enumerate(decoded(make_clip(tmp_path / "clip.mp4", frames=3).path)):
        frame.to_image().save(folder / f"{i}.png")
    found = inspect(folder, model=net, measure=False)
    assert (found.container, found.frames, found.refused) == ("images", 3, None)


def test_speed_is_measured_once_and_extrapolated_for_what_takes_long(
    net: Deblurrer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = speed(net, 48, 32)
    assert first.measured and first.frames_per_second > 0
    monkeypatch.setattr("pahs.runtime.speed._measure", lambda *_: pytest.fail("measured again"))
    assert speed(net, 48, 32).frames_per_second == pytest.approx(first.frames_per_second, rel=0.01)
    monkeypatch.undo()
    monkeypatch.setattr("pahs.runtime.speed.MOST_SECONDS", 0)
    small, large = speed(net, *SMALL), speed(net, 4 * SMALL[0], 4 * SMALL[1])
    assert small.measured and not large.measured
    assert large.frames_per_second == pytest.approx(small.frames_per_second / 16, rel=0.01)


def test_the_command_speaks_to_people_and_programs(
    tmp_path: Path, net: Deblurrer, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=30, audio="aac").path
    file = tmp_path / "net.safetensors"
    weights.save(net, file)
    assert main(["inspect", str(source), "--model", str(file), "--preview", "0.4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["output"] == str(tmp_path / "clip-preview-deblurred.mp4")
    assert found["frames"] == 10
    assert [t["model"] for t in found["times"]] == [str(file), "pahs-t", "pahs-s", "pahs"]
    assert all(t["seconds"] > 0 for t in found["times"])
    assert found["suits"] in {t["model"] for t in found["times"]}
    assert main(["inspect", str(source), "--no-measure"]) == 0
    text = capsys.readouterr().out
    for words in (
        "64x48",
        "30 frames",
        "audio",
        "deblurred",
        "clip-deblurred.mp4",
        "libx264",
        "kept",
        "lost",
    ):
        assert words in text
