"""Videos that are cut into segments, and what their results must have in common with those of `pahs deblur`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np

from clips import Array, decoded, make_clip, raw_planes


def make_film(
    path: Path, frames: int, scenes: int = 1, size: tuple[int, int] = (64, 48), seeds: int = 1
) -> Path:
    """A film of scenes of equal length, with sound, subtitles, chapters, tags and B-frames.

    `seeds` is the distance between those of two scenes: not every pair of textures differs enough for a cut.
    """
    width, height = size
    parts = []
    for number in range(scenes):
        each = make_clip(
            path.with_name(f"scene{number}{path.suffix}"),
            frames=frames // scenes,
            width=width,
            height=height,
            seed=seeds * number,
            rotation=90,
            audio="aac",
            subtitles="mov_text",
            chapters=True,
            metadata={"title": "A walk"},
        )
        parts.append(each.path)
    if scenes == 1:
        return parts[0].rename(path)
    pictures = [raw_planes(frame) for part in parts for frame in decoded(part)]
    # The container's other streams come from one clip of the whole length, its pictures from the scenes.
    whole = make_clip(
        path.with_name(f"whole{path.suffix}"),
        frames=frames,
        width=width,
        height=height,
        rotation=90,
        audio="aac",
        subtitles="mov_text",
        chapters=True,
        metadata={"title": "A walk"},
    ).path
    _with_pictures(whole, path, pictures)
    for part in (*parts, whole):
        part.unlink()
    return path


def _with_pictures(whole: Path, path: Path, pictures: list[list[Array]]) -> None:
    from pahs.choices import EncodeOptions
    from pahs.video import Frame, VideoReader, VideoWriter

    with (
        VideoReader(whole) as reader,
        VideoWriter(path, reader.info, EncodeOptions(lossless=True), reader) as writer,
    ):
        number = 0
        for item in reader.items():
            if isinstance(item, Frame):
                writer.write(Frame(tuple(pictures[number]), item.pts, item.time_base, item.duration))
                number += 1
            else:
                writer.put(item)


def facts(path: Path) -> dict[str, Any]:
    """All of a file but the pictures' payload: streams, tags, chapters, and every packet's times."""
    with av.open(str(path)) as container:
        streams = [
            (
                s.type,
                s.codec_context and s.codec_context.name,
                s.time_base,
                s.start_time,
                s.duration,
                s.frames,
            )
            for s in container.streams
        ]
        named = [(dict(s.metadata), s.disposition) for s in container.streams]
        about = (dict(container.metadata), container.duration, container.chapters())
        video = container.streams.video[0].index
        packets = [p for p in container.demux() if p.size]
        shown = sorted(p.pts for p in packets if p.stream.index == video)
        decoding = [(p.dts, p.duration) for p in packets if p.stream.index == video]
        others = [
            (p.stream.index, p.pts, p.dts, p.duration, bytes(p)) for p in packets if p.stream.index != video
        ]
    return {
        "streams": streams,
        "named": named,
        "about": about,
        "shown": shown,
        "decoding": decoding,
        "others": sorted(others),
        "rotation": decoded(path)[0].rotation,
    }


def psnr_of_frames(a: Path, b: Path) -> list[float]:
    """PSNR of each pair of frames, over all samples; infinite where they are identical."""
    found = []
    for one, other in zip(decoded(a), decoded(b), strict=True):
        pairs = zip(raw_planes(one), raw_planes(other), strict=True)
        squares = np.concatenate([(x.astype(float) - y).ravel() ** 2 for x, y in pairs])
        found.append(float("inf") if not squares.any() else float(10 * np.log10(255**2 / squares.mean())))
    return found


def uneven_times(frames: int) -> list[int]:
    """Times in milliseconds at uneven distances."""
    return [40 * i + (7 * i * i) % 31 for i in range(frames)]
