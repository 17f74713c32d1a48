"""The inside of a network as pictures: its features, its selection, and where one point of the frame attends to.

Every picture says by itself what it shows: titles in plain words, a colour bar, and a sentence below.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pahs.figures import DPI, require_matplotlib, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]
WIDTH = 3.3
"""Inches of one square panel; wide ones are wider."""
THRESHOLD = 0.6
"""The paper draws what attends above this share of the largest value."""

STAGES = (
    "feature of this frame (f_B)",
    "memory from the frame before (h)",
    "memory after PPRNN",
    "memory after SNLA, as it is used",
)


def panels(rows: int, columns: int, shape: tuple[int, ...], caption: str) -> tuple[Figure, Any]:
    """A grid of axes for pictures of one shape, with a caption below."""
    require_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = WIDTH * max(1.0, shape[1] / shape[0]) ** 0.5
    height = width * shape[0] / shape[1] + 0.45
    lines = fill(caption, int(columns * width * 14))
    foot = 0.2 * (lines.count("\n") + 1) + 0.15
    below = foot / (rows * height + foot)
    engine = ConstrainedLayoutEngine(rect=(0, below, 1, 1 - below))
    figure = Figure((columns * width, rows * height + foot), dpi=DPI, layout=engine)
    figure.text(0.01, 0.02, lines, fontsize=9, va="bottom")
    axes = figure.subplots(rows, columns, squeeze=False)
    for each in axes.flat:
        each.set_axis_off()
    return figure, axes


def features(frames: Array, maps: Array, path: Path) -> None:
    """A row for each frame: the frame, then the four stages. `maps` are (4, h, w) in 0..255 for each frame."""
    caption = (
        "Bright: many channels are active here (mean absolute value, each map from its 1st to its 99th percentile). "
        "The memory is what the network carries from frame to frame; PPRNN compares it with the last and the present "
        "frame, SNLA moves it to where the present frame needs it."
    )
    figure, axes = panels(len(frames), 5, frames[0].shape, caption)
    for row, frame, stages in zip(axes, frames, maps, strict=True):
        row[0].imshow(frame)
        for each, stage in zip(row[1:], stages, strict=True):
            shown = each.imshow(stage.astype(float) / 255, cmap="magma", vmin=0, vmax=1)
        figure.colorbar(shown, ax=row[-1], shrink=0.8, label="activity")
    for each, title in zip(axes[0], ("blurry frame", *STAGES), strict=True):
        each.set_title(title, fontsize=9)
    save(figure, path)


def attention(frames: Array, shares: Array, points: Array, path: Path) -> None:
    """A row for each frame: the frame with the asking point, and the shares that its tokens get.

    `shares` are (rows, columns) of tokens, `points` (frames, 2) the row and column of the asking token.
    """
    caption = (
        "The red square asks: where in the memory of the last frame is what I need? Each share says how much a token "
        "gives to the answer, as a part of the largest. "
        f"Outlined: shares above {THRESHOLD}, which the paper draws."
    )
    figure, axes = panels(len(frames), 2, frames[0].shape, caption)
    for row, frame, share, point in zip(axes, frames, shares, points, strict=True):
        part = share / max(float(share.max()), 1e-12)
        height, width = frame.shape[:2]
        size = height / share.shape[0]
        extent = (0, width, height, 0)
        row[0].imshow(frame, extent=extent)
        row[0].set_title("who asks: the red square", fontsize=9)
        row[1].imshow(frame.mean(2), cmap="gray", extent=extent)
        shown = row[1].imshow(part, cmap="viridis", alpha=0.65, vmin=0, vmax=1, extent=extent)
        row[1].set_title("who answers, and how much", fontsize=9)
        figure.colorbar(shown, ax=row[1], shrink=0.8, label="share of the largest")
        for r, c in np.argwhere(part > THRESHOLD):
            _square(row[1], r, c, size, "white", 1.2)
        for each in row:
            _square(each, int(point[0]), int(point[1]), size, "red", 2)
    save(figure, path)


def selection(frames: Array, values: Array, path: Path) -> None:
    """A row for each frame: the frame, and S_Sel of its tokens."""
    caption = (
        "S_Sel says for every token of the frame how much of what SNLA found in the memory is let through: 0 nothing, "
        "1 all. One colour everywhere means that the selection is a constant."
    )
    figure, axes = panels(len(frames), 2, frames[0].shape, caption)
    for row, frame, value in zip(axes, frames, values, strict=True):
        row[0].imshow(frame)
        row[0].set_title("blurry frame", fontsize=9)
        shown = row[1].imshow(
            value, cmap="viridis", vmin=0, vmax=1, extent=(0, frame.shape[1], frame.shape[0], 0)
        )
        row[1].set_title(
            f"selection: mean {value.mean():.2f}, from {value.min():.2f} to {value.max():.2f}",
            fontsize=9,
        )
        figure.colorbar(shown, ax=row[1], shrink=0.8, label="S_Sel")
    save(figure, path)


def side_by_side(titles: Sequence[str], rows: Sequence[Sequence[Array]], caption: str, path: Path) -> None:
    """Pictures of several systems: a column for each."""
    figure, axes = panels(len(rows), len(titles), rows[0][0].shape, caption)
    for line, pictures in zip(axes, rows, strict=True):
        for each, picture in zip(line, pictures, strict=True):
            each.imshow(picture, interpolation="nearest")
    for each, title in zip(axes[0], titles, strict=True):
        each.set_title(title, fontsize=10)
    save(figure, path)


def _square(axes: Any, row: int, column: int, size: float, colour: str, width: float) -> None:
    from matplotlib.patches import Rectangle

    corner = (column * size, row * size)
    axes.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=colour, linewidth=width))
