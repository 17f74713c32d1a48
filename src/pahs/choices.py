"""Names that users choose from, each written once. Importing them is light: no PyTorch, no FFmpeg."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from pahs.errors import PahsError

Device = Literal["auto", "cpu", "cuda", "xpu", "mps"]
"""cuda: NVIDIA, and AMD with a ROCm build of PyTorch; xpu: Intel; mps: Apple."""
TrainingDevice = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16", "fp16", "int8"]
"""Graphs alone know int8."""
GraphFormat = Literal["onnx", "openvino"]
"""What `pahs export` writes."""
ExportFormat = Literal[GraphFormat, "browser"]
"""browser: a page with ONNX graphs."""
ExportPrecision = Literal["fp32", "fp16", "int8"]
Backend = Literal["auto", "torch", "onnxruntime", "openvino"]
"""What computes a network."""
Codec = Literal[
    "auto", "h264", "hevc", "vp9", "ffv1", "av1", "prores",
    "h264_nvenc", "hevc_nvenc", "av1_nvenc", "h264_qsv", "hevc_qsv", "h264_amf", "hevc_amf",
    "h264_videotoolbox", "hevc_videotoolbox",
]  # fmt: skip
"""Names with an underscore are encoders of graphics hardware, which are used only when they are asked for."""
EncoderSpeed = Literal[
    "ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow"
]
Sound = Literal["auto", "copy", "encode"]
Compare = Literal["off", "side", "split"]
"""A comparison video: none, both pictures side by side, or half of each."""
ImageFormat = Literal["png", "jpg", "webp", "tif"]
Layout = Literal["gopro", "dvd", "reds", "bsd", "pairs"]
"""How a dataset's folder is arranged."""
AnyLayout = Literal["auto", Layout]
Split = Literal["train", "test", "valid"]
VIDEO_SUFFIXES = frozenset({
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts", ".wmv", ".flv",
    ".3gp", ".ogv", ".vob", ".gif", ".mxf", ".y4m", ".dv",
})  # fmt: skip
"""Endings that are taken for videos."""
Kind = Literal["blur", "blur_gamma"]
"""Which of GOPRO's two blurry versions."""


MOST_MEMORY = 1 << 20
"""GiB that `--memory` may ask for: more than any machine has, and few enough to be counted in bytes."""


def seconds_of(text: str) -> float:
    """A time that a person writes: seconds, or minutes and hours before them, as in 90, 1:30 or 0:01:30.5."""
    total = 0.0
    try:
        for part in text.split(":"):
            value = float(part)
            if not 0 <= value < 1e9 or text.count(":") > 2:
                raise ValueError
            total = 60 * total + value
    except ValueError:
        raise PahsError(f"{text!r} is not a time; write seconds, such as 90, or 1:30, or 0:01:30.5") from None
    return total


def check_choice(option: str, value: str, choices: Any) -> None:
    """Refuse a value that the Literal `choices` does not name."""
    known = get_args(choices)
    if value not in known:
        raise PahsError(f"{option} {value!r} is unknown; choose one of {', '.join(known)}")


def check_memory(gib: float) -> None:
    """Refuse what is no number of GiB that a machine may have."""
    if not 0 < gib <= MOST_MEMORY:
        raise PahsError(f"--memory {gib:g}: it must be above 0 and at most {MOST_MEMORY} GiB")


@dataclass(frozen=True)
class EncodeOptions:
    """How the result is compressed."""

    codec: Codec = "auto"
    """auto: H.264 for 8 bit, HEVC for more and for RGB, VP9 in WebM and for odd sizes; or one of those, or FFV1."""
    crf: int | None = None
    """Quality, lower is better; None: visually lossless."""
    preset: EncoderSpeed = "veryfast"
    """Speed against size, in the words of x264. A GPU restores faster than slower presets encode."""
    lossless: bool = False
    """Keep every sample exactly; files get many times larger."""
    sound: Sound = "auto"
    """auto: taken over as it is, encoded again only where not even .mkv can hold it, and said. copy: refused instead.
    encode: encoded again wherever the output cannot hold it."""
    images: ImageFormat | None = None
    """Write a folder of images in this format instead of a video."""

    def __post_init__(self) -> None:
        check_choice("codec", self.codec, Codec)
        check_choice("preset", self.preset, EncoderSpeed)
        check_choice("sound", self.sound, Sound)
        if self.images is not None:
            check_choice("images", self.images, ImageFormat)
        if self.crf is not None and self.lossless:
            raise PahsError(f"crf {self.crf} and lossless exclude each other; leave one of them away")
        if self.crf is not None and not 0 <= self.crf <= 63:
            raise PahsError(f"crf {self.crf} is out of range; choose 0 (best) to 63 (smallest)")
