"""Every network there is, as facts to list."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from pahs.networks import PRESETS
from pahs.runtime.weights import bundled


@dataclass(frozen=True)
class ModelInfo:
    """One line of `pahs models`."""

    name: str
    about: str
    family: str
    """recurrent, bidirectional or windowed."""
    parameters: int
    paper_millions: float | None
    """Parameters in the paper's table, in millions; None where it has no such network."""
    delay: int
    """Future frames that an output waits for, by default."""
    weights: Path | None
    """The weights that come with the package, if any."""


def models() -> tuple[ModelInfo, ...]:
    """All networks that can be asked for by name."""
    with torch.device("meta"):
        networks = [preset.config.build() for preset in PRESETS.values()]
    return tuple(
        ModelInfo(
            name,
            preset.about,
            network.contract.family,
            sum(p.numel() for p in network.parameters()),
            preset.paper_millions,
            network.contract.look_ahead,
            bundled(name),
        )
        for (name, preset), network in zip(PRESETS.items(), networks, strict=True)
    )
