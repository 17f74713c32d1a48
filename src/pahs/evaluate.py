"""Score a network on a dataset, through the same engine that deblurs videos.

    dataset -> blurry frames -> engine -> 8-bit frames -> PSNR, SSIM -> report

Frames are read as the engine pulls them; only numbers stay. After each sequence the JSON file is brought up to date,
and a later run of the same network and protocol takes up where it ended.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pahs import __version__
from pahs.choices import AnyLayout, Kind, Split
from pahs.data.layouts import PairedDataset, Sequence, open_dataset
from pahs.engine import stream
from pahs.errors import PahsError
from pahs.evaluation.flops import flops_per_frame, parameters
from pahs.evaluation.metrics import capped, flicker, psnr, ssim
from pahs.evaluation.report import (
    REPLACE_PERIOD,
    EvaluateOptions,
    Evaluation,
    FrameScore,
    ModelFacts,
    SequenceScore,
    Strip,
    markdown_table,
    read_json,
    write_json,
)
from pahs.files import write_whole
from pahs.networks.contract import Deblurrer
from pahs.progress import Advance, bar
from pahs.runtime import weights
from pahs.runtime.device import choose_device
from pahs.runtime.load import default_model, load
from pahs.runtime.precision import DTYPES

__all__ = ["EvaluateOptions", "Evaluation", "evaluate", "markdown_table", "read_json", "run", "write_json"]

_PRECISIONS = {dtype: name for name, dtype in DTYPES.items()}


def evaluate(
    model: Deblurrer,
    dataset: PairedDataset,
    options: EvaluateOptions = EvaluateOptions(),  # noqa: B008
    *,
    name: str = "model",
    json_file: Path | None = None,
    strips: Path | None = None,
    overwrite: bool = False,
    quiet: bool = True,
) -> Evaluation:
    """Score `model`, where it is and as it is, on every sequence of `dataset`.

    `json_file` is written after each sequence and holds what is finished; sequences in it that were scored with
    the same network and options are not run again. `strips` is a folder for one comparison picture per sequence.
    """
    result = Evaluation(
        version=__version__,
        model=_facts(model, dataset, options, name),
        data=str(dataset.root),
        layout=dataset.layout,
        split=dataset.split,
        options=options,
        planned=tuple(sequence.name for sequence in dataset.sequences),
        sequences=(),
    )
    takes = [_Take.of(sequence, options) for sequence in dataset.sequences]
    scores = _finished(result, json_file) if json_file and not overwrite else {}
    was_training = model.training
    model.eval()
    try:
        with bar(name, sum(take.outputs for take in takes), quiet=quiet) as advance:
            for take in takes:
                if take.fingerprint in scores:
                    advance(take.outputs)
                    continue
                scores[take.fingerprint] = _score(model, take, options, strips, advance)
                if json_file:
                    write_json(_with_scores(result, takes, scores), json_file)
    finally:
        model.train(was_training)
    return _with_scores(result, takes, scores)


def run(
    model: str,
    data: Path,
    *,
    layout: AnyLayout = "auto",
    split: Split | None = "test",
    kind: Kind = "blur",
    json_file: Path | None = None,
    markdown_file: Path | None = None,
    strips: Path | None = None,
    look_ahead: int | None = None,
    every_second: bool = False,
    replace_neighbour: bool = False,
    limit: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> Evaluation:
    """`pahs evaluate`: score a model by name or file, write what was asked for, and print the table."""
    options = EvaluateOptions(look_ahead, every_second, replace_neighbour, limit)
    dataset = open_dataset(data, layout, split, kind)
    name = default_model(choose_device(device)) if model == "auto" else model
    network = load(name, device, precision)
    result = evaluate(
        network,
        dataset,
        options,
        name=Path(name).name,
        json_file=json_file,
        strips=strips,
        overwrite=overwrite,
        quiet=quiet,
    )
    table = markdown_table(result)
    if markdown_file:
        write_whole(markdown_file, lambda partial: partial.write_text(table, encoding="utf-8"))
    print(table, end="")
    return result


@dataclass(frozen=True)
class _Pass:
    """One run of the engine over a sequence; numbers are positions among the chosen frames."""

    replaced: frozenset[int]
    """Frames whose sharp version goes in."""
    scored: frozenset[int]
    """Frames whose output counts."""


@dataclass(frozen=True)
class _Take:
    """The frames of a sequence that the options choose, and the passes that score each of them once."""

    sequence: Sequence
    chosen: tuple[int, ...]
    passes: tuple[_Pass, ...]
    fingerprint: str

    @classmethod
    def of(cls, sequence: Sequence, options: EvaluateOptions) -> _Take:
        chosen = tuple(range(len(sequence)))[:: 2 if options.every_second else 1][: options.limit]
        if options.replace_neighbour and len(chosen) < 2:
            raise PahsError(
                f"{sequence.blurry[0].parent}: sequence {sequence.name} has one frame and so no neighbour to replace"
            )
        digest = hashlib.sha256(sequence.name.encode())
        for index in chosen:
            for path in (sequence.blurry[index], sequence.sharp[index]):
                digest.update(f"\n{path.name} {path.stat().st_size}".encode())
        passes = _passes(len(chosen), options.replace_neighbour)
        return cls(sequence, chosen, passes, digest.hexdigest())

    @property
    def outputs(self) -> int:
        return len(self.chosen) * len(self.passes)

    def inputs(self, one: _Pass) -> Iterator[NDArray[np.uint8]]:
        for position, index in enumerate(self.chosen):
            read = self.sequence.read_sharp if position in one.replaced else self.sequence.read_blurry
            yield read(index)


def _passes(frames: int, replace_neighbour: bool) -> tuple[_Pass, ...]:
    if not replace_neighbour:
        return (_Pass(frozenset(), frozenset(range(frames))),)
    passes = []
    for phase in range(REPLACE_PERIOD):
        replaced = frozenset(range(phase, frames, REPLACE_PERIOD))
        scored = {position + 1 for position in replaced if position + 1 < frames}
        if phase == 1 and frames > 1:
            scored.add(0)
        if scored:
            passes.append(_Pass(replaced, frozenset(scored)))
    return tuple(passes)


def _score(
    model: Deblurrer, take: _Take, options: EvaluateOptions, strips: Path | None, advance: Advance
) -> SequenceScore:
    sequence = take.sequence
    device = next(model.parameters(), torch.empty(0)).device
    strip = Strip(len(take.chosen)) if strips else None
    scores: dict[int, FrameScore] = {}
    seconds = 0.0
    # One frame per backward sweep gives every output exactly the future frames that were asked for.
    chunk = None if options.look_ahead is None else 1
    for one in take.passes:
        outputs = stream(
            model, take.inputs(one), look_ahead=options.look_ahead, chunk=chunk, scene_cuts=options.scene_cuts
        )
        last: _Pictures | None = None
        start = time.perf_counter()
        for position, output in enumerate(outputs):
            seconds += time.perf_counter() - start
            if position in one.scored:
                index = take.chosen[position]
                blurry, sharp = sequence.read_blurry(index), sequence.read_sharp(index)
                now = _Pictures.on(device, output, blurry, sharp)
                scores[position] = _score_frame(sequence.sharp[index].name, now, last)
                # Flicker needs the frame before, from the same pass.
                last = now if len(take.passes) == 1 else None
                if strip:
                    strip.offer(position, blurry, output, sharp)
            advance(1)
            start = time.perf_counter()
    if strip and strips:
        strip.write(strips / f"{sequence.name.replace('/', '__')}.png")
    return SequenceScore(
        name=sequence.name,
        size=sequence.size,
        fingerprint=take.fingerprint,
        outputs=take.outputs,
        seconds=seconds,
        frames=tuple(scores[position] for position in range(len(take.chosen))),
    )


@dataclass(frozen=True)
class _Pictures:
    """One frame three times, (3, H, W) uint8."""

    output: Tensor
    blurry: Tensor
    sharp: Tensor

    @classmethod
    def on(cls, device: torch.device, *pictures: NDArray[np.uint8]) -> _Pictures:
        # Not every accelerator has float64.
        where = device if device.type == "cuda" else torch.device("cpu")
        return cls(*(torch.from_numpy(x).to(where).permute(2, 0, 1) for x in pictures))


def _score_frame(name: str, now: _Pictures, last: _Pictures | None) -> FrameScore:
    o, b, s = now.output, now.blurry, now.sharp
    return FrameScore(
        frame=name,
        psnr=capped(psnr(o, s)),
        ssim=ssim(o, s),
        blurry_psnr=capped(psnr(b, s)),
        blurry_ssim=ssim(b, s),
        shift=_colour(o, b),
        true_shift=_colour(s, b),
        flicker=flicker(last.output, o, last.sharp, s) if last else None,
        blurry_flicker=flicker(last.blurry, b, last.sharp, s) if last else None,
    )


def _colour(picture: Tensor, other: Tensor) -> tuple[float, float, float]:
    """Mean difference in red, green and blue."""
    red, green, blue = (picture.double() - other.double()).mean((1, 2)).tolist()
    return red, green, blue


def _facts(model: Deblurrer, dataset: PairedDataset, options: EvaluateOptions, name: str) -> ModelFacts:
    family = model.contract.family
    if options.look_ahead is not None and family != "bidirectional":
        raise PahsError(
            f"--look-ahead: {name} is {family}, its future frames are fixed; leave the option out"
        )
    config = getattr(model, "config", None)
    described = json.dumps(asdict(config)) if is_dataclass(config) and not isinstance(config, type) else ""
    tensors = {key: x.detach().cpu().contiguous() for key, x in model.state_dict().items()}
    identity = f"{type(model).__qualname__} {described} {weights.checksum(tensors)}"
    weight = next(model.parameters(), torch.empty(0))
    height, width = dataset.sequences[0].size
    return ModelFacts(
        name=name,
        checksum=hashlib.sha256(identity.encode()).hexdigest(),
        parameters=parameters(model),
        flops_per_frame=flops_per_frame(model, height, width),
        flops_size=(height, width),
        look_ahead=model.contract.look_ahead if options.look_ahead is None else options.look_ahead,
        device=_device_name(weight.device),
        precision=_PRECISIONS.get(weight.dtype, str(weight.dtype).removeprefix("torch.")),
    )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _with_scores(result: Evaluation, takes: list[_Take], scores: dict[str, SequenceScore]) -> Evaluation:
    done = tuple(scores[take.fingerprint] for take in takes if take.fingerprint in scores)
    return replace(result, sequences=done)


def _finished(planned: Evaluation, json_file: Path) -> dict[str, SequenceScore]:
    """What an earlier run of the same network and protocol left, by fingerprint."""
    if not json_file.exists():
        return {}
    earlier = read_json(json_file)
    same = (
        earlier.version == planned.version
        and earlier.model.checksum == planned.model.checksum
        and earlier.model.precision == planned.model.precision
        and earlier.options == planned.options
    )
    if not same:
        raise PahsError(
            f"{json_file}: holds another evaluation ({earlier.model.name}: {earlier.protocol}); "
            "name another file or use --overwrite"
        )
    return {sequence.fingerprint: sequence for sequence in earlier.sequences}
