"""Measure networks: speed, memory and arithmetic, with the same frames for every network of a run.

pahs bench --zoo --device cuda
pahs bench --model pahs-s runs/mine/weights.safetensors --size 640 360
pahs bench --model pahs-t pahs-s --data DIR   quality and speed; --plot draws it
pahs bench --reference --model pahs           the paper's inference and ours: pahs.benchmarks.compare
pahs bench --scaling --size 3840 2160         over sizes and lengths: pahs.benchmarks.scaling
pahs bench --fleet --price 3                  many GPUs, simulated: pahs.benchmarks.fleet
pahs bench --fleet --workers 1 2 4            the simulation and real runs: pahs.benchmarks.workers
pahs bench --backends --data DIR              PyTorch, onnxruntime, OpenVINO: pahs.benchmarks.backends
pahs bench --clip 600                         a video file to another one: pahs.benchmarks.files
pahs bench --expected                         computed for other cards: pahs.benchmarks.expected
pahs bench --training-step recipes/debug.toml a step of training: pahs.benchmarks.training_step
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from pahs.benchmarks import backends, compare, expected, fleet_report, scaling, workers, zoo
from pahs.benchmarks.conditions import check_model
from pahs.benchmarks.files import file_report, open_video
from pahs.benchmarks.options import BenchConfig, FleetOptions, Task
from pahs.errors import PahsError
from pahs.figures import fleet as fleet_figure
from pahs.figures import require_matplotlib, tradeoff
from pahs.figures.scaling import plot
from pahs.files import write_json
from pahs.networks import PRESETS
from pahs.progress import say
from pahs.runtime.device import choose_device
from pahs.runtime.load import default_model


def run(
    task: Task,
    config: BenchConfig,
    names: tuple[str, ...] = (),
    sets: tuple[str, ...] = (),
    json_file: Path | None = None,
    fleet: FleetOptions = FleetOptions(),  # noqa: B008 - frozen
) -> None:
    """Measure, tell on stderr how it goes, print the table, write the numbers.

    `names` are models; without one, the model that `pahs deblur` would take. `sets` change values of the recipe whose
    training step is timed.
    """
    task.check(names, sets)
    if fleet != FleetOptions() and not task.fleet:
        raise PahsError("--gpus, --price and the like belong to --fleet; give both")
    if task.training_step is not None:
        from pahs.benchmarks.training_step import measure_recipe  # it needs what only training needs

        content = measure_recipe(task.training_step, sets, task.steps)
    elif task.expected:
        chosen = names or tuple(expected.WITHOUT_HOPPER)
        print(expected.markdown(chosen, config))
        content = expected.numbers(chosen, config)
    else:
        names = names or ("pahs-s" if task.fleet else default_model(choose_device(config.device)),)
        text, content = simulated(task, fleet, names[0]) if task.fleet else measure(task, config, names)
        print(text)
    if json_file is not None:
        write_json(json_file, content)


def measure(task: Task, config: BenchConfig, names: tuple[str, ...]) -> tuple[str, dict[str, object]]:
    """The tables and the numbers."""
    for name in names:
        check_model(name)
    if task.plot is not None:
        require_matplotlib()
    if task.reference or task.backends or task.from_file:
        clip = backends.CLIP if task.backends and not task.from_file else task.clip
        with open_video(task.file, clip, config, say) as video:
            if video is not None and task.backends:
                compared = backends.compare(names[0], config, video, task.data, say)
                return backends.markdown(compared), asdict(compared)
            if video is not None and not task.reference:
                return file_report(names[0], video, config, say)
            comparison = compare.compare(names[0], config, video, say)
            return compare.markdown(comparison), compare.numbers(comparison)
    if task.scaling:
        curves = scaling.scale(names[0], config, say)
        if task.plot is not None:
            plot(curves, task.plot)
        return scaling.markdown(curves), scaling.numbers(curves)
    result = zoo.measure_all(list(PRESETS) if task.zoo else names, config, say, task.data)
    if task.plot is not None:
        tradeoff.plot(result, task.plot)
    return zoo.markdown(result), zoo.numbers(result)


def simulated(task: Task, options: FleetOptions, model: str) -> tuple[str, dict[str, object]]:
    """The tables and the numbers of many GPUs, or of workers on this machine."""
    if options.workers:
        if task.plot is not None:
            raise PahsError("--plot: real runs are a table only; leave out --workers, or --plot")
        runs = workers.compare(model, options, say)
        return workers.markdown(runs), asdict(runs)
    if task.plot is not None:
        require_matplotlib()
    result = fleet_report.report(model, options)
    if task.plot is not None:
        fleet_figure.plot(result, task.plot)
    return fleet_report.markdown(result), fleet_report.numbers(result)
