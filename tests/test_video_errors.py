"""Bad inputs, bad outputs and accidents: one clear line, no half-written file, the input untouched."""

from __future__ import annotations

import io
import threading
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from clips import decoded, make_clip, moving_texture, packets_of
from pahs.errors import PahsError
from pahs.video import EncodeOptions, Frame, VideoReader, VideoWriter, outputs_for, probe, transform

FAST = EncodeOptions(preset="ultrafast")


def identity(frames):
    yield from frames


def refused(src: Path, dst: Path, *words: str, fn=identity, **options) -> None:
    """`transform` raises one line with these words and leaves the folder as it was."""
    before = snapshot(dst.parent) if dst.parent.is_dir() else None
    with pytest.raises(PahsError) as caught:
        transform(src, dst, fn, encode=FAST, **options)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    if before is not None:
        assert snapshot(dst.parent) == before
    assert not threads()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("pahs-")]


def test_missing_input(tmp_path):
    refused(tmp_path / "none.mp4", tmp_path / "out.mp4", "none.mp4", "no such file")
    with pytest.raises(PahsError, match="no such file"):
        probe(tmp_path / "none.mp4")
    with pytest.raises(PahsError, match="is a folder"):
        probe(tmp_path)


@pytest.mark.parametrize(
    ("content", "word"), [(b"", "empty"), (b"these are just words\n" * 50, "not a readable video file")]
)
def test_files_that_are_no_video(tmp_path, content, word):
    (tmp_path / "in.mp4").write_bytes(content)
    refused(tmp_path / "in.mp4", tmp_path / "out.mp4", "in.mp4", word)


def test_a_single_image_is_no_video(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"any")
    refused(tmp_path / "photo.jpg", tmp_path / "out.mp4", "photo.jpg", "single image")
    with pytest.raises(PahsError, match="single image"):
        outputs_for([tmp_path / "photo.jpg"])


def test_sound_alone(tmp_path):
    with av.open(str(tmp_path / "in.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=16000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.int16), format="s16", layout="mono")
        frame.sample_rate = 16000
        container.mux(stream.encode(frame) + stream.encode(None))
    refused(tmp_path / "in.mp4", tmp_path / "out.mp4", "no video stream")


def test_a_download_that_stopped_yields_what_is_there(tmp_path):
    whole = make_clip(
        tmp_path / "whole.mp4", frames=30, movflags="faststart", settings={"g": "5", "qp": "10"}
    )
    data = whole.path.read_bytes()
    broken = tmp_path / "in.mp4"
    broken.write_bytes(data[: len(data) * 6 // 10])
    there = len(list(VideoReader(broken)))
    assert 5 < there < 30
    report = transform(broken, tmp_path / "out.mp4", identity, encode=FAST)
    assert (report.frames, report.lost) == (there, 30 - there)
    assert f"{30 - there} damaged or missing frames" in report.warnings[0]
    assert len(decoded(report.dst)) == there


@pytest.mark.parametrize("suffix", [".mkv", ".avi"])
def test_a_cut_file_without_an_index_is_noticed_by_its_duration(tmp_path, suffix):
    whole = make_clip(tmp_path / f"whole{suffix}", frames=40, codec="ffv1")
    with VideoReader(whole.path) as reader:
        assert len(list(reader)) == 40 and reader.lost == 0
    data = whole.path.read_bytes()
    broken = tmp_path / f"in{suffix}"
    broken.write_bytes(data[: len(data) * 6 // 10])
    report = transform(broken, tmp_path / "out.mkv", identity, encode=FAST)
    assert 15 < report.frames < 30
    assert abs(report.frames + report.lost - 40) <= 1


def test_a_download_without_its_index(tmp_path):
    clip = make_clip(tmp_path / "whole.mp4", frames=10)
    data = clip.path.read_bytes()
    (tmp_path / "in.mp4").write_bytes(data[: len(data) // 2])
    refused(tmp_path / "in.mp4", tmp_path / "out.mp4", "in.mp4", "may be incomplete")


def test_damage_in_the_middle_costs_only_the_frames_it_hit(tmp_path):
    clip = make_clip(
        tmp_path / "in.avi", frames=12, codec="mjpeg", pix_fmt="yuvj420p", settings={"qscale": "3"}
    )
    data = bytearray(clip.path.read_bytes())
    start = data.index(b"\xff\xd8", len(data) // 2)
    data[start : start + 600] = bytes(600)
    clip.path.write_bytes(data)
    with VideoReader(clip.path) as reader:
        frames = len(list(reader))
        assert reader.lost >= 1
    assert 9 <= frames < 12
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=FAST)
    assert report.lost >= 1 and report.frames == frames


def test_a_file_in_which_no_frame_decodes(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=4, codec="ffv1", settings={"level": "3", "slicecrc": "1"})
    with av.open(str(clip.path)) as container:
        payloads = [bytes(p) for p in container.demux(video=0) if p.size]
    data = clip.path.read_bytes()
    for payload in payloads:
        data = data.replace(payload, bytes(len(payload)))
    clip.path.write_bytes(data)
    refused(clip.path, tmp_path / "out.mkv", "no frame can be decoded")


def test_size_that_changes_in_the_middle(tmp_path):
    options = {"codec": "mpeg2video", "settings": {"qscale": "2"}}
    first = make_clip(tmp_path / "a.ts", frames=6, width=64, height=48, **options)
    second = make_clip(tmp_path / "b.ts", frames=6, width=96, height=64, **options)
    both = tmp_path / "in.ts"
    both.write_bytes(first.path.read_bytes() + second.path.read_bytes())
    refused(both, tmp_path / "out.mp4", "in.ts", "64x48", "96x64")


@pytest.mark.parametrize("strays", [1, 3, 4])
def test_few_frames_of_another_size_are_damage(tmp_path, strays):
    with av.open(str(tmp_path / "in.mov"), "w") as container:
        stream = container.add_stream("mjpeg", rate=25)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = 64, 48, "yuvj420p"
        container.start_encoding()
        for i in range(12):
            picture = io.BytesIO()
            Image.new("RGB", (80, 48) if 5 <= i < 5 + strays else (64, 48), (i, 0, 0)).save(picture, "JPEG")
            packet = av.Packet(picture.getvalue())
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, i, i, Fraction(1, 25)
            container.mux(packet)
    if strays == 4:
        refused(tmp_path / "in.mov", tmp_path / "out.mp4", "from 64x48 to 80x48 at frame 5")
        return
    report = transform(tmp_path / "in.mov", tmp_path / "out.mp4", identity)
    assert (report.frames, report.lost) == (12 - strays, strays)
    assert [round(f.time * 25) for f in decoded(report.dst)] == [*range(5), *range(5 + strays, 12)]


def test_output_that_is_the_input(tmp_path, monkeypatch):
    clip = make_clip(tmp_path / "in.mp4", frames=2)
    (tmp_path / "link.mp4").symlink_to(clip.path)
    refused(clip.path, tmp_path / "link.mp4", "is the input itself", overwrite=True)
    monkeypatch.chdir(tmp_path)
    refused(clip.path, Path("in.mp4"), "is the input itself", overwrite=True)


def test_output_that_exists(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=2)
    target = tmp_path / "out.mp4"
    target.write_bytes(b"precious")
    refused(clip.path, target, "out.mp4", "exists")
    refused(clip.path, tmp_path, "is a folder")
    assert transform(clip.path, target, identity, encode=FAST, overwrite=True).frames == 2
    assert len(decoded(target)) == 2


def test_folder_that_cannot_be_written(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=2)
    (tmp_path / "file").write_bytes(b"not a folder")
    refused(clip.path, tmp_path / "file" / "out.mp4", "out.mp4", "cannot be")
    if Path("/proc/self").is_dir():  # read-only even for root
        with pytest.raises(PahsError, match=r"/proc/out\.mp4: cannot be written"):
            transform(clip.path, Path("/proc/out.mp4"), identity, encode=FAST)


def test_ending_that_no_container_has(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=2)
    refused(clip.path, tmp_path / "out.xyz", "'.xyz'", ".mp4")
    refused(clip.path, tmp_path / "out.avi", "AVI cannot store")
    refused(clip.path, tmp_path / "out.wav", "cannot write a video codec")


def test_stream_that_the_container_cannot_hold(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=2, subtitles="subrip")
    refused(clip.path, tmp_path / "out.mp4", "subtitle stream (srt)", "out.mkv")
    clip = make_clip(tmp_path / "in.mp4", frames=2, audio="aac")
    refused(clip.path, tmp_path / "out.webm", "audio stream (aac)", "out.mkv")


@pytest.mark.parametrize("matrix", [8, 14])
def test_a_matrix_that_ffmpeg_cannot_convert_passes_through(tmp_path, matrix):
    options = {"codec": "ffv1", "settings": {}, "pix_fmt": "yuv420p10le"}
    clip = make_clip(tmp_path / "in.mkv", frames=2, matrix=matrix, primaries=9, transfer=16, **options)
    same = make_clip(tmp_path / "plain.mkv", frames=2, matrix=9, primaries=9, transfer=16, **options)
    for source, target in ((clip, "out.webm"), (same, "plain.webm")):
        assert transform(source.path, tmp_path / target, identity, encode=FAST).frames == 2
    for a, b in zip(decoded(tmp_path / "out.webm"), decoded(tmp_path / "plain.webm"), strict=True):
        assert [bytes(p) for p in a.planes] == [bytes(p) for p in b.planes]


def test_attachment_that_the_container_cannot_hold_is_named(tmp_path):
    clip = make_clip(tmp_path / "in.mkv", frames=2, attachment=b"a note")
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=FAST)
    assert "attachment" in report.warnings[0] and "not kept" in report.warnings[0]


def test_a_stream_without_times_gets_even_ones(tmp_path):
    clip = make_clip(tmp_path / "in.h264", frames=5)
    report = transform(clip.path, tmp_path / "out.mp4", identity, encode=FAST)
    shown = [f.pts for f in decoded(report.dst)]
    assert len(shown) == 5 and len(set(np.diff(shown))) == 1


def test_two_frames_at_one_time_are_told_apart(tmp_path):
    times = {"time_base": Fraction(1, 1000), "pts": [0, 40, 40, 80]}
    clip = make_clip(tmp_path / "in.mkv", frames=4, codec="ffv1", **times)
    report = transform(clip.path, tmp_path / "out.mkv", identity, encode=FAST)
    assert [f.pts for f in decoded(report.dst)] == [0, 40, 41, 80]
    assert "do not increase" in report.warnings[0]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_sound_that_steps_back_in_time_does_not_end_the_job(tmp_path, suffix):
    clip = make_clip(tmp_path / "in.mp4", frames=4, audio="aac")
    with (
        VideoReader(clip.path) as reader,
        VideoWriter(tmp_path / f"out{suffix}", reader.info, FAST, reader) as writer,
    ):
        first = None
        for item in reader.items():
            if isinstance(item, Frame):
                writer.write(item)
                continue
            first = item.dts if first is None else first
            if item.dts < first + 4000:
                item.dts = item.pts = first
            writer.put(item)
    assert packets_of(tmp_path / f"out{suffix}", "audio") == clip.audio


def test_wrong_options_are_named():
    with pytest.raises(PahsError, match="codec 'h265'"):
        EncodeOptions(codec="h265")
    with pytest.raises(PahsError, match="crf 99"):
        EncodeOptions(crf=99)
    with pytest.raises(PahsError, match="preset 'fastest'"):
        EncodeOptions(preset="fastest")


def test_the_texture_of_the_tests_moves_and_has_detail():
    clip = moving_texture(4, 48, 64)
    assert clip.shape == (4, 48, 64, 3) and clip.min() == 0 and clip.max() == 1
    assert np.abs(np.diff(clip, axis=0)).mean() > 0.02
    assert clip.std() > 0.15
