"""The files of the jobs on disk, and what a killed process may have left among them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from pahs.files import remove
from pahs.web.jobs import Job
from pahs.web.queue import Queue
from pahs.web.settings import Settings

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
