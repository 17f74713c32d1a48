"""The inside of a PAHS network, step by step: what its figures draw and its claims about attention measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pahs.networks.pahs import PAHS, Cell
from pahs.networks.snla import STRIDE, tokens

TOKEN = 4 * STRIDE
"""Height and width of a token of SNLA, in pixels of the frame."""


@dataclass(frozen=True)
class Look:
    """One step of one direction. Features are (B, C, H/4, W/4), tokens (B, N, C) with N = H/16 x W/16."""

    feature: Tensor
    """f_B of the frame."""
    h: Tensor
    """The hidden state as it comes from the frame before."""
    h_pprnn: Tensor
    """After PPRNN; h itself where there is none."""
    h_snla: Tensor
    """After SNLA, as it is used; h_pprnn where there is none."""
    query: Tensor | None = None
    key: Tensor | None = None
    selection: Tensor | None = None
    """S_Sel, (B, N): one number per query; None without the selection."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens."""
        return self.h.shape[-2] // STRIDE, self.h.shape[-1] // STRIDE

    def attention(self, query: int | slice = slice(None)) -> Tensor:
        """S_NL of one query, (B, N), or of all of them, (B, N, N): the share of every key."""
        assert self.query is not None and self.key is not None
        if isinstance(query, slice):
            return (self.query[:, query] @ self.key.transpose(1, 2)).float().softmax(-1)
        return (self.key @ self.query[:, query, :, None]).squeeze(2).float().softmax(-1)


@torch.no_grad()
def look(network: PAHS, clip: Tensor, wanted: Sequence[int]) -> dict[str, list[Look]]:
    """The wanted frames of a clip (B, T, 3, H, W), seen by the `forward` cell and, if there is one, the `backward` one.

    Height and width are multiples of 16.
    """
    found = {}
    ahead, back = range(max(wanted) + 1), range(clip.shape[1] - 1, min(wanted) - 1, -1)
    directions = (
        ("forward", ahead, network.forward_extractor, network.forward_cell),
        ("backward", back, network.backward_extractor or network.forward_extractor, network.backward_cell),
    )
    for name, order, extractor, cell in directions:
        if cell is not None:
            dtype = cell.fuse.weight.dtype
            looks = sweep(cell, [extractor(clip[:, t].to(dtype)) for t in order])
            steps = dict(zip(order, looks, strict=True))
            found[name] = [steps[t] for t in wanted]
    return found


def sweep(cell: Cell, features: Sequence[Tensor]) -> list[Look]:
    """One direction over the features of its frames, in its own order."""
    looks = []
    state = cell.start(cell.read(features[0]))
    for f_B in features:
        seen = step(cell, f_B, *state)
        f_L = cell.residual(cell.fuse.add_second(cell.fuse.of_first(f_B), seen.h_snla))
        state = f_L, cell.to_hidden(f_L)
        looks.append(seen)
    return looks


def step(cell: Cell, f_B: Tensor, f_L: Tensor, h: Tensor) -> Look:
    """The refiner's two modules apart."""
    refiner = cell.refiner
    after, snla = h, refiner.snla
    if refiner.pprnn is not None:
        current = refiner.pprnn.read(f_B) if refiner.reads_current else None
        past = refiner.pprnn.read(refiner.match(f_L)) if refiner.reads_past else None
        after = refiner.pprnn(current, past, h)
    if snla is None:
        return Look(f_B, h, after, after)
    query = snla.to_query(f_B if refiner.asks_frame else after)
    q, k = tokens(query), tokens(snla.to_key(after))
    selection = None
    if snla.filter is not None:
        pooled = (q * k.mean(1, keepdim=True)).sum(2, keepdim=True)
        selection = snla.filter(pooled).sigmoid().squeeze(2)
    return Look(f_B, h, after, snla(query if refiner.asks_frame else None, after), q, k, selection)


def distances(grid: tuple[int, int], device: torch.device) -> Tensor:
    """(N, N): pixels of the frame between the middles of all tokens."""
    rows, columns = (torch.arange(n, device=device) for n in grid)
    positions = torch.cartesian_prod(rows, columns).float() * TOKEN
    return torch.cdist(positions, positions)
