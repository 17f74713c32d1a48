"""PAHS inference exactly as the paper writes it: the baseline of our benchmarks, and an oracle for our engine.

- It restores one frame at a time, eager, in the precision of the weights (the paper's: float32).
- Every convolution runs over the concatenation that the paper writes; nothing is hoisted out of the recurrence.
- The whole N x N attention map is built: softmax(q k^T), pooled over the keys, its rows scaled, times v.
- For every output frame a new backward sweep starts `look_ahead` frames in the future. It runs the whole cell, which
  begins with its feature extractor, so a frame is extracted again for every window that contains it.

The forward state is carried over the video. An obvious improvement is to keep the backward features of a frame from one
window to the next; `keep_features` does this and changes nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.networks import PAHS, Refiner
from pahs.networks.pahs import Cell
from pahs.networks.pprnn import PPRNN
from pahs.networks.snla import SNLA, STRIDE

State = tuple[Tensor, Tensor]
"""f_L and h of the last frame."""


@dataclass
class Seen:
    """A frame in the window, with its features if they are kept."""

    image: Tensor
    """(1, 3, H, W), padded."""
    back: Tensor | None = None
    """f_B for the backward cell, if it is kept."""


def literal_stream(
    network: PAHS, frames: Iterable[Tensor], look_ahead: int | None = None, keep_features: bool = False
) -> Iterator[Tensor]:
    """Deblur (3, H, W) frames; equals `engine.stream(network, frames, chunk=1, scene_cuts=False)`."""
    chosen = network.config.look_ahead if look_ahead is None else look_ahead
    delay = chosen if network.backward_cell is not None else 0
    window: deque[Seen] = deque()
    state: State | None = None
    for frame in frames:
        window.append(Seen(padded(network, frame)))
        shape = frame.shape
        if len(window) > delay:
            restored, state = restore(network, window, state, keep_features)
            yield restored[:, : shape[1], : shape[2]]
            window.popleft()
    while window:
        restored, state = restore(network, window, state, keep_features)
        yield restored[:, : shape[1], : shape[2]]
        window.popleft()


def padded(network: PAHS, frame: Tensor) -> Tensor:
    height, width = network.contract.padded(*frame.shape[1:])
    padding = (0, width - frame.shape[2], 0, height - frame.shape[1])
    return F.pad(frame[None].to(network.forward_cell.fuse.weight.dtype), padding, mode="reflect")


@torch.inference_mode()
def restore(
    network: PAHS, window: Iterable[Seen], state: State | None, keep_features: bool
) -> tuple[Tensor, State]:
    """The first frame of the window restored, and the forward state after it."""
    seen = list(window)
    shared = network.config.shared_extractor and seen[0].back is not None
    f_B = seen[0].back if shared else network.forward_extractor(seen[0].image)
    assert f_B is not None
    state = step(network.forward_cell, f_B, state)
    latents = [state[0]]
    if network.backward_cell is not None:
        extractor = network.backward_extractor or network.forward_extractor
        future: State | None = None
        for frame in reversed(seen):
            f_B = extractor(frame.image) if frame.back is None else frame.back
            frame.back = f_B if keep_features else None
            future = step(network.backward_cell, f_B, future)
        assert future is not None
        latents.append(future[0])
    change: Tensor = network.reconstructor(torch.cat(latents, 1))
    return (seen[0].image + change if network.config.global_skip else change)[0], state


def step(cell: Cell, f_B: Tensor, state: State | None) -> State:
    """One step of one direction; the states before the first frame are zero."""
    if state is None:
        state = torch.zeros_like(f_B), torch.zeros_like(f_B[:, : cell.hidden])
    h = refine(cell.refiner, f_B, *state)
    f_L: Tensor = cell.residual(cell.fuse(torch.cat([f_B, h], 1)))
    return f_L, cell.to_hidden(f_L)


def refine(refiner: Refiner, f_B: Tensor, f_L: Tensor, h: Tensor) -> Tensor:
    if refiner.pprnn is not None:
        h = ping_pong(refiner.pprnn, f_B, f_L, h)
    if refiner.snla is not None:
        h = select(refiner.snla, f_B, h)
    return h


def ping_pong(pprnn: PPRNN, f_B: Tensor, f_L: Tensor, h: Tensor) -> Tensor:
    """Algorithm 1 of the supplement: M_P over [f, h], with f_B and f_L in turns."""
    turns = {"both": [f_B, f_L], "current": [f_B], "past": [f_L]}[pprnn.inputs]
    if pprnn.order == "past-first":
        turns.reverse()
    for f in islice(cycle(turns), 2 * pprnn.count):
        h = pprnn.out(pprnn.residual(pprnn.mix(torch.cat([f, h], 1))))
    return h


def select(snla: SNLA, f_B: Tensor, h: Tensor) -> Tensor:
    """Algorithm 2 of the supplement, step by step: the map is built, pooled, scaled and multiplied by v."""
    q, k, v = (
        x.flatten(2).transpose(1, 2)
        for x in (snla.to_query(f_B if snla.query == "frame" else h), snla.to_key(h), snla.to_value(h))
    )
    scores = q @ k.transpose(1, 2)
    attention = torch.softmax(scores, 2)
    if snla.filter is not None:
        attention = torch.sigmoid(snla.filter(scores.mean(2, keepdim=True))) * attention
    grid = (attention @ v).transpose(1, 2).reshape(*h.shape[:2], h.shape[2] // STRIDE, h.shape[3] // STRIDE)
    merged: Tensor = snla.merge(torch.cat([h, snla.enlarge(grid)], 1))
    return h + merged
