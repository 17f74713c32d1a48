"""`pahs bench --scaling`: speed and memory over sizes and lengths, as tables and as a picture."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from pahs import cli
from pahs.benchmarks import scaling
from pahs.benchmarks.scaling import Point, Scaling
from pahs.figures import DPI, PANEL
from pahs.figures.scaling import plot
from pahs.networks import PAHSConfig
from pahs.runtime import weights
from test_bench import table


def panels(rows: int) -> tuple[int, int]:
    """Width and height of a picture with two columns of panels."""
    return round(2 * PANEL[0] * DPI), round(rows * PANEL[1] * DPI)


def test_the_command_measures_sizes_and_lengths_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaling, "SIZES", ((32, 16), (48, 32), (640, 360)))
    narrow = tmp_path / "narrow.safetensors"
    weights.save(PAHSConfig(width=6, shared_extractor=True, look_ahead=2).build(), narrow)
    picture, numbers = tmp_path / "curves.png", tmp_path / "numbers.json"
    arguments = ["--size", "64", "40", "--frames", "3", "--device", "cpu"]
    files = ["--plot", str(picture), "--json", str(numbers)]
    assert cli.main(["bench", "--scaling", "--model", str(narrow), *arguments, *files]) == 0
    out, err = capsys.readouterr()
    rows = table(out)
    assert [name for name in rows if "x" in name] == ["32x16", "48x32", "64x40"]
    assert [name for name in rows if name.isdigit()] == ["3", "6", "15", "30"]
    assert "64x40, 30 frames:" in err and "CUDA devices only" in out

    stored = json.loads(numbers.read_text())
    assert [point["frames"] for point in stored["lengths"]] == [3, 6, 15, 30]
    for point in stored["sizes"]:
        assert point["frames_per_second"] == pytest.approx(3 / point["seconds"])
    with Image.open(picture) as image:
        assert image.size == panels(rows=1)
        assert len(image.getcolors(1 << 16)) > 3


def test_memory_has_columns_and_a_row_of_panels(tmp_path):
    sizes = tuple(Point(w, h, 10, w * h / 1e5, w * h * 100) for w, h in scaling.SIZES)
    lengths = tuple(Point(3840, 2160, 10 * times, times, 1 << 30) for times in (1, 10))
    lengths = (lengths[0], Point(3840, 2160, 100, 10, int(1.02 * 2**30)))
    result = Scaling("m", sizes, lengths, "c")
    rows = table(scaling.markdown(result))
    assert rows["1280x720"] == ["10", "1.085", "1.00", "0.086", "100"]
    assert rows["10"][1:] == ["1.000", "+0.0 %"] and rows["100"][1:] == ["1.020", "+2.0 %"]
    plot(result, tmp_path / "new" / "curves.png")
    with Image.open(tmp_path / "new" / "curves.png") as image:
        assert image.size == panels(rows=2)


def test_without_matplotlib_nothing_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pahs.figures.find_spec", lambda name: None)
    picture = tmp_path / "curves.png"
    assert (
        cli.main(["bench", "--scaling", "--model", "pahs-t", "--device", "cpu", "--plot", str(picture)]) == 2
    )
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and "pip install 'pahs[figures]'" in err
    assert not out and not picture.exists()
