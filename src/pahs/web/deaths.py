"""How a child process ended, and how often that may happen to one job before the job is given up."""

from __future__ import annotations

import signal
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Self

MOST_CRASHES = 3
"""Crashes of its processes that a job may see without getting further than before."""
MOST_KILLS = 20
"""The same with kills from outside counted too. They say nothing about the job, but no job runs for ever."""
STAGES = ("", "opening", "first look", "looking ahead", "restoring", "finishing", "comparing")
"""Of a job, in their order."""
_VMSTAT = Path("/proc/vmstat")
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Death:
    """The unwanted end of a child process."""

    crash: bool
    """Whether the job did it: False where somebody else killed the process."""
    how: str
    """For the user."""

    @classmethod
    def of(cls, status: int, out_of_memory: bool) -> Self:
        """From the exit status of a process, and whether the system killed any process for memory meanwhile."""
        if status >= 0:
            return cls(True, f"exit status {status}")
        if status == -signal.SIGKILL and out_of_memory:
            return cls(True, "the system ran out of memory")
        return cls(-status not in _FROM_OUTSIDE, signal.Signals(-status).name)


def memory_kills() -> int:
    """Processes that Linux has killed for lack of memory, containers included; 0 on other systems."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def reached(stage: str, done: int, read: int) -> int:
    """How far a run was, as a number that grows while it gets on."""
    return (STAGES.index(stage) if stage in STAGES else 0) * 10**9 + max(done, read)


def note_death(queue: sqlite3.Connection, worker: str | None, death: Death, now: float) -> None:
    """Note with which job a child died, and give that job up where it got no further too often."""
    looking = "state = 'queued' AND facts IS NULL"
    for row in queue.execute(
        f"SELECT * FROM jobs WHERE worker = ? AND (state = 'running' OR {looking})", (worker,)
    ).fetchall():
        queue.execute(
            "INSERT INTO deaths SELECT ?, ?, ?, ? > coalesce(max(reached), -1) FROM deaths WHERE job = ?",
            (row["id"], death.crash, *[reached(row["stage"], row["done"], row["read"])] * 2, row["id"]),
        )
        deaths, kills, crashes = queue.execute(
            "SELECT count(*), sum(NOT further), sum(crash AND NOT further) FROM deaths WHERE job = ?",
            (row["id"],),
        ).fetchone()
        if row["state"] == "queued" and not death.crash and kills < MOST_KILLS:
            queue.execute("UPDATE jobs SET looks = looks - 1 WHERE id = ?", (row["id"],))
        elif row["state"] == "running" and (crashes >= MOST_CRASHES or kills >= MOST_KILLS):
            error = (
                f"the process that ran it ended {deaths} times without getting further ({death.how}); "
                "try a smaller model or a shorter part, or close other programs and retry"
            )
            queue.execute(
                "UPDATE jobs SET state = 'failed', stage = '', finished = ?, error = ? WHERE id = ?",
                (now, error, row["id"]),
            )
