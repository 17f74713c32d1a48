"""Plots, made with matplotlib, which is an extra: nothing of it is imported before a plot is drawn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.errors import PahsError
from pahs.files import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (4.8, 2.6)
"""Width and height of one plot, in inches."""
DPI = 100


def require_matplotlib() -> None:
    """Refuse to begin what could not be drawn."""
    if find_spec("matplotlib") is None:
        raise PahsError("plots need matplotlib; install it with: pip install 'pahs[figures]'")


def new_figure(rows: int, columns: int) -> Figure:
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure((PANEL[0] * columns, PANEL[1] * rows), dpi=DPI, layout="constrained")


def save(figure: Figure, path: Path) -> None:
    with whole(path) as partial:
        figure.savefig(partial, format="png")
