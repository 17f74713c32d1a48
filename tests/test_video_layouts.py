"""Narrow, interlaced and unusual pictures: kept, or changed with a line that says so."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from clips import decoded, make_clip, raw_planes
from pahs.errors import PahsError
from pahs.video import EncodeOptions, VideoReader, probe, transform
from pahs.video.cut import Part

LOSSLESS = EncodeOptions(lossless=True, preset="ultrafast")


def identity(frames):
    yield from frames


@pytest.mark.parametrize("width", [16, 40, 62])
@pytest.mark.parametrize(("pix_fmt", "suffix", "codec"), [
    ("yuv420p10le", ".mp4", "h264"),
    ("yuv420p10le", ".mkv", "h264"),
    ("gbrp", ".mp4", "h264"),
    ("yuv420p12le", ".mkv", "ffv1"),
])  # fmt: skip
def test_narrow_video_is_not_given_to_x265(tmp_path, width, pix_fmt, suffix, codec):
    """x265 writes beyond its memory there, which ended the process of whoever encoded it."""
    name, source = ("in.nut", "utvideo") if pix_fmt == "gbrp" else ("in.mkv", "ffv1")
    clip = make_clip(tmp_path / name, frames=4, width=width, height=40, pix_fmt=pix_fmt, codec=source)
    report = transform(clip.path, tmp_path / f"out{suffix}", identity, encode=LOSSLESS)
    info = probe(report.dst)
    assert (info.codec, info.pixels.depth, info.width) == (codec, probe(clip.path).pixels.depth, width)
    for before, frame in zip(clip.planes, VideoReader(report.dst), strict=True):
        for p, q in zip(before, frame.planes, strict=True):
            np.testing.assert_array_equal(p, q)
    with pytest.raises(PahsError, match=f"{width} columns"):
        transform(clip.path, tmp_path / "no.mp4", identity, encode=EncodeOptions(codec="hevc"))


def test_a_small_gif(tmp_path):
    path = tmp_path / "in.gif"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("gif", rate=10)
        stream.width, stream.height, stream.pix_fmt = 40, 40, "rgb8"
        for i in range(4):
            picture = np.zeros((40, 40, 3), np.uint8)
            picture[:, 8 * i : 8 * i + 8] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="rgb8")))
        container.mux(stream.encode(None))
    for suffix in (".mp4", ".mkv"):
        report = transform(path, tmp_path / f"out{suffix}", identity)
        assert report.frames == len(decoded(report.dst)) == 4 and probe(report.dst).codec == "h264"


@pytest.mark.parametrize(
    ("pix_fmt", "stored"),
    [
        ("yuv411p", "yuv422p"),
        ("yuv410p", "yuv420p"),
        ("yuv440p", "yuv444p"),
        ("yuv420p14le", "yuv420p16le"),
        ("yuv420p9le", "yuv420p10le"),
        ("yuyv422", None),
        ("nv12", None),
        ("bgr24", None),
    ],
)
def test_a_layout_that_changes_is_said(tmp_path, pix_fmt, stored):
    path = write(tmp_path / "in.nut", "ffv1" if stored else "rawvideo", pix_fmt)
    report = transform(path, tmp_path / "out.mkv", identity, encode=LOSSLESS)
    said = [w for w in report.warnings if "samples of" in w]
    assert said == ([f"in.nut: samples of {pix_fmt} are stored as {stored}"] if stored else [])


def test_five_bits_that_become_eight_are_said(tmp_path):
    path = write(tmp_path / "in.nut", "rawvideo", "rgb555le")
    report = transform(path, tmp_path / "out.mkv", identity, encode=LOSSLESS)
    assert report.warnings == ("in.nut: samples of rgb555le are stored as gbrp",)


def write(path: Path, codec: str, pix_fmt: str) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, pix_fmt
        picture = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format=pix_fmt)))
        container.mux(stream.encode(None))
    return path


def interlaced(path: Path, frames: int = 8) -> Path:
    """A bar that moves from field to field, the top field first."""
    with av.open(str(path), "w") as container:
        options = {"qp": "0", "x264-params": "tff=1"} if path.suffix != ".mpg" else {"flags": "+ildct+ilme"}
        stream = container.add_stream(
            "libx264" if options.get("qp") else "mpeg2video", rate=25, options=options
        )
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for t in range(frames):
            gray = np.full((64, 96), 40, np.uint8)
            for field in (0, 1):
                left = 8 * (2 * t + field) % 80
                gray[field::2, left : left + 16] = 220
            frame = av.VideoFrame.from_ndarray(gray, "gray").reformat(format="yuv420p")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def combed(path: Path) -> float:
    """How much neighbouring rows differ."""
    planes = [raw_planes(f)[0].astype(float) for f in decoded(path)]
    return float(np.mean([np.abs(np.diff(p, axis=0)).mean() for p in planes[1:-1]]))


def test_interlaced_video_can_be_deinterlaced(tmp_path):
    path = interlaced(tmp_path / "in.mkv")
    plain = transform(path, tmp_path / "plain.mkv", identity, encode=LOSSLESS)
    assert "--deinterlace" in plain.warnings[0] and probe(plain.dst).field_order == 2
    whole = transform(path, tmp_path / "whole.mkv", identity, encode=LOSSLESS, deinterlace=True)
    assert whole.warnings == () and whole.frames == 8 and whole.lost == 0
    assert probe(whole.dst).field_order in (0, 1)
    assert combed(whole.dst) < combed(path) / 4
    assert [f.pts * f.time_base for f in decoded(whole.dst)] == [f.pts * f.time_base for f in decoded(path)]
    part = transform(
        path,
        tmp_path / "part.mkv",
        identity,
        encode=LOSSLESS,
        deinterlace=True,
        part=Part(end=Fraction(3, 25)),
    )
    assert part.frames == 3 and combed(part.dst) < combed(path) / 4


def test_an_order_of_fields_that_is_not_kept_is_said(tmp_path):
    path = interlaced(tmp_path / "in.mkv")
    report = transform(path, tmp_path / "out.mkv", identity, encode=EncodeOptions(codec="ffv1"))
    assert "order of its fields is not kept by ffv1" in report.warnings[1]
