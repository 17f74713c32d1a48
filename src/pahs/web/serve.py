"""`pahs serve`: the web page and HTTP API on this machine, or for a team."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pahs.errors import PahsError
from pahs.web.settings import Settings

if TYPE_CHECKING:
    import uvicorn


def serve(settings: Settings, browser: bool = True) -> None:
    """Run until interrupted."""
    try:
        import uvicorn

        from pahs.web.app import build
    except ImportError as error:
        raise PahsError(f"pahs serve needs {error.name}; install it with: pip install 'pahs[web]'") from None
    from dataclasses import replace

    from pahs.web.security import made_token

    _make(settings.folder)
    with _lock_file(settings.folder) as lock:
        _take(lock.fileno(), settings.folder)
        if settings.token is None and not settings.private:
            settings = replace(settings, token=made_token(settings.folder))
        listener = _listen(settings)
        port = listener.getsockname()[1]
        address = f"http://{_shown(settings.host)}:{port}/"
        if settings.token is not None:
            address += f"?token={settings.token}"

        def ready() -> None:
            print(
                f"pahs is at {address}  (Ctrl-C stops it; videos are kept in {settings.folder})", flush=True
            )
            if browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        app = build(settings, ready)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            ws="none",
            http="h11",
            server_header=False,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=32 * 1024,
        )
        server = _server(config, app.state.events.ended)
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            pass
        finally:
            listener.close()


def _server(config: uvicorn.Config, ended: object) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        """Tells the pages' event streams to end, which otherwise keep the server up until its patience ends."""

        def handle_exit(self, sig: int, frame: object) -> None:
            ended.set()  # type: ignore[attr-defined]
            super().handle_exit(sig, frame)  # type: ignore[arg-type]

    return Server(config)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PahsError(f"--folder {folder}: cannot be created ({error.strerror}); choose another") from None


def _lock_file(folder: Path) -> TextIO:
    try:
        return (folder / "lock").open("w")
    except OSError as error:
        raise PahsError(f"--folder {folder}: cannot be written ({error.strerror}); choose another") from None


def _take(lock: int, folder: Path) -> None:
    """One server for a folder: the lock ends with the process that holds it, however that ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise PahsError(
            f"--folder {folder}: another `pahs serve` uses it; stop that one or choose another"
        ) from None


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen()  # who reads the address at once waits until the server answers
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise PahsError(
            f"--host {settings.host} --port {settings.port}: cannot listen there ({reason}); choose another port"
        ) from None
    return listener


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def default_folder() -> Path:
    """Where a server keeps its jobs: $XDG_DATA_HOME/pahs/serve or ~/.local/share/pahs/serve."""
    chosen = os.environ.get("XDG_DATA_HOME")
    try:
        return (Path(chosen) if chosen else Path.home() / ".local" / "share") / "pahs" / "serve"
    except RuntimeError:
        raise PahsError("no folder for the videos: this user has no home; give one with --folder") from None
