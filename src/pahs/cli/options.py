"""The application, and the options that several commands have in common."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Group, Parameter

from pahs import __version__
from pahs.choices import Backend, Device, Precision

app = App(
    name="pahs",
    version=f"pahs {__version__}",
    help="Turn a blurry video into a sharp one.\n\nStart with: `pahs deblur clip.mp4`",
    help_epilogue="`pahs COMMAND --help` explains a command.",
    default_parameter=Parameter(negative_iterable=(), json_list=False),  # `[Group] Show.mp4` is no list
    suppress_keyboard_interrupt=False,
)
app.register_install_completion_command(help="Install completion for this shell.")

RUNNING = Group("Where and how it runs")
PART = Group("A part of the video")
FLEET = Group("Many GPUs, simulated")
ENCODING = Group("The video that is written")

ModelOption = Annotated[
    str,
    Parameter(
        alias="-m",
        help="A name from `pahs models`, a .safetensors file, or a folder of `pahs export`. auto: by device.",
    ),
]
DeviceOption = Annotated[
    Device,
    Parameter(
        group=RUNNING, help="auto takes a GPU if there is one; cuda is NVIDIA or AMD, xpu Intel, mps Apple."
    ),
]
PrecisionOption = Annotated[
    Precision,
    Parameter(group=RUNNING, help="auto: half precision on GPUs, and on CPUs that are faster with it."),
]
BackendOption = Annotated[
    Backend,
    Parameter(
        group=RUNNING,
        help="What computes. auto: on CPUs the fastest that is installed and restores as well, found out once.",
    ),
]
MemoryOption = Annotated[
    float | None,
    Parameter(
        group=RUNNING,
        help="GiB of memory to use at most, of the GPU or of the process; all by default.",
    ),
]
LookAheadOption = Annotated[
    int | None,
    Parameter(help="Future frames that each frame is restored from at least.", show_default="19"),
]
SceneCutsOption = Annotated[bool, Parameter(help="Start afresh where the scene changes.")]
StrengthOption = Annotated[float, Parameter(help="Share of the change that is made: 0 (the input) to 1.")]
DeinterlaceOption = Annotated[
    bool, Parameter(negative="", help="Make whole pictures of interlaced ones first.")
]
RecursiveOption = Annotated[
    bool,
    Parameter(alias="-r", negative="", help="Also what is in folders in folders; -o gets the same tree."),
]
StartOption = Annotated[str | None, Parameter(group=PART, help="Begin here: seconds, 1:30 or 0:01:30.5.")]
EndOption = Annotated[str | None, Parameter(group=PART, help="End here.")]
PreviewOption = Annotated[
    float | None, Parameter(group=PART, help="Only so many seconds, where the blur is worst.")
]
SetOption = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        show_default=False,
        help="Change one value of the recipe: section.key=value. Repeatable.",
    ),
]
JsonOption = Annotated[Path | None, Parameter(name="--json", help="Write every number here.")]


def one_line(text: str) -> str:
    """With line breaks and terminal codes, which file names may hold, spelt out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(line: str) -> None:
    """Print a line that is not a result: to stderr."""
    print(one_line(line), file=sys.stderr, flush=True)
