"""Keeps the workers and the inspector running: starts them, replaces those that die, ends them with the server."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from pahs.web.child import ChildConfig, Survivor
from pahs.web.deaths import Death, memory_kills
from pahs.web.queue import Queue
from pahs.web.settings import Settings

LEASE = 20.0
"""Seconds without a beat after which a child counts as dead."""
START = 60.0
"""Seconds that a child may take for its first beat."""
_POLL_SECONDS = 0.1
_LONGEST_PAUSE = 10.0
_STEADY_SECONDS = 5.0
"""A child that ran for so long was not ended by its own start."""
_GRACE_SECONDS = 5.0


@dataclass
class Child:
    """One process and its place."""

    module: str
    device: str
    name: str = ""
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    memory_kills: int = 0
    """Of any process of the system, when it started."""
    beat: float | None = None
    """Its last beat that was seen."""
    heard: float = 0.0
    """When that was, or its start, by a clock that stands still while the machine sleeps: a night ends nobody."""
    silent: bool = False
    """It was ended because it did not beat any more."""
    failures: int = 0
    """Times in a row that it ended shortly after its start."""


class Supervisor:
    """A thread that watches over the child processes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.children = [
            Child("pahs.web.look", "cpu"),
            *(Child("pahs.web.worker", device) for device in settings.devices),
        ]
        self._measuring: subprocess.Popen[bytes] | None = None
        self._survivor = Survivor("the supervisor")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pahs-supervisor", daemon=True)

    def start(self) -> None:
        for child in self.children:
            with self._survivor:
                self._spawn(child)
        self._thread.start()

    def measure(self) -> None:
        """Find out how fast the models are, unless that was done. Speeds are kept on disk: later it takes seconds."""
        if self._measuring is None and not self._ended.is_set():
            config = ChildConfig("measure", self.settings, self.settings.devices[0])
            with self._survivor:
                self._measuring = _start("pahs.web.measure", config)

    @property
    def measuring(self) -> bool:
        return self._measuring is not None and self._measuring.poll() is None

    def stop(self) -> None:
        """End all children: a closed pipe asks them to clean up, which they do within seconds."""
        self._ended.set()
        self._thread.join()
        queue = None
        for child in self.children:
            if child.process is not None and child.process.poll() is not None:
                with self._survivor:
                    queue = queue or Queue(self.settings.queue_file)
                    queue.release(child.name, self._death(child))  # perhaps the reason why all of it ends now
        running = [(child.name, child.process) for child in self.children if child.process is not None]
        if self._measuring is not None:
            running.append(("measure", self._measuring))
        for _, process in running:
            if process.stdin is not None:
                process.stdin.close()
        deadline = time.monotonic() + _GRACE_SECONDS
        for name, process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            with self._survivor:
                queue = queue or Queue(self.settings.queue_file)
                queue.release(name)
        if queue is not None:
            queue.close()

    def _spawn(self, child: Child) -> None:
        child.name = f"{child.module.rpartition('.')[2]}-{secrets.token_hex(4)}"
        child.started = child.heard = time.monotonic()
        child.beat, child.silent, child.memory_kills = None, False, memory_kills()
        child.failures += 1  # until it ran: a start that fails counts too
        child.process = _start(child.module, ChildConfig(child.name, self.settings, child.device))
        child.failures -= 1

    def _death(self, child: Child) -> Death:
        if child.silent:
            return Death(True, f"no sign of life for {START if child.beat is None else LEASE:.0f} seconds")
        assert child.process is not None and child.process.returncode is not None
        return Death.of(child.process.returncode, memory_kills() > child.memory_kills)

    def _watch(self) -> None:
        queue = None
        while not self._ended.wait(_POLL_SECONDS):
            for child in self.children:
                with self._survivor:
                    queue = queue or Queue(self.settings.queue_file)
                    self._look_after(child, queue)
        if queue is not None:
            queue.close()

    def _look_after(self, child: Child, queue: Queue) -> None:
        process = child.process
        if process is not None:
            if process.poll() is None:
                beat = queue.last_beat(child.name)
                if beat != child.beat:
                    child.beat, child.heard = beat, time.monotonic()
                if time.monotonic() - child.heard < (START if child.beat is None else LEASE):
                    return
                process.kill()  # alive, and not heard of: stopped, or stuck in a system call
                child.silent = True
                process.wait()
            queue.release(child.name, self._death(child))
            steady = time.monotonic() - child.started > _STEADY_SECONDS
            child.failures = 0 if steady else child.failures + 1
            child.process = None
            child.started = time.monotonic()
        pause = min(_LONGEST_PAUSE, 0.1 * 2**child.failures) if child.failures else 0.0
        if time.monotonic() - child.started >= pause:
            self._spawn(child)


def _start(module: str, config: ChildConfig) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module, config.dump()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
