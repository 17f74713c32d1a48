"""Folder of numbered images -> frames, and back to a folder with the same names and format."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.errors import PahsError
from pahs.files import Partial, os_errors
from pahs.video.frames import Frame, FrameSink, FrameSource, PixelLayout, VideoInfo
from pahs.video.image_files import (
    IMAGE_SUFFIXES,
    encode_image,
    is_animated,
    is_transparent,
    kind_of,
    read_image,
    samples_of,
)
from pahs.video.image_tags import carry_tags
from pahs.video.pixels import layout_of

if TYPE_CHECKING:
    from av import VideoFrame


def natural_key(path: Path) -> list[tuple[int, int | str]]:
    """Sorts frame_2 before frame_10."""
    return [
        (0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", path.name) if part
    ]


def images_in(folder: Path) -> list[Path]:
    """The images of a folder in the order of their numbers."""
    files = (p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith("."))
    return sorted((p for p in files if p.is_file()), key=natural_key)


def refuse_single_image(path: Path) -> None:
    """FFmpeg would take a photo as a video of one frame, which nobody means."""
    if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
        if is_animated(path):
            raise PahsError(f"{path}: animated images are not read; convert it to a video, or to a GIF")
        raise PahsError(f"{path}: is a single image; give a video or the folder with all its images")


class ImageFolderReader(FrameSource):
    """The images of a folder as a video; files that cannot be decoded are counted and left out."""

    def __init__(self, path: Path | str, rate: Fraction = Fraction(25)) -> None:
        self.path = Path(path)
        self.warnings: list[str] = []
        self.lost = 0
        if not self.path.is_dir():
            raise PahsError(f"{self.path}: is not a folder of images")
        self._files = images_in(self.path)
        if not self._files:
            raise PahsError(f"{self.path}: holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
        first, pixels = self._look()
        frame, codec = first
        self.info = VideoInfo(
            path=self.path,
            container="images",
            codec=codec,
            width=frame.width,
            height=frame.height,
            pixels=pixels,
            source_format=frame.format.name,
            time_base=1 / rate,
            rate=rate,
            frame_count=len(self._files),
            matrix=frame.colorspace,
            color_range=frame.color_range,
        )

    def _look(self) -> tuple[tuple[VideoFrame, str], PixelLayout]:
        """The first image, and the layout that holds every kind of image in the folder."""
        kinds: dict[Hashable, list[Path]] = {}
        for file in self._files:
            kinds.setdefault(kind_of(file), []).append(file)
        found: list[tuple[VideoFrame, str]] = []
        for files in kinds.values():
            pictures = ((file, read_image(file)) for file in files)
            file, picture = next((x for x in pictures if x[1] is not None), (files[0], None))
            if picture is None:
                continue
            found.append(picture)
            size, first = _size(picture[0]), _size(found[0][0])
            if size != first:
                raise PahsError(
                    f"{file}: is {size}, but the first image of the folder is {first}; "
                    "put images of one size into one folder"
                )
            self._note_transparency(picture[0])
        if not found:
            raise PahsError(f"{self.path}: none of its images can be decoded")
        layouts = [layout_of(frame, codec) for frame, codec in found]
        if len({(x.name, x.full_range) for x in layouts}) == 1:
            return found[0], layouts[0]
        common = PixelLayout(
            "gray" if all(x.family == "gray" for x in layouts) else "rgb", max(x.depth for x in layouts), True
        )
        names = ", ".join(sorted({x.name for x in layouts}))
        self.warnings.append(
            f"{self.path.name}: holds images of several kinds ({names}); written as {common.name}"
        )
        return found[0], common

    def _note_transparency(self, frame: VideoFrame) -> None:
        note = f"{self.path.name}: transparency (alpha) is dropped"
        if note not in self.warnings and is_transparent(frame):
            self.warnings.append(note)

    def keep(self, start: Fraction, end: Fraction | None) -> None:
        """Only the images from `start` to before `end`, in seconds at the rate of the folder."""
        rate = self.info.rate
        first, last = ceil(start * rate), None if end is None else ceil(end * rate)
        self._files = self._files[first:last]
        if not self._files:
            raise PahsError(
                f"{self.path}: holds no image from {float(start):g} s on; choose another --start or --end"
            )
        self.info = replace(self.info, frame_count=len(self._files))

    def items(self) -> Iterator[Frame]:
        self.lost = 0
        info = self.info
        for index, file in enumerate(self._files):
            decoded = read_image(file)
            # The headers were compared before: a size that still differs is damage.
            if decoded is None or (decoded[0].width, decoded[0].height) != (info.width, info.height):
                self.lost += 1
                continue
            frame, codec = decoded
            self._note_transparency(frame)
            yield Frame(samples_of(frame, codec, info.pixels), index, info.time_base, 1, file.name)


def _size(frame: VideoFrame) -> str:
    return f"{frame.width}x{frame.height}"


class ImageFolderWriter(FrameSink):
    """Fills a hidden folder and renames it at `close`."""

    def __init__(self, path: Path | str, info: VideoInfo) -> None:
        self.path = Path(path)
        self.warnings: list[str] = []
        self._info = info
        with os_errors(f"{self.path}: cannot be created", "; choose another output"):
            self._partial = Partial(self.path)
            self._partial.path.mkdir()

    def prepare(self, frame: Frame) -> tuple[str, bytes]:
        """Encode a frame: the name and the contents of its file."""
        name = frame.name or f"{frame.pts:06d}.png"
        data = encode_image(frame.planes, self._info.pixels, Path(name).suffix.lower())
        source = self._info.path / name
        if self._info.container == "images" and source.is_file():
            data = carry_tags(source.read_bytes(), data)
        return name, data

    def put(self, item: tuple[str, bytes]) -> None:
        """Write a prepared image."""
        name, data = item
        with os_errors(f"{self.path}: cannot be written", "; free space or move it"):
            (self._partial.path / name).write_bytes(data)

    def _finish(self) -> None:
        """Give the folder its name; into one that exists, move the files, replacing those of the same name."""
        with os_errors(f"{self.path}: cannot be written"):
            if self.path.exists():
                for file in sorted(self._partial.path.iterdir()):
                    file.replace(self.path / file.name)
                self._partial.discard()
            else:
                self._partial.finish()

    def _discard(self) -> None:
        self._partial.discard()
