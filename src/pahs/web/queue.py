"""The queue: one SQLite file that the server and its workers share. Every step is one atomic statement."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pahs.errors import PahsError
from pahs.progress import Progress
from pahs.web.deaths import Death, note_death
from pahs.web.jobs import Job, JobOptions, Preview, State
from pahs.web.schema import SCHEMA

_TELLING_FRAMES = 24
"""Frames from which a job tells how fast its model is."""

_FRESH = (
    "stage = '', done = 0, read = 0, rate = NULL, error = NULL, warnings = '[]', claim = NULL, worker = NULL, "
    "started = NULL, finished = NULL, result = NULL, result_bytes = NULL, preview = NULL"
)


class Queue:
    """One connection to the queue; each thread and process opens its own."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self._db = sqlite3.connect(file, timeout=30, isolation_level=None, check_same_thread=False)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        except sqlite3.DatabaseError as error:
            raise PahsError(
                f"{file}: is not a queue that can be used ({error}); choose another --folder"
            ) from None

    def close(self) -> None:
        self._db.close()

    # For users.

    def add(
        self, name: str, options: JobOptions, size: int | None, held: bool, most: int | None = None
    ) -> Job | None:
        """A new job that waits for its file; None where the queue holds `most` jobs already."""
        rows = self._db.execute(
            "INSERT INTO jobs (id, name, state, held, position, options, size, created) "
            "SELECT ?, ?, 'uploading', ?, coalesce((SELECT max(position) FROM jobs), 0) + 1, ?, ?, ? "
            "WHERE ? IS NULL OR (SELECT count(*) FROM jobs) < ? RETURNING id",
            (secrets.token_hex(8), name, held, _json(options), size, time.time(), most, most),
        ).fetchall()
        return self.get(rows[0]["id"]) if rows else None

    def get(self, id: str) -> Job | None:
        row = self._db.execute("SELECT * FROM jobs WHERE id = ?", (id,)).fetchone()
        return Job.of(row) if row else None

    def jobs(self, state: State | None = None) -> list[Job]:
        """All jobs in the order of the queue."""
        rows = self._db.execute(
            "SELECT * FROM jobs WHERE ? IS NULL OR state = ? ORDER BY position", (state, state)
        )
        return [Job.of(row) for row in rows]

    def uploaded(self, id: str, size: int) -> bool:
        """The source is complete: the job is in the queue."""
        return self._changed(
            "UPDATE jobs SET state = 'queued', size = ?, received = ? WHERE id = ? AND state = 'uploading'",
            (size, size, id),
        )

    def receiving(self, id: str, received: int) -> bool:
        """So many bytes of the source are on disk; False where it is no longer wanted."""
        return self._changed(
            "UPDATE jobs SET received = ? WHERE id = ? AND state = 'uploading'", (received, id)
        )

    def choose(self, id: str, options: JobOptions) -> bool:
        """Other options, for a job that is not running."""
        return self._changed(
            "UPDATE jobs SET options = ? WHERE id = ? AND state <> 'running'", (_json(options), id)
        )

    def hold(self, id: str, held: bool) -> bool:
        """Pause or continue."""
        return self._changed(
            "UPDATE jobs SET held = ? WHERE id = ? AND state IN ('uploading', 'queued', 'running')",
            (held, id),
        )

    def cancel(self, id: str) -> bool:
        """End a job: at once if it waits, by its worker if it runs."""
        return self._changed(
            "UPDATE jobs SET cancel = (state = 'running'), held = 0, finished = iif(state = 'running', NULL, ?), "
            "state = iif(state = 'running', 'running', 'cancelled') "
            "WHERE id = ? AND state IN ('uploading', 'queued', 'running')",
            (time.time(), id),
        )

    def retry(self, id: str, options: JobOptions | None = None) -> bool:
        """Run an ended job again, as a new one at the end of the queue. One whose upload was cut stays as it is."""
        return self._changed(
            f"UPDATE jobs SET state = 'queued', held = 0, cancel = 0, looks = 0, {_FRESH}, "
            "options = coalesce(?, options), position = (SELECT max(position) FROM jobs) + 1 "
            "WHERE id = ? AND state IN ('done', 'failed', 'cancelled') AND received = size",
            (_json(options) if options else None, id),
        )

    def move(self, id: str, before: str | None) -> bool:
        """Put a job in front of another one, or at the end."""
        with self._transaction():
            order = [row["id"] for row in self._db.execute("SELECT id FROM jobs ORDER BY position")]
            if id not in order or (before is not None and before not in order) or id == before:
                return False
            order.remove(id)
            place = len(order) if before is None else order.index(before)
            marks = self._db.execute("SELECT position FROM jobs WHERE id <> ? ORDER BY position", (id,))
            positions = [row["position"] for row in marks]
            low = positions[place - 1] if place else positions[0] - 2 if positions else 0
            high = positions[place] if place < len(positions) else low + 2
            middle = (low + high) / 2
            if not low < middle < high:  # halved too often for a float: number all of them anew
                order.insert(place, id)
                for number, name in enumerate(order, 1):
                    self._db.execute("UPDATE jobs SET position = ? WHERE id = ?", (number, name))
            else:
                self._db.execute("UPDATE jobs SET position = ? WHERE id = ?", (middle, id))
            return True

    def remove(self, id: str) -> bool:
        """Forget a job that does not run."""
        return self._changed("DELETE FROM jobs WHERE id = ? AND state <> 'running'", (id,))

    def revision(self) -> tuple[str, int]:
        """The queue's own name, and how often anything in it has changed."""
        epoch, revision = self._db.execute("SELECT epoch, revision FROM clock").fetchone()
        return epoch, revision

    def changes(self, since: int) -> tuple[list[Job], list[str]]:
        """Jobs that are new or other than at a revision, and the ids of those removed since."""
        rows = self._db.execute("SELECT * FROM jobs WHERE revision > ? ORDER BY revision", (since,))
        gone = self._db.execute("SELECT id FROM removed WHERE revision > ?", (since,))
        return [Job.of(row) for row in rows], [row["id"] for row in gone]

    # For the inspector.

    def look(self, worker: str) -> Job | None:
        """The next job whose file nobody has looked into; counted before it is opened, as opening it may kill."""
        if not self._db.execute(
            "SELECT 1 FROM jobs WHERE state = 'queued' AND facts IS NULL LIMIT 1"
        ).fetchone():
            return None
        row = self._db.execute(
            "UPDATE jobs SET looks = looks + 1, worker = ? WHERE id = "
            "(SELECT id FROM jobs WHERE state = 'queued' AND facts IS NULL ORDER BY position LIMIT 1) RETURNING *",
            (worker,),
        ).fetchone()
        return Job.of(row) if row else None

    def looks(self, id: str) -> int:
        row = self._db.execute("SELECT looks FROM jobs WHERE id = ?", (id,)).fetchone()
        return int(row["looks"]) if row else 0

    def describe(self, id: str, facts: dict[str, Any]) -> bool:
        return self._changed(
            "UPDATE jobs SET facts = ?, expected = ? WHERE id = ?",
            (json.dumps(facts), facts.get("frames"), id),
        )

    def reject(self, id: str, error: str) -> bool:
        """The file cannot be used."""
        return self._changed(
            "UPDATE jobs SET state = 'failed', error = ?, finished = ? WHERE id = ? AND state = 'queued'",
            (error, time.time(), id),
        )

    # For workers.

    def claim(self, worker: str) -> Job | None:
        """Take the next job, by one statement: no two workers get the same one."""
        if not self._db.execute("SELECT 1 FROM jobs WHERE state = 'queued' LIMIT 1").fetchone():
            return None  # without the lock that a statement which may write takes
        row = self._db.execute(
            f"UPDATE jobs SET {_FRESH}, state = 'running', claim = ?, worker = ?, started = ? "
            "WHERE id = (SELECT id FROM jobs WHERE state = 'queued' AND NOT held AND facts IS NOT NULL "
            "ORDER BY position LIMIT 1) AND state = 'queued' RETURNING *",
            (secrets.token_hex(8), worker, time.time()),
        ).fetchone()
        return Job.of(row) if row else None

    def report(self, job: Job, progress: Progress, rate: float | None) -> bool:
        """How far a run is; False where the job is no longer this run's."""
        return self._changed(
            "UPDATE jobs SET stage = ?, done = ?, expected = coalesce(?, expected), read = ?, rate = ? "
            "WHERE id = ? AND claim = ? AND state = 'running'",
            (progress.stage, progress.done, progress.expected, progress.read, rate, job.id, job.claim),
        )

    def show(self, job: Job, preview: Preview) -> bool:
        return self._changed(
            "UPDATE jobs SET preview = ? WHERE id = ? AND claim = ? AND state = 'running'",
            (_json(preview), job.id, job.claim),
        )

    def wanted(self, job: Job) -> tuple[bool, bool]:
        """Whether this run should continue, and whether it is paused."""
        row = self._db.execute(
            "SELECT cancel, held FROM jobs WHERE id = ? AND claim = ? AND state = 'running'",
            (job.id, job.claim),
        ).fetchone()
        return (not row["cancel"], bool(row["held"])) if row else (False, False)

    def finish(
        self,
        job: Job,
        result: str,
        preview: Preview | None,
        size: int,
        frames: int,
        rate: float,
        warnings: Iterable[str],
    ) -> bool:
        """The result is there under its final name. False where the job is no longer this run's.

        Without a preview of the whole result, that of the first look stays.
        """
        with self._transaction():
            mine = self._changed(
                "UPDATE jobs SET state = 'done', stage = '', done = ?, expected = ?, rate = ?, result = ?, "
                "preview = coalesce(?, preview), result_bytes = ?, warnings = ?, finished = ?, held = 0, cancel = 0 "
                "WHERE id = ? AND claim = ? AND state = 'running'",
                (
                    *(
                        frames,
                        frames,
                        rate,
                        result,
                        _json(preview) if preview else None,
                        size,
                        json.dumps([*warnings]),
                    ),
                    *(time.time(), job.id, job.claim),
                ),
            )
            if mine:
                facts = job.facts if frames >= _TELLING_FRAMES else None
                pixels = facts["width"] * facts["height"] * rate if facts else None
                run = (job.id, job.claim, time.time(), job.options.model, pixels)
                self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", run)
            return mine

    def fail(self, job: Job, error: str) -> bool:
        return self._changed(
            "UPDATE jobs SET state = 'failed', stage = '', error = ?, finished = ?, held = 0, cancel = 0 "
            "WHERE id = ? AND claim = ? AND state = 'running'",
            (error, time.time(), job.id, job.claim),
        )

    def measured(self, model: str, speed: float) -> None:
        """So many pixels per second does a model restore here, without decoding and encoding."""
        self._db.execute("INSERT OR REPLACE INTO speeds VALUES (?, ?)", (model, speed))

    def speeds(self) -> dict[str, float]:
        """Pixels per second of each model, by the longer jobs that ran here last.

        Models that have not run are estimated: measured alone, and corrected by what those that ran needed in truth.
        """
        rows = self._db.execute(
            "SELECT model, avg(speed) AS speed FROM (SELECT model, speed, row_number() OVER "
            "(PARTITION BY model ORDER BY finished DESC) AS age FROM runs WHERE speed > 0) "
            "WHERE age <= 5 GROUP BY model"
        )
        ran = {row["model"]: row["speed"] for row in rows}
        alone = {row["model"]: row["speed"] for row in self._db.execute("SELECT * FROM speeds")}
        ratios = [speed / alone[name] for name, speed in ran.items() if name in alone]
        ratio = sum(ratios) / len(ratios) if ratios else 1.0
        return {name: speed * ratio for name, speed in alone.items()} | ran

    def beat(self, worker: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO workers VALUES (?, ?)", (worker, time.time()))

    def last_beat(self, worker: str) -> float | None:
        """When a worker was heard of last, by the clock on the wall; None before its first beat."""
        row = self._db.execute("SELECT beat FROM workers WHERE name = ?", (worker,)).fetchone()
        return float(row["beat"]) if row else None

    def release(self, worker: str | None = None, death: Death | None = None) -> int:
        """Give back what a worker (or every worker) has claimed: to the queue, or to its end if that was wanted."""
        mine = "state = 'running' AND (? IS NULL OR worker = ?)"
        now = time.time()
        with self._transaction():
            self._db.execute(
                f"UPDATE jobs SET state = 'cancelled', cancel = 0, stage = '', finished = ? WHERE cancel AND {mine}",
                (now, worker, worker),
            )
            if death is not None:
                note_death(self._db, worker, death, now)
            count = self._db.execute(
                f"UPDATE jobs SET {_FRESH}, state = 'queued' WHERE {mine}", (worker, worker)
            ).rowcount
            self._db.execute("DELETE FROM workers WHERE ? IS NULL OR name = ?", (worker, worker))
            return count

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; whatever fails, such as a full disk, the connection can be used again."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite itself takes some failed ones back
                self._db.execute("ROLLBACK")
            raise

    def _changed(self, statement: str, values: tuple[Any, ...]) -> bool:
        return self._db.execute(statement, values).rowcount > 0


def _json(value: JobOptions | Preview) -> str:
    return json.dumps(asdict(value))
