"""`pahs plan` and `pahs run`: a plan is made here, and any scheduler calls for its units."""

from __future__ import annotations

from collections.abc import Iterator

from pahs.cluster import manifest, store
from pahs.cluster.manifest import Plan, Settings, Video
from pahs.cluster.planning import check_output, list_videos, plan_video
from pahs.cluster.work import Done, Runner
from pahs.errors import PahsError
from pahs.progress import Advance, bar


def make_plan(
    inputs: list[str], output: str, settings: Settings, recursive: bool = False, quiet: bool = False
) -> tuple[str, Plan, list[str]]:
    """Write the manifest of some inputs; returns its address, the plan, and what is wrong with other inputs."""
    listed = list_videos(inputs, output, recursive, settings.encode.images is not None)
    folder = check_output(output, settings)
    videos, failed = [], []
    for video in listed:
        file = None
        try:
            with (
                bar(f"scenes of {store.name_of(video.source)}", None, quiet=quiet) as advance,
                store.fetched(video.source) as file,
            ):
                videos.append(plan_video(video, settings, file, advance))
        except PahsError as error:
            failed.append(str(error) if file is None else str(error).replace(str(file), video.source))
    if not videos:
        raise PahsError("; ".join(failed))
    path = f"{folder}/{manifest.NAME}"
    plan = Plan(settings, tuple(videos))
    manifest.write(plan, path)
    return path, plan, failed


class _Watched(Runner):
    """Shows how far each unit is."""

    shown = Advance()

    def advance(self) -> Advance:
        return self.shown


def run_segments(path: str, numbers: list[int]) -> Iterator[str]:
    """Do segments of a manifest; a line about each."""
    plan = manifest.read(path)
    units = plan.units
    for number in numbers:
        if not 0 <= number < len(units):
            raise PahsError(f"--segment {number}: {path} has the segments 0 to {len(units) - 1}")
    runner = _Watched(plan.settings)
    try:
        for number in numbers:
            video, segment = units[number].video, units[number].segment
            frames = video.frames if segment is None else segment.last - segment.first
            with bar(f"segment {number}", frames) as runner.shown:
                done = runner.whole(video) if segment is None else runner.segment(video, segment)
            yield from _about(f"segment {number} of {store.name_of(video.target)}", done)
    finally:
        runner.close()


def run_join(path: str, numbers: list[int] | None = None) -> Iterator[str]:
    """Put the videos of a manifest together, or some of them; a line about each."""
    plan = manifest.read(path)
    for number in numbers or []:
        if not 0 <= number < len(plan.videos):
            raise PahsError(f"--video {number}: {path} has the videos 0 to {len(plan.videos) - 1}")
    chosen = plan.videos if numbers is None else [plan.videos[number] for number in numbers]
    runner, failed = Runner(plan.settings), []
    try:
        for video in chosen:
            try:
                yield from _about(video.target, _joined(runner, video))
            except PahsError as error:
                failed.append(str(error))
    finally:
        runner.close()
    if len(failed) == 1:
        raise PahsError(failed[0])
    if failed:
        raise PahsError(f"{len(failed)} of {len(chosen)} videos are not complete: {'; '.join(failed)}")


def _joined(runner: Runner, video: Video) -> Done:
    if video.segments:
        return runner.join(video)
    if not store.exists(video.target):
        raise PahsError(f"{video.target}: its only segment is missing; run it before --join")
    return Done(None, 0.0, "")


def _about(name: str, done: Done) -> Iterator[str]:
    """What became of a unit, in lines."""
    if done.frames is None:
        yield f"{name}  exists"
        return
    yield f"{name}  {done.frames} frames in {done.seconds:.1f} s"
    yield from (f"warning: {warning}" for warning in done.warnings)
