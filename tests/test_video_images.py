"""Folders of images as videos, and where results go."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image

from clips import decoded, make_clip, moving_texture, raw_planes
from pahs.errors import PahsError
from pahs.video import ImageFolderReader, ImageFolderWriter, VideoInfo, outputs_for, to_rgb, transform
from pahs.video.frames import Frame, PixelLayout
from pahs.video.images import images_in


def identity(frames):
    yield from frames


def write_image(path: Path, picture: np.ndarray, layout: str) -> None:
    """One picture with FFmpeg's encoder for the file's ending."""
    source = {"rgb48be": "rgb48be", "gray16be": "gray16be", "rgb48le": "rgb48le"}.get(layout, "rgb24")
    encoder = {".jpg": "mjpeg", ".webp": "libwebp", ".bmp": "bmp", ".tiff": "tiff", ".png": "png"}[
        path.suffix
    ]
    context = av.CodecContext.create(encoder, "w")
    frame = av.VideoFrame.from_ndarray(picture, format=source).reformat(format=layout)
    context.width, context.height, context.pix_fmt = frame.width, frame.height, layout
    context.time_base = Fraction(1, 25)
    if encoder == "libwebp":
        context.options = {"lossless": "1"}
    if encoder == "mjpeg":
        context.qmin = context.qmax = 1
    path.write_bytes(b"".join(bytes(p) for p in [*context.encode(frame), *context.encode(None)]))


def folder_of(path: Path, suffix: str, layout: str, count: int = 3, size: tuple[int, int] = (20, 27)) -> Path:
    path.mkdir()
    for index, picture in enumerate(moving_texture(count, *size)):
        deep = "16" in layout or "48" in layout
        samples = np.rint(picture * (65535 if deep else 255)).astype(np.uint16 if deep else np.uint8)
        write_image(path / f"{index + 8}{suffix}", samples[..., 0] if "gray" in layout else samples, layout)
    return path


@pytest.mark.parametrize(
    ("suffix", "layout", "depth"),
    [
        (".png", "rgb24", 8),
        (".png", "rgb48be", 16),
        (".png", "gray16be", 16),
        (".tiff", "rgb24", 8),
        (".tiff", "rgb48le", 16),
        (".bmp", "bgr24", 8),
        (".webp", "bgra", 8),
    ],
)
def test_images_come_back_exactly(tmp_path, suffix, layout, depth):
    source = folder_of(tmp_path / "in", suffix, layout)
    with ImageFolderReader(source) as reader:
        assert reader.info.pixels.depth == depth
    report = transform(source, tmp_path / "out", identity)
    assert (report.frames, report.lost) == (3, 0)
    # Natural order: 8, 9, 10.
    assert [p.name for p in images_in(tmp_path / "out")] == [f"{i}{suffix}" for i in (8, 9, 10)]
    for before, after in zip(images_in(source), images_in(tmp_path / "out"), strict=True):
        (a,), (b,) = decoded(before), decoded(after)
        assert a.format.name.replace("bgra", "argb") == b.format.name.replace("bgra", "argb")
        for p, q in zip(raw_planes(a), raw_planes(b), strict=True):
            np.testing.assert_array_equal(p, q)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]


def test_names_may_hold_digits_that_are_no_decimals(tmp_path):
    for name in ("a\u00b2.png", "\u00b2" + "10.png", "\u00b2" + "9.png", "\u2460.png", "7.png"):
        Image.new("RGB", (16, 16)).save(tmp_path / name)
    names = [path.name for path in images_in(tmp_path)]
    assert names.index("\u00b2" + "9.png") < names.index("\u00b2" + "10.png") and names[0] == "7.png"


def test_jpeg_images_come_back_closely(tmp_path):
    source = folder_of(tmp_path / "in", ".jpg", "yuvj444p")
    transform(source, tmp_path / "out", identity)
    one, two = ImageFolderReader(source), ImageFolderReader(tmp_path / "out")
    assert one.info.pixels == two.info.pixels == PixelLayout("yuv444", 8, True, (0.299, 0.114), "center")
    for a, b in zip(one, two, strict=True):
        assert (to_rgb(a.planes, one.info.pixels) - to_rgb(b.planes, two.info.pixels)).abs().mean() < 0.004


def test_a_change_reaches_the_images_and_alpha_is_named(tmp_path):
    source = folder_of(tmp_path / "in", ".png", "rgba")
    assert transform(source, tmp_path / "same", identity).warnings == ()  # opaque: nothing is lost
    picture = Image.open(source / "8.png")
    picture.putalpha(128)
    picture.save(source / "8.png")

    def darker(frames):
        for frame in frames:
            assert frame.shape == (3, 20, 27) and frame.dtype == torch.float32
            yield frame - 20 / 255

    report = transform(source, tmp_path / "out", darker)
    assert "alpha" in report.warnings[0]
    (before,), (after,) = decoded(source / "8.png"), decoded(tmp_path / "out" / "8.png")
    expected = np.maximum(before.to_ndarray()[..., :3].astype(int) - 20, 0)
    np.testing.assert_array_equal(after.to_ndarray(), expected)


def test_gray_pictures_in_colour_formats_and_jpeg_from_deep_samples(tmp_path):
    info = VideoInfo(
        tmp_path, "images", "png", 6, 4, PixelLayout("gray", 8, True), "gray", Fraction(1), Fraction(25)
    )
    plane = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    with ImageFolderWriter(tmp_path / "out", info) as writer:
        for name in ("a.webp", "a.bmp", "a.jpg", None):
            writer.write(Frame((plane,), 7, Fraction(1), name=name))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["000007.png", "a.bmp", "a.jpg", "a.webp"]
    for file in (tmp_path / "out").iterdir():
        (frame,) = decoded(file)
        gray = frame.reformat(format="gray").to_ndarray().astype(int)
        assert np.abs(gray - plane).max() <= 3, file.name


def test_a_broken_image_is_counted_and_other_sizes_refused(tmp_path):
    source = folder_of(tmp_path / "in", ".png", "rgb24", count=4)
    (source / "9.png").write_bytes(b"not an image")
    report = transform(source, tmp_path / "out", identity)
    assert (report.frames, report.lost) == (3, 1)
    assert "1 damaged" in report.warnings[0]
    write_image(source / "9.png", np.zeros((5, 5, 3), np.uint8), "rgb24")
    with pytest.raises(PahsError, match=r"9\.png: is 5x5.*27x20"):
        transform(source, tmp_path / "other", identity)
    assert not (tmp_path / "other").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(PahsError, match="is not a folder"):
        ImageFolderReader(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PahsError, match="holds no images"):
        ImageFolderReader(tmp_path / "empty")
    (tmp_path / "empty" / "1.png").write_bytes(b"no")
    with pytest.raises(PahsError, match="none of its images"):
        ImageFolderReader(tmp_path / "empty")


def test_existing_folders_are_respected(tmp_path):
    source = folder_of(tmp_path / "in", ".png", "rgb24")
    target = tmp_path / "out"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(PahsError, match="not empty"):
        transform(source, target, identity)
    transform(source, target, identity, overwrite=True)
    assert sorted(p.name for p in target.iterdir()) == ["10.png", "8.png", "9.png", "notes.txt"]
    with pytest.raises(PahsError, match="is a file"):
        transform(source, target / "notes.txt", identity)
    with pytest.raises(PahsError, match="cannot be created"):
        ImageFolderWriter(target / "notes.txt" / "x", ImageFolderReader(source).info)


def test_an_accident_leaves_no_folder(tmp_path):
    source = folder_of(tmp_path / "in", ".png", "rgb24")

    def failing(frames):
        yield next(frames)
        raise RuntimeError("accident")

    with pytest.raises(RuntimeError, match="accident"):
        transform(source, tmp_path / "out", failing)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_disk_trouble_while_writing_images_is_named(tmp_path):
    info = ImageFolderReader(folder_of(tmp_path / "in", ".png", "rgb24")).info
    frame = next(iter(ImageFolderReader(tmp_path / "in")))
    writer = ImageFolderWriter(tmp_path / "out", info)
    (partial,) = tmp_path.glob(".out.*.partial")
    partial.rename(tmp_path / "moved")
    with pytest.raises(PahsError, match="cannot be written"):
        writer.write(frame)
    with pytest.raises(PahsError, match="cannot be written"):
        writer.close()


def test_where_results_go(tmp_path):
    clip = make_clip(tmp_path / "walk.MP4", frames=2)
    assert outputs_for([clip.path]) == [(clip.path, tmp_path / "walk-deblurred.MP4")]
    assert outputs_for([clip.path], tmp_path / "x.mkv") == [(clip.path, tmp_path / "x.mkv")]
    (tmp_path / "results").mkdir()
    assert outputs_for([clip.path], tmp_path / "results")[0][1] == tmp_path / "results" / "walk-deblurred.MP4"
    assert outputs_for([clip.path], tmp_path / "later")[0][1] == tmp_path / "later" / "walk-deblurred.MP4"
    other = make_clip(tmp_path / "run.webm", frames=2, codec="libvpx-vp9")
    pairs = outputs_for([clip.path, other.path], tmp_path / "new")
    assert [p[1] for p in pairs] == [
        tmp_path / "new" / n for n in ("walk-deblurred.MP4", "run-deblurred.mkv")
    ]


def test_containers_that_are_out_of_date_are_replaced(tmp_path):
    old = make_clip(tmp_path / "a.mpg", frames=2, codec="mpeg2video", audio="mp2")
    assert outputs_for([old.path])[0][1].name == "a-deblurred.mp4"
    make_clip(tmp_path / "b.mkv", frames=2, subtitles="subrip").path.rename(tmp_path / "b.avi")
    assert outputs_for([tmp_path / "b.avi"])[0][1].name == "b-deblurred.mkv"
    (tmp_path / "c.avi").write_bytes(b"no video")
    assert outputs_for([tmp_path / "c.avi"])[0][1].name == "c-deblurred.mkv"
    report = transform(old.path, tmp_path / "a-deblurred.mp4", identity)
    assert report.frames == 2


def test_folders_as_inputs(tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    for name in ("b.mp4", "a.mov", "a-deblurred.mov"):
        make_clip(videos / name, frames=1)
    (videos / "read.me").write_text("no video")
    assert [p[0].name for p in outputs_for([videos], tmp_path / "out")] == ["a.mov", "b.mp4"]
    assert [p[1] for p in outputs_for([videos])] == [videos / "a-deblurred.mov", videos / "b-deblurred.mp4"]
    with pytest.raises(PahsError, match="need a folder"):
        outputs_for([videos], tmp_path / "out.mp4")
    with pytest.raises(PahsError, match="need a folder"):
        outputs_for([videos], videos / "read.me")
    images = folder_of(tmp_path / "shots", ".png", "rgb24")
    assert outputs_for([images]) == [(images, tmp_path / "shots-deblurred")]
    assert outputs_for([images], tmp_path / "sharp") == [(images, tmp_path / "sharp")]


def test_inputs_that_cannot_be_paired(tmp_path):
    with pytest.raises(PahsError, match="no input"):
        outputs_for([])
    with pytest.raises(PahsError, match="no such file"):
        outputs_for([tmp_path / "none.mp4"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(PahsError, match="neither videos nor images"):
        outputs_for([tmp_path / "empty"])
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        make_clip(tmp_path / folder / "a.mp4", frames=1)
    with pytest.raises(PahsError, match="would both be written"):
        outputs_for([tmp_path / "one" / "a.mp4", tmp_path / "two" / "a.mp4"], tmp_path / "out")
