"""Write a video from pictures alone, without a source whose times, sound or tags are kept."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path

from torch import Tensor

from pahs.choices import EncodeOptions
from pahs.video.color import from_rgb
from pahs.video.frames import Frame, PixelLayout, VideoInfo
from pahs.video.writer import VideoWriter


def write_video(path: Path, images: Iterable[Tensor], rate: int, encode: EncodeOptions | None = None) -> None:
    """RGB frames (3, H, W) in [0, 1] as an ordinary H.264 video."""
    pixels = PixelLayout("yuv420")
    base = Fraction(1, rate)
    with ExitStack() as opened:
        for t, image in enumerate(images):
            if t == 0:
                height, width = image.shape[1:]
                info = VideoInfo(
                    path, "mp4", "h264", width, height, pixels, pixels.name, base, Fraction(rate),
                    matrix=1, color_range=1, primaries=1, transfer=1,
                )  # fmt: skip
                writer = opened.enter_context(VideoWriter(path, info, encode))
            writer.write(Frame(from_rgb(image, pixels), t, base))
