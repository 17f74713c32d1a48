"""The paper's numbers, read from `paper.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

Cell = str | float | int | bool


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

    def tables(key: str) -> dict[str, PaperTable]:
        return {
            t["label"]: PaperTable(
                t["label"],
                t["number"],
                t["title"],
                tuple(t["columns"]),
                tuple(tuple(row) for row in t["rows"]),
            )
            for t in data[key]
        }

    figures = {
        f["label"]: PaperFigure(
            f["label"], f["number"], f["title"], f["kind"], tuple(tuple(p) for p in f.get("points", ()))
        )
        for f in data["figure"]
    }
    return Paper(tables("table"), tables("layers"), figures, data["text"])
