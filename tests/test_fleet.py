"""`pahs bench --fleet`: the simulation against what can be worked out by hand, and beside real processes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pahs import cli
from pahs.benchmarks import workers
from pahs.benchmarks.files import FileRates
from pahs.benchmarks.fleet import Fleet, Setting, Video, bottleneck, simulate, split
from pahs.benchmarks.fleet_report import MEASURED, report
from pahs.benchmarks.options import FleetOptions
from pahs.benchmarks.workers import Sleeping, Turn, fit
from test_bench import table
from test_bench_scaling import panels

ROOT = Path(__file__).parents[1]


def clips(count: int, frames: int = 100) -> list[Video]:
    return [Video((frames,), frames)] * count


@pytest.mark.parametrize(("count", "gpus", "rounds"), [(1, 1, 1), (12, 4, 3), (13, 4, 4), (3, 8, 1)])
def test_equal_clips_take_whole_rounds(count: int, gpus: int, rounds: int) -> None:
    outcome = simulate(clips(count), Fleet(gpus, (50.0, 200.0), start=7.0, overhead=0.5))
    assert outcome.seconds == pytest.approx(7 + rounds * (0.5 + 100 / 50))
    assert outcome.busy == pytest.approx(count * 2 / (gpus * outcome.seconds))


def test_a_storage_that_is_too_slow_is_shared_evenly() -> None:
    assert simulate(clips(8), Fleet(8, (50.0,), storage=100.0)).seconds == pytest.approx(800 / 100)
    # Two units of different length: both at 25 frames/s until the short one ends, then the long one at 50.
    mixed = [*clips(1), *clips(1, 300)]
    assert simulate(mixed, Fleet(2, (50.0,), storage=50.0)).seconds == pytest.approx(100 / 25 + 200 / 50)


def test_one_driver_hands_out_one_unit_at_a_time() -> None:
    outcome = simulate(clips(1000), Fleet(1000, (50.0,), overhead=0.5, driver=0.01))
    assert outcome.seconds == pytest.approx(1000 * 0.01 + 0.5 + 2)


def test_the_last_segment_of_a_video_is_followed_by_joining() -> None:
    (film,) = [split(1000, 256, 20, 19)]
    assert film == Video((256 + 19, 20 + 256 + 19, 20 + 256 + 19, 20 + 232), 1000)
    fleet = Fleet(4, (100.0,), join=500.0)
    assert simulate([film], fleet).seconds == pytest.approx(2.95 + 1000 / 500)
    assert simulate([split(1000, 1000, 20, 19)], fleet).seconds == pytest.approx(10), "nothing to join"
    assert split(266, 256, 20, 19).segments == (256 + 10, 20 + 10), "the look-ahead ends with the video"


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=4), min_size=1, max_size=12),
    gpus=st.integers(1, 9),
    storage=st.sampled_from([40.0, 170.0, math.inf]),
    costs=st.tuples(*[st.sampled_from([0.0, 0.3])] * 3),
)
def test_no_run_is_faster_than_its_parts_allow(
    lengths: list[list[int]], gpus: int, storage: float, costs: tuple[float, float, float]
) -> None:
    start, overhead, driver = costs
    videos = [Video(tuple(segments), sum(segments)) for segments in lengths]
    fleet = Fleet(gpus, (50.0,), storage, start, overhead, driver, join=1000.0)
    outcome = simulate(videos, fleet)
    frames, units = sum(map(sum, lengths)), sum(map(len, lengths))
    least = max(frames / min(50 * gpus, storage), units * driver, max(map(max, lengths)) / 50 + overhead)
    joins = sum(video.frames for video in videos if len(video.segments) > 1) / 1000
    most = units * (driver + overhead) + frames / min(50, storage) + joins
    assert start + least - 1e-6 <= outcome.seconds <= start + most + 1e-6
    assert 0 < outcome.busy <= 1 + 1e-9


RATES = FileRates(
    "clip.mp4", (1280, 720), 1000, 256, decode=900.0, restore=100.0, encode=450.0, file_to_file=98.0
)
SETTING = Setting(RATES, 1e4, math.inf, math.inf, start=0, segment=0, driver=0, join=math.inf)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "restore"),
        ({"rates": replace(RATES, encode=30.0, file_to_file=30.0)}, "encode"),
        ({"network": 1e5}, "network"),
        ({"storage": 1e6}, "storage"),
        ({"driver": 1.0}, "driver"),
        ({"segment": 60.0}, "overhead"),
        ({"start": 500.0}, "start"),
    ],
)
def test_the_bottleneck_is_what_would_save_most(change: dict[str, float], expected: str) -> None:
    assert bottleneck(clips(64, 300), replace(SETTING, **change), 8)[0] == expected


def test_too_few_or_too_slow_pieces_are_a_bottleneck_too() -> None:
    assert bottleneck([split(10_000, 8192, 20, 19)], SETTING, 8)[0] == "split"
    assert bottleneck([split(100_000, 512, 20, 19)], replace(SETTING, join=1e5), 64)[0] == "join"
    assert SETTING.ends == pytest.approx(1000 / 98 - 1000 / 100), "what a file took beyond its slowest stage"


def test_the_rates_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    for stage in ("decode", "restore", "encode", "file_to_file"):
        row = next(x for x in page.splitlines() if x.startswith(f"| {stage.replace('_', ' ')}"))
        assert all(f"{getattr(rates, stage):.2f}" in row for rates in MEASURED.values()), stage


def test_a_film_is_cut_so_that_it_ends_soonest() -> None:
    film = report("pahs", FleetOptions(gpus=(1, 16))).film
    one, many = film.lines
    assert one.units == 1 and one.bottleneck == "restore", "a single GPU gains nothing by cutting"
    assert many.units >= 16 and many.length % 64 == 0 and many.seconds < one.seconds / 6
    assert many.gpu_hours == pytest.approx(16 * many.seconds / 3600 / 2)


def test_the_command_prints_draws_and_takes_rates(tmp_path, capsys):
    rates = tmp_path / "rates.json"
    values = {"name": "clip.mp4", "size": [640, 360], "frames": 60, "held": 60, "file_to_file": 8.0}
    rates.write_text(json.dumps({**values, "decode": 400.0, "restore": 10.0, "encode": 200.0, "model": "x"}))
    picture, numbers = tmp_path / "fleet.png", tmp_path / "fleet.json"
    options = [
        "--gpus",
        "1",
        "4",
        "--price",
        "2.5",
        "--clips",
        "40",
        "--film-hours",
        "0.05",
        "--rates",
        str(rates),
    ]
    files = ["--plot", str(picture), "--json", str(numbers)]
    assert cli.main(["bench", "--fleet", *options, *files]) == 0
    out = capsys.readouterr().out
    stored = json.loads(numbers.read_text())
    assert [line["gpus"] for line in stored["folder"]["lines"]] == [1, 4]
    first = stored["folder"]["lines"][0]
    assert first["seconds"] == pytest.approx(20 + 0.005 + 40 * (300 / 10 + 1.5 + 0.05), rel=1e-3)
    assert "cost per hour of video" in out and f"{2.5 * first['gpu_hours']:.3f}" in out
    assert "`rates.json`" in out and next(iter(table(out))) == "40 clips of 10 s: GPUs"
    with Image.open(picture) as image:
        assert image.size == panels(rows=2) and len(image.getcolors(1 << 18)) > 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--price", "3"], "--fleet"),
        (["--fleet", "--model", "edvr-l"], "edvr-l"),
        (["--fleet", "--storage", "0"], "--storage"),
        (["--fleet", "--gpus", "0"], "--gpus"),
        (["--fleet", "--per-segment", "-1"], "--per-segment"),
        (["--fleet", "--sleep", "5"], "--workers"),
        (["--fleet", "--scaling"], "--scaling"),
        (["--fleet", "--rates", "README.md"], "README.md"),
        (["--fleet", "--workers", "1", "--plot", "x.png"], "--plot"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, told, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert cli.main(["bench", *options]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_the_fit_finds_what_a_clip_and_a_frame_take() -> None:
    turns = [Turn(frames, 0.25 + 0.02 * frames, 0.0) for frames in (6, 14, 36)]
    assert fit(turns) == pytest.approx((0.02, 0.25))
    assert fit([Turn(10, 1.0, 0.0), Turn(20, 3.0, 0.0)]) == pytest.approx((4 / 30, 0.0))
    assert fit([Turn(10, 2.0, 0.0), Turn(20, 1.0, 0.0)]) == pytest.approx((3 / 30, 0.0))


def test_real_processes_stand_beside_the_simulation(monkeypatch, tmp_path, capsys):
    """Two processes restore every clip once; what they took is told, not judged."""
    monkeypatch.setattr(workers, "CLIPS", 8)
    numbers = tmp_path / "runs.json"
    command = ["bench", "--fleet", "--workers", "2", "--sleep", "10", "--json", str(numbers)]
    assert cli.main(command) == 0
    stored = json.loads(numbers.read_text())
    (row,) = stored["rows"]
    assert stored["clips"] == 8 and stored["frames"] == 2 * (6 + 36 + 14 + 22)
    slept = stored["frames"] * 0.01
    assert stored["per_frame"] > 0 and row["measured"] >= slept / 2
    assert stored["frames"] * stored["per_frame"] + 8 * stored["per_clip"] >= 0.999 * slept
    assert row["simulated"] > 0 and "sleeps 10 ms a frame" in capsys.readouterr().out


def test_an_error_of_a_worker_ends_the_comparison(monkeypatch, capsys):
    monkeypatch.setattr(workers, "CLIPS", 1)
    assert cli.main(["bench", "--fleet", "--workers", "1", "--model", "no-such-model"]) == 2
    assert "no-such-model" in capsys.readouterr().err


def test_a_network_that_sleeps_gives_the_frames_back() -> None:
    import torch

    from pahs.engine import restore

    frames = torch.rand(5, 3, 32, 48)
    assert torch.equal(restore(Sleeping(0), frames), frames)
