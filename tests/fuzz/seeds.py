"""Whole files of different containers and codecs, and image folders, that mutants are made of."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image

from clips import make_clip, moving_texture

VIDEOS = {
    "phone.mp4": {"audio": "aac", "rotation": 90, "chapters": True, "metadata": {"title": "t"},
                  "movflags": "faststart"},
    "deep.mkv": {"codec": "libx265", "pix_fmt": "yuv420p10le", "subtitles": "subrip", "attachment": b"a note",
                 "matrix": 9, "primaries": 9, "transfer": 16, "audio": "flac"},
    "web.webm": {"codec": "libvpx-vp9", "settings": {"deadline": "realtime"}, "audio": "libopus"},
    "camera.avi": {"codec": "mjpeg", "pix_fmt": "yuvj422p", "settings": {"qscale": "3"}, "audio": "pcm_s16le"},
    "disc.mpg": {"codec": "mpeg2video", "settings": {"qscale": "3"}, "audio": "mp2"},
    "broadcast.ts": {"settings": {"qp": "20", "g": "4"}, "audio": "mp2", "aspect": Fraction(16, 11)},
    "old.wmv": {"codec": "wmv2", "settings": {"qscale": "3"}, "audio": "wmav2"},
    "old.flv": {"codec": "flv", "settings": {"qscale": "3"}},
    "studio.mov": {"codec": "prores_ks", "pix_fmt": "yuv422p10le", "settings": {}, "audio": "pcm_s16le"},
    "archive.mkv": {"codec": "ffv1", "pix_fmt": "gbrp16le", "settings": {"level": "3", "slicecrc": "1"}},
    "gray.mkv": {"codec": "ffv1", "pix_fmt": "gray", "settings": {"level": "1"}},
    "small.3gp": {"codec": "mpeg4", "settings": {"qscale": "3"}, "audio": "aac"},
    "fragments.mp4": {"settings": {"qp": "20", "g": "4"}, "movflags": "frag_keyframe+empty_moov"},
    "future.mkv": {"codec": "libsvtav1", "settings": {"preset": "12"}, "width": 80, "height": 80},
    "raw.y4m": {"codec": "wrapped_avframe", "settings": {}},
    "loop.gif": {"codec": "gif", "pix_fmt": "gray", "settings": {}},
}  # fmt: skip
IMAGES = {
    "pictures.png": {"format": "PNG", "dpi": (300, 300)},
    "photos.jpg": {"format": "JPEG", "quality": 90, "progressive": True},
    "pictures.webp": {"format": "WEBP", "quality": 90},
    "scans.tif": {"format": "TIFF", "compression": "tiff_lzw", "dpi": (300, 300)},
    "prints.tif": {"format": "TIFF", "compression": "jpeg"},
    "bitmaps.bmp": {"format": "BMP"},
}  # fmt: skip
FRAMES = 8


def make_seeds(folder: Path) -> dict[str, list[bytes]]:
    """The contents of the files of every seed by name: one for a video, one an image for a folder."""
    seeds: dict[str, list[bytes]] = {}
    for name, options in VIDEOS.items():
        path = folder / name
        make_clip(path, **{"frames": FRAMES, **options})
        seeds[name] = [path.read_bytes()]
    tags = Image.Exif()
    tags[274] = 6
    pictures = np.rint(moving_texture(4, 48, 64) * 255).astype(np.uint8)
    for name, options in IMAGES.items():
        files = []
        for picture in pictures:
            data = io.BytesIO()
            exif = {} if options["format"] == "BMP" else {"exif": tags}
            Image.fromarray(picture).save(data, **options, **exif)
            files.append(data.getvalue())
        seeds[name] = files
    return seeds
