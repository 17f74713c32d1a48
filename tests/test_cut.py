"""A part of a video: exactly its frames, with what belongs to them, at times that start at 0."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from skimage.measure import blur_effect

import pahs
from clips import decoded, make_clip, moving_texture, packet_times, packets_of, raw_planes
from pahs.engine.sharpness import sharpness
from pahs.errors import PahsError
from pahs.networks import Deblurrer, PAHSConfig
from pahs.video import transform
from pahs.video.cut import Part, blurriest

LOSSLESS = pahs.EncodeOptions(lossless=True)


@pytest.fixture(scope="module")
def net() -> Deblurrer:
    torch.manual_seed(1)
    return PAHSConfig(width=6, global_skip=True, shared_extractor=True).build().eval()


def samples(path: Path) -> list[list[np.ndarray]]:
    return [raw_planes(frame) for frame in decoded(path)]


def same(a: list[list[np.ndarray]], b: list[list[np.ndarray]]) -> bool:
    return len(a) == len(b) and all(
        np.array_equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True)
    )


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.mov", "clip.ts", "clip.mpg"])
@pytest.mark.parametrize(("start", "end"), [(0.0, 0.4), (1.0, 1.52), (2.2, 9.0)])
def test_a_part_has_exactly_its_frames_at_times_from_zero(
    tmp_path: Path, name: str, start: float, end: float
) -> None:
    settings = {"qp": "0", "preset": "ultrafast", "g": "12", "bf": "2"}
    codec = "mpeg2video" if name.endswith("mpg") else "libx264"
    source = make_clip(
        tmp_path / name, frames=60, codec=codec, settings=settings if codec == "libx264" else {"g": "12"}
    ).path
    whole = samples(source)
    target = tmp_path / "out.mkv"
    report = pahs.deblur(
        source, target, pahs.DeblurOptions(start=start, end=end, strength=0, encode=LOSSLESS), model=NOTHING
    )
    first, last = round(start * 25), min(60, round(end * 25))
    assert report.frames == last - first and not report.lost
    assert same(samples(target), whole[first:last])
    times = [f.pts * f.time_base for f in decoded(target)]
    assert times == pytest.approx([i / 25 for i in range(last - first)], abs=0.002)


NOTHING = PAHSConfig(width=6, global_skip=True, shared_extractor=True).build().eval()


def test_sound_subtitles_and_chapters_are_cut_to_the_part(tmp_path: Path) -> None:
    source = tmp_path / "clip.mkv"
    make_clip(source, frames=75, audio="flac", settings={"qp": "0", "g": "25"})
    full = tmp_path / "full.mkv"
    with av.open(str(source)) as old, av.open(str(full), "w") as new:
        copies = {s.index: new.add_stream_from_template(s, opaque=True) for s in old.streams}
        text = new.add_mux_stream("subrip", time_base=Fraction(1, 1000))
        new.set_chapters(
            [
                {"id": i, "start": low, "end": high, "time_base": Fraction(1, 1000), "metadata": {"title": t}}
                for i, (low, high, t) in enumerate([(0, 900, "a"), (900, 1500, "b"), (1500, 3000, "c")], 1)
            ]
        )
        new.start_encoding()
        for start, duration, line in ((100, 300, b"gone"), (700, 800, b"shortened"), (1800, 900, b"end")):
            packet = av.Packet(line)
            packet.stream, packet.time_base = text, Fraction(1, 1000)
            packet.pts = packet.dts = start
            packet.duration = duration
            new.mux(packet)
        for packet in old.demux():
            if packet.size:
                packet.stream = copies[packet.stream.index]
                new.mux(packet)
    out = tmp_path / "out.mkv"
    options = pahs.DeblurOptions(start=1, end=2, strength=0, encode=LOSSLESS)
    assert pahs.deblur(full, out, options, model=NOTHING).frames == 25
    kept = packets_of(out, "audio")
    everything = packets_of(full, "audio")
    first = everything.index(kept[0])
    assert kept == everything[first : first + len(kept)]
    before, after = packet_times(full, "audio"), packet_times(out, "audio")
    assert after == pytest.approx([t - 1 for t in before[first : first + len(kept)]], abs=0.0011)
    assert 0 <= after[0] < 0.3 and 0.7 < after[-1] < 1
    with av.open(str(out)) as result:
        lines = [
            (bytes(p), p.pts, p.duration) for p in result.demux() if p.size and p.stream.type == "subtitle"
        ]
        chapters = [(c["start"] * c["time_base"], c["end"] * c["time_base"]) for c in result.chapters()]
        titles = [c["metadata"]["title"] for c in result.chapters()]
    assert lines == [(b"shortened", 0, 500), (b"end", 800, 200)]
    assert titles == ["b", "c"]
    assert chapters == [(0, Fraction(1, 2)), (Fraction(1, 2), 1)]


def test_a_folder_of_images_is_cut_by_its_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i, frame in enumerate(decoded(make_clip(tmp_path / "clip.mp4", frames=10).path)):
        frame.to_image().save(folder / f"{i:03d}.png")
    options = pahs.DeblurOptions(start=0.12, end=0.2, strength=0)
    assert pahs.deblur(folder, tmp_path / "out", options, model=NOTHING).frames == 2
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["003.png", "004.png"]
    assert (tmp_path / "out" / "003.png").is_file()


@pytest.mark.parametrize(("start", "end"), [(5.0, None), (0.405, 0.41)])
def test_a_part_without_frames_is_one_line(tmp_path: Path, start: float, end: float | None) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=20).path
    with pytest.raises(PahsError, match=r"clip\.mp4: holds no frame from"):
        pahs.deblur(source, tmp_path / "out.mp4", pahs.DeblurOptions(start=start, end=end), model=NOTHING)
    assert [p.name for p in tmp_path.iterdir()] == ["clip.mp4"]


def blurred_in_the_middle(path: Path) -> None:
    """Eight seconds; seconds 5 to 6.5 are blurred, and black seconds at the start have no detail at all."""
    pictures = moving_texture(40, 48, 96)
    for i, picture in enumerate(pictures):
        if 25 <= i < 33:
            for _ in range(6):
                picture[:, 1:-1] = (picture[:, :-2] + picture[:, 1:-1] + picture[:, 2:]) / 3
        if i < 5:
            picture[:] = 0
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=5, options={"qp": "0", "g": "3"})
        stream.width, stream.height = 96, 48
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray((picture * 255).astype(np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def test_a_preview_shows_where_the_blur_is_worst(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    blurred_in_the_middle(path)
    part = blurriest(path, 1.0, None, sharpness)
    assert part.end == part.start + 1
    assert part.start >= 4.5 and part.end <= 7.1, part
    within = blurriest(path, 1.0, Part(Fraction(0), Fraction(3)), sharpness)
    assert within.start >= 0 and within.end <= 3
    report = pahs.deblur(path, tmp_path / "out.mp4", pahs.DeblurOptions(preview=1), model=NOTHING)
    assert report.frames == 5
    longer = pahs.deblur(path, tmp_path / "all.mp4", pahs.DeblurOptions(preview=100), model=NOTHING)
    assert longer.frames == 40


def test_a_preview_does_not_take_the_name_of_the_whole(tmp_path: Path, net: Deblurrer) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=10).path
    names = [
        pahs.deblur(source, options=options, model=net).dst.name
        for options in (pahs.DeblurOptions(preview=0.1), pahs.DeblurOptions(end=0.2), pahs.DeblurOptions())
    ]
    assert names == ["clip-preview-deblurred.mp4", "clip-part-deblurred.mp4", "clip-deblurred.mp4"]


def test_a_preview_without_any_detail_is_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "grey.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height = 32, 32
        for _ in range(60):
            grey = np.full((32, 32, 3), 90, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
        container.mux(stream.encode(None))
    assert blurriest(path, 2.0, None, sharpness) == Part(Fraction(2), Fraction(4))


def test_sharpness_follows_the_published_measure() -> None:
    """scikit-image's blur_effect is the same measure with another edge filter: the order must agree."""
    picture = moving_texture(1, 96, 128)[0]
    ours, theirs = [], []
    for _ in range(5):
        ours.append(sharpness(torch.from_numpy(picture).permute(2, 0, 1)))
        theirs.append(1 - blur_effect(picture, channel_axis=-1))
        picture = picture.copy()
        picture[:, 1:-1] = (picture[:, :-2] + picture[:, 1:-1] + picture[:, 2:]) / 3
    assert None not in ours
    assert ours == sorted(ours, reverse=True) and theirs == sorted(theirs, reverse=True)
    assert ours == pytest.approx(theirs, abs=0.12)
    assert sharpness(torch.full((3, 40, 40), 0.5)) is None


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_strength_is_the_share_of_the_change(tmp_path: Path, strength: float) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=4)
    out = tmp_path / "out.mp4"
    transform(clip.path, out, lambda frames: (x + 0.1 for x in frames), encode=LOSSLESS, strength=strength)
    for before, after in zip(clip.planes, samples(out), strict=True):
        if strength == 0:
            assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))
        inner = before[0] < 200
        change = after[0].astype(int)[inner] - before[0][inner]
        assert abs(change - round(strength * 0.1 * 219)).max() <= 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"start": -1}, "--start -1"),
        ({"start": 5, "end": 5}, "--end 5"),
        ({"preview": 0}, "--preview 0"),
        ({"strength": 1.5}, "--strength 1.5"),
        ({"strength": float("nan")}, "--strength nan"),
        ({"preview": float("nan")}, "--preview nan"),
    ],
)
def test_parts_are_checked_before_any_work(options: dict[str, float], told: str) -> None:
    with pytest.raises(PahsError, match=told):
        pahs.DeblurOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("1:30", 90.0), ("0:01:30.5", 90.5), ("2.25", 2.25)]
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    from pahs.choices import seconds_of

    assert seconds_of(text) == seconds
    for wrong in ("a", "-1", "1:2:3:4", "nan", ""):
        with pytest.raises(PahsError, match="is not a time"):
            seconds_of(wrong)
