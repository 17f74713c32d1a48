"""Sharp videos from disk, for the clips that are made from real motion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.choices import VIDEO_SUFFIXES
from pahs.data.footage import FootageConfig, Take, takes
from pahs.data.layouts import read_image
from pahs.data.photos import find_photos
from pahs.errors import PahsError
from pahs.levels import to_levels


def open_footage(config: FootageConfig, device: torch.device, say: Callable[[str], None]) -> list[Take]:
    """Read and interpolate the videos under `config.root`, equally many frames of each, from its middle."""
    root = Path(config.root)
    if not root.is_dir():
        raise PahsError(f"{root}: no such folder of sharp videos (data.footage.root)")
    videos = find_videos(root)
    each = config.most_frames // len(videos)
    if each < 2:
        raise PahsError(
            f"{root}: holds {len(videos)} videos; raise data.footage.most_frames, or give fewer of them"
        )
    pool: list[Take] = []
    for number, video in enumerate(videos, 1):
        frames = list(open_frames(video, config.short_side))
        start = max(0, len(frames) - each) // 2
        frames = frames[start : start + each]
        found = takes(frames, config, device)
        pool += found
        kept = sum(take.frames for take in found)
        say(f"footage {number}/{len(videos)}: {kept} of {len(frames)} frames of {video.name}")
    return pool


def find_videos(root: Path) -> list[Path]:
    """Video files under `root`, and folders that hold numbered frames."""
    files = [p for p in root.rglob("*") if p.suffix.lower() in VIDEO_SUFFIXES and p.is_file()]
    folders = [] if files else list({file.parent for file in find_photos(root)})
    return sorted(files or folders)


def open_frames(path: Path, short_side: int) -> Iterator[Tensor]:
    """The frames, (3, H, W) uint8, of a video file or a folder of numbered images, shrunk to `short_side`."""
    if path.is_dir():
        from pahs.video.images import images_in

        for file in images_in(path):
            yield _fit(torch.from_numpy(read_image(file)).permute(2, 0, 1).float() / 255, short_side)
        return
    from pahs.video import VideoReader, to_rgb

    with VideoReader(path) as reader:
        for frame in reader:
            yield _fit(to_rgb(frame.planes, reader.info.pixels), short_side)


def _fit(frame: Tensor, short_side: int) -> Tensor:
    scale = short_side / min(frame.shape[-2:])
    if scale < 1:
        size = [max(1, round(side * scale)) for side in frame.shape[-2:]]
        frame = F.interpolate(frame[None], size=size, mode="bilinear", antialias=True, align_corners=False)[0]
    return to_levels(frame)
