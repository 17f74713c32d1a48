"""Commands for more than one machine: plan, run, batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pahs.choices import EncodeOptions
from pahs.cli.many import Row, table
from pahs.cli.options import (
    ENCODING,
    RUNNING,
    DeinterlaceOption,
    DeviceOption,
    LookAheadOption,
    ModelOption,
    PrecisionOption,
    RecursiveOption,
    SceneCutsOption,
    StrengthOption,
    app,
    one_line,
    say,
)
from pahs.deblur import DeblurOptions
from pahs.errors import PahsError

if TYPE_CHECKING:
    from pahs.cluster.manifest import Settings

MOST_ROWS = 100
"""A table of more videos shows only those that need a look."""
InputsOption = Annotated[
    list[str],
    Parameter(name="INPUT", help="Videos, folders of them, or addresses such as s3://bucket/folder."),
]
OutputOption = Annotated[
    str, Parameter(alias="-o", help="Folder for the results, or an address. Results that it has stay.")
]


@dataclass(frozen=True)
class Restoring:
    """The options that the pictures of a result depend on, besides its encoder's."""

    segment_frames: Annotated[
        int | None,
        Parameter(
            help="Cut videos into segments of about so many frames; 0: never.",
            show_default="256, on a GPU 1024",
        ),
    ] = None
    model: ModelOption = "auto"
    look_ahead: LookAheadOption = None
    scene_cuts: SceneCutsOption = True
    strength: StrengthOption = DeblurOptions.strength
    deinterlace: DeinterlaceOption = False
    device: DeviceOption = "auto"
    precision: PrecisionOption = "auto"
    chunk: Annotated[
        int | None,
        Parameter(group=RUNNING, help="Frames of one backward sweep.", show_default="32, on a GPU 64"),
    ] = None

    def settings(self, encode: EncodeOptions, auto: str = "auto") -> Settings:
        """What all units of a plan have in common; `auto` is the device where none is named."""
        from pahs.cluster.planning import make_settings

        options = DeblurOptions(
            look_ahead=self.look_ahead,
            scene_cuts=self.scene_cuts,
            chunk=self.chunk,
            encode=encode,
            strength=self.strength,
            deinterlace=self.deinterlace,
            device=auto if self.device == "auto" else self.device,
            precision=self.precision,
        )
        return make_settings(self.model, options, self.segment_frames)


@app.command
def plan(
    inputs: InputsOption,
    /,
    *,
    output: OutputOption,
    recursive: RecursiveOption = False,
    restoring: Annotated[Restoring, Parameter(name="*")] = Restoring(),  # noqa: B008 - frozen
    encode: Annotated[EncodeOptions, Parameter(name="*", negative="", group=ENCODING)] = EncodeOptions(),  # noqa: B008
) -> None:
    """Cut videos into units of work, for a scheduler that calls `run` for each; writes plan.jsonl to the output.

    Long videos are decoded once, to find their scenes. Everything that the result depends on is fixed in the plan.
    """
    from pahs.cluster.command import make_plan

    path, made, failed = make_plan(inputs, output, restoring.settings(encode), recursive)
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
    count: Annotated[bool, Parameter(negative="", help="Only print how many segments there are.")] = False,
) -> None:
    """Do segments of a plan, or join them. What is done already is left as it is, so it can be called again.

    A segment may run on any machine that sees the files. Its result appears when it is complete.
    """
    from pahs.cluster import manifest as plans
    from pahs.cluster.command import run_join, run_segments

    if count:
        print(len(plans.read(manifest).units))
        return
    if bool(segment) == join or (video and not join):
        raise PahsError("name a --segment, or --join (all videos, or those named by --video)")
    lines = run_join(manifest, video) if join else run_segments(manifest, segment or [])
    for line in lines:
        print(one_line(line), flush=True)


@app.command
def batch(
    inputs: InputsOption,
    /,
    *,
    output: OutputOption,
    on: Annotated[
        str,
        Parameter(
            group=RUNNING,
            help="local, or the address of a Ray cluster, such as ray://HOST:10001 or HOST:6379.",
        ),
    ] = "local",
    cores: Annotated[int, Parameter(group=RUNNING, help="CPU cores of a worker, where there is no GPU.")] = 4,
    retries: Annotated[
        int, Parameter(group=RUNNING, help="How often a unit is tried again when its worker dies.")
    ] = 5,
    recursive: RecursiveOption = False,
    restoring: Annotated[Restoring, Parameter(name="*")] = Restoring(),  # noqa: B008 - frozen
    encode: Annotated[EncodeOptions, Parameter(name="*", negative="", group=ENCODING)] = EncodeOptions(),  # noqa: B008
) -> None:
    """Deblur many videos, and long ones in segments, on the GPUs or CPUs of a Ray cluster.

    A failure does not stop the rest. The same command again continues: results that exist stay, and segments that are
    done are not done again. A report goes to batch.json in the output.
    """
    from pahs.cluster.batch import run_batch
    from pahs.cluster.planning import check_output, list_videos
    from pahs.cluster.pool import connected, has_gpus
    from pahs.progress import bar

    if cores < 1 or retries < 0:
        raise PahsError(f"--cores {cores}, --retries {retries}: choose 1 or more, and 0 or more")
    videos = list_videos(inputs, output, recursive, encode.images is not None)
    with connected(on):
        settings = restoring.settings(encode, "cuda" if has_gpus() else "cpu")
        folder = check_output(output, settings)
        with bar("batch", None) as advance:
            report = run_batch(videos, settings, cores=cores, retries=retries, advance=advance, say=say)
    path = report.write(folder)
    rows = [
        Row(
            x.video.source,
            x.frames or None,
            x.seconds or None,
            x.state if not x.warnings else f"{x.state}, with warnings",
        )
        for x in report.outcomes
    ]
    shown = rows if len(rows) <= MOST_ROWS else [row for row in rows if row.result not in ("done", "exists")]
    print(table(shown))
    for outcome in report.outcomes:
        for line in outcome.warnings:
            say(f"warning: {line}")
        if outcome.error:
            say(f"error: {outcome.error}")
    rate = report.frames / report.seconds
    print(
        f"{len(rows)} videos, {report.frames} frames in {report.seconds:.0f} s, {rate:.1f} frames/s on "
        f"{report.workers} workers; {len(report.failures)} failed; {one_line(path)} tells more"
    )
    if report.failures:
        raise PahsError(f"{len(report.failures)} of {len(rows)} videos could not be deblurred")
