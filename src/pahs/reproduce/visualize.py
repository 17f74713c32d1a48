"""`pahs visualize`: the paper's pictures for a video of one's own.

features.png    what the network holds at one frame: the frame's feature, and the hidden state in its stages
selection.png   how much of what attention found each token lets through
attention.png   where one point of the frame finds what it needs
comparison.png, comparison.mp4    the blurry frames beside what each model makes of them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pahs.engine import stream
from pahs.errors import PahsError
from pahs.evaluation.strips import most_changed
from pahs.figures import inside, require_matplotlib
from pahs.levels import to_levels, to_pictures
from pahs.networks import PAHS, Deblurrer
from pahs.networks.steps import TOKEN, look
from pahs.progress import bar
from pahs.reproduce.pictures import inside as arrays_of
from pahs.reproduce.videos import write
from pahs.runtime.device import choose_device
from pahs.runtime.load import default_model, load
from pahs.video import to_rgb
from pahs.video.cut import open_source

BEFORE, AFTER = 12, 8
"""Frames around the one that is drawn: what the two sweeps come from, and the length of the comparison video."""
DETAIL = 200
"""Height and width of the details that are compared, in pixels."""
SLOW = 8
"""Frames per second of the comparison video."""


@dataclass(frozen=True)
class Written:
    """The files of a visualisation, each with what it shows."""

    files: tuple[tuple[Path, str], ...]
    notes: tuple[str, ...]
    """What could not be drawn, and why."""


def visualize(
    video: Path,
    frame: int,
    models: Sequence[str] = (),
    out: Path = Path("visualization"),
    point: tuple[int, int] | None = None,
    device: str = "auto",
    quiet: bool = True,
) -> Written:
    """Draw the inside of the first model at one frame of a video, and compare all models around it."""
    require_matplotlib()
    names = list(models) or [default_model(choose_device(device))]
    inner = load(names[0], device, "fp32")
    clip, position = frames_around(video, frame)
    if point is not None and not (0 <= point[0] < clip.shape[-1] and 0 <= point[1] < clip.shape[-2]):
        raise PahsError(
            f"--point {point[0]} {point[1]}: the frame is {clip.shape[-1]}x{clip.shape[-2]} pixels"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PahsError(f"{out}: no folder can be made there ({error.strerror}); choose another -o") from None
    files, notes = draw_inside(inner, names[0], clip, position, point, out)
    titles = ["blurry", *(Path(name).stem for name in names)]
    columns = [[*to_pictures(clip)]]
    for name in names:
        network = load(name, device)
        columns.append([])
        with bar(f"restoring with {Path(name).stem}", len(clip), quiet=quiet) as advance:
            for image in stream(network, clip, scene_cuts=False):
                columns[-1].append(to_pictures(image))
                advance(1)
    files.append((compare(titles, [column[position] for column in columns], out), "a detail of the frame"))
    write(out / "comparison.mp4", titles, columns, SLOW)
    files.append((out / "comparison.mp4", f"{len(clip)} frames side by side, in slow motion"))
    return Written(tuple(files), tuple(notes))


def frames_around(video: Path, frame: int) -> tuple[Tensor, int]:
    """(T, 3, H, W) in [0, 1] as one sees them, turned upright, and the frame's position among them."""
    if frame < 0:
        raise PahsError(f"--frame is {frame}; the first frame is 0")
    if not video.exists():
        raise PahsError(f"{video}: no such video")
    first = max(0, frame - BEFORE)
    with open_source(video) as source:
        turns = source.info.rotation // 90 % 4
        images = [
            torch.rot90(to_rgb(item.planes, source.info.pixels).float().clamp(0, 1), turns, (1, 2))
            for item in islice(source, first, frame + AFTER + 1)
        ]
    if len(images) <= frame - first:
        raise PahsError(f"{video}: has no frame {frame}; the last one is {first + len(images) - 1}")
    return torch.stack(images), frame - first


def draw_inside(
    network: Deblurrer,
    name: str,
    clip: Tensor,
    position: int,
    point: tuple[int, int] | None,
    out: Path,
) -> tuple[list[tuple[Path, str]], list[str]]:
    """Features, selection and attention, as far as the network has them."""
    if not isinstance(network, PAHS):
        return [], [f"{name} is no PAHS network: its inside is not drawn"]
    weight = network.forward_cell.fuse.weight
    height, width = clip.shape[-2:]
    rows, columns = network.contract.padded(height, width)
    padded = F.pad(clip, (0, columns - width, 0, rows - height), "reflect")
    step = look(network, padded[None].to(weight.device), [position])["forward"][0]
    asking = None if point is None else (point[1] // TOKEN, point[0] // TOKEN)
    # The last, padded tokens show nothing of the frame that is not in the ones before.
    found = arrays_of(step, to_levels(padded[position : position + 1]), asking)
    frame = to_pictures(padded[position : position + 1])
    files = [(out / "features.png", "what the network holds at this frame")]
    inside.features(frame, found["maps"], files[0][0])
    notes = []
    if "attention" in found:
        files.append((out / "attention.png", "where one point finds what it needs"))
        inside.attention(frame, found["attention"], found["point"], files[-1][0])
    if "selection" in found:
        files.append((out / "selection.png", "how much of it each token lets through"))
        inside.selection(frame, found["selection"], files[-1][0])
    else:
        notes.append(f"{name} has no selection: selection.png is not drawn")
    return files, notes


def compare(titles: Sequence[str], pictures: Sequence[NDArray[np.uint8]], out: Path) -> Path:
    """The detail in which the models change the frame most, from every model."""
    size = min(DETAIL, *pictures[0].shape[:2])
    blurry, *restored = pictures
    before, after = np.concatenate([blurry] * len(restored), 2), np.concatenate(restored, 2)
    window = most_changed(before, after, size, size)
    top, left = (each.start for each in window)
    path = out / "comparison.png"
    caption = f"The {size}x{size} pixels that change most, {left} from the left and {top} from the top."
    inside.side_by_side(titles, [[picture[window] for picture in pictures]], caption, path)
    return path
