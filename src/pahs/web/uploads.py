"""Uploads: the body of a PUT, streamed to disk under another name, in memory that does not grow with it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from pahs.web.jobs import Job
from pahs.web.queue import Queue
from pahs.web.settings import Limits, Settings
from pahs.web.store import UPLOAD, free_bytes, gib

_BLOCK = 2**20
_PARTING_SECONDS = 2.0
_TELL_BYTES = 32 * 2**20
"""Bytes between two notes of how much has arrived."""


GONE = 404, "no such job; it may have been removed"


class Refused(Exception):  # noqa: N818 - an answer
    """A request that is answered with an error."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status
        self.error = error


class Parting(JSONResponse):
    """An answer to an upload that is refused while it is sent: at once, and the rest is read for a moment.

    A connection that is closed with bytes unread is reset, and browsers then lose the answer.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with anyio.move_on_after(_PARTING_SECONDS):
            more = "expect" not in Headers(scope=scope)
            while more:
                message = await receive()
                more = message["type"] == "http.request" and message.get("more_body", False)
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b""})


@dataclass(frozen=True)
class Part:
    """Which bytes of a file a request carries."""

    start: int
    total: int | None


def part_of(request: Request) -> Part:
    """From Content-Range (`bytes 1000-1999/5000`), or the whole file."""
    length = request.headers.get("content-length", "")
    text = request.headers.get("content-range")
    if text is None:
        return Part(0, int(length) if length.isdigit() else None)
    match = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", text.strip())
    if match is None:
        raise Refused(400, "Content-Range: write it as `bytes FIRST-LAST/TOTAL`")
    first, last, total = map(int, match.groups())
    if not first <= last < total or (length.isdigit() and int(length) != last - first + 1):
        raise Refused(400, "Content-Range: does not fit the length of the body")
    return Part(first, total)


def check_size(size: int | None, limits: Limits, folder: Path) -> None:
    """Refuse a file before its first byte is read."""
    if size is None:
        size = 0
    if size > limits.upload_bytes:
        raise Refused(
            413, f"the file has {gib(size)}; this server accepts {gib(limits.upload_bytes)} (--max-gib)"
        )
    if free_bytes(folder, limits) < size:
        raise Refused(507, "the server's disk is too full for this file; remove old jobs")


async def receive(
    request: Request, queue: Queue, settings: Settings, job: Job, part: Part, keep: bool
) -> Job | None:
    """Stream a body into a job's source; the job is queued when all is there.

    `keep` keeps what arrived of an upload that breaks off, so that it can be continued; otherwise nothing is left.
    """
    limits, folder = settings.limits, settings.job_folder(job.id)
    partial = folder / UPLOAD
    arrived = part.start
    try:
        with partial.open("ab" if part.start else "wb") as file:
            arrived = await _copy(request, file, queue, job.id, part, limits)
            await anyio.to_thread.run_sync(os.fsync, file.fileno())
        if part.total is None or arrived == part.total:
            if arrived == 0:
                raise Refused(400, "the file is empty")
            partial.replace(folder / job.source)
            queue.uploaded(job.id, arrived)
        else:
            queue.receiving(job.id, arrived)
        return queue.get(job.id)
    except ClientDisconnect:
        if keep:
            queue.receiving(job.id, partial.stat().st_size if partial.exists() else 0)
        raise
    except OSError as error:
        if queue.get(job.id) is None:
            return None  # it was deleted, and its folder with it
        raise Refused(507, f"the file cannot be stored ({error.strerror}); free some space") from None


async def _copy(request: Request, file: BinaryIO, queue: Queue, id: str, part: Part, limits: Limits) -> int:
    arrived, told, block = part.start, part.start, bytearray()
    async for chunk in request.stream():
        block += chunk
        if arrived + len(block) > min(limits.upload_bytes, part.total or limits.upload_bytes):
            raise Refused(
                413, f"the file is larger than {gib(limits.upload_bytes)}, or than it was said to be"
            )
        if len(block) < _BLOCK:
            continue
        await anyio.to_thread.run_sync(file.write, block)
        arrived, block = arrived + len(block), bytearray()
        if arrived - told >= _TELL_BYTES:
            told = arrived
            if not queue.receiving(id, arrived):
                if queue.get(id) is None:
                    raise Refused(*GONE)
                raise Refused(409, "the upload was cancelled")
            if free_bytes(Path(file.name), limits) < 0:
                raise Refused(507, "the server's disk is full; remove old jobs")
    file.write(block)
    file.flush()
    return arrived + len(block)
