"""Combinations of what video files hold, so that every pair of properties that can meet does meet."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import combinations
from pathlib import Path

import av
import numpy as np

from clips import make_clip

FRAMES = 4
CODE = "01:02:03:04"
HDR = "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50):max-cll=1000,400"
COLOURS = {
    "none": (2, 0, 2, 2),
    "bt709": (1, 1, 1, 1),
    "bt601 full": (6, 2, 6, 6),
    "hdr": (9, 1, 9, 16),
    "hdr10": (9, 1, 9, 16),
}
"""Matrix, range, primaries and transfer."""
SETTINGS = {
    "libx264": {"qp": "0", "preset": "ultrafast"},
    "libx265": {"x265-params": "log-level=none", "preset": "ultrafast"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "crf": "20", "b": "0"},
    "mpeg2video": {"qscale": "2"},
    "mpeg4": {"qscale": "2"},
    "ffv1": {},
}
SOURCES = {
    "mp4": ("libx264", "libx265", "libvpx-vp9"),
    "mov": ("libx264", "libx265"),
    "mkv": ("libx264", "libx265", "ffv1", "libvpx-vp9"),
    "ts": ("libx264", "libx265", "mpeg2video"),
    "webm": ("libvpx-vp9",),
    "avi": ("ffv1", "mpeg4"),
    "mpg": ("mpeg2video",),
    "nut": ("ffv1", "libx264"),
}
PIXELS = {
    "libx264": ("yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "gray"),
    "libx265": ("yuv420p", "yuv422p", "yuv444p10le", "yuv420p10le", "yuv420p12le", "gbrp"),
    "ffv1": ("yuv420p", "yuv444p", "yuv422p10le", "yuv420p12le", "gray", "gbrp16le"),
    "libvpx-vp9": ("yuv420p", "yuv444p"),
    "mpeg2video": ("yuv420p", "yuv422p"),
    "mpeg4": ("yuv420p",),
}
SOUNDS = {
    "mp4": ("none", "aac", "libmp3lame", "flac", "libopus"),
    "mov": ("none", "aac", "pcm_s16le"),
    "mkv": ("none", "aac", "libmp3lame", "flac", "libopus", "pcm_s16le"),
    "ts": ("none", "aac", "libmp3lame", "mp2"),
    "webm": ("none", "libopus"),
    "avi": ("none", "libmp3lame", "pcm_s16le"),
    "mpg": ("none", "mp2"),
    "nut": ("none", "aac", "flac"),
}
OUTPUTS = {
    "mp4": ("none", "aac", "libmp3lame", "mp2", "flac", "libopus"),
    "mov": ("none", "aac", "libmp3lame", "mp2", "pcm_s16le"),
    "mkv": ("none", "aac", "libmp3lame", "mp2", "flac", "libopus", "pcm_s16le"),
    "ts": ("none", "aac", "libmp3lame", "mp2"),
    "webm": ("none", "libopus"),
    "nut": ("none", "aac", "libmp3lame", "mp2", "flac", "pcm_s16le"),
}
"""Containers that are written, and the sound that they hold."""
CODECS = {
    "mp4": ("auto", "hevc", "vp9"),
    "mov": ("auto", "h264"),
    "mkv": ("auto", "hevc", "ffv1", "vp9"),
    "ts": ("auto", "hevc"),
    "webm": ("auto",),
    "nut": ("auto", "ffv1"),
}


@dataclass(frozen=True)
class Combination:
    """One file, and one file to make of it."""

    source: str
    encoder: str
    pixels: str
    rate: str
    rotation: int
    aspect: str
    colour: str
    sound: str
    subtitles: str
    chapters: bool
    cover: str
    timecode: bool
    output: str
    codec: str

    def __str__(self) -> str:
        return "-".join(
            str(getattr(self, f.name))
            for f in fields(self)
            if getattr(self, f.name) not in ("none", 0, False)
        )


RATES = {"25": Fraction(25), "29.97": Fraction(30000, 1001), "60": Fraction(60), "variable": Fraction(25)}
AXES = {
    "source": tuple(SOURCES),
    "encoder": tuple(PIXELS),
    "pixels": tuple(sorted({p for x in PIXELS.values() for p in x})),
    "rate": tuple(RATES),
    "rotation": (0, 90, 180, 270),
    "aspect": ("none", "4/3", "16/11"),
    "colour": tuple(COLOURS),
    "sound": tuple(sorted({s for x in SOUNDS.values() for s in x})),
    "subtitles": ("none", "subrip", "mov_text"),
    "chapters": (False, True),
    "cover": ("none", "png", "mjpeg"),
    "timecode": (False, True),
    "output": tuple(OUTPUTS),
    "codec": ("auto", "h264", "hevc", "vp9", "ffv1"),
}


def possible(c: Combination) -> bool:
    """Whether FFmpeg makes such a file, and `transform` accepts the job."""
    mp4, rich = c.source in ("mp4", "mov"), c.source in ("mp4", "mov", "mkv")
    return (
        c.encoder in SOURCES[c.source]
        and c.pixels in PIXELS[c.encoder]
        and c.sound in SOUNDS[c.source]
        and c.sound in OUTPUTS[c.output]
        and c.codec in CODECS[c.output]
        and (c.rotation == 0 or rich)
        and (c.aspect == "none" or c.source not in ("avi",))
        and (c.colour == "none" or c.encoder in ("libx264", "libx265"))
        and (c.colour == "none" or c.pixels[:3] == "yuv")
        and (c.colour != "hdr10" or (c.encoder == "libx265" and c.pixels == "yuv420p10le"))
        and (c.subtitles != "subrip" or (c.source == "mkv" and c.output == "mkv"))
        and (c.subtitles != "mov_text" or (mp4 and c.output in ("mp4", "mov", "mkv")))
        and (not c.chapters or rich)
        and (c.cover == "none" or c.source in ("mp4", "mkv"))
        and (not c.timecode or (mp4 and c.rate == "25" and not c.chapters and c.cover == "none"))
        and (c.rate != "variable" or c.source not in ("avi", "mpg"))
        and (c.source != "mpg" or c.rate != "variable")
    )


def all_combinations(count: int, seed: int = 0) -> list[Combination]:
    """So many, every pair of values that is possible among them."""
    rng = random.Random(seed)
    pool = []
    while len(pool) < 3000:
        values = {name: rng.choice(choices) for name, choices in AXES.items()}
        # What depends on the container is drawn again, or almost nothing would be possible.
        values["encoder"] = rng.choice(SOURCES[values["source"]])
        values["pixels"] = rng.choice(PIXELS[values["encoder"]])
        values["sound"] = rng.choice(SOUNDS[values["source"]])
        values["codec"] = rng.choice(CODECS[values["output"]])
        candidate = Combination(**values)
        if possible(candidate):
            pool.append(candidate)
    pairs = {c: pairs_of(c) for c in dict.fromkeys(pool)}
    missing = set().union(*pairs.values())
    chosen: list[Combination] = []
    # What a combination would add only shrinks, so most need not be counted again after each choice.
    waiting = [(-len(found), place, c) for place, (c, found) in enumerate(pairs.items())]
    heapify(waiting)
    while missing:
        _, place, best = heappop(waiting)
        added = len(pairs[best] & missing)
        if waiting and (-added, place) > waiting[0][:2]:
            heappush(waiting, (-added, place, best))
            continue
        chosen.append(best)
        missing -= pairs.pop(best)
    rest = list(pairs)
    return chosen + rest[: max(0, count - len(chosen))]


def pairs_of(c: Combination) -> set[tuple[tuple[str, object], tuple[str, object]]]:
    values = [(f.name, getattr(c, f.name)) for f in fields(c)]
    return set(combinations(values, 2))


def make(c: Combination, folder: Path) -> Path:
    """The source file."""
    matrix, color_range, primaries, transfer = COLOURS[c.colour]
    settings = dict(SETTINGS[c.encoder])
    if c.colour == "hdr10":
        settings["x265-params"] += f":hdr10=1:{HDR}"
    unit, pts = None, None
    if c.rate == "variable":
        unit, pts = Fraction(1, 1000), [0, 40, 95, 200]
    name = folder / f"{'plain' if c.cover != 'none' else 'in'}.{c.source}"
    clip = make_clip(
        name,
        frames=FRAMES,
        width=64,
        height=48,
        pix_fmt=c.pixels,
        codec=c.encoder,
        settings=settings,
        rate=RATES[c.rate],
        time_base=unit,
        pts=pts,
        matrix=matrix,
        color_range=color_range,
        primaries=primaries,
        transfer=transfer,
        rotation=c.rotation,
        aspect=Fraction(c.aspect) if c.aspect != "none" else None,
        audio=None if c.sound == "none" else c.sound,
        subtitles=None if c.subtitles == "none" else c.subtitles,
        chapters=c.chapters,
        metadata={"title": "A walk"} | ({"timecode": CODE} if c.timecode else {}),
    )
    return (
        clip.path
        if c.cover == "none"
        else with_cover(clip.path, folder / f"in.{c.source}", c.cover, c.rotation)
    )


def with_cover(plain: Path, path: Path, kind: str, rotation: int) -> Path:
    """The same file with a cover picture."""
    with av.open(str(plain)) as source, av.open(str(path), "w") as target:
        target.metadata.update(source.metadata)
        target.set_chapters(source.chapters())
        streams = {}
        for stream in source.streams:
            if stream.type != "data":
                streams[stream.index] = target.add_stream_from_template(stream, opaque=True)
                streams[stream.index].metadata.update(stream.metadata)
                if stream.type == "video":
                    matrix = [
                        d
                        for f in [next(source.decode(stream))]
                        for d in f.side_data
                        if d.type.name == "DISPLAYMATRIX"
                    ]
                    source.seek(0)
                    if matrix:
                        streams[stream.index].set_display_matrix(
                            np.frombuffer(bytes(matrix[0]), np.int32).tolist()
                        )
        data = cover_data(kind)
        cover = None
        if path.suffix == ".mkv":
            target.add_attachment(f"cover.{kind}", f"image/{kind.replace('mjpeg', 'jpeg')}", data)
        else:
            cover = target.add_mux_stream(kind, width=16, height=16, time_base=Fraction(1, 90000))
            cover.disposition = av.stream.Disposition.attached_pic
        for packet in source.demux():
            if packet.size and packet.stream.index in streams:
                packet.stream = streams[packet.stream.index]
                target.mux(packet)
        if cover is not None:
            packet = av.Packet(data)
            packet.stream, packet.pts, packet.dts, packet.time_base = cover, 0, 0, Fraction(1, 90000)
            target.mux(packet)
    return path


def cover_data(kind: str) -> bytes:
    encoder = av.CodecContext.create(kind, "w")
    encoder.width, encoder.height, encoder.time_base = 16, 16, Fraction(1, 25)
    encoder.pix_fmt = "rgb24" if kind == "png" else "yuvj420p"
    picture = av.VideoFrame.from_ndarray(np.full((16, 16, 3), 99, np.uint8)).reformat(format=encoder.pix_fmt)
    return b"".join(bytes(p) for p in [*encoder.encode(picture), *encoder.encode(None)])
