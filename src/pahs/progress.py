"""Progress of long jobs: a bar on a terminal, a line every ten seconds elsewhere, or a front end's own function."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

LOG_SECONDS = 10.0
"""Time between two lines where there is no terminal."""


class Stop(Protocol):
    """A request to end a job, made by another thread or process: `threading.Event`, `multiprocessing.Event`."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    stage: str = ""
    """Of a video: opening, looking ahead, restoring, finishing. Other jobs have no stages."""
    done: int = 0
    """Frames (or whatever the job counts) that are finished."""
    expected: int | None = None
    """How many there will be, where that is known: of videos it is an estimate."""
    read: int = 0
    """Frames that were read before the first one was finished."""
    note: str = ""
    """What else is worth telling, such as failures so far."""


class Advance:
    """What a job reports its progress to. It only counts; subclasses override `show`."""

    def __init__(self, expected: int | None = None) -> None:
        self.progress = Progress(expected=expected)

    def __call__(self, steps: int = 1, /) -> None:
        """So many more are finished."""
        self._set(replace(self.progress, done=self.progress.done + steps))

    def expect(self, total: int | None, /) -> None:
        """So many there will be."""
        self._set(replace(self.progress, expected=total))

    def enter(self, stage: str, read: int = 0) -> None:
        """The job is in this stage, and has read so many frames ahead."""
        self._set(replace(self.progress, stage=stage, read=read))

    def note(self, text: str, /) -> None:
        """Tell this too, until another note."""
        self._set(replace(self.progress, note=text))

    def show(self, progress: Progress) -> None:
        """Called by the thread that runs the job, whenever something has changed."""

    def _set(self, progress: Progress) -> None:
        self.progress = progress
        self.show(progress)


class Callback(Advance):
    """Calls a front end's function with each `Progress`."""

    def __init__(self, function: Callable[[Progress], object]) -> None:
        super().__init__()
        self.function = function

    def show(self, progress: Progress) -> None:
        self.function(progress)


class Bar(Advance):
    """The only task of a bar on the terminal."""

    def __init__(self, bar: RichProgress, expected: int | None) -> None:
        super().__init__(expected)
        self.bar = bar

    def show(self, progress: Progress) -> None:
        task = self.bar.tasks[0]
        rate = f"{task.speed:.1f}/s" if task.speed else ""
        if progress.stage == "looking ahead":
            rate = f"looking ahead, {progress.read} read"
        elif progress.stage != "restoring":
            rate = progress.stage or rate
        rate = ", ".join(filter(None, (rate, progress.note)))
        self.bar.update(task.id, completed=progress.done, total=progress.expected, rate=rate)


@contextmanager
def bar(label: str, total: int | None, unit: str = "frames", quiet: bool = False) -> Iterator[Advance]:
    """Show `label` with count, rate and time left on stderr; yields what the job reports its progress to."""
    if quiet:
        yield Advance()
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        with RichProgress(*columns, console=Console(stderr=True), speed_estimate_period=10) as shown:
            shown.add_task(escape(label), total=total, unit=unit, rate="")
            yield Bar(shown, total)
    else:
        advance = Advance(total)
        with _logged(label, unit, advance):
            yield advance


@contextmanager
def _logged(label: str, unit: str, advance: Advance) -> Iterator[None]:
    """Print how far it is every ten seconds, from a thread that ends with the job."""
    ended: SimpleQueue[None] = SimpleQueue()  # an Event has a lock, which Ctrl-C can leave taken
    started = time.monotonic()

    def tell() -> None:
        while True:
            with suppress(Empty):
                return ended.get(timeout=LOG_SECONDS)
            line = describe(advance.progress, unit, time.monotonic() - started)
            print(f"{label}: {line}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tell, name="pahs-progress", daemon=True)
    try:
        thread.start()
        yield
    finally:
        ended.put(None)
        if thread.is_alive():  # an interrupt may have come before it was started
            thread.join()


def describe(progress: Progress, unit: str, seconds: float) -> str:
    """One line: stage, count, rate, time left."""
    parts = [f"{progress.read} {unit} read"] if progress.read else []
    if progress.done:
        rate = progress.done / seconds
        parts = [f"{progress.done} of {progress.expected or '?'} {unit}", f"{rate:.2f} {unit}/s"]
        if progress.expected and progress.expected >= progress.done:
            left = timedelta(seconds=round((progress.expected - progress.done) / rate))
            parts.append(f"{left} left")
    return ", ".join(filter(None, (progress.stage, *parts, progress.note))) or "starting"


def say(line: str) -> None:
    """Print a line that is not a result: to stderr."""
    print(line, file=sys.stderr, flush=True)
