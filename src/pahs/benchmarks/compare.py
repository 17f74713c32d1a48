"""`pahs bench --reference`: the paper's inference as it is written, and ours, in one run.

Both have the same weights and the same frames, and both are timed in the middle of a long video, so that the first and
last frames, which cost less, do not count.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, islice

import torch
from torch import Tensor

from pahs.benchmarks.conditions import (
    Say,
    allocated,
    conditions,
    free_memory,
    has_weights,
    moving_texture,
    peak_since,
    reset_peak,
    settle,
    tf32,
)
from pahs.benchmarks.files import FileRates, Video, file_markdown, measure_file
from pahs.benchmarks.options import BenchConfig
from pahs.benchmarks.reference import literal_stream
from pahs.benchmarks.stages import STAGES, Work, count_literal, count_work, matrix_rate, stopwatch, take
from pahs.engine import stream
from pahs.engine.plan import longest_chunk
from pahs.errors import PahsError
from pahs.evaluation.tables import NO_MEMORY, gib, shown, table
from pahs.networks import PAHS, PRESETS
from pahs.runtime import weights
from pahs.runtime.precision import DTYPES

HELD = 24
"""Frames of the clip that is repeated to make a long video."""
FEW = 2
"""A slow contender is warmed up on this many frames, which are also compared, and timed on at least as many."""

SHORT = 16
"""Chunk length in float32, where longer chunks would take too much time; lower precisions are compared over one."""

LITERAL, KEPT, OURS = "literal reference", "literal, features kept", "ours"


@dataclass(frozen=True)
class Contender:
    """One variant of running the network, and its measurements."""

    name: str
    precision: str
    flops: float
    """Counted operations per frame."""
    matrix_rate: float
    """Operations per second that the device reaches in a large matrix product of this precision."""
    frames: int
    """Frames that were timed."""
    seconds: float
    """Time for them."""
    peak_bytes: int | None
    """Most memory in use, weights included, the clip not; None on a CPU."""
    against: str = ""
    """The contender whose frames these are compared with."""
    compared: int = 0
    """Frames that were compared."""
    max_difference: float | None = None
    psnr: float | None = None
    """In dB over all compared frames; None where nothing differs."""

    @property
    def speed(self) -> float:
        return self.frames / self.seconds

    @property
    def floor(self) -> float:
        """The arithmetic limit: frames per second if all operations ran at the rate of a matrix product."""
        return self.matrix_rate / self.flops


@dataclass(frozen=True)
class Stage:
    """One stage of ours, per output frame."""

    name: str
    seconds: float
    flops: float
    """0 for what is not arithmetic: queues and copies between the stages."""


@dataclass(frozen=True)
class Comparison:
    """One run of `pahs bench --reference`."""

    model: str
    weights: str
    """Bundled, from a file or random."""
    look_ahead: int
    contenders: tuple[Contender, ...]
    """The literal reference first, the network as `pahs deblur` runs it last."""
    stages: tuple[Stage, ...]
    """Of the last contender."""
    file: FileRates | None
    conditions: str

    def ratio(self, contender: Contender) -> float:
        return contender.speed / self.contenders[0].speed


@dataclass(frozen=True)
class Trial:
    """The settings of one contender."""

    name: str
    precision: str
    outputs: Callable[[PAHS, Iterator[Tensor]], Iterator[Tensor]]
    flops: float
    """Per frame of a long video."""
    step: int = 1
    """Frames that one backward sweep restores: times are taken over multiples of it."""
    channels_last: bool = True
    tf32: bool = False
    against: str = ""
    compared: Callable[[PAHS, Iterator[Tensor]], Iterator[Tensor]] | None = None
    """The stream that is compared, if not the timed one: in chunks of another length, outputs see another future."""


def trials(network: PAHS, work: Work, config: BenchConfig) -> list[Trial]:
    """From the literal reference to the settings asked for, one change after the other."""
    literal, kept = (count_literal(network, config.height, config.width, keep) for keep in (False, True))
    ahead = network.contract.look_ahead
    single = work.frame(1 + ahead)
    chunk = longest_chunk(torch.device(config.device))
    engine = partial(stream, scene_cuts=False)
    literal_kept = partial(literal_stream, keep_features=True)
    chosen = [
        Trial(LITERAL, "fp32", literal_stream, literal, channels_last=False),
        Trial(KEPT, "fp32", literal_kept, kept, channels_last=False, against=LITERAL),
        Trial("ours, the reference's windows", "fp32", partial(engine, chunk=1), single, against=LITERAL),
    ]
    if config.device.startswith("cuda"):
        chosen.insert(1, replace(chosen[0], name=f"{LITERAL}, TF32", tf32=True, against=LITERAL))
    ours = Trial(OURS, "fp32", engine, work.frame((chunk + ahead) / chunk), step=chunk, against=LITERAL)
    if config.precision == "fp32":
        return [*chosen, ours]
    flops, short_chunks = work.frame((SHORT + ahead) / SHORT), partial(engine, chunk=SHORT)
    chosen.append(replace(ours, outputs=short_chunks, flops=flops, step=SHORT))
    name = f"{OURS}, {config.precision}"
    chosen.append(replace(ours, name=name, precision=config.precision, against=OURS, compared=short_chunks))
    return chosen


def compare(
    model: str, config: BenchConfig, video: Video | None = None, say: Say = lambda _: None
) -> Comparison:
    """Run the contenders one after the other; the last one on the video too."""
    config = settle(config)
    device = torch.device(config.device)
    network, origin = load(model)
    clip = moving_texture(HELD, config.height, config.width, device)
    work = count_work(network, config.height, config.width)
    contenders: list[Contender] = []
    restored: dict[str, list[Tensor]] = {}
    stages: tuple[Stage, ...] = ()
    rates: FileRates | None = None
    plan = trials(network, work, config)
    for trial in plan:
        with tf32(trial.tf32):
            before = allocated(device)
            placed = copy.deepcopy(network).to(device, DTYPES[trial.precision])
            if trial.channels_last:
                placed = placed.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            outputs = trial.outputs(placed, cycle(clip))
            if trial.compared is None:
                restored[trial.name] = [x.cpu() for x in islice(outputs, max(FEW, trial.step))]
            else:
                compared = trial.compared(placed, cycle(clip))
                restored[trial.name] = [x.cpu() for x in islice(compared, SHORT)]
                del compared  # two streams at once may not fit into --memory
                free_memory()
                deque(islice(outputs, max(FEW, trial.step)), maxlen=0)
            frames, seconds = time_stream(outputs, trial.step, config)
            peak = peak_since(before, device)
            flops = trial.flops
            if trial is plan[-1]:
                stages = time_stages(placed, outputs, frames, work, device)
                flops = sum(stage.flops for stage in stages)  # chunks are shorter where memory is short
            del outputs
            free_memory()  # the stream fills what --memory allows, and the matrices need some of it
            rate = matrix_rate(device, DTYPES[trial.precision])
            precision = "tf32" if trial.tf32 else trial.precision
            row = Contender(trial.name, precision, flops, rate, frames, seconds, peak)
            if trial.against:
                row = differ(row, trial.against, restored[trial.name], restored[trial.against])
            say(f"{row.name}: {row.speed:.3f} frames/s over {row.frames} frames")
            contenders.append(row)
            if trial is plan[-1] and video is not None:
                rates = measure_file(placed, video.path, say)
            del placed
        free_memory()
    what = f"--reference --model {model}" + (f" {video.option}" if video is not None else "")
    return Comparison(
        model, origin, network.contract.look_ahead, tuple(contenders), stages, rates, conditions(config, what)
    )


def load(model: str) -> tuple[PAHS, str]:
    """The network in float32 on the CPU, and where its weights come from."""
    origin = "bundled weights" if model in PRESETS else "the file's weights"
    if not has_weights(model):
        torch.manual_seed(0)
        origin = "random weights"
    network = weights.load(model, random_weights=not has_weights(model))
    if not isinstance(network, PAHS):
        names = ", ".join(name for name in PRESETS if name.startswith("pahs"))
        raise PahsError(f"--reference --model {model}: only PAHS has a literal reference; choose {names}")
    return network, origin


def time_stream(outputs: Iterator[Tensor], step: int, config: BenchConfig) -> tuple[int, float]:
    """Frames that were timed, as many as time allows, and the seconds they took; the stream must be warmed up."""
    device = torch.device(config.device)
    reset_peak(device)
    least = max(step, FEW)
    took = take(outputs, least, device)
    affordable = min(config.frames, int(config.seconds / took * least)) // step * step
    return (least, took) if affordable <= least else (affordable, take(outputs, affordable, device))


def time_stages(
    network: PAHS, outputs: Iterator[Tensor], frames: int, work: Work, device: torch.device
) -> tuple[Stage, ...]:
    """Seconds per frame of each stage over the next frames; the rest of the time is that of queues and copies."""
    with stopwatch(network, device) as laps:
        total = take(outputs, frames, device)
    swept = laps.swept / laps.kept
    flops = {"extract": work.extract, "propagate": work.propagate(swept), "reconstruct": work.reconstruct}
    stages = [Stage(name, laps.seconds[name] / frames, flops[name]) for name in STAGES]
    rest = total - sum(laps.seconds.values())
    return (*stages, Stage("queues and copies", max(0.0, rest) / frames, 0.0))


def differ(row: Contender, against: str, these: list[Tensor], those: list[Tensor]) -> Contender:
    """The row with the difference of its frames from another contender's."""
    pairs = list(zip(these, those, strict=False))
    errors = [(a.double() - b.double()).abs_() for a, b in pairs]
    mean = sum(float(x.square().mean()) for x in errors) / len(errors)
    return replace(
        row,
        against=against,
        compared=len(pairs),
        max_difference=max(float(x.max()) for x in errors),
        psnr=-10 * math.log10(mean) if mean else None,
    )


def markdown(result: Comparison) -> str:
    """The tables, and the conditions of their measurement."""
    lines = table(
        "what | precision | frames timed | frames/s | times the reference | GFLOPs a frame "
        "| arithmetic limit (frames/s) | share of it | peak GiB | max difference | PSNR (dB)",
        (
            f"{row.name} | {row.precision} | {row.frames} | {row.speed:.3f} | {result.ratio(row):.2f} | "
            f"{row.flops / 1e9:.1f} | {row.floor:.2f} | {100 * row.speed / row.floor:.0f} % | "
            f"{gib(row.peak_bytes)} | {shown(row.max_difference, '.1e')} | {shown(row.psnr, '.1f')}"
            for row in result.contenders
        ),
        text=2,
    )
    total = sum(stage.seconds for stage in result.stages)
    last, rate = result.contenders[-1], result.contenders[-1].matrix_rate
    shares = (stage.flops / rate / stage.seconds if stage.flops else None for stage in result.stages)
    rows = (
        f"{stage.name} | {1000 * stage.seconds:.2f} | {100 * stage.seconds / total:.0f} % | "
        f"{stage.flops / 1e9:.1f} | {f'{100 * share:.0f} %' if share else '-'}"
        for stage, share in zip(result.stages, shares, strict=True)
    )
    headings = f"stage of {last.name} | ms a frame | share | GFLOPs a frame | share of the matrix rate"
    lines += ["", *table(headings, rows)]
    if result.file is not None:
        lines += ["", file_markdown(result.file)]
    reference = result.contenders[0]
    rates = {row.precision: row.matrix_rate for row in result.contenders}
    lines += [
        "",
        result.conditions,
        f"{result.model}, {result.weights}, look-ahead {result.look_ahead}; a slow contender is timed on fewer "
        f"frames, the reference on {reference.frames}. Each is compared with the first row, over its first "
        f"{FEW} frames; a lower precision with ours in fp32, over {last.compared}. "
        f"Our chunks see more of the future "
        f"than the reference's windows: that difference is not one of arithmetic. Matrix products run at "
        + ", ".join(f"{1e-12 * rate:.3f} TFLOP/s in {name}" for name, rate in rates.items())
        + ".",
    ]
    if reference.peak_bytes is None:
        lines.append(NO_MEMORY)
    return "\n".join(lines)


def numbers(result: Comparison) -> dict[str, object]:
    """Everything, for JSON."""
    rows = [
        {
            **asdict(row),
            "frames_per_second": row.speed,
            "times_the_reference": result.ratio(row),
            "floor_frames_per_second": row.floor,
            "share_of_floor": row.speed / row.floor,
        }
        for row in result.contenders
    ]
    return {**asdict(result), "contenders": rows}
