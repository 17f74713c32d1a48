"""The tables of `pahs bench --fleet` as one picture, with all numbers of GPUs in between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pahs.benchmarks.fleet import Video, simulate
from pahs.benchmarks.fleet_report import best_split, film
from pahs.figures import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pahs.benchmarks.fleet_report import FleetReport

SHOWN = (256, 1024, 4096)
"""Segment lengths of a film that get a curve."""


def plot(result: FleetReport, path: Path) -> None:
    """Hours of video per hour, minutes of a film by the length of its segments, and GPU hours per hour of video."""
    options, setting = result.options, result.setting
    most = max(options.gpus)
    gpus = sorted({*options.gpus, *(round(most ** (n / 24)) for n in range(25))})
    frames = max(1, round(options.clip_seconds * options.video_rate))
    clips = [Video((frames,), frames)] * options.clips
    folder = [simulate(clips, setting.fleet(n)).seconds for n in gpus]
    best = [best_split(setting, options, n) for n in gpus]
    figure = new_figure(2, 2)
    speed, time, cost, share = figure.subplots(2, 2).flatten()

    ideal = setting.fleet(1).rate / options.video_rate
    speed.plot(gpus, [n * ideal for n in gpus], ":", color="gray", label="rate of a GPU, times their number")
    speed.plot(gpus, [result.folder.hours * 3600 / s for s in folder], label=result.folder.name)
    speed.plot(gpus, [line.speed for line in best], label=result.film.name)
    finish(speed, "hours of video per hour")

    for length in SHOWN:
        seconds = [simulate(film(options, length), setting.fleet(n)).seconds for n in gpus]
        time.plot(gpus, [s / 60 for s in seconds], label=f"segments of {length} frames")
    time.plot(gpus, [line.seconds / 60 for line in best], "k:", label="the best of all lengths")
    finish(time, f"minutes for {result.film.name}")

    price = options.price
    unit = 1.0 if price is None else price
    hours = [unit * n * s / 3600 / result.folder.hours for n, s in zip(gpus, folder, strict=True)]
    cost.plot(gpus, hours, label=result.folder.name)
    cost.plot(gpus, [unit * line.gpu_hours for line in best], label=result.film.name)
    finish(cost, "GPU hours per hour of video" if price is None else "cost of an hour of video")

    busy = [simulate(clips, setting.fleet(n)).busy for n in gpus]
    share.plot(gpus, [100 * x for x in busy], label=result.folder.name)
    share.plot(gpus, [100 * line.busy for line in best], label=result.film.name)
    finish(share, "% of the time that GPUs restore")
    share.set_yscale("linear")
    share.set_ylim(0, 105)
    save(figure, path)


def finish(axes: Axes, label: str) -> None:
    axes.set(xlabel="GPUs", ylabel=label, xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
