"""`pahs visualize` on a small video, from the command to its pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clips import decoded
from pahs.cli import main
from pahs.networks import PAHSConfig
from pahs.networks.lstm import LSTMConfig
from pahs.runtime import weights
from pahs.video.write_video import write_video

HEIGHT, WIDTH = 40, 72


@pytest.fixture
def video(tmp_path: Path) -> Path:
    texture = torch.rand(3, HEIGHT, WIDTH + 20, generator=torch.Generator().manual_seed(0))
    write_video(tmp_path / "clip.mp4", (texture[:, :, t : t + WIDTH] for t in range(10)), 25)
    return tmp_path / "clip.mp4"


@pytest.fixture
def nets(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "ours.safetensors", tmp_path / "lstm.safetensors"]
    weights.save(PAHSConfig(width=12, global_skip=True).build(), paths[0])
    weights.save(LSTMConfig(width=4, blocks=1, global_skip=True).build(), paths[1])
    return [str(path) for path in paths]


def test_every_picture_of_a_frame(
    video: Path, nets: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["visualize", str(video), "--frame", "4", "-m", *nets, "--point", "50", "20", "-o", str(out)]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    for name in ("features", "attention", "selection", "comparison"):
        assert f"{name}.png  " in told
        with Image.open(out / f"{name}.png") as picture:
            assert picture.width > 600 and np.array(picture.convert("L")).std() > 10
    frames = decoded(out / "comparison.mp4")
    assert len(frames) == 10 and frames[0].width == 3 * WIDTH and frames[0].height >= HEIGHT


def test_another_network_is_compared_but_not_looked_into(
    video: Path, nets: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["visualize", str(video), "--frame", "0", "-m", nets[1], "-o", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {"comparison.png", "comparison.mp4"}
    assert "is no PAHS network" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--frame", "10"], "has no frame 10; the last one is 9"),
        (["--frame", "-1"], "--frame is -1"),
        (["--frame", "2", "--point", "72", "3"], "--point 72 3: the frame is 72x40 pixels"),
    ],
)
def test_wrong_use_is_one_line(
    options: list[str],
    message: str,
    video: Path,
    nets: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["visualize", str(video), "-m", nets[0], "-o", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
