"""What computes networks on this machine: PyTorch, onnxruntime or OpenVINO, and in which precision.

Each of them is timed once on the same frames, in a process of its own, and remembered in the user's cache folder.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

from pahs.backends.cache import cached
from pahs.backends.sessions import GraphBackend, installed
from pahs.errors import PahsError
from pahs.export.onnx import writes
from pahs.progress import bar
from pahs.runtime import weights
from pahs.runtime.precision import recall, remember

TRIED = "pahs-t"
"""The network that is timed: it is what `auto` takes on CPUs, and it has every kind of layer."""
PROBE_SECONDS = 300
FASTER = 1.05
"""How many times as fast as PyTorch something must be before `auto` takes it."""
LARGEST_LOSS = 0.1
"""Decibels that int8 may lose before `auto` leaves it."""

GraphPrecision = Literal["fp32", "bf16", "int8"]


@dataclass(frozen=True)
class Choice:
    """What computes a network; the precision of PyTorch is chosen by itself."""

    backend: Literal["torch"] | GraphBackend
    precision: GraphPrecision | None = None

    def __str__(self) -> str:
        return self.backend if self.precision is None else f"{self.backend} {self.precision}"


TORCH = Choice("torch")


def choices() -> tuple[Choice, ...]:
    """All that could run here, PyTorch first."""
    found = [TORCH]
    if writes("fp32"):
        backends: tuple[GraphBackend, ...] = ("onnxruntime", "openvino")
        for backend in backends:
            if installed(backend):
                found.append(Choice(backend, "fp32"))
                if backend == "openvino":
                    found.append(Choice(backend, "bf16"))
                if writes("int8"):
                    found.append(Choice(backend, "int8"))
    return tuple(found)


def fastest(among: tuple[Choice, ...], quiet: bool = True) -> list[Choice]:
    """The same, the fastest first; PyTorch goes before those that are hardly faster. Without those that do not run."""
    if len(among) < 2:
        return list(among)
    unknown = sum(recall(_key(choice)) is None for choice in among)
    seconds = {}
    with bar("finding the fastest backend, once", unknown, "measured", quiet or not unknown) as advance:
        for choice in among:
            known = recall(_key(choice)) is not None
            taken = milliseconds(choice)
            if taken:
                seconds[choice] = taken / FASTER if choice == TORCH else taken
            advance(0 if known else 1)
    return sorted(seconds, key=lambda choice: seconds[choice])


def milliseconds(choice: Choice) -> float:
    """Time for a frame; 0 where it does not run. Remembered, and measured in a child process, which may crash."""
    known = recall(_key(choice))
    if known is not None:
        return known
    try:
        if choice != TORCH:
            # Here, because it may take longer than a probe may, and the children find it then.
            cached(weights.load(TRIED), "int8" if choice.precision == "int8" else "fp32")
        child = subprocess.run(
            [sys.executable, "-m", "pahs.backends.probe", choice.backend, choice.precision or "auto"],
            capture_output=True,
            check=True,
            timeout=PROBE_SECONDS,
            text=True,
        )
        found = float(child.stdout)
    except subprocess.TimeoutExpired:
        found = 1000.0 * PROBE_SECONDS
    except subprocess.CalledProcessError as error:
        if error.returncode >= 0:  # an error of its own, such as a full disk, may be gone the next time
            return 0.0
        found = 0.0
    except (OSError, ValueError, PahsError):
        return 0.0
    note(choice, found)
    return found


def note(choice: Choice, taken: float) -> None:
    """Remember the time of a choice on this machine, in milliseconds for a frame."""
    remember(_key(choice), taken)


def _key(choice: Choice) -> str:
    version = "" if choice == TORCH else f" {_version(choice.backend)}"
    return f"{choice.backend}{version} {choice.precision or 'auto'}, milliseconds"


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
