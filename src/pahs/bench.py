"""Measure networks: speed, memory and arithmetic, with the same frames for every network of a run.

pahs bench --zoo --device cuda
pahs bench --model pahs-s runs/mine/weights.safetensors --size 640 360
pahs bench --reference --model pahs           the paper's inference and ours: pahs.benchmarks.compare
pahs bench --scaling --size 3840 2160         over sizes and lengths: pahs.benchmarks.scaling
pahs bench --clip 600                         a video file to another one: pahs.benchmarks.files
pahs bench --training-step recipes/debug.toml a step of training: pahs.benchmarks.training_step
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pahs.benchmarks import compare, scaling, zoo
from pahs.benchmarks.conditions import BenchConfig, check_model, write_json
from pahs.benchmarks.files import file_report, open_video
from pahs.errors import PahsError
from pahs.figures import require_matplotlib
from pahs.figures.scaling import plot
from pahs.networks import PRESETS
from pahs.runtime.device import choose_device
from pahs.runtime.load import default_model


@dataclass(frozen=True)
class Task:
    """What the command line asks for."""

    names: tuple[str, ...] = ()
    """Models; none: the one that `pahs deblur` would take."""
    zoo: bool = False
    reference: bool = False
    scaling: bool = False
    file: Path | None = None
    """A video to measure from file to file, alone or with `reference`."""
    clip: int | None = None
    """Frames of a video that is made for this."""
    plot: Path | None = None
    """The picture that `scaling` draws."""
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
    if task.plot is not None:
        require_matplotlib()
    if task.reference or task.from_file:
        with open_video(task.file, task.clip, config, say) as video:
            if video is not None and not task.reference:
                text, content = file_report(names[0], video, config, say)
            else:
                comparison = compare.compare(names[0], config, video, say)
                text, content = compare.markdown(comparison), compare.numbers(comparison)
    elif task.scaling:
        curves = scaling.scale(names[0], config, say)
        text, content = scaling.markdown(curves), scaling.numbers(curves)
        if task.plot is not None:
            plot(curves, task.plot)
    else:
        result = zoo.measure_all(list(PRESETS) if task.zoo else names, config, say)
        text, content = zoo.markdown(result), zoo.numbers(result)
    print(text)
    if task.json_file is not None:
        write_json(task.json_file, content)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
