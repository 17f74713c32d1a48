"""A real `pahs serve` for tests: its process, its HTTP API, and a network that changes nothing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import torch

from pahs.networks import PAHSConfig
from pahs.runtime import weights

Answer = tuple[int, Any, dict[str, str]]


def identity(path: Path) -> Path:
    """Weights of a tiny network whose change is zero: jobs take well under a second."""
    network = PAHSConfig(width=6, global_skip=True, shared_extractor=True).build().eval()
    *_, weight, bias = network.parameters()
    with torch.no_grad():
        weight.zero_()
        bias.zero_()
    weights.save(network, path)
    return path


@dataclass
class Server:
    """One running server."""

    folder: Path
    process: subprocess.Popen[str]
    address: str
    token: str | None

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 30,
    ) -> Answer:
        """Status, body (JSON where it is) and headers in lower case."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        sent = dict(headers or {})
        if self.token and "Authorization" not in sent and "Cookie" not in sent:
            sent["Authorization"] = f"Bearer {self.token}"
        if isinstance(body, dict):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        try:
            with suppress(BrokenPipeError):  # an answer that comes before the body is read
                connection.request(method, path, body, sent)
            answer = connection.getresponse()
            data: Any = answer.read()
            if answer.headers.get_content_type() == "application/json":
                data = json.loads(data)
            return answer.status, data, {name.lower(): value for name, value in answer.headers.items()}
        finally:
            connection.close()

    def jobs(self, state: str = "") -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.ask("GET", f"/api/jobs{f'?state={state}' if state else ''}")[1][
            "jobs"
        ]
        return listed

    def job(self, id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.ask("GET", f"/api/jobs/{id}")[1]
        return shown

    def put(self, video: Path, name: str | None = None, **options: str) -> dict[str, Any]:
        """A new job with its file."""
        query = urlencode({"name": name or video.name, "model": "identity", **options}, quote_via=quote)
        status, job, _ = self.ask("PUT", f"/api/jobs?{query}", video.read_bytes())
        assert status == 201, job
        return dict(job)

    def wait(
        self, id: str, done: str | Callable[[dict[str, Any]], object] = "done", seconds: float = 120
    ) -> dict[str, Any]:
        """The job, once it is in that state or fulfils that condition."""
        deadline = time.monotonic() + seconds
        while True:
            job = self.job(id)
            if job["state"] == done if isinstance(done, str) else done(job):
                return job
            assert time.monotonic() < deadline, job
            assert not (isinstance(done, str) and job["state"] in ("done", "failed", "cancelled")), job
            time.sleep(0.05)

    def children(self, module: str = "pahs.web.worker") -> list[int]:
        """Process ids of the server's children of one kind."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    line = (entry / "cmdline").read_bytes().split(b"\0")
                    if module.encode() in line and str(self.folder).encode() in b" ".join(line):
                        found.append(int(entry.name))
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def start(folder: Path, *options: str, model: Path | None = None, port: int = 0) -> Server:
    """Start a server and wait until it answers."""
    command = [
        sys.executable,
        "-m",
        "pahs",
        "serve",
        "--folder",
        str(folder),
        "--port",
        str(port),
        "--no-browser",
    ]
    command += ["--device", "cpu"] if "--device" not in options else []
    command += ["--keep-free", "0.1", *(["--model", str(model)] if model else []), *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "pahs is at http" in line, (line, process.poll())
    address = next(word for word in line.split() if word.startswith("http"))
    token = urlsplit(address).query.partition("token=")[2] or None
    return Server(folder, process, address, token)


@contextmanager
def serving(folder: Path, *options: str, model: Path | None = None) -> Iterator[Server]:
    server = start(folder, *options, model=model)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
        if server.process.stdout:
            server.process.stdout.close()
