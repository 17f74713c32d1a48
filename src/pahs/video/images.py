"""Folder of numbered images -> frames, and back to a folder with the same names and format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.errors import PahsError
from pahs.files import Partial
from pahs.video.frames import Frame, FrameSink, FrameSource, PixelLayout, VideoInfo
from pahs.video.pixels import frame_of, has_alpha, layout_of, planes_of

if TYPE_CHECKING:
    from av import VideoFrame

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp"}
# Encoder and its layouts, best first, by file ending.
_ENCODERS: dict[str, tuple[str, tuple[str, ...]]] = {
    ".png": ("png", ("gray", "gray16be", "rgb24", "rgb48be")),
    ".tif": ("tiff", ("gray", "gray16le", "rgb24", "rgb48le")),
    ".tiff": ("tiff", ("gray", "gray16le", "rgb24", "rgb48le")),
    ".bmp": ("bmp", ("gray", "bgr24")),
    ".webp": ("libwebp", ("bgra",)),
    ".jpg": ("mjpeg", ("yuv420p", "yuv422p", "yuv444p")),
    ".jpeg": ("mjpeg", ("yuv420p", "yuv422p", "yuv444p")),
}


def natural_key(path: Path) -> list[tuple[int, int | str]]:
    """Sorts frame_2 before frame_10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", path.name) if part]


def images_in(folder: Path) -> list[Path]:
    """The images of a folder in the order of their numbers."""
    files = (p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith("."))
    return sorted((p for p in files if p.is_file()), key=natural_key)


def refuse_single_image(path: Path) -> None:
    """FFmpeg would take a photo as a video of one frame, which nobody means."""
    if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
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
        first = next((d for d in map(_decode, self._files) if d is not None), None)
        if first is None:
            raise PahsError(f"{self.path}: none of its images can be decoded")
        frame, codec = first
        if has_alpha(frame.format):
            self.warnings.append(f"{self.path.name}: transparency (alpha) is dropped")
        self.info = VideoInfo(
            path=self.path,
            container="images",
            codec=codec,
            width=frame.width,
            height=frame.height,
            pixels=layout_of(frame, codec),
            source_format=frame.format.name,
            time_base=1 / rate,
            rate=rate,
            frame_count=len(self._files),
            matrix=frame.colorspace,
            color_range=frame.color_range,
        )

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
            decoded = _decode(file)
            if decoded is None:
                self.lost += 1
                continue
            frame = decoded[0]
            if (frame.width, frame.height) != (info.width, info.height):
                raise PahsError(
                    f"{file}: is {frame.width}x{frame.height}, but the first image of the folder is "
                    f"{info.width}x{info.height}; put images of one size into one folder"
                )
            yield Frame(planes_of(frame, info.pixels), index, info.time_base, 1, file.name)


class ImageFolderWriter(FrameSink):
    """Fills a hidden folder and renames it at `close`."""

    def __init__(self, path: Path | str, info: VideoInfo) -> None:
        self.path = Path(path)
        self.warnings: list[str] = []
        self._info = info
        self._finished = False
        try:
            self._partial = Partial(self.path)
            self._partial.path.mkdir()
        except OSError as error:
            raise PahsError(
                f"{self.path}: cannot be created ({error.strerror}); choose another output"
            ) from None

    def prepare(self, frame: Frame) -> tuple[str, bytes]:
        """Encode a frame: the name and the contents of its file."""
        name = frame.name or f"{frame.pts:06d}.png"
        return name, _encode(frame, self._info, Path(name).suffix.lower())

    def put(self, item: tuple[str, bytes]) -> None:
        """Write a prepared image."""
        name, data = item
        try:
            (self._partial.path / name).write_bytes(data)
        except OSError as error:
            raise PahsError(
                f"{self.path}: cannot be written ({error.strerror}); free space or move it"
            ) from None

    def close(self) -> None:
        """Give the folder its name; into one that exists, move the files, replacing those of the same name."""
        if self._finished:
            return
        try:
            if self.path.exists():
                for file in sorted(self._partial.path.iterdir()):
                    file.replace(self.path / file.name)
                self._partial.discard()
            else:
                self._partial.finish()
        except BaseException as error:
            self.abort()
            if isinstance(error, OSError):
                raise PahsError(f"{self.path}: cannot be written ({error.strerror})") from None
            raise
        self._finished = True

    def abort(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._partial.discard()


def _decode(file: Path) -> tuple[VideoFrame, str] | None:
    import av

    try:
        with av.open(str(file), "r") as container:
            stream = container.streams.video[0]
            frame = next(iter(container.decode(stream)), None)
            return None if frame is None else (frame, stream.codec_context.name)
    except (av.FFmpegError, OSError, ValueError, IndexError):
        return None


def _encode(frame: Frame, info: VideoInfo, suffix: str) -> bytes:
    import av

    encoder, layouts = _ENCODERS[suffix]
    layout = _image_layout(info.pixels, layouts)
    picture = frame_of(frame.planes, info.pixels)
    picture.colorspace = info.matrix
    picture.color_range = 2 if info.pixels.full_range else 1
    if layout != info.pixels.name:
        # Pictures use all codes, and JPEG's matrix is always that of BT.601.
        picture = picture.reformat(
            format=layout,
            src_color_range=picture.color_range,
            dst_color_range=2,
            dst_colorspace="ITU601" if encoder == "mjpeg" else None,
        )
    context = av.CodecContext.create(encoder, "w")
    assert isinstance(context, av.VideoCodecContext)
    context.width, context.height, context.pix_fmt = info.width, info.height, layout
    context.time_base = Fraction(1, 25)
    if encoder == "mjpeg":
        context.color_range = 2
        context.qmin = context.qmax = 1
    if encoder == "libwebp":
        context.options = {"lossless": "1"}
    picture.pts = 0
    return b"".join(bytes(p) for p in [*context.encode(picture), *context.encode(None)])


def _image_layout(pixels: PixelLayout, layouts: tuple[str, ...]) -> str:
    """The encoder's layout that holds these samples, with the same or the nearest depth."""
    deep = pixels.depth > 8
    if pixels.name in layouts:
        return pixels.name
    gray = [name for name in layouts if name.startswith("gray")]
    color = [name for name in layouts if name not in gray]
    fitting = gray if gray and pixels.family == "gray" else color
    return next((name for name in fitting if ("16" in name or "48" in name) == deep), fitting[-1])
