"""Server-sent events: every change of a job, to every page; a page that comes back gets what it missed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse

from pahs.web.api import as_json
from pahs.web.queue import Queue

_POLL_SECONDS = 0.1
_QUIET_SECONDS = 15.0
"""Time without a change after which an empty line keeps the connection alive."""


class Events:
    """Watches the queue while anybody listens. Workers write to it from processes of their own."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ended = asyncio.Event()

    async def stream(self, request: Request) -> StreamingResponse:
        last = request.headers.get("last-event-id") or request.query_params.get("since", "")
        return StreamingResponse(self._events(last), media_type="text/event-stream")

    async def _events(self, last: str) -> AsyncIterator[str]:
        epoch, _ = self.queue.revision()
        known, _, number = last.partition("-")
        revision = int(number) if known == epoch and number.isdigit() else -1
        quiet = 0.0
        while not self.ended.is_set():
            _, now = self.queue.revision()
            if now != revision:
                jobs, gone = self.queue.changes(revision)
                data = {"all": revision < 0, "jobs": [as_json(job) for job in jobs], "removed": gone}
                yield f"id: {epoch}-{now}\nevent: jobs\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
                revision, quiet = now, 0.0
            elif quiet >= _QUIET_SECONDS:
                yield ": still here\n\n"
                quiet = 0.0
            await asyncio.sleep(_POLL_SECONDS)
            quiet += _POLL_SECONDS
