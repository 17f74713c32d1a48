"""The files of the jobs on disk, and what a killed process may have left among them."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from pahs.errors import PahsError
from pahs.files import remove
from pahs.web.jobs import Job, JobOptions
from pahs.web.queue import Queue
from pahs.web.settings import Limits, Settings

UPLOAD = "upload.part"
"""Name of a source until it is complete."""
_KEPT = {UPLOAD, "thumbnail.jpg"}


def result_ending(source: Path, codec: str) -> str:
    """A container that holds both the codec and what the source has besides its pictures."""
    from pahs.video.paths import default_name

    ending = Path(default_name(source)).suffix
    if codec == "prores" and ending in (".mp4", ".m4v"):
        return ".mov"
    return ".mkv" if codec == "ffv1" else ending


def free_bytes(folder: Path, limits: Limits) -> int:
    """What the disk has for results and uploads; below zero where less is left than must stay free."""
    return shutil.disk_usage(folder).free - limits.spare_bytes


def check_room(options: JobOptions, facts: dict[str, Any], folder: Path, limits: Limits) -> None:
    """Refuse a job whose result would not fit on the disk, where its inspection tells."""
    if not facts.get("output_bytes") or facts.get("output_codec") != options.codec:
        return
    needed = facts["output_bytes"] * options.share(facts.get("seconds"))
    free = max(0, free_bytes(folder, limits))
    if needed > free:
        raise PahsError(
            f"the result would have about {gib(needed)}, and the server's disk has {gib(free)} for it "
            "(--keep-free); remove old jobs, or choose a shorter part or another codec"
        )


def gib(size: float) -> str:
    return f"{size / 2**30:.3g} GiB"


def clear_runs(folder: Path, job: Job | None) -> None:
    """Remove from a job's folder what belongs to no file that the queue names."""
    if job is None:
        remove(folder)
        return
    names = {name for name in (job.result, job.preview.file if job.preview else None) if name}
    kept = _KEPT | {job.source} | {PurePosixPath(name).parts[0] for name in names}
    for path in folder.iterdir():
        if path.name not in kept:
            remove(path)


def runs_of(folder: Path, job: Job) -> list[Path]:
    """What earlier runs of a job have made."""
    return [path for path in folder.iterdir() if path.name not in _KEPT | {job.source}]


def sweep(settings: Settings, queue: Queue) -> None:
    """Bring files and queue together after whatever ended the last server. Nothing of it runs now."""
    queue.release()
    parent = settings.folder / "files"
    parent.mkdir(parents=True, exist_ok=True)
    jobs = {job.id: job for job in queue.jobs()}
    for folder in parent.iterdir():
        clear_runs(folder, jobs.get(folder.name))
    for job in jobs.values():
        folder = settings.job_folder(job.id)
        folder.mkdir(exist_ok=True)
        if job.state != "uploading":
            continue
        source, part = folder / job.source, folder / UPLOAD
        if source.exists():
            queue.uploaded(job.id, source.stat().st_size)
        else:
            queue.receiving(job.id, part.stat().st_size if part.exists() else 0)
