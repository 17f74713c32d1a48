"""Containers that people have: joined, wrapped, with time codes, covers, second videos and old sound."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest

from clips import decoded, make_clip, packet_times, packets_of
from pahs.errors import PahsError
from pahs.video import EncodeOptions, VideoReader, probe, transform
from pahs.video.frames import Frame

LOSSLESS = EncodeOptions(lossless=True, preset="ultrafast")
FAST = EncodeOptions(preset="ultrafast")


def identity(frames):
    yield from frames


def shown_at(path: Path) -> list[Fraction]:
    return [f.pts * f.time_base for f in decoded(path)]


def remux(parts: list[Path], target: Path, **options: str) -> Path:
    """All streams of all parts, as they are, in one file."""
    with av.open(str(target), "w", container_options=options) as out:
        inputs = [av.open(str(part)) for part in parts]
        streams = [{s.index: out.add_stream_from_template(s, opaque=True) for s in i.streams} for i in inputs]
        for source, mapped in zip(inputs, streams, strict=True):
            for packet in source.demux():
                if packet.size:
                    packet.stream = mapped[packet.stream.index]
                    out.mux(packet)
            source.close()
    return target


@pytest.mark.parametrize("rate", [Fraction(25), Fraction(30000, 1001)])
def test_a_time_code_track_comes_back(tmp_path, rate):
    code = "01:02:03:04" if rate == 25 else "01:02:03;04"
    clip = make_clip(
        tmp_path / "camera.mov", frames=5, rate=rate, audio="pcm_s16le", metadata={"timecode": code}
    )
    with av.open(str(clip.path)) as source:
        assert [s.type for s in source.streams] == ["video", "audio", "data"]
    report = transform(clip.path, tmp_path / "out.mov", identity, encode=LOSSLESS)
    assert report.warnings == ()
    with av.open(str(report.dst)) as out:
        assert [s.type for s in out.streams] == ["video", "audio", "data"]
        assert out.streams.video[0].metadata["timecode"] == code
    for suffix in (".mp4", ".mkv"):
        report = transform(clip.path, tmp_path / f"out{suffix}", identity, encode=LOSSLESS)
        with av.open(str(report.dst)) as out:
            tags = {k.lower(): v for k, v in out.streams.video[0].metadata.items()}
            assert tags["timecode"] == code and report.warnings == ()


@pytest.mark.parametrize("kind", ["ts", "mpg"])
@pytest.mark.parametrize("target", ["mp4", "mkv", "ts"])
def test_joined_recordings_play_one_after_the_other(tmp_path, kind, target):
    part = make_clip(
        tmp_path / f"part.{kind}", frames=30, codec="mpeg2video", settings={"qscale": "2"}, audio="mp2"
    )
    joined = tmp_path / f"in.{kind}"
    joined.write_bytes(part.path.read_bytes() * 2)
    report = transform(joined, tmp_path / f"out.{target}", identity, encode=FAST)
    assert report.frames == 60 and "start afresh" in report.warnings[0]
    shown = shown_at(report.dst)
    assert len(shown) == 60
    assert all(Fraction(35, 1000) < b - a < Fraction(300, 1000) for a, b in pairwise(shown))
    assert packets_of(report.dst, "audio") == packets_of(part.path, "audio") * 2
    sound = packet_times(report.dst, "audio")
    # Sound of the second part lies where its pictures are.
    assert abs((sound[len(sound) // 2] - shown[30]) - (sound[0] - shown[0])) < Fraction(2, 25)


def times_of(path: Path) -> tuple[list[float], list[float], list[str]]:
    """When pictures and sound are shown, in seconds, and what is said of the file."""
    with VideoReader(path) as reader:
        items = list(reader.items())
        shown = [float(x.pts * x.time_base) for x in items if isinstance(x, Frame)]
        heard = [float(x.pts * x.time_base) for x in items if not isinstance(x, Frame)]
        return shown, heard, reader.warnings


@pytest.mark.parametrize("kind", ["video", "audio"])
@pytest.mark.parametrize("reordered", [False, True])
@pytest.mark.parametrize("wrong", [16384, 700, -600, -1500])
def test_a_damaged_time_stamp_moves_nothing_but_its_own_packet(tmp_path, kind, reordered, wrong):
    """In Matroska each packet has a stamp of two bytes, in milliseconds: any of them but the last may be wrong."""
    settings = {"bf": "3", "b-adapt": "0"} if reordered else {"bf": "0", "preset": "ultrafast"}
    clip = make_clip(tmp_path / "clip.mkv", frames=60, settings=settings, audio="aac")
    shown, heard, _ = times_of(clip.path)
    data, bad = clip.path.read_bytes(), tmp_path / "bad.mkv"
    payloads = packets_of(clip.path, kind)
    stamps = {i: data.index(payload) - 3 for i, payload in enumerate(payloads[:-1])}
    places = sorted({*range(3), *range(3, len(payloads) - 2, 7), len(payloads) - 2})
    tried = 0
    for at in (stamps[place] for place in places):
        stamp = int.from_bytes(data[at : at + 2], "big") + wrong
        if stamp < 0:
            continue
        bad.write_bytes(data[:at] + stamp.to_bytes(2, "big") + data[at + 2 :])
        found_shown, found_heard, said = times_of(bad)
        assert found_shown == pytest.approx(shown, abs=0.1), at
        assert found_heard == pytest.approx(heard, abs=0.1), at
        assert not any("afresh" in line for line in said), at
        tried += 1
    assert tried > 2


def test_a_damaged_time_stamp_is_mended_in_the_result_and_said(tmp_path):
    clip = make_clip(
        tmp_path / "clip.mkv", frames=60, settings={"qp": "0", "preset": "ultrafast"}, audio="aac"
    )
    data, payload = clip.path.read_bytes(), packets_of(clip.path, "video")[40]
    at = data.index(payload) - 3
    (tmp_path / "in.mkv").write_bytes(data[:at] + bytes([data[at] | 0x40]) + data[at + 1 :])
    report = transform(tmp_path / "in.mkv", tmp_path / "out.mkv", identity, encode=FAST)
    assert shown_at(report.dst) == [Fraction(i, 25) for i in range(60)]
    assert packet_times(report.dst, "audio") == packet_times(clip.path, "audio")
    assert report.warnings == ("in.mkv: damaged time stamps were replaced by those between their neighbours",)


def test_a_long_gap_between_two_pictures_stays(tmp_path):
    """Pictures that are shown out of order around a gap look like damage, packet by packet."""
    unit, pts = Fraction(1, 1000), [40 * i + (9000 if i >= 13 else 0) for i in range(30)]
    for reordered in ("0", "3"):
        settings = {"bf": reordered, "b-adapt": "0"}
        clip = make_clip(
            tmp_path / f"{reordered}.mkv", frames=30, settings=settings, time_base=unit, pts=pts, audio="aac"
        )
        shown, _, said = times_of(clip.path)
        assert shown == pytest.approx([t / 1000 for t in pts]) and said == []


def test_times_that_wrap_are_moved_above_zero(tmp_path):
    clip = make_clip(
        tmp_path / "clip.ts", frames=30, codec="mpeg2video", settings={"qscale": "2"}, audio="mp2"
    )
    wrapped = remux([clip.path], tmp_path / "in.ts", output_ts_offset="95442")
    assert shown_at(wrapped)[0] < 0
    for suffix in (".mp4", ".mkv", ".ts"):
        report = transform(wrapped, tmp_path / f"out{suffix}", identity, encode=FAST)
        shown = shown_at(report.dst)
        assert len(shown) == 30 and shown[0] >= 0 and "below zero" in report.warnings[0]
        assert all(abs(b - a - Fraction(1, 25)) < Fraction(1, 500) for a, b in pairwise(shown))
        assert packets_of(report.dst, "audio") == packets_of(wrapped, "audio")
        lag = packet_times(wrapped, "audio")[0] - shown_at(wrapped)[0]
        assert abs(packet_times(report.dst, "audio")[0] - shown[0] - lag) < Fraction(1, 500)


def test_raw_dv(tmp_path):
    clip = make_clip(
        tmp_path / "in.dv", frames=5, width=720, height=576, codec="dvvideo", settings={}, pix_fmt="yuv420p"
    )
    for suffix in (".mp4", ".mov", ".mkv"):
        report = transform(clip.path, tmp_path / f"out{suffix}", identity, encode=FAST)
        assert shown_at(report.dst) == [Fraction(i, 25) for i in range(5)]
        assert probe(report.dst).rate == 25


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_the_times_of_a_second_video_are_kept(tmp_path, suffix):
    first = make_clip(tmp_path / "first.mkv", frames=12)
    second = make_clip(tmp_path / "second.mkv", frames=12, rate=10, settings={"bf": "3", "preset": "medium"})
    both = remux([first.path, second.path], tmp_path / "in.mkv")
    report = transform(both, tmp_path / f"out{suffix}", identity, encode=LOSSLESS)
    assert report.warnings == ()
    times = []
    for path in (both, report.dst):
        with av.open(str(path)) as container:
            times.append([f.pts * f.time_base for f in container.decode(video=1)])
    assert times[0] == times[1] == [Fraction(i, 10) for i in range(12)]


@pytest.mark.parametrize("kind", ["png", "mjpeg"])
def test_the_cover_of_a_matroska_file_is_kept(tmp_path, kind):
    clip = make_clip(tmp_path / "plain.mkv", frames=4)
    encoder = av.CodecContext.create(kind, "w")
    encoder.width, encoder.height, encoder.time_base = 16, 16, Fraction(1, 25)
    encoder.pix_fmt = "rgb24" if kind == "png" else "yuvj420p"
    picture = av.VideoFrame.from_ndarray(np.full((16, 16, 3), 99, np.uint8)).reformat(format=encoder.pix_fmt)
    data = b"".join(bytes(p) for p in [*encoder.encode(picture), *encoder.encode(None)])
    mime, name = f"image/{kind.replace('mjpeg', 'jpeg')}", f"cover.{kind.replace('mjpeg', 'jpg')}"
    with av.open(str(clip.path)) as source, av.open(str(tmp_path / "in.mkv"), "w") as target:
        video = target.add_stream_from_template(source.streams.video[0], opaque=True)
        target.add_attachment(name, mime, data)
        for packet in source.demux():
            if packet.size:
                packet.stream = video
                target.mux(packet)
    cover = av.stream.Disposition.attached_pic
    for suffix in (".mkv", ".mp4"):
        report = transform(tmp_path / "in.mkv", tmp_path / f"out{suffix}", identity, encode=LOSSLESS)
        assert report.warnings == ()
        with av.open(str(report.dst)) as out:
            assert [bool(s.disposition & cover) for s in out.streams.video] == [False, True]
            pictures = [bytes(p) for p in out.demux(out.streams.video[1]) if p.size]
        assert pictures == [data]
    again = transform(tmp_path / "out.mp4", tmp_path / "again.mkv", identity, encode=LOSSLESS)
    with av.open(str(again.dst)) as out:
        assert out.streams.video[1].metadata["filename"] == name and again.warnings == ()


@pytest.mark.parametrize(
    ("name", "sound"),
    [("in.wmv", "wmav2"), ("in.avi", "adpcm_ms"), ("in.avi", "adpcm_ima_wav")],
)
def test_sound_that_no_container_takes_over_is_encoded_anew(tmp_path, name, sound):
    clip = make_clip(tmp_path / name, frames=25, codec="mpeg4", settings={"qscale": "2"}, audio=sound)
    for suffix, codec in ((".mkv", "flac"), (".mp4", "aac")):
        report = transform(clip.path, tmp_path / f"out{suffix}", identity, encode=FAST)
        (said,) = [w for w in report.warnings if "sound" in w]
        assert sound in said and codec in said
        before, after = heard(clip.path), heard(report.dst)
        assert abs(len(before) - len(after)) < 1100 and len(before) > 16000
        piece = slice(4000, 15000)
        assert np.abs(before[piece] - after[piece]).mean() < 0.002 < 0.1 < np.abs(before[piece]).mean()
    with pytest.raises(PahsError, match=f"sound \\({sound}\\)"):
        transform(clip.path, tmp_path / "no.mkv", identity, encode=EncodeOptions(sound="copy"))
    assert not (tmp_path / "no.mkv").exists()


def heard(path: Path) -> np.ndarray:
    """Mono samples at 16 kHz, the first of them at time zero."""
    resampler = av.AudioResampler("flt", "mono", 16000)
    with av.open(str(path)) as container:
        frames = list(container.decode(audio=0))
    start = round(frames[0].pts * frames[0].time_base * 16000)
    return np.concatenate(
        [np.zeros(start), *(f.to_ndarray()[0] for x in frames for f in resampler.resample(x))]
    )


def test_sound_of_another_container_can_be_encoded_anew(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=25, audio="aac")
    report = transform(clip.path, tmp_path / "out.webm", identity, encode=EncodeOptions(sound="encode"))
    with av.open(str(report.dst)) as out:
        assert out.streams.audio[0].codec_context.codec.canonical_name == "opus"


def test_subtitles_of_an_mp4_are_kept_in_matroska(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=8, subtitles="mov_text")
    report = transform(clip.path, tmp_path / "out.mkv", identity, encode=FAST)
    assert packets_of(report.dst, "subtitle") == [b"hello"] and "subrip" in report.warnings[0]
    assert packet_times(report.dst, "subtitle") == [Fraction(40, 1000)]
    with av.open(str(report.dst)) as out:
        assert out.streams.subtitles[0].language == "fra"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("out.m3u8", "not a single video file"),
        ("out.mpd", "not a single video file"),
        ("out.png", "not a single video file"),
        ("out.y4m", "cannot store when"),
        ("out.h264", "cannot store when"),
        ("out.ts", "cannot write ffv1 into a mpegts"),
        ("out.mpg", "hold MPEG-1 or MPEG-2 video, which pahs does not write"),
        ("out.vob", "hold MPEG-1 or MPEG-2 video, which pahs does not write"),
    ],
)
def test_an_output_that_nobody_can_play_is_refused_before_the_work(tmp_path, name, words):
    clip = make_clip(tmp_path / "in.mkv", frames=3)
    started = []

    def noticed(frames):
        started.append(True)
        yield from frames

    options = EncodeOptions(codec="ffv1") if name == "out.ts" else FAST
    with pytest.raises(PahsError, match=words):
        transform(clip.path, tmp_path / name, noticed, encode=options)
    assert not started and [p.name for p in tmp_path.iterdir()] == ["in.mkv"]


def test_tags_that_a_container_drops_are_said(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=3, metadata={"title": "A walk", "MOOD": "calm"})
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=FAST)
    assert [w for w in report.warnings if "tags are not kept: mood" in w]
    assert transform(clip.path, tmp_path / "out.mkv", identity, encode=FAST).warnings == ()


def test_damaged_packets_of_sound_do_not_end_the_job(tmp_path):
    clip = make_clip(
        tmp_path / "whole.ts", frames=50, codec="mpeg2video", settings={"qscale": "9"}, audio="aac"
    )
    data = bytearray(clip.path.read_bytes())
    rng = np.random.default_rng(5)
    for position in rng.integers(len(data) // 3, len(data), 60):
        data[position] ^= 0xFF
    (tmp_path / "in.ts").write_bytes(data)
    report = transform(tmp_path / "in.ts", tmp_path / "out.mp4", identity, encode=FAST)
    assert report.frames > 10 and len(packets_of(report.dst, "audio")) > 10


def test_sound_that_a_cut_file_says_nothing_of_is_left_out(tmp_path):
    clip = make_clip(
        tmp_path / "whole.ts", frames=25, codec="mpeg2video", settings={"qscale": "2"}, audio="aac"
    )
    packets = clip.path.read_bytes()
    # Of the sound only its entry in the table of streams is left.
    kept = [packets[i : i + 188] for i in range(0, len(packets), 188)]
    kept = [p for p in kept if int.from_bytes(p[1:3]) & 0x1FFF != 0x101]
    (tmp_path / "in.ts").write_bytes(b"".join(kept))
    report = transform(tmp_path / "in.ts", tmp_path / "out.mkv", identity, encode=FAST)
    assert report.frames == 25 and "stream 1 (audio, aac) is not kept" in report.warnings[0]


def test_a_stream_that_begins_in_the_middle_does_not_end_the_job(tmp_path):
    options = {"codec": "mpeg2video", "settings": {"qscale": "9"}}
    silent = make_clip(tmp_path / "silent.ts", frames=200, **options)
    loud = make_clip(tmp_path / "loud.ts", frames=20, audio="mp2", **options)
    (tmp_path / "in.ts").write_bytes(silent.path.read_bytes() + loud.path.read_bytes())
    report = transform(tmp_path / "in.ts", tmp_path / "out.mkv", identity, encode=FAST)
    assert report.frames == 220


def test_marks_that_a_container_drops_are_said(tmp_path):
    clip = make_clip(tmp_path / "plain.mkv", frames=4, audio="aac")
    with av.open(str(clip.path)) as source, av.open(str(tmp_path / "in.mkv"), "w") as target:
        streams = {s.index: target.add_stream_from_template(s, opaque=True) for s in source.streams}
        streams[1].metadata.update(language="deu", title="Commentary")
        streams[1].disposition = av.stream.Disposition.comment
        for packet in source.demux():
            if packet.size:
                packet.stream = streams[packet.stream.index]
                target.mux(packet)
    assert transform(tmp_path / "in.mkv", tmp_path / "out.mkv", identity, encode=FAST).warnings == ()
    assert transform(tmp_path / "in.mkv", tmp_path / "out.mp4", identity, encode=FAST).warnings == ()
    report = transform(tmp_path / "in.mkv", tmp_path / "out.ts", identity, encode=FAST)
    assert report.warnings == ("out.ts: of stream 1 (audio) is not kept: title, comment",)
    with av.open(str(report.dst)) as out:
        assert out.streams.audio[0].language == "deu" and "title" not in out.streams.audio[0].metadata
    with av.open(str(tmp_path / "out.mp4")) as out:
        assert out.streams.audio[0].metadata["name"] == "Commentary"
        assert out.streams.audio[0].disposition & av.stream.Disposition.comment
