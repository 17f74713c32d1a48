"""Checkpoints that survive a kill, a full disk and a change of machine.

A file appears under its name only when it is complete and on the disk. It holds tensors and plain values, so it is
read without running code (`weights_only=True`).
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from pahs.errors import PahsError
from pahs.files import os_errors, whole

State = dict[str, Any]
"""A `state_dict`: tensors, numbers, strings, and lists and dicts of them."""


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to continue as if it had never stopped."""

    step: int
    """Steps made."""
    elapsed: float
    """Seconds spent."""
    preparing: float
    """Seconds of them that went into compiling and capturing."""
    model: State
    ema: list[torch.Tensor]
    """Averaged parameters, in the order of the model's; empty without averaging."""
    optimizer: State
    source: State
    """The position in the training data, the same for every process."""
    rng: torch.Tensor
    """State of torch's generator on the CPU."""
    best_psnr: float
    """The best validation so far; below zero: none yet."""
    recipe: str
    """The recipe, as TOML."""
    world: int = 1
    """Processes that shared the batch."""
    at_once: int = 0
    """Most clips that a process computed at once; 0: not noted."""


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint and force it to the disk; the old one stays until the new one is safe."""
    # Serialised in memory first: a failed write is then an OSError that says why, such as a full disk.
    buffer = io.BytesIO()
    torch.save({item.name: getattr(checkpoint, item.name) for item in fields(checkpoint)}, buffer)
    try:
        with whole(path) as partial, partial.open("wb") as file:
            file.write(buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
    except PahsError as error:
        kept = "; the last good one is intact" if path.exists() else ""
        raise PahsError(f"{error}{kept}; free space and use --resume") from error


def read_checkpoint(path: Path) -> Checkpoint:
    with os_errors(f"{path}: cannot be read"):
        return parse_checkpoint(path.read_bytes(), path)


def parse_checkpoint(content: bytes, path: Path) -> Checkpoint:
    """A checkpoint from the bytes of the file at `path`."""
    try:
        return Checkpoint(**torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    except Exception as error:
        raise PahsError(
            f"{path}: not a checkpoint of this version ({type(error).__name__}); remove it or train again"
        ) from error
