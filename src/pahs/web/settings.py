"""What `pahs serve` was started with, where its files lie, and which models it offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from pahs.errors import PahsError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SHORTEST_TOKEN = 8


@dataclass(frozen=True)
class Limits:
    """What one server accepts. Every refusal says which of these it was."""

    upload_bytes: int = 20 * 2**30
    """Largest file."""
    jobs: int = 2000
    """Jobs that the queue holds, finished ones included."""
    seconds: float = 3 * 3600.0
    """Longest video."""
    pixels: int = 8192 * 4352
    """Largest frame."""
    spare_bytes: int = 2 * 2**30
    """What must stay free on the disk."""
    look_seconds: float = 60.0
    """Time to find out what an uploaded file is."""
    look_bytes: int = 4 * 2**30
    """Memory for that."""
    job_bytes: int | None = None
    """Memory for one job on a CPU, besides what its process needs anyway; None: all that the machine has."""
    job_hours: float = 48.0
    """Time for one job, without its pauses."""


@dataclass(frozen=True)
class Settings:
    """Where the server listens, what it keeps, and who may use it."""

    folder: Path
    """Holds the queue, the uploads and the results."""
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    """Whoever knows it may use the server; None: everybody who reaches it."""
    names: tuple[str, ...] = ()
    """Further host names under which browsers reach the server."""
    devices: tuple[str, ...] = ("auto",)
    """One worker for each."""
    model_files: tuple[Path, ...] = ()
    """Weights offered besides those of the package."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise PahsError(
                f"--token: use at least {SHORTEST_TOKEN} characters, or leave it out to have one made"
            )
        for path in self.model_files:
            if not path.is_file():
                raise PahsError(f"{path}: no such weights file")
        self.models()  # refuses names that are taken

    @property
    def local(self) -> bool:
        """Whether only this machine reaches the server."""
        return self.host in LOOPBACK

    @property
    def private(self) -> bool:
        """Whether no token is needed: a further name is that of a proxy, through which others reach the server."""
        return self.local and not self.names

    @property
    def queue_file(self) -> Path:
        return self.folder / "queue.sqlite"

    def job_folder(self, id: str) -> Path:
        """The folder of a job's files; `id` comes from the queue, never from a request."""
        return self.folder / "files" / id

    def models(self) -> dict[str, str]:
        """Every model that a job may name, with what to load for it."""
        own = {"auto": "auto"}
        for entry in files("pahs").joinpath("bundled").iterdir():
            name, dot, kind = entry.name.rpartition(".")
            if dot and kind == "safetensors":
                own[name] = name
        return own | {name: str(path) for name, path in _named(self.model_files, own).items()}


def _named(paths: tuple[Path, ...], taken: Container[str]) -> dict[str, Path]:
    """Weights files by the names that users see: that of the file, with its folder's in front where others have it too.

    Training calls its weights the same in every folder.
    """
    paths = tuple(path.absolute() for path in paths)
    stems = Counter(path.stem for path in paths)
    named: dict[str, Path] = {}
    for path in paths:
        clear = stems[path.stem] == 1 and path.stem not in taken
        name = path.stem if clear else f"{path.parent.name}-{path.stem}"
        if name in named or name in taken:
            other = named.get(name, f"a model of the package, {name}")
            raise PahsError(
                f"--model {path}: would be shown under the same name as {other}; rename one of them"
            )
        named[name] = path
    return named
