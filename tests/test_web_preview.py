"""The stacked preview: both pictures of one frame, whatever the result's codec, depth and rotation."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from pahs.deblur import DeblurOptions, deblur
from pahs.networks import PAHSConfig
from pahs.web.jobs import Preview
from pahs.web.preview import stack


def numbered(
    path: Path,
    frames: int,
    pix_fmt: str = "yuv420p",
    codec: str = "libx264",
    rotation: int = 0,
    width: int = 96,
    height: int = 64,
    step: int = 6,
    settings: dict[str, str] | None = None,
) -> Path:
    """Frame n has the brightness 40 + step n, and a black corner at the top left."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options=settings or {})
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        if rotation:
            stream.set_display_rotation(rotation)
        for number in range(frames):
            picture = np.full((height, width, 3), 40 + step * number, np.uint8)
            picture[:16, :16] = 0
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format=pix_fmt)
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def halves(path: Path, preview: Preview) -> list[tuple[np.ndarray, np.ndarray]]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        pictures = [frame.to_ndarray(format="rgb24").astype(int) for frame in container.decode(stream)]
    return [
        (p[: preview.height, : preview.width], p[preview.offset :][: preview.height, : preview.width])
        for p in pictures
    ]


@pytest.mark.parametrize(
    ("pix_fmt", "codec", "ending"),
    [
        ("yuv420p", "libx264", ".mp4"),
        ("yuv420p10le", "libx265", ".mp4"),
        ("yuv422p10le", "prores_ks", ".mov"),
        ("yuv444p", "libx264", ".mkv"),
    ],
)
def test_both_halves_show_the_same_frame(tmp_path: Path, pix_fmt: str, codec: str, ending: str) -> None:
    before = numbered(tmp_path / f"before{ending}", 30, pix_fmt, codec)
    after = numbered(tmp_path / "after.mp4", 30)
    preview = stack(before, after, tmp_path / "preview.mp4")
    assert (preview.frames, preview.width, preview.height, preview.rate) == (30, 96, 64, 25)
    for number, (upper, lower) in enumerate(halves(tmp_path / "preview.mp4", preview)):
        for half in (upper, lower):
            assert abs(half[32:, 32:].mean() - (40 + 6 * number)) < 2.9, number
            assert half[4:12, 4:12].mean() < 12
    index = (tmp_path / "preview.mp4").read_bytes()
    assert index.find(b"moov") < index.find(b"mdat"), "a player starts before it has all"


def test_a_turned_video_is_shown_upright(tmp_path: Path) -> None:
    before = numbered(tmp_path / "before.mp4", 3, rotation=90)
    preview = stack(before, before, tmp_path / "preview.mp4")
    assert (preview.width, preview.height) == (64, 96)
    for half in halves(tmp_path / "preview.mp4", preview)[0]:
        assert half[84:92, 4:12].mean() < 12, "turned by 90 degrees to the left"
        assert half[4:12, 4:12].mean() > 30


@pytest.mark.parametrize("start", [0.4, 1.0, 2.6])
def test_a_part_is_compared_with_its_own_frames(tmp_path: Path, start: float) -> None:
    before = numbered(tmp_path / "before.mp4", 70, step=3)
    network = PAHSConfig(width=6, global_skip=True, shared_extractor=True).build().eval()
    options = DeblurOptions(start=start, end=start + 0.2, strength=0)
    deblur(before, tmp_path / "part.mp4", options, network)
    preview = stack(before, tmp_path / "part.mp4", tmp_path / "preview.mp4", start=start)
    assert preview.frames == 5
    for upper, lower in halves(tmp_path / "preview.mp4", preview):
        assert np.abs(upper - lower)[32:, 32:].mean() < 1


def test_large_frames_are_made_smaller(tmp_path: Path) -> None:
    clip = numbered(tmp_path / "large.mp4", 1, width=3840, height=2160)
    preview = stack(clip, clip, tmp_path / "preview.mp4")
    assert (preview.width, preview.height) == (1928, 1084)


@pytest.mark.parametrize("start", [3.0, 6.0])
def test_a_part_of_a_broadcast_is_compared_with_its_own_frames(tmp_path: Path, start: float) -> None:
    """A transport stream has no index: a jump lands between two key frames, far from where it should."""
    settings = {"g": "250", "keyint_min": "250", "sc_threshold": "0", "qp": "4"}
    before = numbered(tmp_path / "before.ts", 200, step=1, settings=settings)
    network = PAHSConfig(width=6, global_skip=True, shared_extractor=True).build().eval()
    options = DeblurOptions(start=start, end=start + 0.2, strength=0)
    deblur(before, tmp_path / "part.mkv", options, network)
    preview = stack(before, tmp_path / "part.mkv", tmp_path / "preview.mp4", start=start)
    assert preview.frames == 5
    for number, (upper, lower) in enumerate(halves(tmp_path / "preview.mp4", preview), round(start * 25)):
        assert np.abs(upper - lower)[32:, 32:].mean() < 1
        assert abs(upper[32:, 32:].mean() - (40 + number)) < 2.9
