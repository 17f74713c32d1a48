"""The tables of `pahs bench --scaling` as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pahs.figures import new_figure, save

if TYPE_CHECKING:
    from pahs.benchmarks.scaling import Scaling

QUANTITIES = (MILLISECONDS, MEMORY) = ("ms per frame", "peak GiB")


def plot(result: Scaling, path: Path) -> None:
    """Time per frame, and peak memory where it was measured, over the frame size and over the video's length."""
    measured = result.sizes[0].peak_bytes is not None
    figure = new_figure(1 + measured, 2)
    columns = (
        ("megapixels per frame", result.sizes, [p.megapixels for p in result.sizes]),
        ("frames of the video", result.lengths, [float(p.frames) for p in result.lengths]),
    )
    for axes_of_row, name in zip(figure.subplots(1 + measured, 2, squeeze=False), QUANTITIES, strict=False):
        for axes, (label, points, xs) in zip(axes_of_row, columns, strict=True):
            ys = [1000 / p.speed if name == MILLISECONDS else (p.peak_bytes or 0) / 2**30 for p in points]
            axes.plot(xs, ys, marker="o")
            for x, y in zip(xs, ys, strict=True):
                axes.annotate(f"{y:.3g}", (x, y), (0, 6), textcoords="offset points", ha="center")
            axes.set(xlabel=label, ylabel=name)
            axes.set_xlim(0, 1.06 * max(xs))
            axes.set_ylim(0, 1.2 * max(ys))
    save(figure, path)
