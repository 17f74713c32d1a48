"""What SNLA's selection could gain, measured by gradients on clips whose truth is known.

S_Sel is one number per query token. The gradient of the mean PSNR with respect to it says how many decibels are won, to
first order, where it is a little larger. S_Sel sees a token through its score alone, the mean of a row of q k^T, so
it can win only what the score knows about that gradient:

    alike       all tokens larger by 0.05
    by score    S_Sel moved by the best function of the score, standard deviation 0.05
    by largest  the same of the largest number of the row instead of its mean
    by truth    each token moved by 0.05 as its own gradient asks: no network can know this

The function is constant on eight intervals of equal share. It is found on every second clip and judged on the others,
then the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from pahs.data.layouts import PairedDataset
from pahs.data.layouts import Sequence as Shots
from pahs.errors import PahsError
from pahs.evaluation.tables import table
from pahs.files import write_json
from pahs.networks.contract import Deblurrer
from pahs.networks.snla import SNLA, tokens
from pahs.progress import Advance

DEVIATION = 0.05
"""How far S_Sel is moved: the standard deviation from which we would call it a selection."""
FRAMES = 12
"""Of each sequence at most, since gradients keep every frame's features."""
SIZE = 256
"""Height and width of the middle of a frame that is restored, at most."""
INTERVALS = 8
FLOOR = 1e-10
"""Added to the squared error: 100 dB at most."""


@dataclass(frozen=True)
class Gain:
    """Decibels of mean PSNR to first order, over the clips."""

    mean: float
    error: float
    """Standard error of the mean over clips."""

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.error:.3f}"


@dataclass(frozen=True)
class SelectionScore:
    """One SNLA module of a network."""

    module: str
    """Where it is in the network."""
    clips: int
    selected: float
    """Mean of S_Sel."""
    deviation: float
    """Standard deviation of S_Sel over the tokens of a frame, mean over frames."""
    score_deviation: float
    """The same of its score, mean(q k^T)."""
    alike: Gain
    by_score: Gain
    by_largest: Gain
    by_truth: Gain


@dataclass(frozen=True)
class _Seen:
    """One module over one clip: (T, N) each."""

    selection: Tensor
    score: Tensor
    largest: Tensor
    gradient: Tensor
    """Of the clip's mean PSNR with respect to S_Sel."""


def score_selection(
    network: Deblurrer, dataset: PairedDataset, frames: int | None, advance: Advance
) -> list[SelectionScore]:
    """Judge every selective SNLA module of a network on the middles of each sequence's first frames."""
    modules = {name: x for name, x in network.named_modules() if isinstance(x, SNLA) and x.filter is not None}
    if not modules:
        raise PahsError(f"{type(network).__name__} has no selection in it (SNLA): choose a network with one")
    if len(dataset.sequences) < 2:
        raise PahsError(
            f"{dataset.root}: holds one sequence; --selection learns on some and judges on others"
        )
    seen: dict[str, list[_Seen]] = {name: [] for name in modules}
    for sequence in dataset.sequences:
        blurry, sharp = _clip(network, sequence, min(frames or FRAMES, FRAMES))
        for name, found in _look(network, modules, blurry, sharp).items():
            seen[name].append(found)
        advance(1)
    return [_judge(name, clips) for name, clips in seen.items()]


def _clip(network: Deblurrer, sequence: Shots, frames: int) -> tuple[Tensor, Tensor]:
    """The middle of the first frames, blurry and sharp: (1, T, 3, H, W)."""
    multiple = network.contract.multiple_of
    height, width = (min(x, SIZE) // multiple * multiple for x in sequence.size)
    if min(height, width) < max(multiple, network.contract.min_size):
        raise PahsError(f"{sequence.blurry[0].parent}: frames are smaller than the network takes")
    sides = (side[:frames] for side in (sequence.blurry, sequence.sharp))
    clips = (torch.from_numpy(sequence.middles(side, height, width)).to(network.device) for side in sides)
    blurry, sharp = (clip.permute(0, 3, 1, 2)[None].float() / 255 for clip in clips)
    return blurry, sharp


def _look(network: Deblurrer, modules: dict[str, SNLA], blurry: Tensor, sharp: Tensor) -> dict[str, _Seen]:
    with ExitStack() as stack, torch.enable_grad():
        probes = {name: _Probe(module, stack) for name, module in modules.items()}
        latents, _ = network.propagate(network.extract(blurry), None, blurry.shape[1])
        error = (network.reconstruct(latents).float() - sharp).square().mean((2, 3, 4))
        psnr = -10 * (error + FLOOR).log10().mean()
        leaves = [leaf for probe in probes.values() for leaf in probe.added]
        gradients = iter(torch.autograd.grad(psnr, leaves))
    return {name: probe.seen([next(gradients) for _ in probe.added]) for name, probe in probes.items()}


class _Probe:
    """Reads a module while its network runs, and adds zeros to what the selection says, for their gradients."""

    def __init__(self, module: SNLA, stack: ExitStack) -> None:
        assert module.filter is not None
        self.module = module
        self.largest: list[Tensor] = []
        self.scores: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.added: list[Tensor] = []
        stack.callback(module.register_forward_pre_hook(self._asked).remove)
        stack.callback(module.filter.register_forward_hook(self._selected).remove)

    @torch.no_grad()
    def _asked(self, _: nn.Module, inputs: tuple[Tensor | None, Tensor]) -> None:
        query, h = inputs
        q = tokens(self.module.to_query(h) if query is None else query)
        self.largest.append((q @ tokens(self.module.to_key(h)).transpose(1, 2)).amax(2)[0])

    def _selected(self, _: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Tensor:
        self.scores.append(inputs[0].detach()[0, :, 0])
        self.logits.append(logits.detach()[0, :, 0])
        self.added.append(torch.zeros_like(logits, requires_grad=True))
        return logits + self.added[-1]

    def seen(self, gradients: Sequence[Tensor]) -> _Seen:
        score, largest, logit, gradient = (
            torch.stack(list(x)).double().cpu()
            for x in (self.scores, self.largest, self.logits, (x[0, :, 0] for x in gradients))
        )
        selection = logit.sigmoid()
        return _Seen(selection, score, largest, gradient / (selection * (1 - selection)))


def _judge(module: str, clips: Sequence[_Seen]) -> SelectionScore:
    def mean(values: Iterable[Tensor]) -> float:
        return torch.stack([x.mean() for x in values]).mean().item()

    return SelectionScore(
        module=module,
        clips=len(clips),
        selected=mean(x.selection for x in clips),
        deviation=mean(x.selection.std(1) for x in clips),
        score_deviation=mean(x.score.std(1) for x in clips),
        alike=_gain(DEVIATION * x.gradient.sum().item() for x in clips),
        by_score=_gain(_by_function([(x.score, x.gradient) for x in clips])),
        by_largest=_gain(_by_function([(x.largest, x.gradient) for x in clips])),
        by_truth=_gain(DEVIATION * x.gradient.abs().sum().item() for x in clips),
    )


def _by_function(clips: Sequence[tuple[Tensor, Tensor]]) -> Iterator[float]:
    """What the best function of a known number wins on clips that it was not found on."""
    for part in range(2):
        known, gradient = (torch.cat([x[i].flatten() for x in clips[part::2]]) for i in range(2))
        some = known[:: len(known) // 1_000_000 + 1]
        limits = torch.quantile(some, torch.linspace(0, 1, INTERVALS + 1)[1:-1].double())
        place = torch.bucketize(known, limits)
        counts = torch.bincount(place, minlength=INTERVALS)
        share = counts / len(known)
        move = torch.zeros(INTERVALS, dtype=torch.float64).index_add_(0, place, gradient)
        move /= counts.clamp(min=1)
        move -= (share * move).sum()
        spread = (share * move.square()).sum().sqrt()
        move = move * (DEVIATION / spread) if spread > 0 else move
        for known, gradient in clips[1 - part :: 2]:
            yield (gradient * move[torch.bucketize(known, limits)]).sum().item()


def _gain(values: Iterable[float]) -> Gain:
    found = list(values)
    mean = math.fsum(found) / len(found)
    spread = math.fsum((x - mean) ** 2 for x in found) / max(1, len(found) - 1)
    return Gain(mean, math.sqrt(spread / len(found)))


def selection_table(name: str, conditions: str, scores: Sequence[SelectionScore]) -> str:
    """The scores as Markdown."""
    about = (
        f"{name}, {conditions}, {scores[0].clips} clips: decibels of mean PSNR, to first order, "
        f"if S_Sel were moved by {DEVIATION:g}"
    )
    rows = (
        f"{x.module} | {x.selected:.3f} | {x.deviation:.4f} | {x.score_deviation:.2f} | "
        f"{x.alike} | {x.by_score} | {x.by_largest} | {x.by_truth}"
        for x in scores
    )
    headings = "module | S_Sel | its deviation | its score's | alike | by score | by largest | by truth"
    return "\n".join([about, "", *table(headings, rows)]) + "\n"


def write_selection_json(path: Path, name: str, conditions: str, scores: Iterable[SelectionScore]) -> None:
    write_json(
        path, {"model": name, "conditions": conditions, "modules": [asdict(score) for score in scores]}
    )
