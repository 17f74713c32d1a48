"""Video files and image folders in and out, with nothing lost in between.

Audio, subtitles, presentation times, rotation, bit depth, chroma format and tags of the source are kept; the
pictures change only where the function changes them. FFmpeg (through PyAV) is loaded when a file is opened.
"""

from pahs.choices import VIDEO_SUFFIXES, EncodeOptions
from pahs.video.color import apply_change, to_rgb
from pahs.video.frames import Frame, FrameSource, PixelLayout, VideoInfo
from pahs.video.images import ImageFolderReader, ImageFolderWriter
from pahs.video.paths import outputs_for
from pahs.video.pipeline import TransformReport, transform
from pahs.video.reader import VideoReader, probe
from pahs.video.writer import VideoWriter

__all__ = [
    "VIDEO_SUFFIXES",
    "EncodeOptions",
    "Frame",
    "FrameSource",
    "ImageFolderReader",
    "ImageFolderWriter",
    "PixelLayout",
    "TransformReport",
    "VideoInfo",
    "VideoReader",
    "VideoWriter",
    "apply_change",
    "outputs_for",
    "probe",
    "to_rgb",
    "transform",
]
