"""Whole files through `transform`: what the function does not change comes back exactly."""

from __future__ import annotations

import threading
from collections import deque
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from clips import decoded, make_clip, packet_times, packets_of, raw_planes
from pahs.progress import Callback
from pahs.video import EncodeOptions, PixelLayout, VideoReader, VideoWriter, probe, to_rgb, transform

LOSSLESS = EncodeOptions(lossless=True, preset="ultrafast")


def identity(frames):
    yield from frames


def shown_at(path: Path) -> list[Fraction]:
    return [f.pts * f.time_base for f in decoded(path)]


def assert_same_samples(first: Path, second: Path) -> None:
    one, two = decoded(first), decoded(second)
    assert len(one) == len(two) > 0
    for a, b in zip(one, two, strict=True):
        assert a.format.name == b.format.name
        for p, q in zip(raw_planes(a), raw_planes(b), strict=True):
            np.testing.assert_array_equal(p, q)


@pytest.mark.parametrize("matrix", [6, 1])
@pytest.mark.parametrize("color_range", [1, 2])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
def test_nothing_is_lost_without_change(tmp_path, matrix, color_range, pix_fmt):
    tags = {"matrix": matrix, "color_range": color_range, "primaries": matrix, "transfer": matrix}
    clip = make_clip(tmp_path / "in.mp4", frames=4, pix_fmt=pix_fmt, **tags)
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=LOSSLESS)
    assert (report.frames, report.lost, report.warnings) == (4, 0, ())
    before, after = probe(clip.path), probe(report.dst)
    for name in ("matrix", "color_range", "primaries", "transfer", "pixels", "width", "height", "time_base"):
        assert getattr(before, name) == getattr(after, name), name
    assert after.matrix == matrix and after.pixels.full_range == (color_range == 2)
    for written, frame in zip(clip.planes, VideoReader(report.dst), strict=True):
        # Asked for: luma within one level, mean RGB error below half a level. It is exact.
        for p, q in zip(written, frame.planes, strict=True):
            np.testing.assert_array_equal(p, q)
        error = to_rgb(tuple(written), before.pixels) - to_rgb(frame.planes, after.pixels)
        assert error.abs().max() == 0


@pytest.mark.parametrize(
    ("name", "pix_fmt", "codec"),
    [
        ("in.mp4", "yuv422p", None),
        ("in.mp4", "yuv444p", None),
        ("in.mkv", "yuv422p10le", None),
        ("in.mkv", "yuv420p12le", "ffv1"),
        ("in.mkv", "gbrp", None),
        ("in.mkv", "gbrp16le", None),
    ],
)
def test_chroma_formats_and_depths_are_kept(tmp_path, name, pix_fmt, codec):
    clip = make_clip(tmp_path / name, frames=3, pix_fmt=pix_fmt, codec=codec)
    report = transform(clip.path, tmp_path / f"out{clip.path.suffix}", identity, encode=LOSSLESS)
    assert probe(report.dst).source_format == pix_fmt
    assert_same_samples(clip.path, report.dst)


def test_gray_keeps_its_brightness(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=3, pix_fmt="gray", codec="ffv1")
    transform(clip.path, tmp_path / "out.mkv", identity, encode=LOSSLESS)
    with VideoReader(clip.path) as one, VideoReader(tmp_path / "out.mkv") as two:
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(
                to_rgb(a.planes, one.info.pixels), to_rgb(b.planes, two.info.pixels), atol=1e-6, rtol=0
            )


def test_odd_sizes_are_kept(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=3, width=63, height=47, codec="ffv1")
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=LOSSLESS)
    assert_same_samples(clip.path, report.dst)
    # H.264 cannot store half a chroma sample: the size and luma are kept, chroma gets a sample for each.
    h264 = EncodeOptions(codec="h264", lossless=True)
    report = transform(clip.path, tmp_path / "full.mp4", identity, encode=h264)
    assert "yuv444p" in report.warnings[0]
    for a, b in zip(decoded(clip.path), decoded(report.dst), strict=True):
        np.testing.assert_array_equal(raw_planes(a)[0], raw_planes(b)[0])


def test_packed_and_palette_formats_are_read(tmp_path):
    palette = np.zeros((256, 4), np.uint8)
    palette[:, 0], palette[1] = 255, (255, 200, 20, 20)
    for pix_fmt, family in (("yuyv422", "yuv422"), ("bgra", "rgb"), ("pal8", "rgb")):
        path = tmp_path / f"{pix_fmt}.nut"
        with av.open(str(path), "w") as container:
            stream = container.add_stream("png" if pix_fmt == "pal8" else "rawvideo", rate=25)
            stream.width, stream.height, stream.pix_fmt = 16, 12, pix_fmt
            picture = np.zeros((12, 16, 3), np.uint8)
            picture[:, 8:] = (200, 20, 20)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            if pix_fmt == "pal8":
                frame = av.VideoFrame.from_ndarray(((picture[..., 0] > 0).astype(np.uint8), palette), "pal8")
            else:
                frame = frame.reformat(format=pix_fmt)
            container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        with VideoReader(path) as reader:
            assert reader.info.pixels.family == family
            (only,) = list(reader)
            rgb = to_rgb(only.planes, reader.info.pixels)
            assert (rgb[:, 6, 12] - torch.tensor([200, 20, 20]) / 255).abs().max() < 0.2
            assert bool(reader.warnings) == (pix_fmt == "bgra")


@pytest.mark.parametrize(
    ("name", "unit", "pts"),
    [
        ("in.mp4", Fraction(1, 90000), [7, 3000, 9001, 9005, 20000, 30000, 40000, 50001]),
        ("in.mkv", Fraction(1, 1000), [7, 30, 91, 92, 200, 300, 400, 501]),
        ("in.mov", Fraction(1001, 30000), list(range(8))),
    ],
)
def test_times_and_sound_are_kept(tmp_path, name, unit, pts):
    clip = make_clip(tmp_path / name, time_base=unit, pts=pts, audio="aac")
    report = transform(clip.path, tmp_path / f"out{clip.path.suffix}", identity, encode=LOSSLESS)
    assert shown_at(report.dst) == shown_at(clip.path) == [t * unit for t in pts]
    assert packets_of(report.dst, "audio") == clip.audio != []
    assert packet_times(report.dst, "audio") == packet_times(clip.path, "audio")
    last_before, last_after = decoded(clip.path)[-1], decoded(report.dst)[-1]
    assert last_after.duration * last_after.time_base == last_before.duration * last_before.time_base


@pytest.mark.parametrize("rotation", [90, 180, -90])
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_rotation_is_kept(tmp_path, rotation, suffix):
    clip = make_clip(tmp_path / f"in{suffix}", frames=2, rotation=rotation)
    report = transform(clip.path, tmp_path / f"out{suffix}", identity, encode=LOSSLESS)
    assert probe(report.dst).rotation in (rotation, rotation - 360)
    assert (probe(report.dst).width, probe(report.dst).height) == (64, 48)
    assert report.warnings == ()


def test_a_container_without_rotation_is_named(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=2, rotation=90)
    report = transform(clip.path, tmp_path / "out.ts", identity, encode=LOSSLESS)
    assert "rotation of 90 degrees" in report.warnings[0]


def test_everything_else_in_a_matroska_file_is_kept(tmp_path):
    clip = make_clip(
        tmp_path / "in.mkv",
        audio="libmp3lame",
        subtitles="subrip",
        attachment=b"a note",
        chapters=True,
        aspect=Fraction(4, 3),
        metadata={"title": "A walk", "MOOD": "calm"},
    )
    report = transform(clip.path, tmp_path / "out.mkv", identity, encode=LOSSLESS)
    assert report.warnings == ()
    assert packets_of(report.dst, "subtitle") == [b"hello"]
    assert packets_of(report.dst, "audio") == clip.audio
    assert probe(report.dst).sample_aspect_ratio == Fraction(4, 3)
    with av.open(str(report.dst)) as out:
        assert [s.type for s in out.streams] == ["video", "audio", "subtitle", "attachment"]
        assert [s.language for s in out.streams][1:3] == ["deu", "fra"]
        assert (out.metadata["title"], out.metadata["MOOD"]) == ("A walk", "calm")
        assert [c["metadata"]["title"] for c in out.chapters()] == ["one"]
        assert out.streams.attachments[0].data == b"a note"


def test_tags_and_subtitles_of_an_mp4_file_are_kept(tmp_path):
    tags = {"title": "A walk", "com.example.lens": "35 mm"}
    clip = make_clip(
        tmp_path / "in.mp4", audio="aac", subtitles="mov_text", metadata=tags, movflags="use_metadata_tags"
    )
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=LOSSLESS)
    with av.open(str(report.dst)) as out:
        assert {k: out.metadata.get(k) for k in tags} == tags
        assert out.streams.audio[0].language == "deu"
    assert b"\x00\x05hello" in packets_of(report.dst, "subtitle")


def test_chapters_of_a_quicktime_file_are_kept(tmp_path):
    clip = make_clip(tmp_path / "in.mov", frames=3, chapters=True, audio="pcm_s16le")
    report = transform(clip.path, tmp_path / "out.mov", identity, encode=LOSSLESS)
    assert report.warnings == ()
    with av.open(str(report.dst)) as out:
        assert [c["metadata"]["title"] for c in out.chapters()] == ["one"]
    assert packets_of(report.dst, "audio") == clip.audio


@pytest.mark.parametrize("lag", [1, 5, 100])
def test_a_function_may_read_ahead(tmp_path, lag):
    clip = make_clip(tmp_path / "in.mkv", frames=30, width=32, height=32, audio="libmp3lame")

    def late(frames):
        held = deque()
        for frame in frames:
            held.append(frame)
            if len(held) > lag:
                yield held.popleft()
        yield from held

    report = transform(clip.path, tmp_path / "out.mkv", late, encode=LOSSLESS)
    assert report.frames == 30
    assert_same_samples(clip.path, report.dst)
    assert packets_of(report.dst, "audio") == clip.audio


def test_sound_lies_beside_its_pictures(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=75, width=32, height=32, audio="libmp3lame")
    transform(clip.path, tmp_path / "out.mkv", identity, encode=LOSSLESS)
    with av.open(str(tmp_path / "out.mkv")) as out:
        times = {"video": 0.0, "audio": 0.0}
        gap = 0.0
        for packet in out.demux():
            if packet.size:
                times[packet.stream.type] = float(packet.pts * packet.time_base)
                gap = max(gap, abs(times["video"] - times["audio"]))
    assert gap < 0.5


def test_a_video_is_opened_once_and_described_before_its_first_frame(tmp_path, monkeypatch):
    clip = make_clip(tmp_path / "in.mp4", frames=3)
    opened, told = [], []
    real = av.open
    monkeypatch.setattr(av, "open", lambda *a, **k: opened.append(a[0]) or real(*a, **k))

    def same(frames):
        assert [progress.expected for progress in told] == [None, 3]
        yield from frames

    transform(clip.path, tmp_path / "out.mp4", same, encode=LOSSLESS, advance=Callback(told.append))
    assert opened.count(f"file:{clip.path}") == 1


def test_a_change_reaches_the_file_and_progress_counts(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=5)
    seen = []

    def brighter(frames):
        for frame in frames:
            yield frame + 10 / 219

    report = transform(
        clip.path, tmp_path / "out.mp4", brighter, encode=LOSSLESS, advance=Callback(seen.append)
    )
    assert seen[-1].done == report.frames == 5
    assert [x.stage for x in seen if x.done == 0][-1] == "restoring" and seen[-1].stage == "finishing"
    for before, after in zip(clip.planes, VideoReader(report.dst), strict=True):
        expected = np.minimum(before[0].astype(int) + 10, 255)
        np.testing.assert_array_equal(after.planes[0], expected)
        np.testing.assert_array_equal(after.planes[1], before[1])


def test_default_quality_is_visually_lossless(tmp_path):
    for pix_fmt, codec in (("yuv420p", "h264"), ("yuv420p10le", "hevc")):
        clip = make_clip(tmp_path / f"{codec}.mp4", frames=4, width=96, height=64, pix_fmt=pix_fmt)
        report = transform(clip.path, tmp_path / f"{codec}-out.mp4", identity)
        info = probe(report.dst)
        assert info.codec == codec
        for before, after in zip(clip.planes, VideoReader(report.dst), strict=True):
            error = (before[0].astype(float) - after.planes[0]) / (2**info.pixels.depth - 1)
            assert -10 * np.log10((error**2).mean()) > 35


@pytest.mark.parametrize(
    ("codec", "name", "stored"),
    [
        ("h264", "o.mkv", "h264"),
        ("hevc", "o.mp4", "hevc"),
        ("vp9", "o.mkv", "vp9"),
        ("ffv1", "o.mkv", "ffv1"),
    ],
)
def test_codecs_can_be_chosen(tmp_path, codec, name, stored):
    clip = make_clip(tmp_path / "in.mp4", frames=3)
    options = EncodeOptions(codec=codec, lossless=True)
    report = transform(clip.path, tmp_path / name, identity, encode=options)
    assert probe(report.dst).codec == stored
    assert_same_samples(clip.path, report.dst)


def test_rgb_video_can_be_h264_or_ffv1(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=2, pix_fmt="gbrp")
    for codec in ("h264", "ffv1"):
        options = EncodeOptions(codec=codec, lossless=True)
        report = transform(clip.path, tmp_path / f"{codec}.mkv", identity, encode=options)
        assert report.warnings == ()
        for before, after in zip(clip.planes, VideoReader(report.dst), strict=True):
            for p, q in zip(before, after.planes, strict=True):
                np.testing.assert_array_equal(p, q)


def test_webm_gets_vp9_and_depth_that_is_not_kept_is_named(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=2, pix_fmt="yuv420p10le", codec="ffv1")
    report = transform(clip.path, tmp_path / "out.webm", identity)
    assert probe(report.dst).codec == "vp9"
    assert "yuv420p10le samples are stored as yuv420p" in report.warnings[0]


def test_from_mp4_to_mkv_and_back_to_exact_times(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=6, audio="aac")
    transform(clip.path, tmp_path / "out.mkv", identity, encode=LOSSLESS)
    assert packet_times(clip.path, "audio")[0] < 0  # the encoder's run-in, which players skip
    for kind in ("audio", "video"):
        assert packet_times(tmp_path / "out.mkv", kind) == packet_times(clip.path, kind)


def test_avi_is_read(tmp_path):
    clip = make_clip(tmp_path / "in.avi", frames=6, codec="ffv1")
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=LOSSLESS)
    assert report.lost == 0
    assert_same_samples(clip.path, report.dst)
    assert shown_at(report.dst) == shown_at(clip.path)


def test_interlaced_video_stays_interlaced(tmp_path):
    settings = {"qp": "0", "x264-params": "tff=1"}
    clip = make_clip(tmp_path / "in.mkv", frames=3, height=64, settings=settings)
    assert probe(clip.path).field_order == 2
    report = transform(clip.path, tmp_path / "out.mkv", identity, encode=LOSSLESS)
    assert "interlaced" in report.warnings[0]
    assert probe(report.dst).field_order == 2
    assert_same_samples(clip.path, report.dst)


def test_sound_that_starts_late_and_a_cover_picture_are_kept(tmp_path):
    clip = make_clip(tmp_path / "plain.mp4", frames=4, audio="aac")
    covered = tmp_path / "in.mp4"
    with av.open(str(clip.path)) as source, av.open(str(covered), "w") as target:
        streams = {s.index: target.add_stream_from_template(s, opaque=True) for s in source.streams}
        cover = target.add_stream("png", rate=1)
        cover.width, cover.height, cover.pix_fmt = 16, 16, "rgb24"
        cover.disposition = av.stream.Disposition.attached_pic
        picture = cover.encode(av.VideoFrame.from_ndarray(np.full((16, 16, 3), 99, np.uint8)))
        for packet in picture + cover.encode(None):
            target.mux(packet)
        for packet in source.demux():
            if packet.size:
                packet.stream = streams[packet.stream.index]
                if packet.stream.type == "audio":
                    packet.pts, packet.dts = packet.pts + 4321, packet.dts + 4321
                target.mux(packet)
    report = transform(covered, tmp_path / "out.mp4", identity, encode=LOSSLESS)
    assert packet_times(report.dst, "audio") == packet_times(covered, "audio")
    with av.open(str(report.dst)) as out:
        assert len(out.streams.video) == 2
        assert out.streams.video[1].disposition == av.stream.Disposition.attached_pic


def test_hdr10_mastering_data_is_kept(tmp_path):
    master = "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50):max-cll=1000,400"
    settings = {"x265-params": f"lossless=1:log-level=none:hdr10=1:{master}", "preset": "ultrafast"}
    tags = {"matrix": 9, "color_range": 1, "primaries": 9, "transfer": 16, "pix_fmt": "yuv420p10le"}
    clip = make_clip(tmp_path / "in.mp4", frames=2, codec="libx265", settings=settings, **tags)
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=LOSSLESS)
    after = probe(report.dst)
    assert probe(clip.path).hdr10 == after.hdr10 == master
    assert (after.matrix, after.primaries, after.transfer) == (9, 9, 16)
    assert_same_samples(clip.path, report.dst)
    report = transform(clip.path, tmp_path / "out.mkv", identity, encode=EncodeOptions(codec="ffv1"))
    assert "HDR10" in report.warnings[0]


def test_one_frame_is_a_video(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=1)
    report = transform(clip.path, tmp_path / "new" / "folder" / "out.mp4", identity, encode=LOSSLESS)
    assert report.frames == 1
    assert_same_samples(clip.path, report.dst)


@pytest.mark.parametrize("frames", [1, 2])
def test_a_very_short_deep_video_keeps_its_times(tmp_path, frames):
    """HEVC without enough frames to reorder: several times, because what is left unset is random."""
    clip = make_clip(tmp_path / "in.mkv", frames=frames, pix_fmt="yuv420p10le")
    for attempt in range(5):
        report = transform(clip.path, tmp_path / f"{attempt}.mp4", identity, encode=LOSSLESS)
        assert probe(report.dst).codec == "hevc"
        assert packet_times(report.dst, "video") == packet_times(clip.path, "video")
        assert_same_samples(clip.path, report.dst)


def test_reader_and_writer_alone(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=3, audio="aac")
    with VideoReader(clip.path) as reader:
        assert reader.info.audio_streams == 1 and reader.info.frame_count == 3
        assert reader.info.frame_count / reader.info.rate == pytest.approx(0.12)
        assert reader.info.pixels == PixelLayout("yuv420", luma_weights=(0.299, 0.114))
        with VideoWriter(tmp_path / "out.mp4", reader.info, LOSSLESS) as writer:
            for frame in reader:
                writer.write(frame)
                assert not (tmp_path / "out.mp4").exists()
        assert reader.lost == 0
    assert len(decoded(tmp_path / "out.mp4")) == 3
    assert probe(tmp_path / "out.mp4").audio_streams == 0


def test_no_thread_and_no_file_is_left_behind(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=3)
    transform(clip.path, tmp_path / "out.mp4", identity, encode=LOSSLESS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.mp4", "out.mp4"]
    assert not [t for t in threading.enumerate() if t.name.startswith("pahs-")]
