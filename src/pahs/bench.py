"""Speed, memory and arithmetic of networks, side by side: one run, one table, the same frames for every network.

    pahs bench --zoo --device cuda
    pahs bench --model pahs-s runs/mine/weights.safetensors --size 640 360
    pahs bench --reference --model pahs           the paper's inference and ours: pahs.benchmarks.compare
    pahs bench --scaling --size 3840 2160         over sizes and lengths: pahs.benchmarks.scaling
    pahs bench --clip 600                         a video file to another one: pahs.benchmarks.files
    pahs bench --training-step recipes/debug.toml a step of training: pahs.benchmarks.training_step

Timed is the network in the engine, as `pahs deblur` runs it: from the first frame given to the last frame returned,
with frames that already lie on the device, and neither video files nor scene cuts.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from pahs.benchmarks import compare, scaling
from pahs.benchmarks.conditions import (
    BenchConfig,
    conditions,
    moving_texture,
    settle,
    wait,
    write_json,
)
from pahs.benchmarks.files import TRIES, Video, check_file, check_pyav, file_markdown, make_clip, measure_file
from pahs.engine import stream
from pahs.errors import PahsError
from pahs.evaluation.flops import flops_per_frame, parameters
from pahs.networks import PRESETS, Deblurrer
from pahs.runtime import weights
from pahs.runtime.device import choose_device, device_name
from pahs.runtime.load import default_model, load
from pahs.runtime.precision import DTYPES

PAPER_SPEED = {
    "pahs": 1.43,
    "pahs-s-paper": 4.17,
    "ovd": 7.69,
    "ifirnn": 20.15,
    "stfan": 6.66,
    "estrnn-c80b15": 6.21,
    "edvr-l": 2.70,
    "tsp": 0.22,
    "arvo": 0.15,
}
"""Frames per second in the paper, at 1280x720; it does not name the GPU."""
PROBE = 4
"""Frames that tell how long a clip there is time for; also the shortest clip that is timed."""


@dataclass(frozen=True)
class Row:
    """What is known of one network. Where it failed, `error` says why and the rest is None."""

    model: str
    family: str = ""
    parameters: int | None = None
    flops: float | None = None
    """Per frame of a whole clip, a multiplication and an addition counting as two."""
    frames: int | None = None
    """Frames of the clip that was timed."""
    seconds: float | None = None
    """Time for that clip."""
    peak_bytes: int | None = None
    """Most memory in use, weights included, the clip not; None on a CPU."""
    paper_speed: float | None = None
    error: str = ""

    @property
    def speed(self) -> float | None:
        return self.frames / self.seconds if self.frames and self.seconds else None


@dataclass(frozen=True)
class Bench:
    """One run."""

    rows: tuple[Row, ...]
    config: BenchConfig
    """With the device and the precision that `auto` stood for."""
    device: str
    """The device's own name."""
    torch: str

    @property
    def conditions(self) -> str:
        """What the rows were measured with, and the command, in one line."""
        wish, names = self.config, [row.model for row in self.rows]
        which = "--zoo" if names == list(PRESETS) else f"--model {' '.join(names)}"
        return (
            f"{self.device}, torch {self.torch}, {wish.precision}, {wish.width}x{wish.height}, "
            f"at most {wish.frames} frames and about {wish.seconds:g} s a network: "
            f"`pahs bench {which} --size {wish.width} {wish.height} --frames {wish.frames} "
            f"--seconds {wish.seconds:g} --device {wish.device} --precision {wish.precision}{wish.limit}`"
        )


def bench(names: Sequence[str], config: BenchConfig, say: Callable[[str], None] = lambda _: None) -> Bench:
    """Measure networks one after the other; `names` are presets (random weights) or weights files."""
    config = settle(config)
    device = torch.device(config.device)
    for name in names:
        check_model(name)
    clip = moving_texture(config.frames, config.height, config.width, device)
    rows = []
    for number, name in enumerate(names, 1):
        rows.append(measure(name, clip, config))
        say(f"[{number}/{len(names)}] {summary(rows[-1])}")
    return Bench(tuple(rows), config, device_name(device), torch.__version__)


def check_model(name: str) -> None:
    if name not in PRESETS and not Path(name).is_file():
        raise PahsError(f"--model {name}: no model and no file of this name; `pahs models` lists the names")


def measure(name: str, clip: list[Tensor], config: BenchConfig) -> Row:
    """Everything about one network; what goes wrong is its row's to say."""
    row = Row(name, paper_speed=PAPER_SPEED.get(name))
    try:
        row = count(row, config)
        row = time_and_weigh(row, clip, config)
    except Exception as error:  # the other networks are worth their rows all the same
        reason = (str(error).strip().splitlines() or [""])[0]
        row = replace(
            row, error=reason if isinstance(error, PahsError) else f"{type(error).__name__}: {reason}"
        )
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return row


def count(row: Row, config: BenchConfig) -> Row:
    """What follows from the network's shape alone: nothing is computed."""
    known = PRESETS.get(row.model)
    shape = weights.describe(row.model).config if known is None else known.config
    with torch.device("meta"):
        network = shape.build()
    return replace(
        row,
        family=network.contract.family,
        parameters=parameters(network),
        flops=flops_per_frame(network, config.height, config.width),
    )


def time_and_weigh(row: Row, clip: list[Tensor], config: BenchConfig) -> Row:
    """Speed, and the most memory on the way."""
    device = torch.device(config.device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    network = build(row.model, config)
    frames, seconds = time_clip(network, clip, device, config.seconds)
    peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None
    return replace(row, frames=frames, seconds=seconds, peak_bytes=peak)


def build(name: str, config: BenchConfig) -> Deblurrer:
    """A preset with random weights, made where it runs, or a weights file; as `load` leaves a network."""
    if name not in PRESETS:
        return load(name, config.device, config.precision)
    with torch.device(config.device):
        network = PRESETS[name].config.build().eval().to(DTYPES[config.precision])
    return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]


def time_clip(
    network: Deblurrer, clip: list[Tensor], device: torch.device, seconds: float
) -> tuple[int, float]:
    """Frames that were timed and the seconds they took, after a pass over the same frames that was not."""
    probe = clip[:PROBE]
    run_through(network, probe, device)
    took = run_through(network, probe, device)
    affordable = min(len(clip), int(seconds / took * len(probe)))
    if affordable <= len(probe):
        return len(probe), took
    run_through(network, clip[:affordable], device)
    return affordable, run_through(network, clip[:affordable], device)


def run_through(network: Deblurrer, clip: list[Tensor], device: torch.device) -> float:
    """Seconds for one stream over the clip. The peak of the device's memory counts from here."""
    wait(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    returned = sum(1 for _ in stream(network, clip, scene_cuts=False))
    wait(device)
    took = time.perf_counter() - started
    assert returned == len(clip), f"{returned} of {len(clip)} frames came back"
    return took


def summary(row: Row) -> str:
    if row.speed is None:
        return f"{row.model}: {row.error}"
    memory = f", {row.peak_bytes / 2**30:.2f} GiB" if row.peak_bytes is not None else ""
    return f"{row.model}: {row.speed:.2f} frames/s over {row.frames} frames{memory}"


def markdown(result: Bench) -> str:
    """The table, and below it what it was measured with."""
    lines = [
        "| model | family | parameters (M) | GFLOPs a frame | frames timed | frames/s | paper's frames/s | peak GiB |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in result.rows:
        cells = [
            row.model,
            row.family or "-",
            f"{row.parameters / 1e6:.2f}" if row.parameters is not None else "-",
            f"{row.flops / 1e9:.1f}" if row.flops is not None else "-",
            str(row.frames or "-"),
            row.error.replace("|", "/") if row.speed is None else f"{row.speed:.2f}",
            f"{row.paper_speed:.2f}" if row.paper_speed is not None else "-",
            f"{row.peak_bytes / 2**30:.2f}" if row.peak_bytes is not None else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", result.conditions]
    if all(row.peak_bytes is None for row in result.rows):
        lines.append(
            "Peak memory is measured on CUDA devices only: a process's size on a CPU says little about it."
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class Task:
    """What the command line asks for."""

    names: tuple[str, ...] = ()
    """Models; none: the one that `pahs deblur` would take."""
    zoo: bool = False
    reference: bool = False
    scaling: bool = False
    file: Path | None = None
    """A video to measure from file to file; with `reference` beside the rest."""
    clip: int | None = None
    """Frames of a video that is made for this."""
    plot: Path | None = None
    """Where `scaling` draws."""
    json_file: Path | None = None
    training_step: Path | None = None
    """A recipe whose training step is timed."""
    sets: tuple[str, ...] = ()
    """Values of that recipe to change."""
    steps: int = 200
    """How many steps of each kind are made."""

    def __post_init__(self) -> None:
        if sum((self.zoo, self.reference, self.scaling)) > 1:
            raise PahsError("--zoo, --reference and --scaling are three measurements; keep one of them")
        if self.training_step is None and self.sets:
            raise PahsError("--set: changes the recipe of --training-step; give both")
        others = self.zoo or self.reference or self.scaling or self.from_file or self.names
        if self.training_step is not None and others:
            raise PahsError(
                "--training-step: measured alone, and the recipe names the model; leave the rest out"
            )
        if self.steps < 1:
            raise PahsError(f"--steps {self.steps}: use 1 or more")
        if self.zoo and self.names:
            raise PahsError("--zoo and --model are both given; keep one of them")
        if (self.reference or self.scaling) and len(self.names) > 1:
            raise PahsError(f"--model {' '.join(self.names)}: --reference and --scaling measure one model")
        if self.file is not None and self.clip is not None:
            raise PahsError("--file and --clip are both given; keep one of them")
        if self.from_file and (self.zoo or self.scaling):
            raise PahsError(
                "--file and --clip: measured alone or with --reference, not with --zoo or --scaling"
            )
        if self.from_file and len(self.names) > 1:
            raise PahsError(f"--model {' '.join(self.names)}: --file and --clip measure one model")
        if self.clip is not None and self.clip < 2:
            raise PahsError(f"--clip {self.clip}: use 2 frames or more")
        if self.plot is not None and not self.scaling:
            raise PahsError("--plot: only --scaling draws; give both")

    @property
    def from_file(self) -> bool:
        return self.file is not None or self.clip is not None


def run(task: Task, config: BenchConfig) -> None:
    """Measure, tell on stderr how it goes, print the table, write the numbers."""
    if task.training_step is not None:
        from pahs.benchmarks.training_step import measure_recipe  # it needs what only training needs

        content = measure_recipe(task.training_step, task.sets, task.steps)
        if task.json_file is not None:
            write_json(task.json_file, content)
        return
    names = task.names or (default_model(choose_device(config.device)),)
    for name in names:
        check_model(name)
    if task.reference or task.from_file:
        with video(task, config) as film:
            if task.reference:
                comparison = compare.compare(names[0], config, film, say)
                text, content = compare.markdown(comparison), compare.numbers(comparison)
            else:
                assert film is not None
                text, content = file_report(names[0], film, config)
    elif task.scaling:
        curves = scaling.scale(names[0], lambda settled: build(names[0], settled), config, say)
        text, content = scaling.markdown(curves), scaling.numbers(curves)
        if task.plot is not None:
            scaling.plot(curves, task.plot)
    else:
        result = bench(list(PRESETS) if task.zoo else names, config, say)
        rows = [{**asdict(row), "frames_per_second": row.speed} for row in result.rows]
        text, content = markdown(result), {"conditions": result.conditions, **asdict(result), "rows": rows}
    print(text)
    if task.json_file is not None:
        write_json(task.json_file, content)


@contextmanager
def video(task: Task, config: BenchConfig) -> Iterator[Video | None]:
    """The file that the task names, or one that is made for it and removed afterwards."""
    if task.file is not None:
        check_file(task.file)
        yield Video(task.file, f"--file {task.file}")
    elif task.clip is not None:
        check_pyav("--clip")
        with TemporaryDirectory(prefix="pahs-bench-") as folder:
            path = Path(folder) / "clip.mp4"
            say(f"making a clip of {task.clip} frames")
            make_clip(path, task.clip, config.width, config.height)
            yield Video(path, f"--clip {task.clip}")
    else:
        yield None


def file_report(model: str, film: Video, config: BenchConfig) -> tuple[str, dict[str, object]]:
    """One network from file to file: the table and the numbers."""
    config = settle(config)
    trained = model not in PRESETS or weights.bundled(model) is not None
    network = load(model, config.device, config.precision) if trained else build(model, config)
    rates = measure_file(network, film.path, say)
    lines = [
        file_markdown(rates),
        "",
        conditions(config, f"--model {model} {film.option}"),
        f"{model}, {'trained' if trained else 'random'} weights; each figure is the fastest of {TRIES} tries.",
    ]
    return "\n".join(lines), {"model": model, "conditions": lines[2], **asdict(rates)}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
