"""The networks, by name."""

from __future__ import annotations

from dataclasses import dataclass

from pahs.models.contract import Contract, Deblurrer, ModelConfig, Tensors
from pahs.models.pahs import PAHS, PAHSConfig
from pahs.models.refine import RefineConfig, Refiner

__all__ = [
    "ARCHITECTURES",
    "PAHS",
    "PRESETS",
    "Contract",
    "Deblurrer",
    "ModelConfig",
    "PAHSConfig",
    "Preset",
    "RefineConfig",
    "Refiner",
    "Tensors",
]

ARCHITECTURES: dict[str, type[ModelConfig]] = {"pahs": PAHSConfig}
"""The name that a weights file carries, and the configuration it stands for."""


@dataclass(frozen=True)
class Preset:
    """A network that can be asked for by name."""

    config: ModelConfig
    about: str
    """One line for `pahs models`."""
    paper_millions: float | None = None
    """Parameters in the paper's table, in millions."""


PRESETS: dict[str, Preset] = {
    "pahs": Preset(PAHSConfig(), "the paper's network, c = 192", 21.0),
    "pahs-s-paper": Preset(PAHSConfig(width=92), "the paper's small network, c = 92", 4.8),
    "pahs-s": Preset(
        PAHSConfig(width=96, shared_extractor=True, global_skip=True),
        "small, for GPUs: c = 96, one extractor for both directions",
    ),
    "pahs-t": Preset(
        PAHSConfig(width=48, shared_extractor=True, global_skip=True),
        "tiny, for CPUs: c = 48, one extractor for both directions",
    ),
}
