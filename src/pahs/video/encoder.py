"""Which encoder a video gets, with which sample layout and settings."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import get_args

from pahs.choices import Codec, EncodeOptions, EncoderSpeed
from pahs.errors import PahsError
from pahs.video.frames import Family, PixelLayout, VideoInfo

# Visually lossless: a viewer cannot tell the result from the model's output, at a sane size.
_DEFAULT_CRF = {"libx264": 15, "libx264rgb": 15, "libx265": 17, "libvpx-vp9": 16, "libsvtav1": 18}
_ENCODERS = {
    "h264": ("libx264", "libx264rgb"),
    "hevc": ("libx265",),
    "vp9": ("libvpx-vp9",),
    "ffv1": ("ffv1",),
    "av1": ("libsvtav1",),
    "prores": ("prores_ks",),
    **{name: (name,) for name in get_args(Codec) if "_" in name},
}
_FALLBACKS: dict[str, Family] = {"prores_ks": "yuv422"}
"""The chroma format that an encoder takes for what it cannot store; 4:2:0 for those of hardware and for AV1."""
_NO_LOSSLESS = {"av1", "prores"}
# Muxers that write any codec; players know these.
_PLAYED = {"mpegts": ("h264", "hevc")}
_OLD = ("mpeg", "svcd")
"""FFmpeg's names for .mpg and .vob. Its muxer writes anything into them, which then nobody can open."""
# x264's words for FFmpeg's codes of the field order.
_FIELDS = {2: "tff=1", 5: "tff=1", 3: "bff=1", 4: "bff=1"}
_NARROWEST_HEVC = 64
"""Columns: x265 writes beyond its memory, and ends the process, in videos narrower than one of its largest blocks."""


@dataclass(frozen=True)
class Encoder:
    """A decision: the encoder's name in FFmpeg, the layout it is fed with, its settings."""

    name: str
    layout: str
    """FFmpeg's name of the sample layout; where it is not the frames' own they are converted."""
    settings: dict[str, str]
    notes: tuple[str, ...] = ()
    """What is not kept, each in one line for the user."""


def choose_encoder(info: VideoInfo, container: str, options: EncodeOptions) -> Encoder:
    """Decide for a container, by FFmpeg's name of it, from what the installed FFmpeg can do."""
    if options.codec == "hevc" and info.width < _NARROWEST_HEVC:
        raise PahsError(
            f"{info.path}: is {info.width} columns wide, and HEVC is written from {_NARROWEST_HEVC} on; "
            "choose --codec h264, vp9 or ffv1"
        )
    if container in _OLD:
        raise PahsError(
            "cannot write an .mpg or .vob file: they hold MPEG-1 or MPEG-2 video, which pahs does not write; choose an "
            ".mp4, .mkv or .ts output"
        )
    hardware = "_" in options.codec
    if options.lossless and (options.codec in _NO_LOSSLESS or hardware):
        raise PahsError(f"--lossless: {options.codec} cannot do it here; use --codec h264, hevc, vp9 or ffv1")
    if hardware and not _works(options.codec):
        raise PahsError(
            f"--codec {options.codec}: this machine does not offer this encoder; use --codec h264 or hevc"
        )
    for codec in _candidates(info, container, options):
        for name in _ENCODERS[codec]:
            formats = _formats(name)
            if not formats or not _accepts(container, name) or codec not in _PLAYED.get(container, _ENCODERS):
                continue
            layout = _layout(info, name, formats)
            if layout is None:
                continue
            notes = []
            if layout not in (info.pixels.name, "rgb24", "bgr0"):
                notes.append(f"{info.pixels.name} samples are stored as {layout}, as {codec} needs it")
            if info.hdr10 and name != "libx265":
                notes.append(f"HDR10 mastering data is not kept by {codec}; use hevc")
            if info.field_order in _FIELDS and name != "libx264":
                notes.append(f"the order of its fields is not kept by {codec}; use h264")
            lines = tuple(f"{info.path.name}: {note}" for note in notes)
            return Encoder(name, layout, _settings(name, layout, info, options), lines)
    wanted = "a video codec" if options.codec == "auto" else options.codec
    raise PahsError(
        f"cannot write {wanted} into a {container.split(',')[0]} file; choose an .mkv or .mp4 output or another codec"
    )


def _candidates(info: VideoInfo, container: str, options: EncodeOptions) -> list[str]:
    if options.codec != "auto":
        return [options.codec]
    codecs = _preferred(info, container)
    if info.width >= _NARROWEST_HEVC:
        return codecs
    # H.264 before FFV1, which few players know, unless samples are too deep for it.
    return sorted((c for c in codecs if c != "hevc"), key=lambda c: c == "ffv1" and info.pixels.depth <= 10)


def _preferred(info: VideoInfo, container: str) -> list[str]:
    pixels = info.pixels
    if container == "webm":
        return ["vp9"]
    if pixels.depth == 16:
        return ["ffv1", "hevc", "h264"]
    if pixels.family == "rgb" or pixels.depth > 8:
        return ["hevc", "ffv1", "h264"]
    if _uneven(info, pixels.family):
        return ["vp9", "h264", "hevc"]
    return ["h264", "hevc", "vp9"]


def _formats(encoder: str) -> list[str]:
    import av

    try:
        return [f.name for f in av.Codec(encoder, "w").video_formats or []]
    except (ValueError, av.FFmpegError):
        return []


def _accepts(container: str, encoder: str) -> bool:
    import av

    try:
        with av.open(io.BytesIO(), "w", format=container) as trial:
            trial.add_stream(encoder)
    except ValueError:
        return False
    return True


def _layout(info: VideoInfo, encoder: str, formats: list[str]) -> str | None:
    """The frames' own layout, or the nearest that holds all of it, or the deepest there is."""
    own = info.pixels
    if encoder == "libx264rgb":
        return "rgb24" if own.family == "rgb" and own.depth == 8 else None
    if encoder == "ffv1" and own.family == "rgb" and own.depth == 8:
        return "bgr0"
    families: list[Family] = [own.family]
    fallback = _FALLBACKS.get(encoder, "yuv420" if encoder == "libsvtav1" or _is_hardware(encoder) else None)
    if own.family != "rgb":
        families += [fallback] if fallback and own.family == "yuv420" else []
        families += ["yuv444", *([fallback] if fallback else [])]
    if encoder not in ("libvpx-vp9", "ffv1"):
        families = [f for f in families if not _uneven(info, f)]
    depths = sorted({8, 10, 12, 16}, key=lambda d: (d < own.depth, abs(d - own.depth)))
    for depth in depths:
        for family in families:
            name = replace(own, family=family, depth=depth).name
            if name in formats:
                return name
    # The only one of some hardware, with the chroma samples of 4:2:0 in one plane.
    return "nv12" if "nv12" in formats and own.family == "yuv420" and not _uneven(info, "yuv420") else None


def _is_hardware(encoder: str) -> bool:
    return encoder in _ENCODERS and "_" in encoder


@cache
def _works(encoder: str) -> bool:
    """Whether this machine has the hardware and the driver: one picture is encoded."""
    import av

    try:
        context = av.CodecContext.create(encoder, "w")
        assert isinstance(context, av.VideoCodecContext)
        context.width, context.height, context.time_base = 320, 256, Fraction(1, 25)
        context.pix_fmt = "nv12" if "nv12" in _formats(encoder) else "yuv420p"
        picture = av.VideoFrame(320, 256, context.pix_fmt)
        picture.pts = 0
        return bool([*context.encode(picture), *context.encode(None)])
    except (av.FFmpegError, ValueError, OSError):
        return False


def _uneven(info: VideoInfo, family: Family) -> bool:
    """H.264 and HEVC count in chroma samples, so they cannot store a row or column that has half of one."""
    vertical, horizontal = PixelLayout(family).subsampling
    return bool(info.height % vertical or info.width % horizontal)


def _settings(encoder: str, layout: str, info: VideoInfo, options: EncodeOptions) -> dict[str, str]:
    crf = str(options.crf if options.crf is not None else _DEFAULT_CRF.get(encoder, 0))
    if encoder == "libx265":
        params = ["log-level=none", *(["lossless=1"] if options.lossless else [])]
        if info.hdr10:
            params += ["hdr10=1", "repeat-headers=1", info.hdr10]
        return {"preset": options.preset, "crf": crf, "x265-params": ":".join(params)}
    if encoder.startswith("libx264"):
        settings = {"preset": options.preset} | ({"qp": "0"} if options.lossless else {"crf": crf})
        fields = _FIELDS.get(info.field_order)
        return settings | ({"x264-params": fields} if fields else {})
    if encoder == "libvpx-vp9":
        # At its speed 5 libvpx takes longer than at 4.
        speed = max(0, min(4, 7 - get_args(EncoderSpeed).index(options.preset)))
        settings = {"deadline": "good", "cpu-used": str(speed), "row-mt": "1", "b": "0"}
        return settings | ({"lossless": "1"} if options.lossless else {"crf": crf})
    if encoder == "libsvtav1":
        return {"preset": str(12 - get_args(EncoderSpeed).index(options.preset)), "crf": crf}
    if encoder == "prores_ks":
        return {"profile": "4444" if "444" in layout else "hq", "vendor": "apl0"}
    if _is_hardware(encoder):
        return _hardware_settings(encoder, options.crf)
    return {"level": "3", "slicecrc": "1"}


def _hardware_settings(encoder: str, crf: int | None) -> dict[str, str]:
    quality = 18 if crf is None else crf
    if encoder.endswith("nvenc"):
        return {"preset": "p5", "rc": "vbr", "cq": str(quality), "b": "0"}
    if encoder.endswith("qsv"):
        return {"global_quality": str(quality)}
    if encoder.endswith("amf"):
        return {"rc": "cqp", "qp_i": str(quality), "qp_p": str(quality)}
    return {"q": str(max(1, min(100, 100 - 2 * quality)))}
