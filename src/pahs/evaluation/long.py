"""Whether a network gives the same frames in a sweep without end as in a short one.

A hidden state may diverge, or remember for ever, in sweeps longer than any clip that it was trained on. Then a frame
depends on how a video was cut up, and in the worst case it is black. Each frame of a long film is restored three times:

    whole       both sweeps go over the film in one piece
    backward    the backward sweep begins at most 8 + look-ahead frames later, as short as the engine makes it
    forward     the forward sweep begins 64 to 127 frames earlier; the engine never cuts it

The score is the PSNR between the first and each of the others, of the worst frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.data.layouts import PairedDataset
from pahs.errors import PahsError
from pahs.evaluation.metrics import psnr
from pahs.evaluation.tables import shown, table
from pahs.files import write_json
from pahs.networks.contract import Deblurrer, Tensors

BAR = 60.0
"""A network passes if its worst frame reaches this PSNR: a thousandth of the range."""
EXACT = 120.0
"""Equal frames count as this: float32 rounds to about as much."""
BLOCK = 8
"""Frames that a short backward sweep restores, besides its look-ahead."""
HISTORY = 64
"""Frames that a short forward sweep has seen before those that are compared, and of which it restores as many."""
SHORTEST = 2 * HISTORY
"""A film of fewer frames would compare a sweep with itself."""
LOOP = 64
"""Different frames of a film that is made, at least: extracting more of them would take most of the time."""
SPEED = 5
"""Pixels by which the texture moves from frame to frame."""
BATCH = 16
"""Frames in one call of a frame-wise stage."""


@dataclass(frozen=True)
class LongScore:
    """One network on one film; PSNR in dB of the worst frame, before any rounding."""

    film: str
    frames: int
    backward: float | None
    """None: the network has no backward sweep."""
    forward: float | None
    """None: too few frames were restored."""

    @property
    def passed(self) -> bool:
        return all(x is None or x >= BAR for x in (self.backward, self.forward))


def films(width: int, height: int, data: PairedDataset | None = None) -> Iterator[tuple[str, Tensor]]:
    """What is swept over, with its name: short clips (T, 3, H, W) that are shown again and again."""
    random = torch.Generator().manual_seed(0)
    moving = _texture(width, height, random)
    yield "moving texture", moving
    yield "still", moving[:1]
    yield "noise", torch.rand(LOOP, 3, height, width, generator=random)
    if data is not None:
        yield f"{data.sequences[0].name}, there and back", _there_and_back(data, width, height)


@torch.inference_mode()
def score_long(
    network: Deblurrer, film: str, clip: Tensor, frames: int, restored: int | None = None
) -> LongScore:
    """Compare long sweeps with short ones, over a clip (T, 3, H, W) that is repeated for `frames` frames.

    The network must take its size without padding. `restored` limits what is compared to the first frames, which see
    the whole film by the backward sweep: a state that diverges shows there most.
    """
    contract, restored = network.contract, restored or frames
    if contract.family == "windowed":
        raise PahsError(
            f"{type(network).__name__} restores frames from a window; it has no sweeps to compare"
        )
    if frames < SHORTEST:
        raise PahsError(
            f"--frames {frames}: use {SHORTEST} or more, so that long sweeps differ from short ones"
        )
    features: list[Tensors] = []
    for images in torch.split(clip, BATCH):
        batch = network.extract(images[None].to(network.device))
        features += zip(*(x.unbind(1) for x in batch), strict=True)

    def restore(first: int, end: int, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        """By sweeps over the frames from `first` to `end`: latents of the first `keep` frames, and the state."""
        seen = [features[t % len(features)] for t in range(first, min(end, frames))]
        return network.propagate_frames(seen, state, keep)

    latents, _ = restore(0, frames, None, restored)
    whole = _reconstructed(network, latents)

    def backward() -> Iterator[tuple[int, Tensor]]:
        state: Tensors | None = None
        for first in range(0, restored, BLOCK):
            keep = min(BLOCK, restored - first)
            latents, state = restore(first, first + BLOCK + contract.look_ahead, state, keep)
            yield first, _reconstructed(network, latents)

    def forward() -> Iterator[tuple[int, Tensor]]:
        for first in range(HISTORY, restored, HISTORY):
            start, end = first - HISTORY, min(first + HISTORY, restored)
            # The backward sweep is long enough to have forgotten where it began.
            latents, _ = restore(start, end + HISTORY, None, end - start)
            yield first, _reconstructed(network, tuple(x[:, HISTORY:] for x in latents))

    two, enough = contract.family == "bidirectional", restored > HISTORY
    return LongScore(
        film, frames, _worst(whole, backward) if two else None, _worst(whole, forward) if enough else None
    )


def long_table(name: str, conditions: str, scores: Iterable[LongScore]) -> str:
    """The scores as Markdown."""
    about = f"{name}, {conditions}: PSNR in dB between long and short sweeps, of the worst frame; bar {BAR:g}"
    rows = (
        (x.film, x.frames, shown(x.backward, ".1f"), shown(x.forward, ".1f"), "pass" if x.passed else "FAIL")
        for x in scores
    )
    lines = table("film | frames | backward sweep | forward sweep | verdict", rows)
    return "\n".join([about, "", *lines]) + "\n"


def write_long_json(path: Path, name: str, conditions: str, scores: Iterable[LongScore]) -> None:
    films = [{**asdict(score), "passed": score.passed} for score in scores]
    write_json(path, {"model": name, "conditions": conditions, "bar": BAR, "films": films})


def _reconstructed(network: Deblurrer, latents: Tensors) -> Tensor:
    frames = latents[0].shape[1]
    parts = [
        network.reconstruct(tuple(x[:, t : t + BATCH] for x in latents)) for t in range(0, frames, BATCH)
    ]
    return torch.cat(parts, 1)[0]


def _worst(whole: Tensor, parts: Callable[[], Iterator[tuple[int, Tensor]]]) -> float:
    """PSNR of the worst frame; 0 if one is further off than its range, or not finite."""
    lowest = EXACT
    for first, part in parts():
        for one, other in zip(whole[first : first + len(part)], part, strict=True):
            finite = bool(torch.isfinite(one).all() and torch.isfinite(other).all())
            lowest = min(lowest, max(0.0, psnr(one.float(), other.float())) if finite else 0.0)
    return lowest


def _texture(width: int, height: int, random: torch.Generator) -> Tensor:
    """Random detail at several scales that moves on by `SPEED` pixels a frame, and round again."""
    around = -(-max(width, LOOP * SPEED) // 32) * 32
    canvas = torch.zeros(1, 3, height, around)
    for scale in (2, 8, 32):
        coarse = torch.rand(1, 3, max(2, height // scale), around // scale, generator=random)
        canvas += F.interpolate(coarse, (height, around), mode="bilinear") / 3
    twice = torch.cat([canvas, canvas], 3)[0]
    return torch.stack([twice[:, :, x : x + width] for x in range(0, around, SPEED)])


def _there_and_back(data: PairedDataset, width: int, height: int) -> Tensor:
    """The middle of the first sequence's blurry frames, forward and then backward."""
    sequence = data.sequences[0]
    rows, columns = sequence.size
    if rows < height or columns < width:
        raise PahsError(f"{data.root}: frames of {sequence.name} are smaller than {width}x{height}")
    pictures = sequence.middles(sequence.blurry, height, width)
    shot = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous().float() / 255
    return torch.cat([shot, shot[1:-1].flip(0)])
