"""The HTTP API: jobs as JSON, files with ranges. `docs/web.md` describes it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, get_args

from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from pahs import __version__
from pahs.choices import VIDEO_SUFFIXES, Codec
from pahs.errors import PahsError
from pahs.files import remove
from pahs.web.jobs import ENDED, Job, JobOptions, State, check_name, suffix_of
from pahs.web.look import THUMBNAIL
from pahs.web.offers import offers
from pahs.web.queue import Queue
from pahs.web.settings import Settings
from pahs.web.store import UPLOAD, free_bytes, runs_of
from pahs.web.supervisor import Supervisor
from pahs.web.uploads import GONE, Part, Parting, Refused, check_size, part_of, receive

_MOST_JSON = 64 * 1024
_TYPES = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/quicktime", ".mkv": "video/x-matroska"}
"""What downloads are called; everything else is octets, so that no browser runs what a user uploaded."""

_KEYS = {"start": ("options",), "retry": ("options",), "move": ("before",)}
"""What the body of an action may hold."""
_RUNNING = "the job is running; cancel it to change its options"

Handler = Callable[[Request], Awaitable[Response]]


def as_json(job: Job) -> dict[str, Any]:
    """A job as the API shows it."""
    base = f"/api/jobs/{job.id}"
    preview = None
    if job.preview is not None:
        preview = {**asdict(job.preview), "url": f"{base}/preview?v={job.claim}-{job.preview.kind}"}
        del preview["file"]
    total = job.expected or 0
    ended = job.state == "done"
    return {
        "id": job.id,
        "name": job.name,
        "state": job.state,
        "held": job.held,
        "stopping": job.cancel,
        "position": job.position,
        "options": asdict(job.options),
        "size": job.size,
        "received": job.received,
        "facts": job.facts,
        "thumbnail": f"{base}/thumbnail" if job.facts and job.facts.get("thumbnail") else None,
        "progress": 1.0 if ended else round(min(1.0, job.done / total), 4) if total else 0.0,
        "stage": job.stage,
        "frames": {"done": job.done, "expected": job.expected, "read": job.read},
        "rate": job.rate,
        "seconds_left": (total - job.done) / job.rate
        if total and job.rate and job.state == "running"
        else None,
        "error": job.error,
        "warnings": list(job.warnings),
        "created": job.created,
        "started": job.started,
        "finished": job.finished,
        "result": {"url": f"{base}/result", "name": job.result_name, "size": job.result_bytes}
        if ended
        else None,
        "preview": preview,
        "revision": job.revision,
    }


class Api:
    """The handlers, with the queue they work on. They run in the server's one thread."""

    def __init__(self, settings: Settings, queue: Queue, supervisor: Supervisor) -> None:
        self.settings = settings
        self.queue = queue
        self.supervisor = supervisor
        self._receiving: set[str] = set()

    def routes(self) -> list[Route]:
        job = "/api/jobs/{id}"
        table: list[tuple[str, Handler, str]] = [
            ("/api/about", self.about, "GET"),
            ("/api/jobs", self.list_jobs, "GET"),
            ("/api/jobs", self.create, "POST"),
            ("/api/jobs", self.create_with_file, "PUT"),
            (job, self.show, "GET"),
            (job, self.change, "PATCH"),
            (job, self.delete, "DELETE"),
            (f"{job}/source", self.upload, "PUT"),
            (f"{job}/source", self.source, "GET"),
            (f"{job}/result", self.result, "GET"),
            (f"{job}/preview", self.preview, "GET"),
            (f"{job}/thumbnail", self.thumbnail, "GET"),
            *((f"{job}/{name}", self.act, "POST") for name in ("start", "pause", "cancel", "retry", "move")),
        ]
        return [Route(path, _answered(handler), methods=[method]) for path, handler, method in table]

    async def about(self, request: Request) -> Response:
        limits = self.settings.limits
        self.supervisor.measure()
        return JSONResponse(
            {
                "measuring": self.supervisor.measuring,
                "version": __version__,
                "models": offers(self.settings, self.queue),
                "codecs": get_args(Codec),
                "limits": {
                    "upload_bytes": limits.upload_bytes,
                    "seconds": limits.seconds,
                    "jobs": limits.jobs,
                    "free_bytes": free_bytes(self.settings.folder, limits),
                },
                "suffixes": sorted(VIDEO_SUFFIXES),
                "workers": len(self.settings.devices),
            }
        )

    async def list_jobs(self, request: Request) -> Response:
        state = request.query_params.get("state")
        if state is not None and state not in get_args(State):
            raise Refused(422, f"state {state!r} is unknown; choose among {', '.join(get_args(State))}")
        return JSONResponse({"jobs": [as_json(job) for job in self.queue.jobs(state)]})  # type: ignore[arg-type]

    async def show(self, request: Request) -> Response:
        return JSONResponse(as_json(self._job(request)))

    async def create(self, request: Request) -> Response:
        """A job whose file comes later, in one or more parts."""
        values = await _json_of(request, "name", "size", "options", "hold")
        size = values.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
            raise Refused(422, "size: give the number of bytes that will be uploaded")
        job = self._add(
            values.get("name", ""), values.get("options", {}), size, bool(values.get("hold", False))
        )
        return JSONResponse(as_json(job), 201, {"Location": f"/api/jobs/{job.id}"})

    async def create_with_file(self, request: Request) -> Response:
        """A job with its file, in one request; nothing stays of it where the file does not arrive whole."""
        values = dict(request.query_params)
        held = values.pop("hold", "0") not in ("0", "false", "")
        part = part_of(request)
        if part.start or (part.total is not None and "content-range" in request.headers):
            raise Refused(400, "Content-Range: create the job with POST, then PUT its parts to /source")
        job = self._add(values.pop("name", ""), values, part.total, held)
        try:
            done = await self._receive(request, job, part, keep=False)
        except BaseException:
            self.queue.cancel(job.id)
            self._forget(job.id)
            raise
        return JSONResponse(as_json(done), 201, {"Location": f"/api/jobs/{job.id}"})

    async def upload(self, request: Request) -> Response:
        """The file of a job that waits for it, or the rest of it."""
        job, part = self._job(request), part_of(request)
        if job.state != "uploading":
            raise Refused(409, f"the job is {job.state}; it takes no file any more")
        folder = self.settings.job_folder(job.id)
        here = folder / UPLOAD
        received = here.stat().st_size if here.exists() else 0
        total = part.total if part.total is not None else job.size
        if total != job.size:
            raise Refused(409, f"the file was said to have {job.size} bytes, not {total}")
        if part.start not in (0, received):
            return JSONResponse({"error": f"the next byte to send is {received}", "received": received}, 409)
        done = await self._receive(request, job, Part(part.start, total), keep=True)
        return JSONResponse(as_json(done), 200 if done.state != "uploading" else 202)

    async def change(self, request: Request) -> Response:
        job = self._job(request)
        values = await _json_of(request, "options")
        options = self._options(values.get("options", {}), job.options)
        if not self.queue.choose(job.id, options):
            raise Refused(409, _RUNNING)
        return self._now(job.id)

    async def act(self, request: Request) -> Response:
        job, action = self._job(request), request.url.path.rpartition("/")[2]
        values = await _json_of(request, *_KEYS.get(action, ()))
        if action == "cancel":
            done = self.queue.cancel(job.id)
        elif action == "retry":
            options = self._options(values["options"], job.options) if "options" in values else None
            # Before the retry, because a new run may begin at once.
            old = runs_of(self.settings.job_folder(job.id), job)
            done = self.queue.retry(job.id, options)
            for path in old if done else ():
                remove(path)
        elif action == "move":
            before = values.get("before")
            done = self.queue.move(job.id, str(before) if before is not None else None)
        else:
            options = self._options(values["options"], job.options) if "options" in values else None
            if options and job.state not in ENDED and not self.queue.choose(job.id, options):
                raise Refused(409, _RUNNING)
            done = self.queue.hold(job.id, action == "pause")
        if not done:
            raise Refused(409, f"the job is {job.state}: it cannot be changed like this")
        return self._now(job.id)

    async def delete(self, request: Request) -> Response:
        job = self._job(request)
        if not self.queue.remove(job.id):
            raise Refused(409, "the job is running; cancel it first")
        remove(self.settings.job_folder(job.id))
        return Response(status_code=204)

    async def source(self, request: Request) -> Response:
        job = self._job(request)
        return self._file(job, job.source if job.state != "uploading" else None, job.name)

    async def result(self, request: Request) -> Response:
        job = self._job(request)
        return self._file(job, job.result, job.result_name)

    async def preview(self, request: Request) -> Response:
        job = self._job(request)
        answer = self._file(job, job.preview.file if job.preview else None)
        # Its address names the run: what is there never changes.
        answer.headers["Cache-Control"] = "private, max-age=86400"
        return answer

    async def thumbnail(self, request: Request) -> Response:
        answer = self._file(self._job(request), THUMBNAIL, media_type="image/jpeg")
        answer.headers["Cache-Control"] = "private, max-age=86400"
        return answer

    def _job(self, request: Request) -> Job:
        job = self.queue.get(request.path_params["id"])
        if job is None:
            raise Refused(*GONE)
        return job

    def _now(self, id: str) -> Response:
        job = self.queue.get(id)
        if job is None:
            raise Refused(*GONE)
        return JSONResponse(as_json(job))

    def _options(self, values: Any, base: JobOptions | None = None) -> JobOptions:
        options = JobOptions.parse(values, base)
        if options.model not in self.settings.models():
            offered = ", ".join(self.settings.models())
            raise Refused(422, f"model {options.model!r} is not offered here; choose among {offered}")
        return options

    def _add(self, name: Any, options: Any, size: int | None, held: bool) -> Job:
        limits = self.settings.limits
        check_size(size, limits, self.settings.folder)
        name = check_name(str(name))
        if suffix_of(name) not in VIDEO_SUFFIXES:
            raise Refused(415, f"{name}: is not a video by its ending; give an .mp4, .mov, .mkv or the like")
        job = self.queue.add(name, self._options(options), size, held, limits.jobs)
        if job is None:
            raise Refused(429, f"the list holds {limits.jobs} jobs already; remove some")
        self.settings.job_folder(job.id).mkdir(parents=True)
        return job

    async def _receive(self, request: Request, job: Job, part: Part, keep: bool) -> Job:
        if job.id in self._receiving:
            raise Refused(409, "this file is being uploaded already")
        self._receiving.add(job.id)
        try:
            done = await receive(request, self.queue, self.settings, job, part, keep)
        finally:
            self._receiving.discard(job.id)
        if done is None:
            raise Refused(*GONE)
        return done

    def _forget(self, id: str) -> None:
        if self.queue.remove(id):
            remove(self.settings.job_folder(id))

    def _file(
        self, job: Job, file: str | None, name: str | None = None, media_type: str | None = None
    ) -> FileResponse:
        path = self.settings.job_folder(job.id) / file if file else None
        if path is None or not path.is_file():
            what = "no result" if job.state not in ENDED else f"no such file: the job is {job.state}"
            raise Refused(404, f"{what}; see its state")
        kind = media_type or _TYPES.get(path.suffix, "application/octet-stream")
        return FileResponse(path, media_type=kind, filename=name, content_disposition_type="attachment")


async def _json_of(request: Request, *keys: str) -> dict[str, Any]:
    """The body as an object of some of these keys; an empty one is an empty object."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_JSON:
            raise Refused(413, "the request is too long")
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(415, "send JSON, with Content-Type: application/json")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON, or nested too deeply") from None
    if not isinstance(values, dict):
        raise Refused(400, "the body is not a JSON object")
    unknown = [key for key in values if key not in keys]
    if unknown:
        said = ", ".join(map(repr, unknown))
        known = f"it takes {', '.join(keys)}" if keys else "it takes an empty body"
        nested = "; options of the job belong into options" if "options" in keys else ""
        raise Refused(422, f"{said}: this request knows no such key; {known}{nested}")
    return values


def _answered(handler: Handler) -> Handler:
    """The handler, with its refusals as answers."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Refused as refusal:
            status, error = refusal.status, refusal.error
        except PahsError as refusal:
            status, error = 422, str(refusal)
        except ClientDisconnect:
            status, error = 499, "the upload broke off"
        if request.method == "PUT":
            return Parting({"error": error}, status, {"Connection": "close"})
        return JSONResponse({"error": error}, status)

    return answer
