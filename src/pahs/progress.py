"""Progress for long jobs: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Advance(Protocol):
    def __call__(self, steps: int = 1, /) -> None:
        """So much more is done."""

    def expect(self, total: int | None, /) -> None:
        """How much there is to do, where that is known only after the start."""

    def before(self, text: str, /) -> None:
        """What goes on as long as nothing is done yet."""


class Silent:
    def __call__(self, steps: int = 1, /) -> None:
        pass

    def expect(self, total: int | None, /) -> None:
        pass

    def before(self, text: str, /) -> None:
        pass


class Shown:
    """One task of a bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task

    def __call__(self, steps: int = 1, /) -> None:
        self.progress.advance(self.task, steps)
        speed = self.progress.tasks[0].speed
        self.progress.update(self.task, rate=f"{speed:.1f}/s" if speed else "")

    def expect(self, total: int | None, /) -> None:
        self.progress.update(self.task, total=total)

    def before(self, text: str, /) -> None:
        if not self.progress.tasks[0].completed:
            self.progress.update(self.task, rate=text)


@contextmanager
def bar(label: str, total: int | None, unit: str = "frames", quiet: bool = False) -> Iterator[Advance]:
    """Show `label` with count, rate and time left on stderr; yields a function to call as work gets done."""
    if quiet or not sys.stderr.isatty():
        yield Silent()
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
        yield Shown(progress, progress.add_task(label, total=total, unit=unit, rate=""))
