"""Videos in segments: `pahs plan`, `pahs run`, and a result that is the one of `pahs deblur`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pahs
from clips import decoded, make_clip
from pahs.cli import main
from pahs.cluster import manifest
from pahs.cluster.command import make_plan
from pahs.cluster.manifest import Settings
from pahs.cluster.planning import Survey, cut_up, make_settings
from pahs.cluster.work import Runner
from pahs.deblur import DeblurOptions
from pahs.errors import PahsError
from processes import uncovered
from split import facts, make_film, psnr_of_frames, uneven_times
from web_server import identity

SETTINGS = Settings("pahs-t", "", "cpu", "fp32", chunk=8, look_ahead=5, warm_up=20, length=40)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    identity(folder / "identity.safetensors")
    make_film(folder / "scenes.mp4", 60, scenes=3, size=(32, 32))
    return folder


def plan(source: Path, output: Path, *options: str) -> Path:
    words = ("plan", str(source), "-o", str(output), "--precision", "fp32", *options)
    assert main(words) == 0
    return output / "plan.jsonl"


def run_all(path: Path) -> None:
    units = len(manifest.read(str(path)).units)
    segments = [word for number in reversed(range(units)) for word in ("--segment", str(number))]
    assert main(["run", str(path), *segments]) == 0
    assert main(["run", str(path), "--join"]) == 0


def whole(source: Path, target: Path, model: str | Path, chunk: int, **encode: object) -> Path:
    options = pahs.DeblurOptions(
        chunk=chunk,
        encode=pahs.EncodeOptions(**encode),  # type: ignore[arg-type]
        precision="fp32",
        device="cpu",
    )
    pahs.deblur(source, target, options, model)
    return target


def test_segments_that_begin_with_scenes_give_the_same_file(files: Path, tmp_path: Path) -> None:
    source = files / "scenes.mp4"
    options = ("--lossless", "--chunk", "8", "--segment-frames", "20", "--model", "pahs-t")
    path = plan(source, tmp_path / "out", *options)
    (video,) = manifest.read(str(path)).videos
    assert [(x.first, x.begin, x.last) for x in video.segments] == [(0, 0, 20), (20, 20, 40), (40, 40, 60)]
    run_all(path)
    one = whole(source, tmp_path / "whole.mp4", "pahs-t", 8, lossless=True)
    joined = tmp_path / "out" / "scenes-deblurred.mp4"
    assert psnr_of_frames(joined, one) == [float("inf")] * 60
    assert facts(joined) == facts(one)
    assert sorted(x.name for x in joined.parent.iterdir()) == ["plan.jsonl", joined.name]


def test_segments_in_a_scene_differ_by_less_than_can_be_seen(tmp_path: Path) -> None:
    source = make_film(tmp_path / "film.mp4", 64, size=(32, 32))
    options = (
        "--lossless",
        "--chunk",
        "8",
        "--segment-frames",
        "32",
        "--look-ahead",
        "6",
        "--model",
        "pahs-t",
    )
    path = plan(source, tmp_path / "out", *options)
    assert len(manifest.read(str(path)).videos[0].segments) == 2
    run_all(path)
    target = tmp_path / "whole.mp4"
    deblur = pahs.DeblurOptions(
        chunk=8, look_ahead=6, precision="fp32", encode=pahs.EncodeOptions(lossless=True)
    )
    pahs.deblur(source, target, deblur, "pahs-t")
    assert min(psnr_of_frames(tmp_path / "out" / "film-deblurred.mp4", target)) >= 80


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("x.mp4", "h264"),
        ("x.mkv", "hevc"),
        ("x.mkv", "vp9"),
        ("x.mkv", "ffv1"),
        ("x.mov", "prores"),
        ("x.ts", "h264"),
    ],
)
def test_times_and_other_streams_are_those_of_one_run(
    files: Path, tmp_path: Path, name: str, codec: str
) -> None:
    """With lossy encoders that reorder frames, and uneven times."""
    from fractions import Fraction

    unit = None if name.endswith("ts") else Fraction(1, 1000)
    times = None if unit is None else uneven_times(50)
    source = make_clip(
        tmp_path / name,
        frames=50,
        width=64,
        pts=times,
        time_base=unit,
        audio="aac",
        chapters=name != "x.ts",
        metadata={"title": "A walk"},
    ).path
    model = files / "identity.safetensors"
    options = ("--chunk", "8", "--segment-frames", "16", "--codec", codec, "--model", str(model))
    run_all(plan(source, tmp_path / "out", *options))
    (result,) = (tmp_path / "out").glob("x-deblurred.*")
    one = whole(source, tmp_path / f"whole{result.suffix}", model, 8, codec=codec)
    assert facts(result) == facts(one)
    # Where the encoder loses something, a frame is as far from that of one run as either is from the source.
    assert min(psnr_of_frames(result, one)) > 35


def test_a_file_without_an_index_is_read_from_its_start(files: Path, tmp_path: Path) -> None:
    """An MPEG program stream cannot be entered exactly: every frame must still be its own."""
    settings = {"g": "12", "bf": "2"}
    source = make_clip(tmp_path / "x.mpg", frames=150, codec="mpeg2video", settings=settings).path
    model = str(files / "identity.safetensors")
    options = ("--lossless", "--segment-frames", "32", "--chunk", "8", "--model", model)
    run_all(plan(source, tmp_path / "out", *options))
    (result,) = (tmp_path / "out").glob("x-deblurred.*")
    assert psnr_of_frames(result, source) == [float("inf")] * 150


def test_a_file_in_which_nothing_is_found_before_its_start(files: Path, tmp_path: Path) -> None:
    """The second segment is read from a moment that lies before the first frame: not every format finds one there."""
    clip = make_clip(tmp_path / "fast.avi", frames=60, rate=120, codec="mpeg4", settings={}).path
    path = plan(
        clip, tmp_path / "out", "--model", str(files / "identity.safetensors"), "--segment-frames", "20"
    )
    run_all(path)
    (result,) = (tmp_path / "out").glob("fast-deblurred.*")
    assert len(decoded(result)) == 60


def test_one_source_that_cannot_be_read_does_not_end_the_plan(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    files_there, get = fsspec.filesystem("memory"), MemoryFileSystem.get_file
    for name in ("forbidden", "scenes"):
        files_there.pipe(f"/films/{name}.mp4", (files / "scenes.mp4").read_bytes())

    def guarded(self: MemoryFileSystem, source: str, target: str, **options: Any) -> None:
        if "forbidden" in source:
            raise PermissionError("Forbidden")
        get(self, source, target, **options)

    monkeypatch.setattr(MemoryFileSystem, "get_file", guarded)
    settings = make_settings(
        str(files / "identity.safetensors"), DeblurOptions(precision="fp32", device="cpu"), 20
    )
    _, made, failed = make_plan(["memory:///films"], str(tmp_path / "out"), settings, quiet=True)
    assert [video.source for video in made.videos] == ["memory:///films/scenes.mp4"]
    assert failed == ["memory:///films/forbidden.mp4: cannot be read (Forbidden)"]


def test_workers_that_start_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    program = "from pahs.cluster import store\nfor _ in range(200): store.tidy()"
    environment = uncovered(TMPDIR=str(tmp_path))
    workers = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4


def test_where_segments_are_cut() -> None:
    times = tuple(range(0, 2000, 10))
    found = cut_up(Survey(times, (), 0), SETTINGS)
    assert [x.begin for x in found] == [0, 40, 80, 120, 160] and found[-1].end == found[-1].last == 200
    assert found[1].first == 20 and found[1].pts == 200 and found[1].last == 85 and found[1].last_pts == 840
    cuts = (37, 90, 91, 119)
    found = cut_up(Survey(times, cuts, 0), SETTINGS)
    assert [x.begin for x in found] == [0, 37, 90, 119, 159]
    assert found[0].last == 37 and found[1].cuts == () and found[1].last == 90
    assert found[2].cuts == (91,) and found[3].first == 119 and found[4].first == 139
    for length in (1, 7, 1000):
        parts = cut_up(Survey(times, cuts, 0), replace(SETTINGS, length=length))
        assert [x.begin for x in parts[1:]] == [x.end for x in parts[:-1]] and parts[-1].end == 200
        assert all(x.first <= x.begin < x.end <= x.last for x in parts)


def test_everything_can_be_run_again_and_at_the_same_time(files: Path, tmp_path: Path) -> None:
    model = str(files / "identity.safetensors")
    path = plan(files / "scenes.mp4", tmp_path / "out", "--segment-frames", "20", "--model", model)
    made = manifest.read(str(path))
    errors: list[BaseException] = []

    def drive(order: int) -> None:
        runner = Runner(made.settings)
        try:
            for unit in made.units[::order]:
                assert unit.segment is not None
                runner.segment(unit.video, unit.segment)
            runner.join(made.videos[0])
        except BaseException as error:
            errors.append(error)

    drivers = [threading.Thread(target=drive, args=(order,)) for order in (1, -1, 1)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert not errors
    left = sorted(x.name for x in (tmp_path / "out").iterdir())
    assert left == ["plan.jsonl", "scenes-deblurred.mp4"]
    assert len(decoded(tmp_path / "out" / "scenes-deblurred.mp4")) == 60
    before = (tmp_path / "out" / "scenes-deblurred.mp4").stat()
    run_all(path)
    assert (tmp_path / "out" / "scenes-deblurred.mp4").stat().st_mtime_ns == before.st_mtime_ns


def test_what_is_wrong_is_said_in_one_line(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in" / "film.mp4"
    source.parent.mkdir()
    shutil.copy(files / "scenes.mp4", source)
    model = tmp_path / "model.safetensors"
    shutil.copy(files / "identity.safetensors", model)
    (tmp_path / "in" / "broken.mp4").write_bytes(b"no video at all" * 100)

    def refused(*words: str) -> str:
        assert main(words) == 2
        return capsys.readouterr().err.strip().splitlines()[-1]

    options = ("-o", str(tmp_path / "out"), "--segment-frames", "20", "--model", str(model))
    assert main(["plan", str(source.parent), *options]) == 2
    told = capsys.readouterr().err
    assert "broken.mp4: not a readable video" in told and "1 of 2 inputs are not in the plan" in told
    path = str(tmp_path / "out" / "plan.jsonl")
    assert "3 of its 3 segments are missing" in refused("run", path, "--join")
    assert "has the segments 0 to 2" in refused("run", path, "--segment", "3")
    assert "name a --segment, or --join" in refused("run", path)
    assert "name the folder" in refused("plan", str(source), "-o", "x.mp4")
    assert "plans are for PyTorch" in refused("plan", str(source), *options, "--precision", "int8")
    shutil.copy(Path(pahs.__file__).parent / "bundled" / "pahs-t.safetensors", model)
    assert "model.safetensors: is another version" in refused("run", path, "--segment", "0")
    shutil.copy(files / "identity.safetensors", model)
    with source.open("ab") as file:
        file.write(b"more")
    assert "film.mp4: was changed after the plan was made" in refused("run", path, "--segment", "0")
    lines = Path(path).read_text().splitlines()
    for damage in (
        "",
        "{}",
        lines[1],
        f"{lines[0]}\n{{",
        lines[0].replace("cpu", "tpu"),
        lines[0].replace("-1", "-2"),
    ):
        Path(path).write_text(damage)
        assert "is no plan of this version of pahs" in refused("run", path, "--join")
    assert "No such file" in refused("run", str(tmp_path / "none.jsonl"), "--join")


def test_a_segment_that_is_damaged_is_named(files: Path, tmp_path: Path) -> None:
    model = str(files / "identity.safetensors")
    path = plan(files / "scenes.mp4", tmp_path / "out", "--segment-frames", "20", "--model", model)
    assert main(["run", str(path), "--segment", "0", "--segment", "1", "--segment", "2"]) == 0
    made = manifest.read(str(path))
    folder = Path(manifest.segment_folder(made.settings, made.videos[0]))
    second = folder / made.videos[0].segments[1].file
    data = bytearray(second.read_bytes())
    data[200] ^= 255
    second.write_bytes(data)
    with pytest.raises(PahsError, match=r"00000020-00000040.packets: is no whole segment"):
        Runner(made.settings).join(made.videos[0])
    second.write_bytes(data[:-50])
    with pytest.raises(PahsError, match="is no whole segment"):
        Runner(made.settings).join(made.videos[0])
    assert not (tmp_path / "out" / "scenes-deblurred.mp4").exists()
    second.unlink()
    run_all(path)
    assert [json.loads(line) for line in path.read_text().splitlines()]
