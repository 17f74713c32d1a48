"""Bad inputs, bad outputs and accidents: one clear line, no half-written file, the input untouched."""

from __future__ import annotations

import errno
import io
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from clips import decoded, make_clip, moving_texture, packets_of
from pahs.errors import PahsError
from pahs.files import Partial
from pahs.video import EncodeOptions, Frame, VideoReader, VideoWriter, outputs_for, probe, transform
from pahs.video.channel import Channel, Closed

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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk(tmp_path, monkeypatch):
    real = Partial.__init__

    def on_a_full_disk(self, target):
        real(self, target)
        self.path.symlink_to("/dev/full")

    monkeypatch.setattr(Partial, "__init__", on_a_full_disk)
    clip = make_clip(tmp_path / "in.mp4", frames=20, audio="aac")
    for suffix in (".mp4", ".mkv"):
        with pytest.raises(PahsError, match=rf"out{suffix}: the disk is full; free some space"):
            transform(clip.path, tmp_path / f"out{suffix}", identity, encode=FAST)
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


def test_disk_that_fills_up_on_the_way(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=40, width=128, height=96)
    code = (
        "import resource, sys\n"
        "from pahs.errors import PahsError\n"
        "from pahs.video import EncodeOptions, transform\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "try:\n"
        "    transform(sys.argv[1], sys.argv[2], lambda frames: frames, encode=EncodeOptions(lossless=True))\n"
        "except PahsError as error:\n"
        "    print(error)\n"
    )
    arguments = [sys.executable, "-c", code, str(clip.path), str(tmp_path / "out.mkv")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
    assert "out.mkv: the disk is full" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


def test_other_errors_of_the_disk_are_named(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=2)
    info = probe(clip.path)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        with pytest.raises(PahsError, match=os.strerror(errno.EMFILE)):
            VideoWriter(tmp_path / "out.mp4", info)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


class AccidentError(Exception):
    pass


@pytest.mark.parametrize("accident", [AccidentError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [0, 5, 19])
def test_an_accident_leaves_nothing_behind(tmp_path, accident, at):
    clip = make_clip(tmp_path / "in.mp4", frames=20, audio="aac")
    target = tmp_path / "out.mp4"
    target.write_bytes(b"from the last run")
    before = snapshot(tmp_path)

    def failing(frames):
        for index, frame in enumerate(frames):
            if index == at:
                if accident is KeyboardInterrupt:
                    signal.raise_signal(signal.SIGINT)
                raise accident
            yield frame

    with pytest.raises(accident):
        transform(clip.path, target, failing, encode=FAST, overwrite=True)
    assert snapshot(tmp_path) == before
    assert not threads()


@pytest.mark.parametrize("step", ["prepare", "put"])
@pytest.mark.parametrize("at", [1, 7, 20])
def test_an_encoder_that_fails_ends_the_job(tmp_path, monkeypatch, step, at):
    """At the last frame nobody else is left to notice."""
    clip = make_clip(tmp_path / "in.mp4", frames=20)
    calls, real = [], getattr(VideoWriter, step)

    def failing(self, item):
        calls.append(item)
        if len(calls) == at:
            raise AccidentError
        return real(self, item)

    monkeypatch.setattr(VideoWriter, step, failing)
    with pytest.raises(AccidentError):
        transform(clip.path, tmp_path / "out.mp4", identity, encode=FAST)
    assert len(calls) == at
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]
    assert not threads()


def test_interrupt_while_waiting_for_the_decoder(tmp_path):
    """Ctrl-C must not hang when the main thread sleeps in a queue: here on one that nobody fills."""
    channel: Channel[int] = Channel(1)

    def interrupt():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(channel))


@pytest.mark.parametrize("kind", ["fewer", "more", "shape"])
def test_a_function_that_breaks_its_word_is_a_defect(tmp_path, kind):
    clip = make_clip(tmp_path / "in.mp4", frames=6)

    def wrong(frames):
        for index, frame in enumerate(frames):
            if kind == "fewer" and index == 2:
                return
            yield frame[:, 1:] if kind == "shape" else frame
            if kind == "more":
                yield frame

    with pytest.raises(ValueError, match="the function gave"):
        transform(clip.path, tmp_path / "out.mp4", wrong, encode=FAST)
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


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


def test_a_writer_that_is_left_by_an_exception_removes_its_file(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=3)
    target = tmp_path / "out.mp4"
    with (
        VideoReader(clip.path) as reader,
        pytest.raises(AccidentError),
        VideoWriter(target, reader.info, FAST) as writer,
    ):
        writer.write(next(iter(reader)))
        raise AccidentError
    assert [p.name for p in tmp_path.iterdir()] == ["in.mp4"]


def test_a_channel_holds_only_so_much_and_lets_go_when_closed():
    channel: Channel[int] = Channel(2)
    put: list[int] = []

    def produce():
        try:
            for number in range(10):
                channel.put(number)
                put.append(number)
        except Closed:
            put.append(-1)

    producer = threading.Thread(target=produce)
    producer.start()
    items = iter(channel)
    assert [next(items), next(items)] == [0, 1]
    time.sleep(0.1)
    assert put == [0, 1, 2, 3]
    channel.close(drop=True)
    producer.join(5)
    assert put[-1] == -1
    assert list(items) == []


def test_a_channel_carries_the_error_of_its_other_end():
    channel: Channel[int] = Channel(2)
    channel.put(1)
    channel.close(AccidentError())
    items = iter(channel)
    assert next(items) == 1
    with pytest.raises(AccidentError):
        next(items)
    with pytest.raises(AccidentError):
        channel.put(2)


def test_the_texture_of_the_tests_moves_and_has_detail():
    clip = moving_texture(4, 48, 64)
    assert clip.shape == (4, 48, 64, 3) and clip.min() == 0 and clip.max() == 1
    assert np.abs(np.diff(clip, axis=0)).mean() > 0.02
    assert clip.std() > 0.15


def test_three_threads_with_one_output_leave_the_result_of_one(tmp_path):
    clip = make_clip(tmp_path / "in.mp4", frames=10)
    all_run, results = threading.Barrier(3), []

    def slowly(frames):
        for index, frame in enumerate(frames):
            if index == 5:
                all_run.wait(10)
            yield frame

    def work():
        try:
            results.append(transform(clip.path, tmp_path / "out.mp4", slowly, encode=FAST).frames)
        except PahsError as error:
            results.append(str(error))
            all_run.wait(10)

    jobs = [threading.Thread(target=work) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    refused_jobs = [r for r in results if isinstance(r, str)]
    assert len(refused_jobs) == 2 and all("another job is writing it" in r for r in refused_jobs)
    assert len(decoded(tmp_path / "out.mp4")) == 10
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.mp4", "out.mp4"]


def test_an_output_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    """Another job may finish between the look at the output's name and its lock."""
    clip = make_clip(tmp_path / "in.mp4", frames=2)
    real = Partial.__init__

    def late(self, target):
        if target.name == "out.mp4":
            target.write_bytes(b"by the other job")
        real(self, target)

    monkeypatch.setattr(Partial, "__init__", late)
    with pytest.raises(PahsError, match=r"out\.mp4: exists"):
        transform(clip.path, tmp_path / "out.mp4", identity, encode=FAST)
    assert snapshot(tmp_path) == {"in.mp4": clip.path.read_bytes(), "out.mp4": b"by the other job"}
