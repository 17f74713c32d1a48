"""`pahs weights average`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from pahs.cli import main
from pahs.networks import ModelConfig, PAHSConfig
from pahs.networks.ovd import OVDConfig
from pahs.runtime import weights

CONFIG = PAHSConfig(width=9, shared_extractor=True)


def file(path: Path, seed: int, config: ModelConfig = CONFIG) -> Path:
    torch.manual_seed(seed)
    weights.save(config.build(), path, {"minutes": "3"})
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [str(file(tmp_path / f"{seed}.safetensors", seed)) for seed in range(3)]


def test_the_mean_is_written_with_what_went_in(files: list[str], tmp_path: Path) -> None:
    target = tmp_path / "mean.safetensors"
    assert main(["weights", "average", *files, "-o", str(target), "--weights", "2,1,1"]) == 0
    mean, *parts = (weights.load(name).state_dict() for name in (target, *files))
    for name, x in mean.items():
        expected = 0.5 * parts[0][name] + 0.25 * parts[1][name] + 0.25 * parts[2][name]
        torch.testing.assert_close(x, expected)
    said = json.loads(weights.describe(target).metadata["average"])
    assert [(part["file"], part["weight"]) for part in said] == [
        ("0.safetensors", 0.5),
        ("1.safetensors", 0.25),
        ("2.safetensors", 0.25),
    ]
    assert said[1]["sha256"] == weights.describe(files[1]).metadata["sha256"]


def test_equal_parts_half_precision_and_whole_numbers(tmp_path: Path) -> None:
    pair = [file(tmp_path / f"{seed}.safetensors", seed, OVDConfig(width=8, blocks=1)) for seed in range(2)]
    target = tmp_path / "mean.safetensors"
    command = ["weights", "average", *map(str, pair), "-o", str(target), "--half"]
    assert main(command) == 0
    assert main(command) == 2 and main([*command, "--overwrite"]) == 0
    mean, one, other = (weights.load(path).state_dict() for path in (target, *pair))
    for name, x in mean.items():
        expected = (one[name] + other[name]) / 2 if x.is_floating_point() else one[name]
        torch.testing.assert_close(x, expected, atol=1e-4, rtol=1e-3)
    assert target.stat().st_size < 0.7 * pair[0].stat().st_size


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["0.safetensors"], "two weights files or more"),
        (["0.safetensors", "none.safetensors"], "none.safetensors: no such weights file"),
        (["0.safetensors", "wide.safetensors"], "wide.safetensors: its width is 12, that of .* is 9"),
        (["0.safetensors", "ovd.safetensors"], "ovd.safetensors: its network is ovd, not pahs"),
        (["0.safetensors", "nan.safetensors"], r"nan\.safetensors: holds values that are not numbers"),
        (["0.safetensors", "1.safetensors", "--weights", "1"], "1 numbers for 2 files"),
        (["0.safetensors", "1.safetensors", "--weights", "1,x"], "--weights 1,x"),
        (["0.safetensors", "1.safetensors", "--weights", "0,0"], "not all of them 0"),
        (["0.safetensors", "1.safetensors", "--weights", "1,nan"], "--weights"),
    ],
)
def test_bad_input_is_one_line(
    changes: list[str],
    reason: str,
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file(Path("wide.safetensors"), 0, PAHSConfig(width=12, shared_extractor=True))
    file(Path("ovd.safetensors"), 0, OVDConfig(width=8, blocks=1))
    broken = weights.load(files[0])
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    weights.save(broken, "nan.safetensors")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main(["weights", "average", *changes, "-o", "mean.safetensors"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(reason, error)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
