"""What the processes of one training agree on before they train.

They must have the same recipe and data, and continue from the same checkpoint. What is wrong in one of them
ends all of them, with one line on each machine instead of a wait for a process that will not come.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pahs.errors import PahsError
from pahs.training.checkpoint import Checkpoint, parse_checkpoint

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SOURCE_LINE = re.compile(r"^\[[^]]*\] ")
"""Where in gloo's own source an error arose."""
Facts = dict[str, Any]
"""Numbers and texts by name, which every process must find alike."""


@contextmanager
def agreed(fabric: Fabric) -> Iterator[Facts]:
    """Facts noted inside must be alike in all processes, and a `PahsError` in one of them ends them all."""
    facts: Facts = {}
    error = None
    try:
        yield facts
    except PahsError as raised:
        if fabric.world_size == 1:
            raise
        error = str(raised)
    if fabric.world_size > 1:
        told = gather(fabric, [error, facts])
        fail_together(problem([line for line, _ in told], [found for _, found in told]))


def problem(errors: list[str | None], facts: list[Facts]) -> str | None:
    """The first thing that keeps processes from training together; None: nothing does."""
    for rank, line in enumerate(errors):
        if line is not None:
            alike = all(other == line for other in errors)
            return line if alike else f"process {rank} of {len(errors)}: {line}"
    for rank, found in enumerate(facts):
        for name, value in facts[0].items():
            if found.get(name) != value:
                return (
                    f"process 0 has {name} = {value}, process {rank} has {found.get(name)}; "
                    "start every process with the same recipe, options and data"
                )
    return None


def fail_together(line: str | None) -> None:
    """End this process; the first one of each machine says why."""
    if line is None:
        return
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        raise PahsError(line)
    raise SystemExit(2)


def newest(fabric: Fabric, mine: Checkpoint | None, path: Path) -> Checkpoint | None:
    """The checkpoint that all processes continue from: the one with most steps of those that they found.

    Its bytes go to every process, so that machines without a common folder, or with one that lags, continue alike.
    """
    if fabric.world_size == 1:
        return mine
    steps: list[int] = gather(fabric, mine.step if mine else -1)
    owner = max(range(len(steps)), key=lambda rank: steps[rank])  # the lowest rank of those that are equal
    if steps[owner] < 0:
        return None
    content = path.read_bytes() if fabric.global_rank == owner else b""
    size: int = gather(fabric, len(content))[owner]
    sent = as_tensor(content, size, fabric.device)
    torch.distributed.broadcast(sent, owner)
    return parse_checkpoint(sent.cpu().numpy().tobytes(), path)


def gather(fabric: Fabric, value: Any) -> list[Any]:
    """The values of all processes by rank: whatever JSON can say, since nothing from elsewhere is unpickled."""
    content = json.dumps(value).encode()
    sizes = _all(torch.tensor([len(content)], device=fabric.device), fabric.world_size)
    longest = max(int(size) for size in sizes)
    texts = _all(as_tensor(content, longest, fabric.device), fabric.world_size)
    return [
        json.loads(text.cpu().numpy().tobytes()[: int(size)]) for text, size in zip(texts, sizes, strict=True)
    ]


def as_tensor(content: bytes, size: int, device: torch.device) -> Tensor:
    """Bytes as a tensor of `size`; zeros follow."""
    return torch.frombuffer(bytearray(content.ljust(size, b"\0")), dtype=torch.uint8).to(device)


def _all(tensor: Tensor, world: int) -> list[Tensor]:
    found = [torch.empty_like(tensor) for _ in range(world)]
    torch.distributed.all_gather(found, tensor)
    return found


@contextmanager
def watched(world: int) -> Iterator[None]:
    """The loss of another process ends this one with a line of its own: torchrun then starts both again."""
    try:
        yield
    except RuntimeError as error:
        if world == 1 or not (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            raise
        reason = SOURCE_LINE.sub("", str(error).strip()).partition(". ")[0].partition("\n")[0]
        raise PahsError(
            f"another process of this training is gone or silent ({reason}); "
            "started again with --resume, all continue from the last checkpoint"
        ) from error
