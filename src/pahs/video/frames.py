"""What the parts of this package exchange: pixel layouts, frames, facts about a video, sources and sinks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.uint8] | NDArray[np.uint16]
Planes = tuple[Plane, ...]
Family = Literal["yuv420", "yuv422", "yuv444", "gray", "rgb"]
ChromaSite = Literal["left", "center"]

DEPTHS = (8, 10, 12, 16)

# Luma weights (red, blue) by the code that H.264, HEVC, Matroska and MP4 share (ITU-T H.273, MatrixCoefficients).
_LUMA_WEIGHTS = {
    1: (0.2126, 0.0722),  # BT.709
    4: (0.30, 0.11),  # FCC
    5: (0.299, 0.114),  # BT.470 BG, the same numbers as BT.601
    6: (0.299, 0.114),  # SMPTE 170M = BT.601
    7: (0.212, 0.087),  # SMPTE 240M
    9: (0.2627, 0.0593),  # BT.2020, non-constant luminance
    10: (0.2627, 0.0593),
}
UNSPECIFIED = 2


@dataclass(frozen=True)
class PixelLayout:
    """How the samples of a frame are stored and what they mean: all that colour conversion needs."""

    family: Family
    """Chroma format; "rgb" planes are stored in the order green, blue, red."""
    depth: int = 8
    """Bits per sample: 8 in uint8, 10, 12 and 16 in uint16."""
    full_range: bool = False
    """Samples span all codes (JPEG range) instead of the studio range 16..235 (times 2^(depth-8))."""
    luma_weights: tuple[float, float] = (0.2126, 0.0722)
    """Weights of red and blue in luma; green has the rest."""
    chroma_site: ChromaSite = "left"
    """Where a subsampled chroma sample sits horizontally: on the left luma sample (MPEG-2 and later) or between."""

    def __post_init__(self) -> None:
        if self.depth not in DEPTHS:
            raise ValueError(f"depth {self.depth} is not one of {DEPTHS}")

    @property
    def name(self) -> str:
        """FFmpeg's name of this layout."""
        base = {"gray": "gray", "rgb": "gbrp"}.get(self.family, f"{self.family}p")
        return base if self.depth == 8 else f"{base}{self.depth}le"

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        return np.uint8 if self.depth == 8 else np.uint16

    @property
    def subsampling(self) -> tuple[int, int]:
        """Luma samples per chroma sample, vertically and horizontally."""
        return {"yuv420": (2, 2), "yuv422": (1, 2)}.get(self.family, (1, 1))


def luma_weights(matrix: int, width: int, height: int) -> tuple[float, float]:
    """Weights for a matrix code; where the file does not say, what players assume from the frame size."""
    default = 1 if width >= 1280 or height > 576 else 6
    return _LUMA_WEIGHTS.get(matrix, _LUMA_WEIGHTS[default])


@dataclass(frozen=True)
class Frame:
    """One picture in the chroma format it is stored in, and when it is shown."""

    planes: Planes
    """One array per plane: luma then chroma, or green, blue, red, or one gray plane."""
    pts: int
    """Presentation time in units of `time_base`."""
    time_base: Fraction
    """Seconds per unit of `pts`."""
    duration: int | None = None
    """How long the frame is shown, in units of `time_base`, where the file says."""
    name: str | None = None
    """File name of the picture when it comes from a folder of images."""
    before: Planes | None = None
    """The samples before the frame was changed, where a comparison needs them."""


@dataclass(frozen=True)
class VideoInfo:
    """Facts about a video that do not change from frame to frame."""

    path: Path
    """The file or folder that was opened."""
    container: str
    """FFmpeg's name of the container, or "images" for a folder."""
    codec: str
    """FFmpeg's name of the decoder."""
    width: int
    """Stored width, before rotation."""
    height: int
    """Stored height, before rotation."""
    pixels: PixelLayout
    """The layout of the frames that the reader yields."""
    source_format: str
    """FFmpeg's name of the layout in the file, which the reader may have repacked."""
    time_base: Fraction
    """Unit of the frames' presentation times."""
    rate: Fraction
    """Average frames per second."""
    frame_count: int | None = None
    """Frames that the file claims or its duration suggests; an estimate, for progress."""
    matrix: int = UNSPECIFIED
    """Colour matrix code of ITU-T H.273, as stored."""
    color_range: int = 0
    """Range as stored: 0 unspecified, 1 limited, 2 full."""
    primaries: int = UNSPECIFIED
    """Colour primaries code, as stored."""
    transfer: int = UNSPECIFIED
    """Transfer characteristics code, as stored."""
    display_matrix: tuple[int, ...] | None = None
    """The 3x3 matrix that turns the stored picture into the shown one, as FFmpeg stores it."""
    rotation: int = 0
    """Counter-clockwise degrees that the display matrix turns the picture by."""
    hdr10: str | None = None
    """Mastering display and light level of an HDR10 video, in x265's notation."""
    sample_aspect_ratio: Fraction | None = None
    """Width of a sample divided by its height, where the file says."""
    field_order: int = 0
    """FFmpeg's field order code; 0 unknown, 1 progressive, 2 and 5 top field first, 3 and 4 bottom field first."""
    audio_streams: int = 0
    """Number of audio streams."""

    @property
    def quarter_turns(self) -> int:
        """Counter-clockwise turns by 90 degrees that show the picture upright; 0 where it stands at another angle."""
        return self.rotation // 90 % 4 if self.rotation % 90 == 0 else 0

    @property
    def is_hdr(self) -> bool:
        """Whether the transfer characteristics are those of PQ or HLG."""
        return self.transfer in (16, 18)


class FrameSource(ABC):
    """A video file or a folder of images that frames are read from."""

    info: VideoInfo
    warnings: list[str]
    lost: int
    """Frames known to be missing from what was yielded so far; final once iteration has ended."""

    @abstractmethod
    def items(self) -> Iterator[Any]:
        """Frames and, between them in file order, the packets of all other streams. Once per source."""

    def __iter__(self) -> Iterator[Frame]:
        return (item for item in self.items() if isinstance(item, Frame))

    def close(self) -> None:  # noqa: B027 - nothing to do by default
        """Close the file. A folder of images holds none open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class FrameSink(ABC):
    """A video file or a folder of images that frames are written to, visible under its name only after `close`."""

    warnings: list[str]

    @abstractmethod
    def prepare(self, frame: Frame) -> Any:
        """Turn a frame into what `put` takes. Another thread may call this while `put` runs."""

    @abstractmethod
    def put(self, item: Any) -> None:
        """Write a prepared frame, or take over a packet of another stream of the source, unchanged."""

    _ended = False

    @abstractmethod
    def _finish(self) -> None:
        """Complete the result and give it its name."""

    @abstractmethod
    def _discard(self) -> None:
        """Remove everything written so far."""

    def close(self) -> None:
        """Finish and put the result under its final name."""
        if not self._ended:
            try:
                self._finish()
            except BaseException:
                self.abort()
                raise
            self._ended = True

    def abort(self) -> None:
        """Remove everything written so far; harmless after `close`."""
        if not self._ended:
            self._ended = True
            self._discard()

    def write(self, frame: Frame) -> None:
        """Write one frame, at its own presentation time."""
        self.put(self.prepare(frame))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
