"""Load a network by name or file, on its device and in its precision. Every front end calls this."""

from __future__ import annotations

from pathlib import Path

import torch

from pahs.networks import Deblurrer
from pahs.runtime import weights
from pahs.runtime.device import choose_device
from pahs.runtime.precision import choose_dtype

DEFAULT_MODELS = {"cuda": ("pahs-s", "pahs-t"), "cpu": ("pahs-t", "pahs-s")}
"""What `auto` means, best first: the first whose weights are in the package."""


def default_model(device: torch.device) -> str:
    names = DEFAULT_MODELS["cuda" if device.type == "cuda" else "cpu"]
    return next((name for name in names if weights.bundled(name)), names[0])


def load(
    model: str | Path = "auto",
    device: str = "auto",
    precision: str = "auto",
    random_weights: bool = False,
) -> Deblurrer:
    """A network by name or file, on its device and ready for `stream`.

    auto: the GPU if there is one, with the bundled network made for it; half precision on NVIDIA's GPUs, and elsewhere
    where it was tried and is faster.
    """
    where = choose_device(device)
    dtype = choose_dtype(precision, where)
    name = default_model(where) if str(model) == "auto" else model
    network = weights.load(name, random_weights).to(where, dtype)
    return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]
