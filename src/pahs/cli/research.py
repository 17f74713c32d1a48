"""Commands for training and measuring: synthesize, train, curves, evaluate, bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pahs.benchmarks.options import BenchConfig, FleetOptions, Task
from pahs.cli.options import FLEET, DeviceOption, JsonOption, ModelOption, SetOption, app
from pahs.evaluation.options import EvaluateOptions, EvaluateTask


@app.command
def synthesize(
    sources: Annotated[
        list[Path], Parameter(name="SOURCE", help="Photos, sharp videos, or folders of either.")
    ],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", help="Folder of the dataset.")],
    count: Annotated[int, Parameter(help="Sequences made from photos.")] = 20,
    frames: Annotated[int, Parameter(help="Frames of a sequence.")] = 20,
    size: Annotated[tuple[int, int], Parameter(help="Width and height of frames made from photos.")] = (
        640,
        360,
    ),
    rate: Annotated[
        float | None, Parameter(help="Folders hold the numbered frames of a sharp video at this rate.")
    ] = None,
    test_share: Annotated[
        float, Parameter(help="Share of the photos, and of the videos, held out for test/.")
    ] = 0.1,
    seed: int = 0,
    device: DeviceOption = "auto",
    overwrite: Annotated[
        bool, Parameter(negative="", help="Replace a dataset made with other options.")
    ] = False,
) -> None:
    """Make blurry and sharp sequences from photos or sharp videos, in the GOPRO layout.

    Photos are moved as a camera would move and averaged over the exposure; videos are interpolated in time first.
    Writes a contact sheet to look at. A stopped run continues where it was.
    """
    from pahs.data.synthesis_config import SynthesisConfig
    from pahs.runtime.device import choose_device
    from pahs.synthesize import synthesize as run

    width, height = size
    report = run(
        sources,
        output,
        count=count,
        config=SynthesisConfig(frames=frames, height=height, width=width),
        folder_rate=rate,
        test_share=test_share,
        seed=seed,
        device=choose_device(device),
        overwrite=overwrite,
    )
    print(
        f"{output}  {report.written} sequences written, {report.kept} kept, {report.skipped} stretches skipped"
    )
    print(f"look at {report.contact_sheet}")


@app.command
def train(
    recipe: Annotated[Path, Parameter(name="RECIPE", help="A TOML file, such as recipes/debug.toml.")],
    /,
    *,
    sets: SetOption = (),
    output: Annotated[
        Path | None, Parameter(alias="-o", help="Folder of the run. Default: runs/RECIPE.")
    ] = None,
    resume: Annotated[bool, Parameter(negative="", help="Continue from the last checkpoint.")] = False,
) -> None:
    """Train a network by a recipe; the result is one weights file.

    For several GPUs or machines start it with torchrun, see docs/training.md.
    """
    from pahs.train import train as run

    try:
        print(run(recipe, sets, resume, output))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command with --resume continues from the last checkpoint") from None


@app.command
def curves(
    runs: Annotated[
        list[Path], Parameter(name="RUN", help="Folders of training runs, or their metrics.jsonl.")
    ],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", help="PNG to write.")],
) -> None:
    """Draw training runs: a row for each, its loss on the left, its validation on the right."""
    from pahs.figures.curves import plot

    plot(runs, output)


@app.command
def evaluate(
    *,
    task: Annotated[EvaluateTask | None, Parameter(name="*", negative="")] = None,
    model: ModelOption = "auto",
    options: Annotated[EvaluateOptions, Parameter(name="*", negative="")] = EvaluateOptions(),  # noqa: B008
    json_file: Annotated[
        Path | None,
        Parameter(name="--json", help="Write every number here; a stopped run continues from it."),
    ] = None,
) -> None:
    """Score a model on blurry and sharp frames: PSNR and SSIM, with those of the blurry input.

    Per frame on RGB rounded to 8 bits; means per sequence and over all frames are both printed.
    """
    from pahs.evaluate import run

    run(task or EvaluateTask(), model, options, json_file)


@app.command
def bench(
    *,
    names: Annotated[
        tuple[str, ...],
        Parameter(
            name="--model",
            alias="-m",
            show_default=False,
            consume_multiple=True,
            help="Names from `pahs models`, or .safetensors files.",
        ),
    ] = (),
    task: Annotated[Task, Parameter(name="*", negative="")] = Task(),  # noqa: B008 - frozen
    config: Annotated[BenchConfig, Parameter(name="*")] = BenchConfig(),  # noqa: B008
    fleet: Annotated[FleetOptions, Parameter(name="*", group=FLEET, consume_multiple=True)] = FleetOptions(),  # noqa: B008
    sets: SetOption = (),
    json_file: JsonOption = None,
) -> None:
    """Measure models side by side: parameters, arithmetic, frames per second, memory.

    Every model gets the same frames, which lie on the device already. Weights are random where speed alone counts.
    """
    from pahs.bench import run

    run(task, config, names, sets, json_file, fleet)
