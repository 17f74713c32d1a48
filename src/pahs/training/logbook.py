"""What a run writes while it trains: metrics.jsonl, TensorBoard curves, a progress bar or plain lines."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pahs.files import os_errors, remove_unfinished, write_text
from pahs.progress import Advance, bar


class Logbook:
    """Writes metrics and messages of a run; it does nothing in processes other than the first."""

    def __init__(self, folder: Path, first_step: int, active: bool) -> None:
        self.active = active
        self.path = folder / "metrics.jsonl"
        self.board: Any = None
        if not active:
            return
        remove_unfinished(folder)
        # Steps after the checkpoint will be repeated, so their lines are removed.
        lines = self.path.read_text().splitlines(keepends=True) if first_step and self.path.exists() else []
        kept = (line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= first_step)
        write_text(self.path, "".join(kept))
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step or None)

    def say(self, line: str) -> None:
        if self.active:
            print(line, file=sys.stderr, flush=True)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Append one line of numbers, and add each of them to its curve."""
        if not self.active:
            return
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        refused = os_errors(f"{self.path}: cannot be written", "; free space and use --resume")
        with refused, self.path.open("a") as file:
            file.write(json.dumps({"step": step, **finite}) + "\n")
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)

    def picture(self, name: str, image: Any, step: int) -> None:
        """Show a picture (3, H, W) uint8 in TensorBoard."""
        if self.board is not None:
            self.board.add_image(name, image, step)

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


class Ticker:
    """Shows progress and the time left, as a bar on a terminal, else as a line every `seconds`."""

    def __init__(self, book: Logbook, advance: Advance, seconds: float, total: int) -> None:
        self.book, self.advance, self.seconds, self.total = book, advance, seconds, total
        self.shown = 0
        self.terminal = sys.stderr.isatty()
        self.last_time = self.started = time.monotonic()
        self.last_step: int | None = None
        self.first_done: float | None = None

    def tick(self, step: int, done: float, loss: float, lr: float) -> None:
        now = time.monotonic()
        if self.last_step is None or self.first_done is None:
            self.last_step, self.first_done = step, done
        if self.terminal:
            reached = int(done * self.total)
            self.advance(reached - self.shown)
            self.shown = reached
        elif now - self.last_time >= self.seconds and step > self.last_step:
            each = (now - self.last_time) / (step - self.last_step)
            rate = (done - self.first_done) / (now - self.started)
            left = f"{(1 - done) / rate / 60:.1f} min left" if rate > 0 else ""
            self.book.say(f"step {step}  loss {loss:.5f}  lr {lr:.2e}  {each * 1000:.1f} ms/step  {left}")
            self.last_time, self.last_step = now, step


@contextmanager
def ticker(book: Logbook, seconds: float, steps: int, max_minutes: float) -> Iterator[Ticker]:
    total, unit = (steps, "steps") if steps and not max_minutes else (int(max_minutes * 60), "seconds")
    with bar("training", total, unit, quiet=not (book.active and sys.stderr.isatty())) as advance:
        yield Ticker(book, advance, seconds, total)
