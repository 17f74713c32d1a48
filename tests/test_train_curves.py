"""Curves of runs: drawn where the numbers say, and a clear line when there are none."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pahs.cli import main
from pahs.figures import curves

LOG = "\n".join(
    [
        *(f'{{"step": {s}, "loss": {0.1 - s / 10000}, "lr": 0.001}}' for s in range(100, 600, 100)),
        '{"step": 500, "psnr_in": 27.0, "psnr_out": 28.5}',
        '{"step": 250, "psnr_in": 27.0, "psnr_out": 27.5}',
    ]
)


def ink(picture: Image.Image) -> np.ndarray:
    return (np.asarray(picture).astype(int) - (0x1F, 0x6F, 0xB4)).__abs__().sum(-1) < 10


def test_a_run_becomes_a_row(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text(LOG)
    logs = [str(tmp_path / "a" / "metrics.jsonl"), str(tmp_path / "b")]
    assert main(["curves", *logs, "-o", str(tmp_path / "out" / "curves.png")]) == 0
    picture = Image.open(tmp_path / "out" / "curves.png")
    assert picture.size == (2 * curves.PANEL[0], 2 * curves.PANEL[1])
    drawn = ink(picture)
    loss = drawn[: curves.PANEL[1], : curves.PANEL[0]]
    rows, columns = np.nonzero(loss)
    assert rows[columns.argmin()] < rows[columns.argmax()], "a falling loss falls"
    gain = drawn[: curves.PANEL[1], curves.PANEL[0] :]
    rows, columns = np.nonzero(gain)
    assert rows[columns.argmin()] > rows[columns.argmax()], "a growing gain grows"
    assert np.array_equal(drawn[: curves.PANEL[1]], drawn[curves.PANEL[1] :])


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
