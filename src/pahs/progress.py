"""Progress for long jobs: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    def __call__(self, steps: int = 1, /) -> None: ...


@contextmanager
def bar(label: str, total: int | None, unit: str = "frames", quiet: bool = False) -> Iterator[Advance]:
    """Show `label` with count, rate and time left on stderr; yields a function to call as work gets done."""
    if quiet or not sys.stderr.isatty():
        yield lambda steps=1, /: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=10) as progress:
        task = progress.add_task(label, total=total, unit=unit, rate="")

        def advance(steps: int = 1, /) -> None:
            progress.advance(task, steps)
            speed = progress.tasks[0].speed
            progress.update(task, rate=f"{speed:.1f}/s" if speed else "")

        yield advance
