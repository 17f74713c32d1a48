"""Which file or folder a result is written to, with its comparison where one is asked for."""

from __future__ import annotations

from pathlib import Path

from pahs.choices import Compare, EncodeOptions
from pahs.video.compare import ComparedSink, Joiner
from pahs.video.convert import AsImages, AsVideo, info_of_images, info_of_video
from pahs.video.frames import FrameSink, FrameSource, VideoInfo
from pahs.video.images import ImageFolderWriter
from pahs.video.paths import comparison_name, gives_images
from pahs.video.reader import VideoReader
from pahs.video.trial import try_output
from pahs.video.writer import VideoWriter


def open_sink(
    dst: Path, source: FrameSource, encode: EncodeOptions | None = None, compare: Compare = "off"
) -> FrameSink:
    """A sink for the frames of a source; of a video file it takes the other streams as well."""
    encode = encode or EncodeOptions()
    result = _open(dst, source, source.info, encode)
    if compare == "off":
        return result
    joiner = Joiner(source.info, compare)
    try:
        return ComparedSink(result, _open(comparison_name(dst), source, joiner.info, encode), joiner)
    except BaseException:
        result.abort()
        raise


def try_first(dst: Path, source: FrameSource, encode: EncodeOptions | None = None) -> tuple[str, ...]:
    """Refuse what cannot be finished; returns what the output's container drops without a word."""
    images = gives_images(source.info.path, dst, True if encode is not None and encode.images else None)
    if images or not isinstance(source, VideoReader):
        return ()
    return try_output(source, dst, encode)[1]


def _open(dst: Path, source: FrameSource, info: VideoInfo, encode: EncodeOptions) -> FrameSink:
    video = source if isinstance(source, VideoReader) else None
    if gives_images(info.path, dst, None if encode.images is None else True):
        if encode.images is None:
            return ImageFolderWriter(dst, info)
        return AsImages(ImageFolderWriter(dst, info_of_images(info)), info, f".{encode.images}")
    if video is not None or encode.lossless:
        return VideoWriter(dst, info, encode, video)
    return AsVideo(VideoWriter(dst, info_of_video(info), encode), info)
