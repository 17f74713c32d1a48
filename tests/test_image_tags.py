"""What an image file says besides its samples, and images of several kinds in one folder."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image, ImageCms

from clips import moving_texture
from pahs.errors import PahsError
from pahs.video import transform
from pahs.video.image_files import read_image
from pahs.video.image_tags import carry_tags

RGB_PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
GRAY_PROFILE = RGB_PROFILE[:16] + b"GRAY" + RGB_PROFILE[20:]


def identity(frames):
    yield from frames


def picture(mode: str = "RGB", seed: int = 0, size: tuple[int, int] = (45, 60)) -> Image.Image:
    samples = np.rint(moving_texture(1, *size, seed=seed)[0] * 255).astype(np.uint8)
    return Image.fromarray(samples).convert(mode)


def exif(orientation: int = 6) -> Image.Exif:
    tags = Image.Exif()
    tags[274], tags[315], tags[271] = orientation, "Ansel", "Leica"
    return tags


def through(folder: Path, **images: bytes) -> tuple[Path, tuple[str, ...]]:
    (folder / "in").mkdir()
    for name, data in images.items():
        (folder / "in" / name.replace("_", ".")).write_bytes(data)
    report = transform(folder / "in", folder / "out", identity)
    return folder / "out", report.warnings


def saved(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("suffix", "format", "options"),
    [
        ("png", "PNG", {}),
        ("jpg", "JPEG", {"quality": 95}),
        ("webp", "WEBP", {"lossless": True}),
        ("tif", "TIFF", {}),
        ("tif", "TIFF", {"compression": "tiff_lzw", "big_endian": True}),
        ("bmp", "BMP", {}),
    ],
)
def test_orientation_profile_and_resolution_are_kept(tmp_path, suffix, format, options):
    says = {"dpi": (300, 300)} if format != "WEBP" else {}
    if format != "BMP":
        says |= {"exif": exif(), "icc_profile": RGB_PROFILE}
    source = saved(picture(), format, **says, **options)
    out, warnings = through(tmp_path, **{f"a_{suffix}": source, f"b_{suffix}": source})
    assert warnings == ()
    for file in out.iterdir():
        before, after = Image.open(io.BytesIO(source)), Image.open(file)
        assert after.format == format and after.size == before.size
        if "dpi" in says:
            assert after.info["dpi"] == pytest.approx((300, 300), abs=0.1)
        if format != "BMP":
            assert after.info["icc_profile"] == RGB_PROFILE
            assert {t: after.getexif().get(t) for t in (274, 315, 271)} == {
                274: 6,
                315: "Ansel",
                271: "Leica",
            }
        difference = np.asarray(after, np.int16) - np.asarray(before, np.int16)
        assert np.abs(difference).max() <= (6 if format == "JPEG" else 0)


def test_xmp_text_and_gamma_are_kept(tmp_path):
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("Comment", "a street")
    text.add(b"gAMA", (45455).to_bytes(4, "big"))
    images = {
        "a_png": saved(picture(), "PNG", pnginfo=text),
        "b_png": saved(picture(), "PNG"),
        "c_jpg": saved(picture(), "JPEG", xmp=b"<x:xmpmeta/>", comment=b"note", quality=95, subsampling=0),
        "d_webp": saved(picture(), "WEBP", xmp=b"<x:xmpmeta/>", lossless=True),
    }
    out, _ = through(tmp_path, **images)
    assert Image.open(out / "a.png").info["Comment"] == "a street"
    assert Image.open(out / "a.png").info["gamma"] == pytest.approx(0.45455)
    assert "Comment" not in Image.open(out / "b.png").info
    assert Image.open(out / "c.jpg").info["xmp"] == Image.open(out / "d.webp").info["xmp"] == b"<x:xmpmeta/>"
    assert Image.open(out / "c.jpg").info["comment"] == b"note"


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF"])
def test_a_profile_that_no_longer_fits_is_dropped(tmp_path, format):
    """A gray picture that is written in colour must not say that its samples are gray."""
    suffix = {"PNG": "png", "JPEG": "jpg", "TIFF": "tif"}[format]
    gray = saved(picture("L"), format, icc_profile=GRAY_PROFILE, dpi=(200, 200))
    out, _ = through(tmp_path, **{f"a_{suffix}": gray, f"b_{suffix}": saved(picture(), format)})
    after = Image.open(out / f"a.{suffix}")
    assert after.mode == "RGB" and "icc_profile" not in after.info
    assert after.info["dpi"] == pytest.approx((200, 200), abs=0.1)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_tiff_with_jpeg_inside(tmp_path, mode):
    source = saved(picture(mode), "TIFF", compression="jpeg", exif=exif())
    out, _ = through(tmp_path, a_tif=source)
    before, after = Image.open(io.BytesIO(source)), Image.open(out / "a.tif")
    assert after.getexif()[274] == 6
    assert after.mode == mode and np.asarray(before).std() > 20
    np.testing.assert_array_equal(np.asarray(before), np.asarray(after))


def test_a_first_image_in_gray_leaves_the_others_their_colour_and_depth(tmp_path):
    deep = np.asarray(picture("L"), np.uint16) * 257
    images = {
        "a_png": saved(picture("L", 1), "PNG"),
        "b_png": saved(picture("RGB", 2), "PNG"),
        "c_png": saved(Image.fromarray(deep), "PNG"),
    }
    out, warnings = through(tmp_path, **images)
    assert len(warnings) == 1 and "images of several kinds (gbrp, gray, gray16le)" in warnings[0]
    for name, seed in (("a.png", 1), ("b.png", 2), ("c.png", 0)):
        expected = picture("L" if name != "b.png" else "RGB", seed).convert("RGB")
        np.testing.assert_array_equal(np.asarray(Image.open(out / name).convert("RGB")), np.asarray(expected))


def test_photos_with_more_and_less_colour_resolution(tmp_path):
    options = {"quality": 97}
    images = {
        "a_jpg": saved(picture(), "JPEG", subsampling=2, **options),
        "b_jpg": saved(picture(), "JPEG", subsampling=0, **options),
        "c_png": saved(picture(), "PNG"),
    }
    out, warnings = through(tmp_path, **images)
    assert "several kinds" in warnings[0]
    for name, data in images.items():
        before = np.asarray(Image.open(io.BytesIO(data)), np.float64)
        after = np.asarray(Image.open(out / name.replace("_", ".")), np.float64)
        assert np.abs(before - after).mean() < 1.6 and abs((before - after).mean()) < 0.1, name


def test_webp_keeps_its_brightness(tmp_path):
    source = saved(picture(size=(120, 160)), "WEBP", quality=90)
    out, _ = through(tmp_path, a_webp=source)
    before = np.asarray(Image.open(io.BytesIO(source)), np.float64)
    after = np.asarray(Image.open(out / "a.webp"), np.float64)
    assert abs((after - before).mean()) < 0.1 and np.abs(after - before).mean() < 1


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.999])
def test_a_photo_that_was_cut_is_left_out(tmp_path, options, share):
    whole = saved(picture(size=(120, 160)), "JPEG", quality=95, exif=exif(), **options)
    trailing = whole + b"\xff\xda a film after the photo \xff\xda"
    out, warnings = through(
        tmp_path, a_jpg=whole, b_jpg=whole[: int(len(whole) * share)], c_jpg=trailing, d_jpg=whole[:-2]
    )
    assert [p.name for p in sorted(out.iterdir())] == ["a.jpg", "c.jpg"]
    assert "2 damaged or missing" in warnings[-1]


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tif", "bmp"])
def test_damaged_tags_do_not_stop_the_job(tmp_path, suffix):
    format = {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper())
    options = {"lossless": True} if suffix == "webp" else {}
    if suffix != "bmp":
        options |= {"exif": exif(), "icc_profile": RGB_PROFILE}
    source = saved(picture(), format, **options)
    rng, images = np.random.default_rng(0), {f"000_{suffix}": source}
    for i in range(1, 60):
        data = bytearray(source)
        for _ in range(4):
            data[rng.integers(2, min(len(data), 600 + 3000 * (i % 2)))] = rng.integers(0, 256)
        images[f"{i:03d}_{suffix}"] = bytes(data)
    (tmp_path / "in").mkdir()
    for name, data in images.items():
        (tmp_path / "in" / name.replace("_", ".")).write_bytes(data)
    for file in (tmp_path / "in").iterdir():
        assert len(carry_tags(file.read_bytes(), source)) > 100
        if (read := read_image(file)) and (read[0].width, read[0].height) != (60, 45):
            file.unlink()
    report = transform(tmp_path / "in", tmp_path / "out", identity)
    assert report.frames + report.lost == len(list((tmp_path / "in").iterdir())) > 30


def test_sizes_are_compared_before_the_work(tmp_path):
    (tmp_path / "in").mkdir()
    for index, size in enumerate([(45, 60)] * 5 + [(45, 61)]):
        picture(size=size).save(tmp_path / "in" / f"{index}.png")

    def never(frames):
        raise AssertionError
        yield

    with pytest.raises(PahsError, match=r"5\.png: is 61x45, but the first image of the folder is 60x45"):
        transform(tmp_path / "in", tmp_path / "out", never)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(("orientation", "degrees"), [(1, 0), (6, -90)])
def test_motion_jpeg_with_exif(tmp_path, orientation, degrees):
    """PyAV cannot name EXIF among a frame's side data, and then names none of it."""
    with av.open(str(tmp_path / "camera.mov"), "w") as container:
        stream = container.add_stream("mjpeg", rate=25)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = 60, 45, "yuvj420p"
        container.start_encoding()
        for i in range(4):
            packet = av.Packet(saved(picture(seed=i), "JPEG", exif=exif(orientation)))
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, i, i, Fraction(1, 25)
            container.mux(packet)
    transform(tmp_path / "camera.mov", tmp_path / "out.mp4", identity)
    with av.open(str(tmp_path / "out.mp4")) as container:
        frames = list(container.decode(video=0))
    assert len(frames) == 4 and frames[0].rotation == degrees
