"""The process that opens uploads for the first time: facts and a thumbnail, within limits of time and memory."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pahs.deblur import DeblurOptions
from pahs.errors import PahsError
from pahs.files import whole
from pahs.web.child import ChildConfig, Survivor, end_with_parent, limit_memory
from pahs.web.jobs import Job, JobOptions
from pahs.web.queue import Queue
from pahs.web.settings import Limits
from pahs.web.store import check_room, result_ending

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAIL = "thumbnail.jpg"
_THUMBNAIL_SIZE = (480, 480)
_IDLE_SECONDS = 0.1


def facts_of(path: Path, options: JobOptions, limits: Limits) -> dict[str, Any]:
    """What a video is and what would stay of it, as JSON; raises `PahsError` where it cannot be restored here."""
    from pahs.inspect import inspect
    from pahs.video import probe

    info = probe(path)
    if info.width * info.height > limits.pixels:
        raise PahsError(f"the frames have {info.width}x{info.height} pixels, more than this server accepts")
    seconds = float(info.frame_count / info.rate) if info.frame_count else None
    if seconds is not None and seconds > limits.seconds:
        raise PahsError(
            f"the video is {round(seconds / 60, 1):g} minutes long; this server accepts "
            f"{round(limits.seconds / 60, 1):g} (--max-minutes)"
        )
    target = path.with_name(f"result{result_ending(path, options.codec)}")
    found = inspect(path, DeblurOptions(encode=options.encode()), target=target, measure=False)
    if found.refused is not None:
        raise PahsError(found.refused)
    turned = info.rotation % 180 != 0
    return {
        "width": info.height if turned else info.width,
        "height": info.width if turned else info.height,
        "frames": info.frame_count,
        "seconds": seconds,
        "rate": float(info.rate),
        "codec": info.codec,
        "depth": info.pixels.depth,
        "hdr": info.is_hdr,
        "sound": info.audio_streams > 0,
        "output_bytes": found.output_bytes,
        "output_codec": options.codec,
        "kept": found.kept,
        "changed": found.changed,
        "lost": found.lost,
    }


def draw_thumbnail(path: Path, target: Path) -> None:
    """A small JPEG of the first picture, upright."""
    from pahs.video import VideoReader

    with VideoReader(path) as reader:
        frame = next(reader.pictures())
        image: Image = frame.to_image()  # type: ignore[no-untyped-call]
        if frame.rotation:
            image = image.rotate(frame.rotation, expand=True)
    image.thumbnail(_THUMBNAIL_SIZE)
    with whole(target) as partial:
        image.convert("RGB").save(partial, quality=82)


def look_at(queue: Queue, job: Job, folder: Path, limits: Limits) -> None:
    """Describe one job's source, or reject the job."""
    source = folder / job.source
    if queue.looks(job.id) > 2:
        queue.reject(job.id, f"{job.name}: opening it took too long or too much memory; it may be damaged")
        return
    try:
        facts = facts_of(source, job.options, limits)
        if not job.held:  # its user has yet to choose; the worker refuses it then
            check_room(job.options, facts, folder, limits)
    except PahsError as error:
        queue.reject(job.id, str(error).replace(str(source), job.name))
        return
    try:
        draw_thumbnail(source, folder / THUMBNAIL)
        facts["thumbnail"] = True
    except (PahsError, OSError, ValueError, StopIteration):
        facts["thumbnail"] = False
    for list_ in ("kept", "changed", "lost"):
        facts[list_] = [line.replace(source.name, job.name) for line in facts[list_]]
    queue.describe(job.id, facts)


def main(config: ChildConfig) -> None:
    end_with_parent()
    import pahs.video  # noqa: F401 - before the limit: what the program itself needs does not count

    limits = config.limits
    limit_memory(limits.look_bytes)
    queue = Queue(config.settings.queue_file)
    began: list[float] = []

    def watch() -> None:
        survivor, mine = Survivor(config.name), None
        while True:
            with survivor:
                mine = mine or Queue(config.settings.queue_file)
                mine.beat(config.name)
            if began and time.monotonic() - began[0] > limits.look_seconds:
                os._exit(4)
            time.sleep(1)

    threading.Thread(target=watch, daemon=True).start()
    while True:
        job = queue.look(config.name)
        if job is None:
            time.sleep(_IDLE_SECONDS)
            continue
        began[:] = [time.monotonic()]
        look_at(queue, job, config.settings.job_folder(job.id), limits)
        began.clear()


if __name__ == "__main__":
    main(ChildConfig.parse(sys.argv[1]))
