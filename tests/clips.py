"""Small video files made on the fly: moving textures with sound, subtitles, odd times, rotation, deep colour."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

Array = np.ndarray
LOSSLESS = {
    "libx264": {"qp": "0", "preset": "ultrafast"},
    "libx265": {"x265-params": "lossless=1:log-level=none", "preset": "ultrafast"},
}


def moving_texture(frames: int, height: int, width: int, seed: int = 0, speed: float = 1.5) -> Array:
    """(T, H, W, 3) float64 in [0, 1]: many scales of detail, saturated patches, moving by parts of a pixel."""
    rng = np.random.default_rng(seed)
    margin = int(np.ceil(frames * speed)) + 4
    rows, columns = np.mgrid[0 : height + margin, 0 : width + margin].astype(np.float64)
    canvas = np.zeros((height + margin, width + margin, 3))
    for octave in range(6):
        frequency = 0.02 * 2**octave
        for _ in range(3):
            angle, phase = rng.uniform(0, np.pi), rng.uniform(0, 2 * np.pi, 3)
            wave = frequency * 2 * np.pi * (rows * np.sin(angle) + columns * np.cos(angle))
            canvas += np.sin(wave[..., None] + phase) * rng.uniform(0.3, 1, 3) / (octave + 1)
    canvas = 0.5 + 0.22 * canvas / canvas.std()
    for _ in range(12):
        y, x = rng.integers(0, height + margin - 6), rng.integers(0, width + margin - 6)
        canvas[y : y + rng.integers(3, 9), x : x + rng.integers(3, 9)] = rng.integers(0, 2, 3)
    clip = np.empty((frames, height, width, 3))
    for t in range(frames):
        shift = t * speed
        whole, part = int(shift), shift - int(shift)
        window = canvas[whole // 2 : whole // 2 + height, whole : whole + width + 1]
        clip[t] = (1 - part) * window[:, :-1] + part * window[:, 1:]
    return clip.clip(0, 1)


def sample_planes(rgb: Array, pix_fmt: str) -> list[Array]:
    """Samples of one picture in a planar layout, with luma beyond black and white and strong chroma."""
    depth = 10 if "10" in pix_fmt else 12 if "12" in pix_fmt else 16 if "16" in pix_fmt else 8
    dtype, top = (np.uint8 if depth == 8 else np.uint16), 2**depth - 1
    if pix_fmt.startswith("gbrp"):
        return [np.rint(rgb[..., c] * top).astype(dtype) for c in (1, 2, 0)]
    luma = np.rint(rgb.mean(-1) * 1.1 * top - 0.05 * top).clip(0, top).astype(dtype)
    if pix_fmt.startswith("gray"):
        return [luma]
    vertical, horizontal = (2 if "420" in pix_fmt else 1), (1 if "444" in pix_fmt else 2)
    planes = [luma]
    for channel in (2, 0):
        chroma = 0.5 + 0.9 * (rgb[..., channel] - rgb[..., 1])
        planes.append(np.rint(chroma[::vertical, ::horizontal] * top).clip(0, top).astype(dtype))
    return planes


@dataclass(frozen=True)
class Clip:
    """A file that was written and what it should hold."""

    path: Path
    planes: list[list[Array]]
    pts: list[int]
    time_base: Fraction
    audio: list[bytes] = field(default_factory=list)


def make_clip(
    path: Path,
    *,
    frames: int = 8,
    width: int = 64,
    height: int = 48,
    pix_fmt: str = "yuv420p",
    codec: str | None = None,
    settings: dict[str, str] | None = None,
    rate: Fraction | int = 25,
    time_base: Fraction | None = None,
    pts: list[int] | None = None,
    matrix: int = 2,
    color_range: int = 0,
    primaries: int = 2,
    transfer: int = 2,
    rotation: int = 0,
    aspect: Fraction | None = None,
    audio: str | None = None,
    subtitles: str | None = None,
    attachment: bytes | None = None,
    metadata: dict[str, str] | None = None,
    chapters: bool = False,
    movflags: str = "",
    seed: int = 0,
) -> Clip:
    """Write a lossless clip. `audio` and `subtitles` name codecs; `pts` in units of `time_base` give odd times."""
    codec = codec or {"gbrp": "libx265", "gbrp16le": "ffv1"}.get(pix_fmt, "libx264")
    settings = settings if settings is not None else LOSSLESS.get(codec, {})
    unit = time_base or Fraction(1, 1) / rate
    times = pts if pts is not None else [round(i / rate / unit) for i in range(frames)]
    options = {"movflags": movflags} if movflags else {}
    if path.suffix in (".mp4", ".mov"):
        options["movie_timescale"] = str(unit.denominator)  # a start between two milliseconds is not rounded
    written: list[list[Array]] = []
    with av.open(str(path), "w", container_options=options) as container:
        container.metadata.update(metadata or {})
        video = container.add_stream(codec, rate=Fraction(rate), options=dict(settings))
        context = video.codec_context
        context.width, context.height, context.pix_fmt = width, height, pix_fmt
        context.time_base = unit
        video.time_base = unit
        context.flags |= av.codec.context.Flags.frame_duration
        context.colorspace, context.color_range = matrix, color_range
        context.color_primaries, context.color_trc = primaries, transfer
        if aspect:
            context.sample_aspect_ratio = aspect
        if rotation:
            video.set_display_rotation(rotation)
        sound = container.add_stream(audio, rate=16000, layout="mono") if audio else None
        if audio and audio.startswith("wma"):
            sound.bit_rate = 64000  # its encoder has no rate of its own
        text = container.add_mux_stream(subtitles, time_base=Fraction(1, 1000)) if subtitles else None
        for stream, language in ((sound, "deu"), (text, "fra")):
            if stream is not None:
                stream.metadata["language"] = language
        if attachment:
            container.add_attachment("note.txt", "text/plain", attachment)
        if chapters:
            container.set_chapters(
                [
                    {
                        "id": 1,
                        "start": 0,
                        "end": 100,
                        "time_base": Fraction(1, 1000),
                        "metadata": {"title": "one"},
                    }
                ]
            )
        container.start_encoding()
        if sound is not None:
            for packet in _tone(sound, seconds=float(times[-1] * unit) + 0.1):
                container.mux(packet)
        if text is not None:
            container.mux(_line_of_text(text, b"hello" if subtitles == "subrip" else b"\x00\x05hello"))
        for picture, time in zip(moving_texture(frames, height, width, seed), times, strict=True):
            frame = av.VideoFrame(width, height, pix_fmt)
            frame.pts, frame.time_base = time, unit
            frame.duration = max(1, round(1 / (rate * unit)))
            frame.colorspace, frame.color_range = matrix, color_range
            planes = sample_planes(picture, pix_fmt)
            for target, plane in zip(frame.planes, planes, strict=True):
                np.frombuffer(target, plane.dtype).reshape(target.height, -1)[:, : target.width] = plane
            written.append(planes)
            packets = video.encode(frame)
            container.mux(_decodable(packets))
        container.mux(_decodable(video.encode(None)))
    return Clip(path, written, times, unit, packets_of(path, "audio") if audio else [])


def _decodable(packets: list[av.Packet]) -> list[av.Packet]:
    """With decoding times: in clips of one or two frames x265 leaves them unset."""
    for packet in packets:
        if not 0 <= (packet.pts - packet.dts) * packet.time_base < 3600:
            packet.dts = packet.pts
    return packets


def _tone(stream: av.AudioStream, seconds: float) -> list[av.Packet]:
    count = int(16000 * seconds)
    wave = np.sin(np.arange(count) * 0.17) * (0.3 + 0.2 * np.sin(np.arange(count) * 0.001))
    packets: list[av.Packet] = []
    for start in range(0, count, 1024):
        chunk = (wave[start : start + 1024] * 32000).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(chunk, format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 16000, start, Fraction(1, 16000)
        packets += stream.encode(frame)
    return packets + stream.encode(None)


def _line_of_text(stream: av.SubtitleStream, data: bytes) -> av.Packet:
    packet = av.Packet(data)
    packet.stream, packet.time_base = stream, Fraction(1, 1000)
    packet.pts = packet.dts = 40
    packet.duration = 100
    return packet


def packets_of(path: Path, kind: str) -> list[bytes]:
    """The payloads of all packets of one kind of stream, in order."""
    with av.open(str(path)) as container:
        return [bytes(p) for p in container.demux() if p.size and p.stream.type == kind]


def packet_times(path: Path, kind: str) -> list[Fraction]:
    """Presentation times in seconds of all packets of one kind of stream."""
    with av.open(str(path)) as container:
        return [p.pts * p.time_base for p in container.demux() if p.size and p.stream.type == kind]


def decoded(path: Path) -> list[av.VideoFrame]:
    """All frames of a file, by FFmpeg alone."""
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


def raw_planes(frame: av.VideoFrame) -> list[Array]:
    """The samples of FFmpeg's frame, cropped of its row padding."""
    dtype = np.uint8 if frame.format.components[0].bits == 8 else np.uint16
    return [np.frombuffer(p, dtype).reshape(p.height, -1)[:, : p.width].copy() for p in frame.planes]
