"""Quality against speed: what `pahs bench --data` measured, as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pahs.figures import new_figure, save

if TYPE_CHECKING:
    from pahs.benchmarks.zoo import Zoo


def plot(result: Zoo, path: Path) -> None:
    """One point for each network that was timed and scored, over a line where nothing is restored."""
    figure = new_figure(1, 1)
    from matplotlib.ticker import LogLocator, NullLocator

    axes = figure.subplots()
    blurry = None
    for row in result.rows:
        if row.speed is None or row.quality is None:
            continue
        blurry, psnr = row.quality.blurry, row.quality.restored
        axes.plot(row.speed, psnr, marker="o", color="tab:blue")
        name = Path(row.model).stem
        axes.annotate(name, (row.speed, psnr), (0, 7), textcoords="offset points", ha="center")
    if blurry is not None:
        axes.axhline(blurry, color="gray", linestyle="--")
        axes.annotate("blurry", (0.01, blurry), (0, 3), ("axes fraction", "data"), "offset points")
    width, height = result.config.width, result.config.height
    axes.set(xscale="log", xlabel=f"frames/s at {width}x{height}, {result.device}", ylabel="PSNR (dB)")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.25, y=0.2)
    save(figure, path)
