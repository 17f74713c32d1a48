"""The tables of `pahs bench --fleet`: a folder of clips and one film, on the numbers of GPUs that were asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pahs.benchmarks.files import FileRates
from pahs.benchmarks.fleet import Setting, Video, bottleneck, simulate, split
from pahs.benchmarks.options import FleetOptions
from pahs.configs import build
from pahs.errors import PahsError
from pahs.evaluation.tables import table

CHUNK = 64
"""Frames of the engine's chunk on a GPU; a film is cut at multiples of it."""
LENGTHS = tuple(CHUNK * 2**n for n in range(8))
"""Segments of a film that are tried, in frames; the whole film is, too."""
MEASURED = {
    "pahs": FileRates("clip.mp4", (1280, 720), 768, 256, 1024.35, 92.08, 507.42, 89.84),
    "pahs-s": FileRates("clip.mp4", (1280, 720), 2048, 256, 1016.42, 297.06, 454.19, 285.07),
}
"""The table "From file to file on one GPU" of docs/benchmarks.md: an H200 and 16 processor cores."""


@dataclass(frozen=True)
class Line:
    """One number of GPUs."""

    gpus: int
    units: int
    length: int
    """Frames of a unit at most, without those that are thrown away."""
    seconds: float
    busy: float
    """Share of the GPUs' time in which frames are restored."""
    gpu_hours: float
    """Per hour of video: all GPUs are paid for until the last one has finished."""
    speed: float
    """Hours of video per hour."""
    bottleneck: str
    saving: float
    """Share of the time that would be saved if the bottleneck cost nothing."""


@dataclass(frozen=True)
class Scenario:
    name: str
    hours: float
    """Of video."""
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class FleetReport:
    """One run of `pahs bench --fleet`."""

    model: str
    options: FleetOptions
    setting: Setting
    folder: Scenario
    film: Scenario


def report(model: str, options: FleetOptions) -> FleetReport:
    setting = setting_of(model, options)
    frames = max(1, round(options.clip_seconds * options.video_rate))
    clips = [Video((frames,), frames)] * options.clips
    hours = options.clips * frames / options.video_rate / 3600
    lines = tuple(line(clips, frames, hours, setting, gpus) for gpus in options.gpus)
    folder = Scenario(f"{options.clips:,} clips of {options.clip_seconds:g} s", hours, lines)
    lines = tuple(best_split(setting, options, gpus) for gpus in options.gpus)
    film = Scenario(f"one film of {options.film_hours:g} h", options.film_hours, lines)
    return FleetReport(model, options, setting, folder, film)


def setting_of(model: str, options: FleetOptions) -> Setting:
    if options.rates is not None:
        rates = read_rates(options.rates)
    elif model in MEASURED:
        rates = MEASURED[model]
    else:
        raise PahsError(
            f"--model {model}: was not measured from file to file; measure it with "
            f"`pahs bench --clip 768 --model {model} --json rates.json`, then add --rates rates.json"
        )
    return Setting(
        rates,
        frame_bytes=options.megabits * 1e6 / 8 / options.video_rate,
        network=options.network * 1e9 / 8,
        storage=options.storage * 1e9 / 8,
        start=options.start_up,
        segment=options.per_segment,
        driver=options.per_task,
        join=options.joining * 1e9 / 8,
    )


def read_rates(path: Path) -> FileRates:
    """What `pahs bench --clip N --json FILE` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return build(FileRates, {k: v for k, v in content.items() if k in FileRates.__dataclass_fields__})
    except OSError as error:
        raise PahsError(f"--rates {path}: cannot be read ({error.strerror})") from None
    except (ValueError, AttributeError) as error:
        raise PahsError(
            f"--rates {path}: not written by `pahs bench --clip N --json FILE` ({error})"
        ) from None


def film_frames(options: FleetOptions) -> int:
    return max(1, round(options.film_hours * 3600 * options.video_rate))


def film(options: FleetOptions, length: int) -> list[Video]:
    return [split(film_frames(options), length, options.warm_up, options.after)]


def best_split(setting: Setting, options: FleetOptions, gpus: int) -> Line:
    """The film in segments of the length that ends first."""
    tried = (*LENGTHS, film_frames(options))
    seconds = {x: simulate(film(options, x), setting.fleet(gpus)).seconds for x in tried}
    length = min(tried, key=lambda x: (seconds[x], -x))
    return line(film(options, length), length, options.film_hours, setting, gpus)


def line(videos: Sequence[Video], length: int, hours: float, setting: Setting, gpus: int) -> Line:
    outcome = simulate(videos, setting.fleet(gpus))
    name, saving = bottleneck(videos, setting, gpus)
    units = sum(len(video.segments) for video in videos)
    gpu_hours, speed = gpus * outcome.seconds / 3600 / hours, hours * 3600 / outcome.seconds
    return Line(gpus, units, length, outcome.seconds, outcome.busy, gpu_hours, speed, name, saving)


def markdown(result: FleetReport) -> str:
    price = result.options.price
    lines: list[str] = []
    for scenario in (result.folder, result.film):
        headings = (
            f"{scenario.name}: GPUs | units | frames of a unit | time | hours of video per hour | busy | "
            f"GPU hours per hour of video{' | cost per hour of video' if price is not None else ''} | bottleneck"
        )
        rows = (
            f"{x.gpus:,} | {x.units:,} | {x.length:,} | {clock(x.seconds)} | {x.speed:,.1f} | "
            f"{100 * x.busy:.0f} % | {x.gpu_hours:.3f} | "
            f"{'' if price is None else f'{x.gpu_hours * price:.3f} | '}{x.bottleneck} ({100 * x.saving:.0f} %)"
            for x in scenario.lines
        )
        lines += [*table(headings, rows, words="bottleneck"), ""]
    o, rates = result.options, result.setting.rates
    source = f"`{o.rates.name}`" if o.rates else "docs/benchmarks.md (H200, 16 processor cores)"
    lines += [
        f"{result.model}, {rates.size[0]}x{rates.size[1]}, from {source}: decode {rates.decode:.0f}, restore "
        f"{rates.restore:.0f}, encode {rates.encode:.0f} frames/s, {1000 * result.setting.ends:.0f} ms at the ends of "
        "a file.",
        f"Set, not measured: {o.megabits:g} Mbit/s of video each way, {o.network:g} Gbit/s for a GPU, "
        f"{o.storage:g} Gbit/s of storage, {o.joining:g} Gbit/s when joining, {o.start_up:g} s to start, "
        f"{1000 * o.per_segment:g} ms a unit and {1000 * o.per_task:g} ms of the driver for each; {o.warm_up} frames "
        f"before and {o.after} after a segment.",
        "In brackets: the share of the time that would be saved if the bottleneck cost nothing.",
    ]
    return "\n".join(lines)


def clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def numbers(result: FleetReport) -> dict[str, Any]:
    """Everything, for JSON."""
    content = asdict(result)
    content["options"]["rates"] = str(result.options.rates) if result.options.rates else None
    return content
