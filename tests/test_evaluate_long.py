"""`pahs evaluate --long`: what diverges fails, what forgets passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from pahs.cli import main
from pahs.data.layouts import open_dataset
from pahs.errors import PahsError
from pahs.evaluation.long import EXACT, SHORTEST, films, score_long
from pahs.networks import PAHS
from pahs.networks.blocks import ResidualBlock
from pahs.runtime import weights
from test_train_sources import pairs
from zoo import build

NOISE = torch.rand(5, 3, 16, 32, generator=torch.Generator().manual_seed(0))


def summing(gain: float, direction: str = "backward_cell") -> PAHS:
    """One direction adds up what it reads, h = gain (read + h), and the other forgets."""
    model = build("rnn")
    assert isinstance(model, PAHS) and model.backward_cell is not None
    for cell in (model.forward_cell, model.backward_cell):
        amount = gain if cell is model.get_submodule(direction) else 0.1
        hidden = torch.eye(cell.hidden)
        first, block, last = cell.to_hidden
        assert isinstance(first, nn.Conv2d) and isinstance(last, nn.Conv2d)
        with torch.no_grad():
            for x in (cell.fuse.weight[:, cell.fuse.boundary :], first.weight, last.weight):
                x.zero_()
            cell.fuse.weight[: cell.hidden, cell.fuse.boundary :, 1, 1] = hidden
            first.weight[:, : cell.hidden, 1, 1] = hidden
            last.weight[:, :, 1, 1] = amount * hidden
            for part in (*cell.residual, block):
                assert isinstance(part, ResidualBlock)
                part.second.weight.zero_()
    return model


@pytest.mark.parametrize(
    ("cell", "which"), [("backward_cell", ("backward", "forward")), ("forward_cell", ("forward", "backward"))]
)
def test_a_state_that_runs_away_fails_in_its_direction(cell: str, which: tuple[str, str]) -> None:
    calm = score_long(summing(0.1, cell), "noise", NOISE, SHORTEST + 20)
    assert calm.passed and calm.backward is not None and calm.backward > 100
    wild = score_long(summing(1.02, cell), "noise", NOISE, SHORTEST + 20)
    assert not wild.passed
    assert getattr(wild, which[0]) < 40


def test_a_network_that_explodes_scores_zero() -> None:
    assert score_long(summing(9.0), "noise", NOISE, 2 * SHORTEST).backward == 0


def test_the_first_frames_alone_may_be_restored() -> None:
    score = score_long(summing(1.02), "noise", NOISE, SHORTEST, restored=8)
    assert not score.passed and score.forward is None


def test_a_recurrent_network_has_one_direction() -> None:
    score = score_long(build("lstm"), "noise", NOISE, SHORTEST)
    assert score.backward is None and score.forward is not None and 0 < score.forward <= EXACT
    with pytest.raises(PahsError, match="no sweeps"):
        score_long(build("arvo"), "noise", NOISE, SHORTEST)
    with pytest.raises(PahsError, match="--frames 20"):
        score_long(build("lstm"), "noise", NOISE, 20)


def test_films_loop(tmp_path: Path) -> None:
    root = pairs(tmp_path, frames=4)
    clips = dict(films(32, 16, open_dataset(root)))
    assert list(clips) == ["moving texture", "still", "noise", "take0, there and back"]
    assert all(x.shape[1:] == (3, 16, 32) and x.min() >= 0 and x.max() <= 1 for x in clips.values())
    real = clips["take0, there and back"]
    assert len(real) == 6 and torch.equal(real[4], real[2]) and torch.equal(real[5], real[1])
    moving = clips["moving texture"]
    for now, after in zip(moving, [*moving[1:], moving[0]], strict=True):
        assert torch.equal(now[:, :, 5:], after[:, :, :-5])
    with pytest.raises(PahsError, match="smaller than 64x48"):
        list(films(64, 48, open_dataset(root)))


def test_the_command_prints_a_table_and_writes_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights.save(summing(0.1), tmp_path / "net.safetensors")
    weights.save(summing(1.02), tmp_path / "wild.safetensors")
    plain = ["evaluate", "--long", "--frames", str(SHORTEST), "--device", "cpu"]
    command = [*plain, "--size", "32", "16"]
    result = tmp_path / "long.json"
    assert main([*command, "--model", str(tmp_path / "net.safetensors"), "--json", str(result)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| pass |") == 3 and "32x16" in printed and "bar 60" in printed
    rows = json.loads(result.read_text())["films"]
    assert [row["film"] for row in rows] == ["moving texture", "still", "noise"]
    assert all(row["passed"] and row["frames"] == SHORTEST and row["backward"] > 60 for row in rows)
    assert main([*command, "--model", str(tmp_path / "wild.safetensors")]) == 0
    assert "| FAIL |" in capsys.readouterr().out
    assert main(["evaluate"]) == 2
    assert "--data is missing" in capsys.readouterr().err
    assert main([*plain, "--size", "30", "16", "--model", str(tmp_path / "net.safetensors")]) == 2
    assert "--size 30 16" in capsys.readouterr().err
