"""Comparison videos: the blurry clip and each system, side by side. They need PyAV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from pahs.reproduce import store
from pahs.reproduce.plan import FILMED

RATE = 6
"""Frames per second: slow enough to look."""
TITLE = 26
"""Height of the line of titles above the pictures."""

Picture = NDArray[np.uint8]


def write_videos(out: Path) -> list[Path]:
    """The first held-out clip: blurry, without the modules, with both. What cannot be made anew stays as it is."""
    path = out / "videos" / "held-out.mp4"
    titles = ("neither module", "PAHS")
    found = [(title, store.read_film(out, arm)) for title, arm in zip(titles, FILMED, strict=True)]
    there = [(title, clip) for title, clip in found if clip is not None]
    better = len(there) == len(FILMED) or not path.exists()
    if there and better and find_spec("av") is not None:
        clips = [there[0][1]["blurry"], *(clip["restored"] for _, clip in there)]
        write(path, ["blurry", *(title for title, _ in there)], clips, RATE)
    return [path] if path.exists() else []


def write(
    path: Path, titles: Sequence[str], clips: Sequence[Iterable[NDArray[np.generic]]], rate: int
) -> None:
    """Clips of one length and size beside each other, each under its title."""
    from pahs.video.write_video import write_video

    def frames() -> Iterator[Tensor]:
        for pictures in zip(*clips, strict=True):
            yield torch.from_numpy(titled(titles, pictures)).permute(2, 0, 1).float() / 255

    path.parent.mkdir(parents=True, exist_ok=True)
    write_video(path, frames(), rate)


def titled(titles: Sequence[str], pictures: Sequence[NDArray[np.generic]]) -> Picture:
    """Pictures side by side under their titles; even sides, as encoders want."""
    height, width = pictures[0].shape[:2]
    sheet = Image.new("RGB", (width * len(pictures) // 2 * 2, (height + TITLE) // 2 * 2), "black")
    pen = ImageDraw.Draw(sheet)
    for number, (title, picture) in enumerate(zip(titles, pictures, strict=True)):
        sheet.paste(Image.fromarray(picture.astype(np.uint8)), (number * width, TITLE))
        pen.text((number * width + 6, 3), title, "white", ImageFont.load_default(17))
    return np.array(sheet)
