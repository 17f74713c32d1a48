"""Which inputs a command line means, and where each result goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pahs.choices import VIDEO_SUFFIXES
from pahs.errors import PahsError
from pahs.video.copies import fits_into
from pahs.video.images import images_in, refuse_single_image

# Containers that hold today's codecs together with exact times and rotation.
_KEPT = {".mp4", ".m4v", ".mov", ".mkv"}
_MARK, _COMPARE = "-deblurred", "-compare"


@dataclass(frozen=True)
class Naming:
    """What the results of a job are, as far as it decides where they go."""

    mark: str = ""
    """Goes before -deblurred in default names: a preview shall not stand where the whole result belongs."""
    images: bool | None = None
    """Folders of images (True) or videos (False), whatever the sources are; None: of the same kind as each source."""
    recursive: bool = False
    """Folders stand for all that is in them at any depth; their tree is repeated in the output folder."""


def outputs_for(
    inputs: list[Path],
    output: Path | None = None,
    naming: Naming = Naming(),  # noqa: B008 - frozen
) -> list[tuple[Path, Path]]:
    """Pair every video file and image folder that `inputs` name with the path of its result.

    A folder stands for the videos in it, or, if it has none, for one video made of its images. Each result
    goes into the folder of its source as <name>-deblurred, or to `output`: a file or folder for one input, a folder
    for several.
    """
    if not inputs:
        raise PahsError("no input is given; name a video file or a folder")
    try:
        return _pairs(inputs, output, naming)
    except OSError as error:
        # A folder without permission, a name that is too long, a link to itself.
        raise PahsError(f"{error.filename}: cannot be used ({error.strerror})") from None


def _pairs(inputs: list[Path], output: Path | None, naming: Naming) -> list[tuple[Path, Path]]:
    sources: list[tuple[Path, Path]] = []
    """Each source, and where it lies below the input that stands for it."""
    many = len(inputs) > 1
    for path in inputs:
        if not path.exists():
            raise PahsError(f"{path}: no such file or folder")
        if not path.is_dir():
            refuse_single_image(path)
            sources.append((path, Path()))
            continue
        found = list(_below(path)) if naming.recursive else _videos(path)
        if not found and not images_in(path):
            raise PahsError(f"{path}: holds neither videos nor images")
        many = many or len(found) > 1 or (bool(found) and not _is_video_name(output))
        sources += [(x, x.parent.relative_to(path)) for x in found] if found else [(path, Path())]
    if output is None:
        pairs = [(s, s.absolute().parent / default_name(s, naming)) for s, _ in sources]
    elif many or _stands_for_a_folder(output, sources[0][0], naming):
        if output.is_file() or _is_video_name(output):
            raise PahsError(f"{output}: several results need a folder to go to, not a file")
        pairs = [(s, output / below / default_name(s, naming)) for s, below in sources]
    else:
        pairs = [(sources[0][0], output)]
    taken: dict[Path, Path] = {}
    for source, target in pairs:
        other = taken.setdefault(target.absolute(), source)
        if other is not source:
            raise PahsError(
                f"{source} and {other} would both be written to {target}; run them one by one, "
                "each with its own --output"
            )
    return pairs


def _is_video_name(output: Path | None) -> bool:
    """Whether it is meant as a file."""
    return output is not None and output.suffix.lower() in VIDEO_SUFFIXES and not output.is_dir()


def _stands_for_a_folder(output: Path, source: Path, naming: Naming) -> bool:
    """Whether the one result goes into `output` under a name of its own, not under this name."""
    if gives_images(source, output, naming.images):
        return False
    return output.is_dir() or not output.suffix


def gives_images(source: Path, output: Path, images: bool | None) -> bool:
    """Whether the result is a folder of images: asked for, or of images under a name that is not a video's."""
    if images is None:
        return source.is_dir() and output.suffix.lower() not in VIDEO_SUFFIXES
    return images


def _videos(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if _is_video(p))


def _below(folder: Path) -> Iterator[Path]:
    """All videos in a folder and below, and all folders with images but no videos."""
    videos = _videos(folder)
    yield from videos
    if not videos and images_in(folder):
        yield folder
    for inner in sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()):
        if not inner.name.startswith(".") and not is_result(inner.name):
            yield from _below(inner)


def default_name(source: Path, naming: Naming = Naming()) -> str:  # noqa: B008 - frozen
    """<stem>-deblurred with the source's ending where that container can hold the result."""
    mark = naming.mark + _MARK
    if source.is_dir():
        return source.absolute().name + mark + (".mp4" if naming.images is False else "")
    if naming.images:
        return source.stem + mark
    suffix = source.suffix
    if suffix.lower() == ".webm":
        suffix = ".mkv"
    elif suffix.lower() not in _KEPT:
        suffix = ".mp4" if fits_into("mp4", source) else ".mkv"
    return source.stem + mark + suffix


def comparison_name(result: Path) -> Path:
    """Where the comparison video of a result goes: next to it."""
    return result.with_name(f"{result.stem}{_COMPARE}{result.suffix}")


def _is_video(path: Path) -> bool:
    known = path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith(".")
    return known and path.is_file() and not is_result(path.stem)


def is_result(stem: str) -> bool:
    """Whether a name is that of a result: those of an earlier run are not taken as new sources."""
    return stem.removesuffix(_COMPARE).endswith(_MARK)
