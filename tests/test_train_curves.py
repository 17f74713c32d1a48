"""Curves of training runs: they follow the numbers, and a file without numbers is named."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pahs.cli import main
from pahs.figures import DPI, PANEL

LOG = "\n".join(
    [
        *(f'{{"step": {s}, "loss": {0.1 - s / 10000}, "lr": 0.001}}' for s in range(100, 600, 100)),
        '{"step": 500, "psnr_in": 27.0, "psnr_out": 28.5}',
        '{"step": 250, "psnr_in": 27.0, "psnr_out": 27.5}',
    ]
)


def ink(picture: Image.Image) -> np.ndarray:
    return (np.asarray(picture.convert("RGB")).astype(int) - (0x1F, 0x77, 0xB4)).__abs__().sum(-1) < 10


def curve(drawn: np.ndarray) -> np.ndarray:
    """The height of the line in each column, from its start."""
    rows, columns = np.nonzero(drawn)
    heights = np.array([rows[columns == column].mean() for column in range(columns.min(), columns.max())])
    return heights - heights[0]


def test_a_run_becomes_a_row(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text(LOG)
    logs = [str(tmp_path / "a" / "metrics.jsonl"), str(tmp_path / "b")]
    assert main(["curves", *logs, "-o", str(tmp_path / "out" / "curves.png")]) == 0
    picture = Image.open(tmp_path / "out" / "curves.png")
    width, height = (round(extent * DPI) for extent in PANEL)
    assert picture.size == (2 * width, 2 * height)
    drawn = ink(picture)
    loss = drawn[:height, :width]
    rows, columns = np.nonzero(loss)
    assert rows[columns.argmin()] < rows[columns.argmax()], "a falling loss falls"
    gain = drawn[:height, width:]
    rows, columns = np.nonzero(gain)
    assert rows[columns.argmin()] > rows[columns.argmax()], "a growing gain grows"
    for half in (np.s_[:, :width], np.s_[:, width:]):
        first, second = (curve(row[half]) for row in (drawn[:height], drawn[height:]))
        assert abs(len(first) - len(second)) <= 2, "the same numbers give the same curve"
        np.testing.assert_allclose(first[: len(second)], second[: len(first)], atol=2)


@pytest.mark.parametrize("content", [None, "not json", '{"step": 1}', '{"loss": 1}', "[1]"])
def test_what_is_no_log_is_named(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "metrics.jsonl"
    if content is not None:
        log.write_text(content)
    assert main(["curves", str(log), "-o", str(tmp_path / "curves.png")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {log}: ")
    assert not (tmp_path / "curves.png").exists()
