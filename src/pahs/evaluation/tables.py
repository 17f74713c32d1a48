"""Markdown tables of scores and measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NO_MEMORY = "Peak memory is measured on CUDA devices only."


def table(headings: str, rows: Iterable[str | Sequence[object]], text: int = 1, words: str = "") -> list[str]:
    """The lines of a table. `headings` stand between bars; so do the cells of a row that is a string.

    The first `text` columns and those of the headings `words`, also between bars, are words; the others are numbers.
    """
    names = headings.split(" | ")
    rule = "".join("---|" if i < text or x in words.split(" | ") else "--:|" for i, x in enumerate(names))
    lines = (row if isinstance(row, str) else " | ".join(map(str, row)) for row in rows)
    return [f"| {headings} |", f"|{rule}", *(f"| {line} |" for line in lines)]


def shown(value: float | None, form: str = ".2f") -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else format(value, form)


def gib(size: int | None, form: str = ".2f") -> str:
    return shown(None if size is None else size / 2**30, form)
