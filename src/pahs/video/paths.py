"""Which inputs a command line means, and where each result goes."""

from __future__ import annotations

from pathlib import Path

from pahs.errors import PahsError
from pahs.video.images import images_in, refuse_single_image
from pahs.video.writer import fits_into

VIDEO_SUFFIXES = {
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts", ".wmv", ".flv",
    ".3gp", ".ogv", ".vob", ".gif", ".mxf", ".y4m", ".dv",
}  # fmt: skip
# Containers that hold today's codecs together with exact times and rotation.
_KEPT = {".mp4", ".m4v", ".mov", ".mkv"}
_MARK = "-deblurred"


def outputs_for(inputs: list[Path], output: Path | None = None) -> list[tuple[Path, Path]]:
    """Pair every video file and image folder that `inputs` name with the path of its result.

    A folder stands for the videos in it, or, if it has none, for one video made of its images. Each result
    goes into the folder of its source as <name>-deblurred, or to `output`: a file or folder for one input, a folder
    for several.
    """
    if not inputs:
        raise PahsError("no input is given; name a video file or a folder")
    try:
        return _pairs(inputs, output)
    except OSError as error:
        # A folder without permission, a name that is too long, a link to itself.
        raise PahsError(f"{error.filename}: cannot be used ({error.strerror})") from None


def _pairs(inputs: list[Path], output: Path | None) -> list[tuple[Path, Path]]:
    sources: list[Path] = []
    many = len(inputs) > 1
    for path in inputs:
        if not path.exists():
            raise PahsError(f"{path}: no such file or folder")
        if not path.is_dir():
            refuse_single_image(path)
            sources.append(path)
            continue
        videos = sorted(p for p in path.iterdir() if _is_video(p))
        if not videos and not images_in(path):
            raise PahsError(f"{path}: holds neither videos nor images")
        many = many or bool(videos)
        sources += videos or [path]
    if output is None:
        pairs = [(s, s.absolute().parent / default_name(s)) for s in sources]
    elif many or (not sources[0].is_dir() and (output.is_dir() or not output.suffix)):
        if output.is_file() or (not output.is_dir() and output.suffix.lower() in VIDEO_SUFFIXES):
            raise PahsError(f"{output}: several results need a folder to go to, not a file")
        pairs = [(s, output / default_name(s)) for s in sources]
    else:
        pairs = [(sources[0], output)]
    taken: dict[Path, Path] = {}
    for source, target in pairs:
        other = taken.setdefault(target.absolute(), source)
        if other is not source:
            raise PahsError(
                f"{source} and {other} would both be written to {target}; run them one by one, "
                "each with its own --output"
            )
    return pairs


def default_name(source: Path) -> str:
    """<stem>-deblurred with the source's ending where that container can hold the result."""
    if source.is_dir():
        return source.absolute().name + _MARK
    suffix = source.suffix
    if suffix.lower() == ".webm":
        suffix = ".mkv"
    elif suffix.lower() not in _KEPT:
        suffix = ".mp4" if fits_into("mp4", source) else ".mkv"
    return source.stem + _MARK + suffix


def _is_video(path: Path) -> bool:
    # Results of an earlier run are not taken as new sources.
    known = path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith(".")
    return known and path.is_file() and not path.stem.endswith(_MARK)
