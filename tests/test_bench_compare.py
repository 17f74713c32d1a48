"""`pahs bench --reference`: the paper's inference and ours in one run, with what their difference is made of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clips import make_clip
from pahs import cli
from pahs.benchmarks import compare
from pahs.benchmarks.compare import FEW, Contender
from pahs.benchmarks.files import check_file
from pahs.benchmarks.options import BenchConfig
from pahs.engine.plan import longest_chunk
from pahs.errors import PahsError
from pahs.networks import PAHSConfig
from pahs.runtime import weights
from test_bench import table

SMALL = ["--size", "40", "24", "--frames", "16", "--seconds", "0.1", "--device", "cpu"]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "narrow.safetensors"
    torch.manual_seed(
        24
    )  # with some weights the future hardly matters, and the engine cannot be told from the windows
    weights.save(PAHSConfig(width=12, shared_extractor=True, global_skip=True, look_ahead=4).build(), file)
    return file


def test_one_command_measures_both_and_the_file(narrow, tmp_path, capsys):
    clip, numbers = tmp_path / "clip.mp4", tmp_path / "out" / "numbers.json"
    make_clip(clip, frames=9, audio="aac")
    arguments = ["bench", "--reference", "--model", str(narrow), *SMALL, "--file", str(clip)]
    assert cli.main([*arguments, "--json", str(numbers)]) == 0
    out, err = capsys.readouterr()
    rows = table(out)
    literal, windows, ours = (
        rows[name] for name in ("literal reference", "ours, the reference's windows", "ours")
    )
    assert "literal reference: " in err
    assert literal[3] == "1.00"
    assert [literal[9], windows[8] != "-", ours[8] != "-"] == ["-", True, True]
    assert {"extract", "propagate", "reconstruct", "queues and copies"} < set(rows)
    for name in ("decode, alone", "restore, alone", "encode, alone", "file to file"):
        assert rows[name][0] == "9" and float(rows[name][1]) > 0
    assert "% of the slowest single stage" in out and "the reference on" in out and "look-ahead 4" in out

    stored = json.loads(numbers.read_text())
    first, kept, same, last = stored["contenders"]
    assert first["flops"] > kept["flops"] > same["flops"] > last["flops"]
    assert first["against"] == "" and same["against"] == last["against"] == "literal reference"
    assert first["frames"] >= FEW and last["frames"] == longest_chunk(torch.device("cpu"))
    assert same["compared"] == FEW and same["max_difference"] < 1e-5
    assert same["max_difference"] < last["max_difference"]
    assert same["psnr"] is None or same["psnr"] > 100
    for row in stored["contenders"]:
        assert row["frames_per_second"] == pytest.approx(row["frames"] / row["seconds"])
        assert row["share_of_floor"] == pytest.approx(
            row["frames_per_second"] * row["flops"] / row["matrix_rate"]
        )
    assert sum(stage["flops"] for stage in stored["stages"]) == last["flops"]
    assert stored["file"]["frames"] == 9 and stored["file"]["size"] == [64, 48]
    assert {x.name for x in tmp_path.iterdir()} == {"clip.mp4", "out"}


def test_networks_without_bundled_weights_get_random_ones():
    first, origin = compare.load("pahs-s-paper")
    second, _ = compare.load("pahs-s-paper")
    assert origin == "random weights"
    assert torch.equal(first.forward_cell.fuse.weight, second.forward_cell.fuse.weight)
    assert compare.load("pahs-t")[1] == "bundled weights"


def test_a_lower_precision_is_compared_with_our_own_float32(narrow):
    network, _ = compare.load(str(narrow))
    work = compare.count_work(network, 32, 32)
    names = [
        (trial.name, trial.precision, trial.tf32, trial.against)
        for trial in compare.trials(network, work, BenchConfig((32, 32), 4, 1, "cuda:0", "bf16"))
    ]
    assert names == [
        ("literal reference", "fp32", False, ""),
        ("literal reference, TF32", "fp32", True, "literal reference"),
        ("literal, features kept", "fp32", False, "literal reference"),
        ("ours, the reference's windows", "fp32", False, "literal reference"),
        ("ours", "fp32", False, "literal reference"),
        ("ours, bf16", "bf16", False, "ours"),
    ]


def test_differences_are_over_all_compared_frames():
    row = Contender("x", "fp32", 1.0, 1.0, 1, 1.0, None)
    these = [torch.zeros(3, 4, 4), torch.full((3, 4, 4), 0.5), torch.ones(3, 4, 4)]
    those = [torch.zeros(3, 4, 4), torch.full((3, 4, 4), 0.6)]
    found = compare.differ(row, "y", these, those)
    assert (found.against, found.compared) == ("y", 2)
    assert found.max_difference == pytest.approx(0.1, rel=1e-5)
    assert found.psnr == pytest.approx(23.0103, abs=1e-3)
    equal = compare.differ(row, "y", these, these)
    assert equal.max_difference == 0 and equal.psnr is None


@pytest.mark.parametrize(
    ("seconds", "step", "expected"), [(8.0, 1, 8), (99.0, 1, 40), (8.0, 16, 16), (33.0, 16, 32)]
)
def test_time_decides_how_many_frames_are_timed(seconds, step, expected, monkeypatch):
    taken = []

    def one_second_each(outputs, frames, device):
        taken.append(frames)
        return float(frames)

    monkeypatch.setattr(compare, "take", one_second_each)
    config = BenchConfig((16, 16), 40, seconds, "cpu", "fp32")
    assert compare.time_stream(iter([]), step, config) == (expected, float(expected))
    assert taken[0] == max(step, FEW)


def test_memory_is_shown_where_it_was_measured(narrow):
    rows = tuple(
        replace(Contender(name, "fp32", 2e9, 1e12, 4, 2.0, 3 << 30), psnr=51.5) for name in ("one", "two")
    )
    stages = (compare.Stage("extract", 0.25, 2e9),)
    text = compare.markdown(compare.Comparison("m", "w", 4, rows, stages, None, "c"))
    assert table(text)["two"] == ["fp32", "4", "2.000", "1.00", "2.0", "500.00", "0 %", "3.00", "-", "51.5"]
    assert table(text)["extract"] == ["250.00", "100 %", "2.0", "1 %"]
    assert "CUDA devices only" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reference", "--zoo"], "keep one of them"),
        (["--reference", "--model", "pahs", "pahs-t"], "measure one model"),
        (["--reference", "--model", "lstm"], "only PAHS has a literal reference"),
        (["--reference", "--model", "pahs-t", "--file", "missing.mp4"], "--file missing.mp4: no such video"),
        (["--file", "missing.mp4"], "--file missing.mp4: no such video"),
        (["--file", "clip.mp4", "--clip", "9"], "keep one of them"),
        (["--clip", "9", "--zoo"], "not with --zoo"),
        (["--clip", "9", "--model", "pahs", "pahs-t"], "measure one model"),
        (["--clip", "1"], "--clip 1: use 2 frames or more"),
        (["--plot", "curves.png"], "only --scaling and --fleet draw"),
    ],
)
def test_wrong_use_is_one_line(arguments, message, capsys):
    assert cli.main(["bench", *arguments, *SMALL]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_a_file_to_another_one_alone(narrow, tmp_path, capsys):
    numbers = tmp_path / "numbers.json"
    size = ["--size", "41", "25", "--device", "cpu"]
    assert cli.main(["bench", "--model", str(narrow), *size, "--clip", "70", "--json", str(numbers)]) == 0
    out = capsys.readouterr().out
    rows = table(out)
    for name in ("decode, alone", "restore, alone", "encode, alone", "file to file"):
        assert rows[name][0] == "70" and float(rows[name][1]) > 0
    assert "clip.mp4, 40x24" in out and "--clip 70 --size 41 25" in out and "trained weights" in out
    stored = json.loads(numbers.read_text())
    assert stored["frames"] == 70 and stored["file_to_file"] > 0


def test_without_pyav_a_file_cannot_be_measured(tmp_path, monkeypatch):
    (tmp_path / "clip.mp4").write_bytes(b"")
    monkeypatch.setattr("pahs.benchmarks.files.find_spec", lambda name: None)
    with pytest.raises(PahsError, match="needs PyAV"):
        check_file(tmp_path / "clip.mp4")
