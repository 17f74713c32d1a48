"""Run a convolutional stage on horizontal bands of the frame, with exactly the result of the whole frame.

A band is computed together with a halo, the rows around it that the stage's layers can reach, and the halo is cut off
again. At the frame's own border there is no halo, so the layers pad there as they would on the whole frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pahs.kernels import dispatch
from pahs.networks.contract import Tensors


def split(height: int, bands: int, multiple: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that cover `height`; the length of each but the last is a multiple of `multiple`."""
    rows = -(-height // bands)
    rows = -(-rows // multiple) * multiple
    for top in range(0, height, rows):
        yield top, min(top + rows, height)


def run(
    stage: Callable[[Tensors], Tensors], inputs: Tensors, height: int, bands: int, halo: int, multiple: int
) -> Tensors:
    """`stage(inputs)`, band after band. Tensors are (B, T, C, rows, columns) at the frame's height or a fraction."""
    if bands <= 1:
        return stage(inputs)
    outputs: list[Tensor] = []
    for top, bottom in split(height, bands, multiple):
        above, below = max(0, top - halo), min(height, bottom + halo)
        with dispatch.band(below - above, height):
            part = stage(tuple(rows(x, height, above, below) for x in inputs))
        if not outputs:
            outputs = [new_output(x, height, below - above) for x in part]
        for whole, x in zip(outputs, part, strict=True):
            rows(whole, height, top, bottom).copy_(rows(x, below - above, top - above, bottom - above))
    return tuple(outputs)


def rows(x: Tensor, height: int, top: int, bottom: int) -> Tensor:
    """The rows of `x` that show the frame's rows top..bottom, where all of `x` shows `height` rows."""
    scale = height // x.shape[-2]
    return x[..., top // scale : bottom // scale, :]


def new_output(x: Tensor, height: int, band: int) -> Tensor:
    """A buffer for all bands, channels-last, which is the fastest format for the stages."""
    scale = band // x.shape[-2]
    B, T, C, _, columns = x.shape
    shape = (B, T, height // scale, columns, C)
    return torch.empty(shape, dtype=x.dtype, device=x.device).movedim(-1, 2)
