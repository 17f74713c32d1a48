"""Speed, memory and arithmetic of networks, side by side: one run, one table, the same frames for every network.

    python -m pahs.bench --zoo --device cuda
    python -m pahs.bench --model pahs-s runs/mine/weights.safetensors --size 640 360

Timed is the network in the engine, as `pahs deblur` runs it: from the first frame given to the last frame returned,
with frames that already lie on the device, and neither video files nor scene cuts.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs import runtime, weights
from pahs.engine import stream
from pahs.errors import PahsError
from pahs.evaluation_report import write_whole
from pahs.flops import flops_per_frame, parameters
from pahs.networks import PRESETS, Deblurrer

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
PIXELS_PER_FRAME = 5
"""How far the texture moves from one frame to the next."""


@dataclass(frozen=True)
class BenchConfig:
    """What every network is given."""

    width: int = 1280
    height: int = 720
    frames: int = 32
    """Length of the clip at most."""
    seconds: float = 2.0
    """A network that would need longer for the clip is timed on the first frames of it."""
    device: str = "auto"
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            if getattr(self, name) < 16:
                raise PahsError(f"--size: {name} is {getattr(self, name)}; the smallest frames are 16x16")
        if self.frames < 1:
            raise PahsError(f"--frames {self.frames}: use 1 or more")
        if self.seconds <= 0:
            raise PahsError(f"--seconds {self.seconds}: it must be above 0")


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
            f"--seconds {wish.seconds:g} --device {wish.device} --precision {wish.precision}`"
        )


def bench(names: Sequence[str], config: BenchConfig, say: Callable[[str], None] = lambda _: None) -> Bench:
    """Measure networks one after the other; `names` are presets (random weights) or weights files."""
    device = runtime.choose_device(config.device)
    dtype = runtime.choose_dtype(config.precision, device)
    precision = next(key for key, value in runtime.DTYPES.items() if value == dtype)
    config = replace(config, device=str(device), precision=precision)
    for name in names:
        if name not in PRESETS and not Path(name).is_file():
            raise PahsError(
                f"--model {name}: no model and no file of this name; `pahs models` lists the names"
            )
    clip = moving_texture(config.frames, config.height, config.width, device)
    rows = []
    for number, name in enumerate(names, 1):
        rows.append(measure(name, clip, config))
        say(f"[{number}/{len(names)}] {summary(rows[-1])}")
    return Bench(tuple(rows), config, device_name(device), torch.__version__)


def moving_texture(frames: int, height: int, width: int, device: torch.device) -> list[Tensor]:
    """(3, H, W) frames in [0, 1]: random detail at many scales, moving diagonally."""
    random = torch.Generator(device).manual_seed(0)
    room = PIXELS_PER_FRAME * frames
    rows, columns = height + room, width + room
    canvas = torch.zeros(1, 3, rows, columns, device=device)
    for scale in (2, 8, 32, 128):
        grid = (1, 3, max(2, rows // scale), max(2, columns // scale))
        coarse = torch.rand(grid, generator=random, device=device)
        canvas += F.interpolate(coarse, (rows, columns), mode="bilinear") / 4
    starts = [PIXELS_PER_FRAME * t for t in range(frames)]
    return [canvas[0, :, t : t + height, t : t + width].clone() for t in starts]


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
    """A preset with random weights, made where it runs, or a weights file; as `runtime.load` leaves a network."""
    if name not in PRESETS:
        return runtime.load(name, config.device, config.precision)
    with torch.device(config.device):
        network = PRESETS[name].config.build().eval().to(runtime.DTYPES[config.precision])
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


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({cpu_name()}, threads: {torch.get_num_threads()})"


def cpu_name() -> str:
    """The processor's own name where the system tells it, else its architecture."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


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


def run(names: Sequence[str], zoo: bool, config: BenchConfig, json_file: Path | None = None) -> Bench:
    """What both command lines do: measure, tell on stderr how it goes, print the table, write the numbers."""
    if zoo and names:
        raise PahsError("--zoo and --model are both given; keep one of them")
    chosen = (
        list(PRESETS) if zoo else list(names) or [runtime.default_model(runtime.choose_device(config.device))]
    )
    result = bench(chosen, config, lambda line: print(line, file=sys.stderr, flush=True))
    print(markdown(result))
    if json_file is not None:
        rows = [{**asdict(row), "frames_per_second": row.speed} for row in result.rows]
        content = {"conditions": result.conditions, **asdict(result), "rows": rows}
        text = json.dumps(content, indent=1)
        write_whole(json_file, lambda partial: partial.write_text(text + "\n", encoding="utf-8"))
    return result


def command(arguments: Sequence[str] | None = None) -> int:
    """`python -m pahs.bench`."""
    default = BenchConfig()
    parser = argparse.ArgumentParser(
        prog="python -m pahs.bench", description="Speed, memory and arithmetic of networks."
    )
    parser.add_argument("--zoo", action="store_true", help="every model of `pahs models`")
    parser.add_argument("--model", "-m", nargs="+", default=[], metavar="NAME", help="names or weights files")
    parser.add_argument(
        "--size", nargs=2, type=int, default=(default.width, default.height), metavar=("W", "H")
    )
    parser.add_argument("--frames", type=int, default=default.frames, help="length of the clip at most")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="time for a model, about")
    parser.add_argument("--device", default=default.device, help="auto, cpu or cuda")
    parser.add_argument("--precision", default=default.precision, help="auto, fp32, bf16 or fp16")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number here")
    options = parser.parse_args(arguments)
    try:
        width, height = options.size
        config = BenchConfig(
            width, height, options.frames, options.seconds, options.device, options.precision
        )
        run(options.model, options.zoo, config, options.json)
    except PahsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(command())
