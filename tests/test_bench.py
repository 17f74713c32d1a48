"""`pahs bench`: one table for many networks, and a network that fails does not take the others with it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pahs import bench, cli
from pahs.benchmarks import conditions, expected, zoo
from pahs.benchmarks.options import BenchConfig
from pahs.data.layouts import open_dataset
from pahs.errors import PahsError
from pahs.evaluate import evaluate
from pahs.networks import PRESETS, PAHSConfig
from pahs.runtime import weights

SMALL = ["--size", "40", "24", "--frames", "6", "--seconds", "0.5", "--device", "cpu"]


def table(text: str) -> dict[str, list[str]]:
    """The cells of a Markdown table by the first of them."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows}


def test_the_command_prints_one_table_of_the_asked_networks(tmp_path, capsys):
    numbers = tmp_path / "new" / "bench.json"
    assert cli.main(["bench", "--model", "lstm", "pahs-t", *SMALL, "--json", str(numbers)]) == 0
    out, err = capsys.readouterr()
    rows = table(out)
    assert list(rows) == ["model", "lstm", "pahs-t"]
    assert "[1/2] lstm" in err and "[2/2] pahs-t" in err
    assert rows["lstm"][:2] == ["recurrent", "1.21"] and rows["pahs-t"][0] == "bidirectional"
    assert float(rows["lstm"][4]) > 0 and rows["lstm"][6] == "-"
    assert f"torch {torch.__version__}, fp32, 40x24" in out
    assert "`pahs bench --model lstm pahs-t --size 40 24 --frames 6 --seconds 0.5 --device cpu" in out
    assert "CUDA devices only" in out

    stored = json.loads(numbers.read_text())
    assert [row["model"] for row in stored["rows"]] == ["lstm", "pahs-t"]
    assert stored["config"]["precision"] == "fp32" and stored["conditions"] in out
    for row in stored["rows"]:
        assert row["frames_per_second"] == pytest.approx(row["frames"] / row["seconds"])


def test_the_zoo_is_every_preset_with_the_papers_speed_beside_it(monkeypatch, capsys):
    def counted(row, clip, config):
        assert len(clip) == config.frames
        return replace(row, frames=4, seconds=2.0)

    # Running 19 full networks is the business of tests/test_zoo.py; here it is which ones and what is said.
    monkeypatch.setattr(zoo, "time_and_weigh", counted)
    monkeypatch.setattr(zoo, "flops_per_frame", lambda network, height, width: 1e9)
    assert cli.main(["bench", "--zoo", *SMALL]) == 0
    out = capsys.readouterr().out
    rows = table(out)
    assert list(rows)[1:] == list(PRESETS)
    assert rows["arvo"][5] == "0.15" and rows["pahs"][5] == "1.43" and rows["pahs-s"][5] == "-"
    assert rows["edvr-l"][1] == "23.60" and rows["edvr-l"][4] == "2.00"
    assert "`pahs bench --zoo --size" in out


def test_arithmetic_grows_with_the_pixels_of_a_network_without_attention():
    small, large = (zoo.count(zoo.Row("lstm"), BenchConfig((width, 32))).flops for width in (32, 64))
    assert large == pytest.approx(2 * small)
    # Frames are padded to the multiples that a network wants: of 16 for this one.
    odd, even = (zoo.count(zoo.Row("pahs-t"), BenchConfig(size)).flops for size in [(40, 24), (48, 32)])
    assert odd == even


def test_a_network_that_fails_says_so_in_its_row_and_the_others_go_on(tmp_path, capsys):
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(b"nothing of the kind")
    assert cli.main(["bench", "--model", str(damaged), "lstm", *SMALL]) == 0
    rows = table(capsys.readouterr().out)
    assert "not a readable safetensors file" in rows[str(damaged)][4]
    assert float(rows["lstm"][4]) > 0


def test_running_out_of_memory_is_a_row_too(monkeypatch):
    def starve(self, frames):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr("pahs.networks.lstm.LSTM.extract", starve)
    monkeypatch.setattr(zoo, "flops_per_frame", lambda network, height, width: 1e9)
    row = zoo.measure_all(["lstm"], BenchConfig((32, 32), 2)).rows[0]
    assert row.speed is None and row.parameters == 1214863
    assert "not enough memory for 32x32 frames" in row.error


def test_weights_files_can_be_measured(tmp_path):
    file = tmp_path / "narrow.safetensors"
    weights.save(PAHSConfig(width=12, shared_extractor=True).build(), file)
    row = zoo.measure_all([str(file)], BenchConfig((32, 32), 5, 0.2, "cpu")).rows[0]
    assert row.error == "" and row.frames == 5 and row.family == "bidirectional"


def test_networks_are_scored_beside_their_speed(tmp_path, capsys):
    """As `pahs evaluate` scores them, and both are drawn."""
    pytest.importorskip("matplotlib", reason="needs the extra figures")
    random = np.random.default_rng(7)
    for side in ("blur", "sharp"):
        (tmp_path / "data" / "clip" / side).mkdir(parents=True)
        for t in range(3):
            frame = Image.fromarray(random.integers(0, 256, (32, 48, 3), np.uint8))
            frame.save(tmp_path / "data" / "clip" / side / f"{t}.png")
    file, picture, numbers = (tmp_path / name for name in ("narrow.safetensors", "plot.png", "numbers.json"))
    weights.save(PAHSConfig(width=12, shared_extractor=True).build(), file)
    words = ["--data", str(tmp_path / "data"), *SMALL]
    drawn = ["--precision", "fp32", "--plot", str(picture), "--json", str(numbers)]
    assert cli.main(["bench", "--model", str(file), *words, *drawn]) == 0
    means = evaluate(weights.load(file), open_dataset(tmp_path / "data")).mean_over_frames
    (row,) = json.loads(numbers.read_text())["rows"]
    assert row["quality"] == {"restored": means.psnr, "blurry": means.blurry_psnr}
    assert table(capsys.readouterr().out)[str(file)][7:] == [f"{means.psnr:.2f}", f"{means.blurry_psnr:.2f}"]
    assert Image.open(picture).width > 300
    assert cli.main(["bench", "--model", "lstm", *words]) == 2
    assert "lstm: it has no weights to score" in capsys.readouterr().err


def test_a_slow_network_is_timed_on_fewer_frames(monkeypatch):
    lengths = []

    def pass_of(network, clip, device):
        lengths.append(len(clip))
        return 0.5 * len(clip)

    monkeypatch.setattr(zoo, "run_through", pass_of)
    clip = [torch.zeros(3, 16, 16)] * 32
    assert zoo.time_clip(None, clip, torch.device("cpu"), 3.0) == (6, 3.0)
    assert lengths == [4, 4, 6, 6]
    assert zoo.time_clip(None, clip, torch.device("cpu"), 0.1) == (4, 2.0)
    assert zoo.time_clip(None, clip[:3], torch.device("cpu"), 9.0) == (3, 1.5)


def test_the_clip_has_detail_and_moves():
    clip = conditions.moving_texture(4, 40, 56, torch.device("cpu"))
    assert len(clip) == 4 and clip[0].shape == (3, 40, 56)
    assert all(x.min() >= 0 and x.max() <= 1 and x.std() > 0.05 for x in clip)
    step = conditions.PIXELS_PER_FRAME
    assert torch.equal(clip[1][:, :-step, :-step], clip[0][:, step:, step:])
    assert not torch.allclose(clip[0], clip[1], atol=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "no-such-net"], "--model no-such-net"),
        (["--zoo", "--model", "lstm"], "both given"),
        (["--scaling", "--data", "pairs"], "only --backends, and --model alone, are scored"),
        (["--size", "8", "720"], "--size: width is 8"),
        (["--frames", "0"], "--frames 0"),
        (["--seconds", "0"], "--seconds 0"),
        (["--device", "abacus"], '"abacus" for --device'),
        (["--training-step", "recipe.toml", "--zoo"], "measured alone"),
        (["--training-step", "recipe.toml"], "recipe.toml"),
        (["--set", "train.batch=1"], "--training-step"),
    ],
)
def test_wrong_use_is_one_line(arguments, message, capsys):
    assert cli.main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_the_default_is_the_model_that_deblur_would_take(monkeypatch, capsys):
    asked = []

    def note(name, clip, config):
        asked.append(name)
        return zoo.Row(name, error="not run")

    monkeypatch.setattr(zoo, "measure", note)
    assert cli.main(["bench", "--size", "16", "16", "--device", "cpu"]) == 0
    assert asked == ["pahs-t"]
    assert table(capsys.readouterr().out)["pahs-t"][4] == "not run"


@pytest.mark.parametrize("which", [[], ["--reference"]])
def test_the_command_runs_where_av_is_not_installed(which, tmp_path):
    (tmp_path / "av.py").write_text("raise ImportError('not installed here')\n")
    narrow = str(tmp_path / "narrow.safetensors")
    weights.save(PAHSConfig(width=6, shared_extractor=True, look_ahead=2).build(), narrow)
    done = subprocess.run(
        [sys.executable, "-m", "pahs", "bench", *which, "--model", narrow, *SMALL],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{tmp_path}:{Path(bench.__file__).parents[1]}", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    rows = table(done.stdout)
    assert float(rows["ours"][2] if which else rows[narrow][4]) > 0


def test_expected_speeds_are_scaled_from_what_was_measured(tmp_path, capsys, monkeypatch):
    """A card with the rates of the measured one reaches what was measured; half of a rate is half of the speed."""
    base = expected.MEASURED_ON
    slower = replace(base, tflops=base.tflops / 2), replace(base, bandwidth=base.bandwidth / 3)
    monkeypatch.setattr(expected, "CARDS", (base, *slower))
    speeds = [row.speed for row in expected.expect("pahs-s", 1280, 720)]
    assert speeds == pytest.approx([234.0, 117.0, 78.0])
    assert expected.expect("pahs-s", 640, 360)[0].speed == pytest.approx(4 * 234, rel=0.05)
    options = ["--expected", "--model", "pahs-s", "--json", str(tmp_path / "e.json")]
    assert cli.main(["bench", *options]) in (0, None)
    assert "Computed, not measured" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "e.json").read_text())["computed"]) == 3
    assert cli.main(["bench", "--expected", "--model", "pahs-t"]) == 2
    assert "--model pahs-t: --expected computes pahs and pahs-s" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PahsError, match="cannot be written"):
        config = BenchConfig((16, 16), 1, 0.1, "cpu")
        bench.run(bench.Task(), config, ("lstm",), json_file=tmp_path / "file" / "x.json")
