"""Commands that restore videos: deblur, demo, models."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pahs.choices import Compare, EncodeOptions, seconds_of
from pahs.cli.many import run_all
from pahs.cli.options import (
    ENCODING,
    RUNNING,
    BackendOption,
    DeinterlaceOption,
    DeviceOption,
    EndOption,
    LookAheadOption,
    MemoryOption,
    ModelOption,
    PrecisionOption,
    PreviewOption,
    RecursiveOption,
    SceneCutsOption,
    StartOption,
    StrengthOption,
    app,
    one_line,
    say,
)
from pahs.deblur import DeblurOptions

if TYPE_CHECKING:
    from pahs.video import TransformReport


@app.command
def deblur(
    inputs: Annotated[
        list[Path], Parameter(name="INPUT", help="Videos, folders of videos, or folders of numbered images.")
    ],
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            alias="-o", help="File to write; a folder for several inputs. Default: the folder of the input."
        ),
    ] = None,
    model: ModelOption = "auto",
    look_ahead: LookAheadOption = None,
    scene_cuts: SceneCutsOption = True,
    start: StartOption = None,
    end: EndOption = None,
    preview: PreviewOption = None,
    strength: StrengthOption = DeblurOptions.strength,
    deinterlace: DeinterlaceOption = False,
    compare: Annotated[
        Compare, Parameter(help="Also write a comparison: both pictures side by side, or half of each.")
    ] = DeblurOptions.compare,
    fps: Annotated[
        float | None, Parameter(help="Make a video of a folder of images, with so many frames per second.")
    ] = None,
    recursive: RecursiveOption = False,
    skip_existing: Annotated[
        bool, Parameter(negative="", help="Leave out inputs that have their output: continues a folder.")
    ] = False,
    overwrite: Annotated[bool, Parameter(negative="", help="Replace outputs that exist.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    backend: BackendOption = "auto",
    memory: MemoryOption = None,
    random_weights: Annotated[
        bool, Parameter(negative="", group=RUNNING, help="Run a model without its weights: restores nothing.")
    ] = False,
    encode: Annotated[EncodeOptions, Parameter(name="*", negative="", group=ENCODING)] = EncodeOptions(),  # noqa: B008
) -> None:
    """Deblur video files.

    Sound, subtitles, time stamps, rotation, bit depth and colour description are kept. Nothing appears under the
    output's name before it is complete.
    """
    from pahs.backends.load import load
    from pahs.deblur import deblur as run
    from pahs.deblur import naming
    from pahs.progress import bar
    from pahs.video import outputs_for

    options = DeblurOptions(
        look_ahead=look_ahead,
        scene_cuts=scene_cuts,
        encode=encode,
        start=None if start is None else seconds_of(start),
        end=None if end is None else seconds_of(end),
        preview=preview,
        strength=strength,
        deinterlace=deinterlace,
        compare=compare,
        fps=fps,
        overwrite=overwrite,
        device=device,
        precision=precision,
        backend=backend,
        memory=memory,
    )
    pairs = outputs_for(inputs, output, naming(options, recursive))
    network = load(model, device, precision, random_weights, backend, quiet=False)
    if random_weights:
        say("warning: --random-weights: the network has learnt nothing, the result is not a deblurred video")

    def job(source: Path, target: Path) -> TransformReport:
        with bar(one_line(source.name), None) as advance:
            return run(source, target, options, network, advance)

    run_all(pairs, job, skip_existing)


@app.command
def demo(
    *,
    output: Annotated[Path, Parameter(alias="-o", help="Folder to write to.")] = Path("demo"),
    model: ModelOption = "auto",
    frames: Annotated[int, Parameter(help="Length of the clip.")] = 48,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    backend: BackendOption = "auto",
) -> None:
    """Make a blurry clip, deblur it, and compare.

    Writes the blurry and the deblurred video, a comparison picture and a comparison video, and prints the PSNR of
    both against the sharp frames.
    """
    from pahs.demo import demo as run

    report = run(output, model, device, precision, frames, quiet=False, backend=backend)
    print(f"blurry input      {report.psnr_blurry:6.2f} dB  {report.blurry}")
    print(f"deblurred         {report.psnr_deblurred:6.2f} dB  {report.deblurred}")
    print(f"gain              {report.psnr_deblurred - report.psnr_blurry:+6.2f} dB")
    print(f"speed             {report.frames_per_second:6.2f} frames/s, file to file")
    print(f"look at           {report.comparison} and {report.side_by_side}")


@app.command
def models(
    *, as_json: Annotated[bool, Parameter(name="--json", negative="", help="For programs.")] = False
) -> None:
    """List every model: family, parameters, the paper's parameters, bundled weights, frames of delay."""
    from pahs.runtime.catalog import models as catalog

    infos = catalog()
    if as_json:
        print(json.dumps([asdict(info) for info in infos], default=str, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    wide = console.width >= 110
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "family", "weights"):
        table.add_column(heading, no_wrap=True)
    for heading in ("parameters", "paper's", "delay"):
        table.add_column(heading, justify="right", no_wrap=True)
    if wide:
        table.add_column("about", no_wrap=True)
    for info in infos:
        table.add_row(
            info.name,
            info.family,
            "bundled" if info.weights else "-",
            f"{info.parameters / 1e6:.2f} M",
            f"{info.paper_millions:.1f} M" if info.paper_millions else "-",
            str(info.delay),
            *([info.about] if wide else []),
        )
    console.print(table)
