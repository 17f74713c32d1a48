"""Commands that reproduce the paper and look inside its network: reproduce, visualize."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pahs.cli.options import DeviceOption, app, say


@app.command
def reproduce(
    labels: Annotated[
        tuple[str, ...],
        Parameter(
            name="LABEL",
            show_default=False,
            help="A table, figure or claim of the paper (tab:snla, fig:distribution, C5), a part (core, plug-ins, "
            "peers, recurrences) or an arm (B3). None: everything.",
        ),
    ] = (),
    /,
    *,
    scale: Annotated[
        str,
        Parameter(help="tiny: a rehearsal in seconds; small: one GPU, two hours; full: the datasets, weeks."),
    ] = "small",
    data: Annotated[
        tuple[str, ...],
        Parameter(
            show_default=False,
            help="NAME=FOLDER, repeatable: photos and eval (small), gopro, dvd and reds (full).",
        ),
    ] = (),
    seeds: Annotated[int | None, Parameter(help="Trainings of each arm.", show_default="5 or 3")] = None,
    steps: Annotated[
        int | None, Parameter(help="Length of each training.", show_default="as before, or by scale")
    ] = None,
    minutes: Annotated[
        float | None, Parameter(help="Begin nothing that would not end within so many minutes.")
    ] = None,
    together: Annotated[
        int | None,
        Parameter(help="Arms that train at the same time on one GPU.", show_default="as calibrated, or 1"),
    ] = None,
    calibrate: Annotated[
        float | None,
        Parameter(
            help="Minutes that all trainings together may take, in as many calls as you like: time them first, "
            "choose --steps and --together, and keep that for later calls."
        ),
    ] = None,
    output: Annotated[Path, Parameter(alias="-o", help="Folder of the reproduction.")] = Path("reproduction"),
    report_only: Annotated[
        bool, Parameter(negative="", help="Train nothing: write the report of what is there.")
    ] = False,
) -> None:
    """Reproduce the paper's tables and figures, and confirm or refute its claims.

    A run can be stopped at any time; the same command goes on. Writes report.md, report.html and results.json.
    """
    from typing import get_args

    from pahs.choices import check_choice
    from pahs.reproduce.cheap import HYPOTHESIS
    from pahs.reproduce.command import Task
    from pahs.reproduce.command import reproduce as run
    from pahs.reproduce.pace import process_began
    from pahs.reproduce.scales import ScaleName

    check_choice("--scale", scale, ScaleName)
    chosen = next(name for name in get_args(ScaleName) if name == scale)
    began = process_began()
    task = Task(labels, chosen, data, seeds, steps, minutes, began, together, calibrate, report_only, output)
    found = run(task)
    for one in found.judged:
        print(f"{one.claim.label:4} {one.verdict:17} {one.claim.hypothesis}")
    print(f"{found.cost.label:4} {found.cost.verdict:17} {HYPOTHESIS}")
    page = output / "report.html"
    print(f"look at {page if page.exists() else output / 'report.md'}")


@app.command
def visualize(
    video: Annotated[Path, Parameter(name="VIDEO", help="A video, or a folder of numbered images.")],
    /,
    *,
    frame: Annotated[int, Parameter(help="The frame to look at; the first is 0.")],
    models: Annotated[
        tuple[str, ...],
        Parameter(
            name="--model",
            alias="-m",
            consume_multiple=True,
            show_default="by device",
            help="Names from `pahs models`, or .safetensors files. The first is looked into, all are compared.",
        ),
    ] = (),
    point: Annotated[
        tuple[int, int] | None,
        Parameter(
            help="Pixels from the left and the top: who asks. Default: where the frame has most detail."
        ),
    ] = None,
    output: Annotated[Path, Parameter(alias="-o", help="Folder to write to.")] = Path("visualization"),
    device: DeviceOption = "auto",
) -> None:
    """Draw what happens inside the network at one frame of a video, and compare models.

    Writes the features and the memory in their stages, the selection, where one point attends to, and a comparison as
    a picture and as a video.
    """
    from pahs.reproduce.visualize import visualize as run

    written = run(video, frame, models, output, point, device, quiet=False)
    for path, about in written.files:
        print(f"{path}  {about}")
    for note in written.notes:
        say(f"note: {note}")
