"""The command line. Each command is a thin layer over the function of the same name."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Group, Parameter

from pahs import __version__
from pahs.errors import PahsError
from pahs.runtime.malloc import keep_memory

if TYPE_CHECKING:
    from pahs.video import TransformReport

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
Codec = Literal["auto", "h264", "hevc", "vp9", "ffv1"]
EncoderSpeed = Literal[
    "ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow"
]

RUNNING = Group("Where and how it runs")
ENCODING = Group("The video that is written")

ModelOption = Annotated[
    str, Parameter(alias="-m", help="A name from `pahs models`, or a .safetensors file. auto: by device.")
]
DeviceOption = Annotated[Device, Parameter(group=RUNNING, help="auto takes a CUDA GPU if there is one.")]
PrecisionOption = Annotated[
    Precision,
    Parameter(group=RUNNING, help="auto: half precision on GPUs, and on CPUs that are faster with it."),
]
MemoryOption = Annotated[
    float | None,
    Parameter(group=RUNNING, help="GiB of the GPU's memory to use at most; all that is free by default."),
]

app = App(
    name="pahs",
    version=f"pahs {__version__}",
    help="Turn a blurry video into a sharp one.\n\nStart with: `pahs deblur clip.mp4`",
    help_epilogue="`pahs COMMAND --help` explains a command.",
    suppress_keyboard_interrupt=False,
)
app.register_install_completion_command(help="Install completion for this shell.")


@app.command
def deblur(
    inputs: Annotated[
        list[Path], Parameter(name="INPUT", help="Videos, folders of videos, or folders of numbered images.")
    ],
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(alias="-o", help="File to write; a folder for several inputs. Default: beside the input."),
    ] = None,
    model: ModelOption = "auto",
    look_ahead: Annotated[
        int | None,
        Parameter(help="Future frames that each frame is restored from at least.", show_default="19"),
    ] = None,
    scene_cuts: Annotated[bool, Parameter(help="Start afresh where the scene changes.")] = True,
    overwrite: Annotated[bool, Parameter(negative="", help="Replace outputs that exist.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    memory: MemoryOption = None,
    random_weights: Annotated[
        bool, Parameter(negative="", group=RUNNING, help="Run a model without its weights: restores nothing.")
    ] = False,
    codec: Annotated[Codec, Parameter(group=ENCODING, help="auto: H.264 for 8 bit, HEVC for more.")] = "auto",
    crf: Annotated[
        int | None, Parameter(group=ENCODING, help="Quality, lower is better; visually lossless by default.")
    ] = None,
    preset: Annotated[
        EncoderSpeed, Parameter(group=ENCODING, help="The encoder's speed against the file's size.")
    ] = "veryfast",
    lossless: Annotated[bool, Parameter(negative="", group=ENCODING, help="Bit-exact, large.")] = False,
) -> None:
    """Deblur video files.

    Sound, subtitles, time stamps, rotation, bit depth and colour description are kept. Nothing appears under the
    output's name before it is complete.
    """
    from pahs.deblur import deblur_file
    from pahs.runtime.device import choose_device, limit_memory
    from pahs.runtime.load import load
    from pahs.video import EncodeOptions, outputs_for

    pairs = outputs_for(inputs, output)
    encode = EncodeOptions(codec=codec, crf=crf, preset=preset, lossless=lossless)
    if memory is not None:
        limit_memory(choose_device(device), memory)
    network = load(model, device, precision, random_weights)
    if random_weights:
        say("warning: --random-weights: the network has learnt nothing, the result is not a deblurred video")
    failures = 0
    for source, target in pairs:
        try:
            report = deblur_file(
                network, source, target, look_ahead, scene_cuts, encode, overwrite, quiet=False
            )
        except PahsError as error:
            if len(pairs) == 1:
                raise
            say(f"error: {error}")
            failures += 1
            continue
        tell(report)
    if failures:
        raise PahsError(f"{failures} of {len(pairs)} inputs could not be deblurred")


def tell(report: TransformReport) -> None:
    for warning in report.warnings:
        say(f"warning: {warning}")
    rate = report.frames / report.seconds if report.seconds else 0.0
    print(f"{report.dst}  {report.frames} frames, {rate:.1f} frames/s")


@app.command
def demo(
    *,
    output: Annotated[Path, Parameter(alias="-o", help="Folder to write to.")] = Path("demo"),
    model: ModelOption = "auto",
    frames: Annotated[int, Parameter(help="Length of the clip.")] = 48,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Make a blurry clip, deblur it, and compare.

    Writes the blurry and the deblurred video, a comparison picture and a comparison video, and prints the PSNR of
    both against the sharp frames.
    """
    from pahs.demo import demo as run

    report = run(output, model, device, precision, frames, quiet=False)
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
    test_share: Annotated[float, Parameter(help="Share of the sequences that goes to test/.")] = 0.1,
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
    from pahs.data.config import SynthesisConfig
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
    sets: Annotated[
        list[str],
        Parameter(name="--set", negative="", help="Change one value: section.key=value. Repeatable."),
    ] = [],  # noqa: B006 - cyclopts reads the default, nothing changes it
    output: Annotated[
        Path | None, Parameter(alias="-o", help="Folder of the run. Default: runs/RECIPE.")
    ] = None,
    resume: Annotated[bool, Parameter(negative="", help="Go on from the last checkpoint.")] = False,
) -> None:
    """Train a network by a recipe; the result is one weights file.

    For several GPUs or machines start it with torchrun, see docs/training.md.
    """
    from pahs.train import train as run

    print(run(recipe, sets, resume, output))


@app.command
def evaluate(
    *,
    data: Annotated[Path, Parameter(help="Folder of blurry and sharp frames.")],
    model: ModelOption = "auto",
    layout: Annotated[
        Literal["auto", "gopro", "dvd", "reds", "bsd", "pairs"],
        Parameter(help="auto recognises it by looking."),
    ] = "auto",
    split: Literal["train", "valid", "test"] = "test",
    kind: Annotated[
        Literal["blur", "blur_gamma"], Parameter(help="Which of GOPRO's blurry versions.")
    ] = "blur",
    json_file: Annotated[
        Path | None, Parameter(name="--json", help="Write every number here; a stopped run goes on from it.")
    ] = None,
    markdown: Annotated[Path | None, Parameter(help="Write the table here.")] = None,
    strips: Annotated[Path | None, Parameter(help="Write comparison pictures into this folder.")] = None,
    look_ahead: Annotated[int | None, Parameter(help="Exactly so many future frames.")] = None,
    every_second: Annotated[
        bool, Parameter(negative="", help="Leave out every second frame: large motion.")
    ] = False,
    replace_neighbour: Annotated[
        bool, Parameter(negative="", help="The frame before the scored one is the sharp one.")
    ] = False,
    limit: Annotated[int | None, Parameter(help="Frames of each sequence.")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    overwrite: Annotated[bool, Parameter(negative="", help="Replace a --json file of another run.")] = False,
) -> None:
    """Score a model on blurry and sharp frames: PSNR and SSIM, the blurry input always beside it.

    Per frame on RGB rounded to 8 bits; means per sequence and over all frames are both printed.
    """
    from pahs.evaluate import run

    run(
        model,
        data,
        layout=layout,
        split=split,
        kind=kind,
        json_file=json_file,
        markdown_file=markdown,
        strips=strips,
        look_ahead=look_ahead,
        every_second=every_second,
        replace_neighbour=replace_neighbour,
        limit=limit,
        device=device,
        precision=precision,
        overwrite=overwrite,
    )


@app.command
def bench(
    *,
    zoo: Annotated[bool, Parameter(negative="", help="Every model of `pahs models`.")] = False,
    reference: Annotated[
        bool, Parameter(negative="", help="The paper's inference as it is written, and ours, stage by stage.")
    ] = False,
    scaling: Annotated[
        bool, Parameter(negative="", help="Sizes up to --size, and videos up to ten times --frames.")
    ] = False,
    names: Annotated[
        list[str],
        Parameter(
            name="--model",
            alias="-m",
            negative="",
            consume_multiple=True,
            help="Names from `pahs models`, or .safetensors files.",
        ),
    ] = [],  # noqa: B006 - cyclopts reads the default, nothing changes it
    size: Annotated[tuple[int, int], Parameter(help="Width and height of the frames.")] = (1280, 720),
    frames: Annotated[int, Parameter(help="Length of the clip at most.")] = 32,
    seconds: Annotated[float, Parameter(help="Time for a model, about: a slow one sees fewer frames.")] = 2.0,
    file: Annotated[
        Path | None,
        Parameter(help="Measure this video from file to file, stage by stage; alone or with --reference."),
    ] = None,
    clip: Annotated[
        int | None, Parameter(help="The same with a video of so many frames that is made for it.")
    ] = None,
    plot: Annotated[Path | None, Parameter(help="With --scaling: draw the curves into this PNG.")] = None,
    json_file: Annotated[Path | None, Parameter(name="--json", help="Write every number here.")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    memory: MemoryOption = None,
) -> None:
    """Measure models side by side: parameters, arithmetic, frames per second, memory.

    Every model gets the same frames, which lie on the device already. Weights are random where speed alone counts.
    """
    from pahs.bench import Task, run
    from pahs.benchmarks.conditions import BenchConfig

    task = Task(tuple(names), zoo, reference, scaling, file, clip, plot, json_file)
    run(task, BenchConfig(*size, frames, seconds, device, precision, memory))


def say(line: str) -> None:
    print(line, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 wrong use or unusable input, 1 anything else, 130 interrupted."""
    # Stop on a polite kill as on Ctrl-C: whatever is half-written gets removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    keep_memory()
    try:
        app(
            sys.argv[1:] if arguments is None else arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        say(f"error: {' '.join(str(error).split())} (see `pahs --help`)")
        return 2
    except PahsError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted: nothing was written for the file in work")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
