"""The paper's numbers, read from `paper.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pahs.configs import build

Cell = str | bool | int | float


@dataclass(frozen=True)
class PaperTable:
    """A table as printed."""

    label: str
    number: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def value(self, row: int, column: str) -> float:
        found = self.rows[row][self.columns.index(column)]
        assert isinstance(found, int | float)
        return float(found)


@dataclass(frozen=True)
class PaperFigure:
    """A figure, by what it shows."""

    label: str
    number: str
    title: str
    kind: str
    """picture, plot, features, diagram or video."""
    points: tuple[tuple[float, ...], ...] = ()
    """Points of a plot that are known from tables."""


@dataclass(frozen=True)
class Paper:
    """Everything that is reproduced."""

    tables: dict[str, PaperTable]
    layers: dict[str, PaperTable]
    figures: dict[str, PaperFigure]
    text: dict[str, float]

    @property
    def labels(self) -> list[str]:
        return [*self.tables, *self.layers, *self.figures]


@cache
def paper() -> Paper:
    data = tomllib.loads((files("pahs") / "reproduce" / "paper.toml").read_text(encoding="utf-8"))
    tables, layers = (
        {one["label"]: build(PaperTable, one) for one in data[key]} for key in ("table", "layers")
    )
    figures = {one["label"]: build(PaperFigure, one) for one in data["figure"]}
    return Paper(tables, layers, figures, data["text"])
