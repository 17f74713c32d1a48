"""Commands for more than one machine: plan, run, batch."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pahs.choices import EncodeOptions
from pahs.cli.options import (
    ENCODING,
    RUNNING,
    DeviceOption,
    ModelOption,
    PrecisionOption,
    app,
    one_line,
    say,
)
from pahs.deblur import DeblurOptions
from pahs.errors import PahsError

InputsOption = Annotated[
    list[str],
    Parameter(name="INPUT", help="Videos, folders of them, or addresses such as s3://bucket/folder."),
]
OutputOption = Annotated[
    str, Parameter(alias="-o", help="Folder for the results, or an address. Results that it has stay.")
]
LookAheadOption = Annotated[
    int | None,
    Parameter(help="Future frames that each frame is restored from at least.", show_default="19"),
]
ScenesOption = Annotated[bool, Parameter(help="Start afresh where the scene changes.")]
StrengthOption = Annotated[float, Parameter(help="Share of the change that is made: 0 (the input) to 1.")]
DeinterlaceOption = Annotated[
    bool, Parameter(negative="", help="Make whole pictures of interlaced ones first.")
]
RecursiveOption = Annotated[
    bool,
    Parameter(alias="-r", negative="", help="Also what is in folders in folders; -o gets the same tree."),
]
LengthOption = Annotated[
    int | None,
    Parameter(
        name="--segment-frames",
        help="Cut videos into segments of about so many frames; 0: never.",
        show_default="256, on a GPU 1024",
    ),
]
ChunkOption = Annotated[
    int | None,
    Parameter(group=RUNNING, help="Frames of one backward sweep.", show_default="32, on a GPU 64"),
]


@app.command
def plan(
    inputs: InputsOption,
    /,
    *,
    output: OutputOption,
    segment_frames: LengthOption = None,
    model: ModelOption = "auto",
    look_ahead: LookAheadOption = None,
    scene_cuts: ScenesOption = True,
    strength: StrengthOption = DeblurOptions.strength,
    deinterlace: DeinterlaceOption = False,
    recursive: RecursiveOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    chunk: ChunkOption = None,
    encode: Annotated[EncodeOptions, Parameter(name="*", negative="", group=ENCODING)] = EncodeOptions(),  # noqa: B008
) -> None:
    """Cut videos into units of work, for a scheduler that calls `run` for each; writes plan.jsonl to the output.

    Long videos are decoded once, to find their scenes. Everything that the result depends on is fixed in the plan.
    """
    from pahs.cluster.command import make_plan
    from pahs.cluster.planning import make_settings

    options = DeblurOptions(
        look_ahead=look_ahead,
        scene_cuts=scene_cuts,
        chunk=chunk,
        encode=encode,
        strength=strength,
        deinterlace=deinterlace,
        device=device,
        precision=precision,
    )
    path, made, failed = make_plan(inputs, output, make_settings(model, options, segment_frames), recursive)
    for line in failed:
        say(f"error: {line}")
    print(
        one_line(f"{path}  {len(made.videos)} videos, {len(made.units)} segments: 0 to {len(made.units) - 1}")
    )
    if failed:
        raise PahsError(f"{len(failed)} of {len(failed) + len(made.videos)} inputs are not in the plan")


@app.command
def run(
    manifest: Annotated[str, Parameter(name="MANIFEST", help="What `plan` wrote.")],
    /,
    *,
    segment: Annotated[
        list[int] | None, Parameter(help="The number of a segment, from 0 on. Repeatable.")
    ] = None,
    join: Annotated[
        bool, Parameter(negative="", help="Put the videos together whose segments are done.")
    ] = False,
    video: Annotated[
        list[int] | None, Parameter(help="Join only the video of this number, from 0 on. Repeatable.")
    ] = None,
) -> None:
    """Do segments of a plan, or join them. What is done already is left as it is, so it can be called again.

    A segment may run on any machine that sees the files. Its result appears when it is complete.
    """
    from pahs.cluster.command import run_join, run_segments

    if bool(segment) == join or (video and not join):
        raise PahsError("name a --segment, or --join (all videos, or those named by --video)")
    lines = run_join(manifest, video) if join else run_segments(manifest, segment or [])
    for line in lines:
        print(one_line(line), flush=True)
