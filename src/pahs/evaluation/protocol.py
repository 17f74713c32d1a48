"""The protocol of an evaluation: which frames the network sees, and which of its outputs count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pahs.data.layouts import Sequence
from pahs.errors import PahsError
from pahs.evaluation.options import REPLACE_PERIOD, EvaluateOptions
from pahs.networks.contract import Family


@dataclass(frozen=True)
class Pass:
    """One run of the engine over a sequence. Frames are numbered by their position among the chosen ones."""

    replaced: frozenset[int]
    """Frames whose sharp version the network is given."""
    scored: frozenset[int]
    """Frames whose output counts; none of them is replaced in the same pass."""

    @property
    def length(self) -> int:
        """Outputs up to the last one that counts."""
        return max(self.scored) + 1


def passes(frames: int, replace_neighbour: bool, family: Family) -> tuple[Pass, ...]:
    """Passes that together score each frame once.

    A window of five holds one sharp frame of every fifth, so five passes do for a windowed network. A recurrent one
    remembers and foresees all of them: exactly one frame is replaced for it, in a pass for every scored frame.
    """
    if not replace_neighbour:
        return (Pass(frozenset(), frozenset(range(frames))),)
    if family != "windowed":
        return tuple(Pass(frozenset({t - 1 if t else 1}), frozenset({t})) for t in range(frames))
    found = []
    for phase in range(REPLACE_PERIOD):
        replaced = frozenset(range(phase, frames, REPLACE_PERIOD))
        scored = {position + 1 for position in replaced if position + 1 < frames}
        if phase == 1 and frames > 1:
            scored.add(0)
        if scored:
            found.append(Pass(replaced, frozenset(scored)))
    return tuple(found)


@dataclass(frozen=True)
class Take:
    """The frames of a sequence that the options choose, and the passes that score them."""

    sequence: Sequence
    chosen: tuple[int, ...]
    """Indices of the frames in the sequence, by position."""
    passes: tuple[Pass, ...]
    fingerprint: str
    """sha256 over the names and file lengths of the frames."""

    @classmethod
    def of(cls, sequence: Sequence, options: EvaluateOptions, family: Family) -> Take:
        chosen = tuple(range(len(sequence)))[:: 2 if options.every_second else 1][: options.limit]
        if options.replace_neighbour and len(chosen) < 2:
            raise PahsError(
                f"{sequence.blurry[0].parent}: sequence {sequence.name} has one frame and so no neighbour to replace"
            )
        digest = hashlib.sha256(sequence.name.encode())
        for index in chosen:
            for path in (sequence.blurry[index], sequence.sharp[index]):
                digest.update(f"\n{path.name} {path.stat().st_size}".encode())
        needed = passes(len(chosen), options.replace_neighbour, family)
        return cls(sequence, chosen, needed, digest.hexdigest())

    @property
    def outputs(self) -> int:
        """Frames that the network restores for this take, in all passes."""
        return sum(one.length for one in self.passes)

    def inputs(self, one: Pass) -> Iterator[NDArray[np.uint8]]:
        """The frames that the network is given in a pass."""
        for position, index in enumerate(self.chosen):
            yield (self.sequence.read_sharp if position in one.replaced else self.sequence.read_blurry)(index)
