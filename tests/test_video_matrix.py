"""Every pair of properties of video files, stream by stream: what comes back is the same, or a line tells."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from clips import raw_planes
from matrix import CODE, FRAMES, Combination, all_combinations, make
from pahs.video import EncodeOptions, probe, transform

COMBINATIONS = all_combinations(160)


def identity(frames):
    yield from frames


def test_there_are_enough_combinations():
    assert len(COMBINATIONS) >= 150


@pytest.mark.parametrize("c", COMBINATIONS, ids=str)
def test_what_comes_back_is_what_went_in(tmp_path, c: Combination):
    source = make(c, tmp_path)
    options = EncodeOptions(codec=c.codec, lossless=True, preset="ultrafast")
    report = transform(source, tmp_path / f"out.{c.output}", identity, encode=options)
    said = " ".join(report.warnings)
    before, after = Contents(source), Contents(report.dst)
    assert report.frames == FRAMES and report.lost == 0
    assert len(before.frames) == len(after.frames) == FRAMES
    # These two count from zero, so all streams are moved up by what an encoder needs before the first frame.
    moved = after.times["video"][0] - before.times["video"][0] if c.output in ("ts", "nut") else 0
    coarse = c.output in ("mkv", "webm") and c.source not in ("mkv", "webm")
    for kind in ("video", "audio", "subtitle"):
        # Sound counts in samples, here at least 16000 a second, transport streams in 1/90000 s.
        fine = Fraction(1, 16000) if kind == "audio" else Fraction(c.output == "ts", 90000)
        for a, b in zip(before.times[kind], after.times[kind], strict=True):
            assert abs(a + moved - b) <= (Fraction(1, 1000) if coarse else fine), kind
    if c.subtitles == "mov_text" and c.output == "mkv":
        assert "stored as subrip" in said
        assert after.packets["subtitle"] == [b"hello"]
    else:
        assert after.packets["subtitle"] == before.packets["subtitle"]
    assert after.packets["audio"] == before.packets["audio"] and bool(after.packets["audio"]) == (
        c.sound != "none"
    )
    same = {
        "stored as": before.layout == after.layout,
        "rotation": before.info.rotation == after.info.rotation,
        "aspect": (before.info.sample_aspect_ratio or 1) == (after.info.sample_aspect_ratio or 1),
        "colour description": before.colours.items() <= after.colours.items(),
        "HDR10": before.info.hdr10 == after.info.hdr10,
        "chapters": before.chapters == after.chapters,
        "cover": before.covers == after.covers or f"{c.cover}) is not kept" in said,
        "time code": before.code == after.code,
        "title": before.title == after.title,
        "language": before.languages == after.languages,
    }
    assert [what for what, kept in same.items() if not kept and what not in said] == []
    # Nor is anything said to be lost that is kept.
    assert [what for what, kept in same.items() if kept and f"{what} is not kept" in said] == []
    if before.layout == after.layout:
        for p, q in zip(before.samples(), after.samples(), strict=True):
            np.testing.assert_array_equal(p, q)
    assert (before.code == CODE) == c.timecode and bool(before.covers) == (c.cover != "none")


class Contents:
    """All that a file holds, by FFmpeg alone."""

    def __init__(self, path: Path) -> None:
        self.info = probe(path)
        kinds = ("video", "audio", "subtitle")
        self.packets: dict[str, list[bytes]] = {kind: [] for kind in kinds}
        self.times: dict[str, list[Fraction]] = {kind: [] for kind in kinds}
        self.covers = []
        with av.open(str(path)) as container:
            video = container.streams.best("video")
            self.chapters = [
                (c["start"] * c["time_base"], c["end"] * c["time_base"], c["metadata"])
                for c in container.chapters()
            ]
            tags = {**lower(container.metadata), **lower(video.metadata)}
            self.languages = [s.language or "und" for s in container.streams if s.type in kinds[1:]]
            self.title, self.code = lower(container.metadata).get("title"), tags.get("timecode")
            for packet in container.demux():
                if not packet.size:
                    continue
                if packet.stream.disposition & av.stream.Disposition.attached_pic:
                    self.covers.append(bytes(packet))
                elif packet.stream.type in ("audio", "subtitle") and bytes(packet).strip(b"\0"):
                    self.packets[packet.stream.type].append(without_header(bytes(packet)))
                    self.times[packet.stream.type].append(packet.pts * packet.time_base)
        with av.open(str(path)) as container:
            self.frames = [planar(f) for f in container.decode(container.streams.best("video"))]
        self.times["video"] = [f.pts * f.time_base for f in self.frames]
        # FFmpeg decodes gray H.264 with chroma that holds nothing.
        self.gray = all((chroma == 128).all() for f in self.frames for chroma in raw_planes(f)[1:])
        self.layout = "gray" if self.gray else self.frames[0].format.name.replace("yuvj", "yuv")
        described = {
            "matrix": self.info.matrix,
            "primaries": self.info.primaries,
            "transfer": self.info.transfer,
        }
        self.colours = {name: code for name, code in described.items() if code not in (0, 2)}

    def samples(self):
        for frame in self.frames:
            yield from raw_planes(frame)[: 1 if self.gray else None]


def planar(frame: av.VideoFrame) -> av.VideoFrame:
    """FFV1 stores RGB packed."""
    return frame.reformat(format="gbrp") if frame.format.name == "bgr0" else frame


def without_header(packet: bytes) -> bytes:
    """AAC has a header in each packet of a transport stream, and one at the start of other files."""
    return packet[7:] if packet.startswith(b"\xff\xf1") else packet


def lower(tags: dict[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in tags.items()}
