"""What the server's child processes have in common: how they are configured, limited, and ended with the server."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pahs.web.settings import Limits, Settings


@dataclass(frozen=True)
class ChildConfig:
    """What a child process is told by the server."""

    name: str
    """Its name in the queue."""
    settings: Settings
    device: str = "auto"
    """Where its networks run."""

    @property
    def limits(self) -> Limits:
        return self.settings.limits

    def dump(self) -> str:
        """As JSON, for the command line; without the token, which everybody could read there."""
        values = asdict(self)
        values["settings"]["token"] = None
        return json.dumps(values, default=str)

    @classmethod
    def parse(cls, text: str) -> Self:
        values = json.loads(text)
        stored = values["settings"]
        settings = Settings(
            Path(stored["folder"]),
            model_files=tuple(map(Path, stored["model_files"])),
            limits=Limits(**stored["limits"]),
        )
        return cls(values["name"], settings, values["device"])


class Survivor:
    """A context for the steps of a loop that must not end: an error is said on stderr, and the loop continues.

    Each kind of error is said once. A full disk or a locked queue would otherwise be told several times a second.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._said: set[str] = set()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        text = f"{type(error).__name__}: {error}"
        if text not in self._said:
            self._said.add(text)
            print(f"pahs serve: {self._what} goes on after {text}", file=sys.stderr, flush=True)
        return True


def end_with_parent(before: Callable[[], object] = lambda: None) -> None:
    """End this process when the server does, however it does: its end of the pipe to our input is closed then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the server says how its children end

    def wait() -> None:
        while os.read(0, 4096):  # not sys.stdin: its lock would be in the way when the process ends by itself
            pass
        before()
        os._exit(0)

    threading.Thread(target=wait, name="pahs-parent", daemon=True).start()


def limit_memory(extra: int) -> None:
    """Let this process take so many bytes more than it has; beyond, it gets an error and the machine keeps running."""
    if sys.platform != "linux":
        return
    import resource

    data_kib = next(
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if "VmData" in line
    )
    limit = data_kib * 1024 + extra
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
