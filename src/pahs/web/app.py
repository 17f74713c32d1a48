"""The application: pages, API, events, behind the guard; with it the queue opens and the workers run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from pahs.web.api import Api
from pahs.web.events import Events
from pahs.web.queue import Queue
from pahs.web.security import Guard
from pahs.web.settings import Settings
from pahs.web.store import sweep
from pahs.web.supervisor import Supervisor

STATIC = Path(str(files("pahs.web") / "static"))


def build(settings: Settings, ready: Callable[[], object] = lambda: None) -> Starlette:
    """The application of one server; `ready` is called when it starts to answer."""
    queue = Queue(settings.queue_file)
    supervisor = Supervisor(settings)
    api, events = Api(settings, queue, supervisor), Events(queue)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweep(settings, queue)
        supervisor.start()
        ready()
        try:
            yield
        finally:
            events.ended.set()
            supervisor.stop()
            queue.close()

    app = Starlette(
        routes=[
            Route("/", _page("index.html")),
            Route("/sign-in", _page("sign-in.html")),
            Route("/favicon.ico", _page("icon.svg")),
            Route("/api/events", events.stream),
            *api.routes(),
        ],
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={404: _missing, 405: _wrong_method, 500: _broken},
        lifespan=lifespan,
    )
    app.mount("/static", StaticFiles(directory=STATIC))
    app.state.events = events
    return app


def _page(name: str) -> Callable[[Request], Response]:
    async def page(request: Request) -> Response:
        return FileResponse(STATIC / name)

    return page  # type: ignore[return-value]


async def _missing(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"{request.url.path}: there is nothing here"}, 404)


async def _wrong_method(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"{request.url.path}: takes no {request.method}"}, 405)


async def _broken(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "an unexpected error in pahs; the terminal shows more"}, 500)
