"""Small constant tensors, copied to a device once: a copy inside a training step would wait for the device."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """`values` as a vector on `device`, to be read only."""
    return torch.tensor(values, device=device, dtype=dtype)
