"""PAHS: Pay Attention to Hidden States (paper, sections 3 and S2).

Per direction, a cell with its own weights:

    f_B_t = extractor(B_t)                                        (c, H/4, W/4)
    h~    = SNLA(f_B_t, PPRNN(f_B_t, f_L_{t-1}, h_{t-1}))         (c/3, H/4, W/4)
    f_L_t = 3 residual blocks(conv3x3([f_B_t, h~]))               (c, H/4, W/4)
    h_t   = hidden state extractor(f_L_t)                         (c/3, H/4, W/4)

The f_L of both directions are concatenated and one reconstructor turns them into the sharp frame. The states before
the first frame, h and f_L, are zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor, nn

from pahs.configs import at_least
from pahs.kernels import ops
from pahs.networks.blocks import ResidualBlock, SplitConv, conv, double, residual_blocks
from pahs.networks.contract import Contract, Deblurrer, Tensors, per_frame
from pahs.networks.refine import RefineConfig, Refiner
from pahs.networks.warm_up import warm_state

# Rows of the frame that a row of the output depends on, above and below: the sum over the layers of
# (kernel - 1) / 2 times the layer's scale, rounded up to whole tokens of SNLA (16 pixels).
EXTRACT_HALO = 96
RECONSTRUCT_HALO = 32


@dataclass(frozen=True)
class PAHSConfig:
    """Everything that tells one PAHS network from another; the defaults are the paper's network."""

    width: int = 192
    """c: channels of f_B and f_L. The scales before it have c/3 and 2c/3, rounded down; the hidden state has c/3."""
    bidirectional: bool = True
    """A second cell sweeps from the future to the past."""
    shared_extractor: bool = False
    """Both directions read the same f_B: nearly half the work, 30 % fewer parameters."""
    global_skip: bool = False
    """L_t = B_t + output: the network learns what to change. On for the weights we train."""
    look_ahead: int = 19
    """Future frames that the backward sweep sees at least, unless the caller says otherwise."""
    refine: RefineConfig = field(default_factory=RefineConfig)
    """PPRNN and SNLA."""

    def __post_init__(self) -> None:
        at_least(6, self, "width")
        at_least(0, self, "look_ahead")

    @property
    def hidden(self) -> int:
        return self.width // 3

    def build(self) -> PAHS:
        return PAHS(self)


def extractor(c: int) -> nn.Sequential:
    """Supplementary table "Feature extractor": (3, H, W) -> (c, H/4, W/4)."""
    full, half = c // 3, 2 * c // 3
    return nn.Sequential(
        conv(3, full),
        residual_blocks(5, full),
        conv(full, half, 5, stride=2),
        residual_blocks(5, half),
        conv(half, c, 5, stride=2),
        residual_blocks(5, c),
    )


def reconstructor(c: int, directions: int) -> nn.Sequential:
    """Supplementary table "Reconstructor": (directions * c, H/4, W/4) -> (3, H, W)."""
    full, half = c // 3, 2 * c // 3
    return nn.Sequential(
        double(directions * c, half),
        residual_blocks(3, half),
        double(half, full),
        residual_blocks(3, full),
        conv(full, 3),
    )


class Cell(nn.Module):
    """One direction of the recurrence, from f_B to f_L and the hidden state."""

    def __init__(self, config: PAHSConfig) -> None:
        super().__init__()
        c, self.hidden = config.width, config.hidden
        self.refiner = Refiner(c, c, self.hidden, config.refine)
        self.fuse = SplitConv(c, self.hidden, c)
        self.residual = residual_blocks(3, c)
        self.to_hidden = nn.Sequential(
            conv(c, self.hidden), ResidualBlock(self.hidden), conv(self.hidden, self.hidden)
        )

    def read(self, f_B: Tensor) -> Tensors:
        """Everything in the cell that depends on f_B alone, for a batch of frames: f_B is not needed again."""
        return self.fuse.of_first(f_B), *self.refiner.read(f_B)

    def start(self, read: Tensors) -> Tensors:
        """The state before the first frame: f_L = 0, h = 0."""
        f_L = torch.zeros_like(read[0], device=self.fuse.weight.device)
        return f_L, f_L[:, : self.hidden]

    def step(self, read: Tensors, state: Tensors) -> Tensors:
        """One frame: the new state is (f_L_t, h_t)."""
        f_L, h = state
        h = self.refiner.step(read[1:], f_L, h)
        f_L = self.residual(self.fuse.add_second(read[0], h))
        return f_L, self.to_hidden(f_L)

    def sweep(self, reads: Iterable[Tensors], state: Tensors | None) -> Iterator[Tensors]:
        """The state after every frame, in the given order; valid until the next one is asked for."""
        if state is None:
            rest = iter(reads)
            first = next(rest)
            state, reads = self.start(first), chain([first], rest)
        return ops.sweep(self, reads, state)


class PAHS(Deblurrer):
    """The paper's network, and with other configurations its ablations and its small variants."""

    config: PAHSConfig

    def __init__(self, config: PAHSConfig) -> None:
        super().__init__()
        self.config = config
        two = config.bidirectional
        self.forward_extractor = extractor(config.width)
        self.backward_extractor = extractor(config.width) if two and not config.shared_extractor else None
        self.forward_cell = Cell(config)
        self.backward_cell = Cell(config) if two else None
        self.reconstructor = reconstructor(config.width, directions=2 if two else 1)
        self.contract = Contract(
            family="bidirectional" if two else "recurrent",
            look_ahead=config.look_ahead if two else 0,
            extract_halo=EXTRACT_HALO,
            reconstruct_halo=RECONSTRUCT_HALO,
            offloads=True,
        )

    def extract(self, frames: Tensor) -> Tensors:
        """The frames themselves (for the global skip), then what each direction's cell reads from f_B."""
        # The frames keep their own precision: the skip must not round them to that of the weights.
        images = frames.flatten(0, 1).to(self.forward_cell.fuse.weight.dtype)
        f_B = self.forward_extractor(images)
        reads = self.forward_cell.read(f_B)
        if self.backward_cell is not None:
            if self.backward_extractor is not None:
                f_B = self.backward_extractor(images)
            reads += self.backward_cell.read(f_B)
        return frames, *(x.reshape(*frames.shape[:2], *x.shape[1:]) for x in reads)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        frames, *reads = features
        f_L, after = self._sweep(list(zip(*(x.unbind(1) for x in reads), strict=True)), state, keep)
        return (frames[:, :keep], f_L), after

    def propagate_frames(
        self, features: Sequence[Sequence[Tensor]], state: Tensors | None, keep: int
    ) -> tuple[Tensors, Tensors]:
        f_L, after = self._sweep(features, state, keep, first=1)
        first = features[0][0]
        frames = torch.empty(first.shape[0], keep, *first.shape[1:], dtype=first.dtype, device=f_L.device)
        for t in range(keep):
            frames[:, t].copy_(features[t][0], non_blocking=True)
        return (frames, f_L), after

    def warm_up(self, features: Tensors, resets: Tensor) -> tuple[Tensors, ...]:
        _, *parts = features
        reads = list(zip(*(x.unbind(1) for x in parts), strict=True))
        each = len(parts) if self.backward_cell is None else len(parts) // 2

        def warmed(cell: Cell, reads: list[Tensors], resets: Tensor) -> Tensors:
            def start(reads: list[Tensors]) -> Tensors:
                # Copies lie in memory as a step returns its state: a compiled step is compiled once.
                return tuple(x.clone() for x in cell.start(reads[0]))

            def sweep(reads: list[Tensors], state: Tensors | None) -> Tensors:
                state = start(reads) if state is None else state
                for read in reads:
                    state = cell.step(read, state)
                return state

            return warm_state(reads, reads[::-1], start, sweep, resets)

        def ahead() -> Tensors:
            return warmed(self.forward_cell, [read[:each] for read in reads], resets[:, 0])

        def back() -> list[Tensor]:
            if self.backward_cell is None:
                return []
            return list(warmed(self.backward_cell, [read[each:] for read in reversed(reads)], resets[:, 1]))

        forward, backward = ops.side_by_side(ahead, back, features[0].device)
        return (forward,) if self.backward_cell is None else (forward, tuple(backward))

    def propagate_from(self, features: Tensors, states: tuple[Tensors, ...]) -> Tensors:
        frames, *reads = features
        steps = list(zip(*(x.unbind(1) for x in reads), strict=True))
        f_L, _ = self._sweep(steps, states[0], len(steps), states[1] if len(states) > 1 else None)
        return frames, f_L

    def _sweep(
        self,
        reads: Sequence[Sequence[Tensor]],
        state: Tensors | None,
        keep: int,
        last: Tensors | None = None,
        first: int = 0,
    ) -> tuple[Tensor, Tensors]:
        """f_L of both directions for the first `keep` frames, and the forward state after them.

        The backward sweep begins with the state `last`: zero, but for training. What the cells read begins at `first`
        in each frame's tensors.
        """
        directions = 1 if self.backward_cell is None else 2
        end = len(reads[0])
        middle = first + (end - first) // directions
        device = self.forward_cell.fuse.weight.device
        latents = Latents(reads[0][first], keep, directions, device)

        def part(start: int, end: int, order: range) -> Iterator[Tensors]:
            """What one direction reads, frame by frame: fetched when needed, because it may lie on a disk."""
            return (tuple(reads[t][start:end]) for t in order)

        def ahead() -> Tensors:
            sweep = self.forward_cell.sweep(part(first, middle, range(keep)), state)
            for t, now in enumerate(sweep):
                latents.put(t, 0, now[0])
            return now if torch.is_grad_enabled() else tuple(x.clone() for x in now)

        def back() -> list[Tensor]:
            if self.backward_cell is None:
                return []
            backwards = range(len(reads) - 1, -1, -1)
            sweep = self.backward_cell.sweep(part(middle, end, backwards), last)
            for t, now in zip(backwards, sweep, strict=True):
                if t < keep:
                    latents.put(t, 1, now[0])
            return list(latents.kept[1].values())

        after, _ = ops.side_by_side(ahead, back, device)
        return latents.joined(), after

    def reconstruct(self, latents: Tensors) -> Tensor:
        frames, f_L = latents
        change = per_frame(self.reconstructor, f_L).to(frames.dtype)
        return frames + change if self.config.global_skip else change


class Latents:
    """f_L of the frames that are kept, of one or both directions: (B, T, directions * c, h, w).

    Without gradients each frame is copied into one channels-last buffer at once, and the sweeps keep no other.
    """

    def __init__(self, like: Tensor, frames: int, directions: int, device: torch.device) -> None:
        B, self.width, h, w = like.shape
        self.kept: list[dict[int, Tensor]] = [{} for _ in range(directions)]
        self.whole: Tensor | None = None
        if not torch.is_grad_enabled():
            shape = (B, frames, h, w, directions * self.width)
            self.whole = torch.empty(shape, dtype=like.dtype, device=device).movedim(-1, 2)

    def put(self, t: int, direction: int, f_L: Tensor) -> None:
        if self.whole is None:
            self.kept[direction][t] = f_L
        else:
            self.whole[:, t, direction * self.width : (direction + 1) * self.width] = f_L

    def joined(self) -> Tensor:
        if self.whole is not None:
            return self.whole
        frames = [torch.cat([each[t] for each in self.kept], 1) for t in sorted(self.kept[0])]
        return torch.stack(frames, 1)
