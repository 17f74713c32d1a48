"""Many files, one after the other: a failure does not stop the rest, and a table at the end tells of each."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.cli.options import one_line, say
from pahs.errors import PahsError

if TYPE_CHECKING:
    from pahs.video import TransformReport

Job = Callable[[Path, Path], "TransformReport"]


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    source: Path | str
    frames: int | None
    seconds: float | None
    result: str


def run_all(pairs: list[tuple[Path, Path]], job: Job, skip_existing: bool) -> None:
    """Run `job` on every source and target. A single one simply fails; of many, all are tried."""
    rows: list[Row] = []
    failures = 0
    for source, target in pairs:
        if skip_existing and target.exists():
            rows.append(Row(source, None, None, "skipped: the result exists"))
            if len(pairs) == 1:
                print(f"{one_line(str(target))}  exists, skipped")
            continue
        try:
            report = job(source, target)
        except Exception as error:
            if len(pairs) == 1:
                raise
            if not isinstance(error, PahsError):
                traceback.print_exc()
            say(f"error: {error}")
            failures += 1
            rows.append(Row(source, None, None, "failed"))
            continue
        for warning in report.warnings:
            say(f"warning: {warning}")
        print(one_line(summary(report)), flush=True)
        rows.append(
            Row(source, report.frames, report.seconds, "done" + ", with warnings" * bool(report.warnings))
        )
    if len(pairs) > 1:
        print("\n" + table(rows))
    if failures:
        raise PahsError(f"{failures} of {len(pairs)} inputs could not be deblurred")


def summary(report: TransformReport) -> str:
    """One line about a result."""
    parts = [f"{report.dst}  {report.frames} frames, {report.rate:.1f} frames/s"]
    if report.sharpness is not None:
        before, after = report.sharpness
        parts.append(f"sharpness {before:.2f} -> {after:.2f}")
    if report.comparison is not None:
        parts.append(f"compare in {report.comparison}")
    return ", ".join(parts)


def table(rows: list[Row]) -> str:
    """File, frames, time, result; in columns."""
    cells = [("file", "frames", "time", "result")]
    for row in rows:
        time = "-" if row.seconds is None else str(timedelta(seconds=round(row.seconds)))
        frames = "-" if row.frames is None else str(row.frames)
        cells.append((one_line(str(row.source)), frames, time, row.result))
    widths = [max(len(line[i]) for line in cells) for i in range(3)]
    return "\n".join(
        f"{file:{widths[0]}}  {frames:>{widths[1]}}  {time:>{widths[2]}}  {result}"
        for file, frames, time, result in cells
    )
