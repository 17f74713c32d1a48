"""Photos and sharp videos -> a dataset of blurry and sharp sequences in the GOPRO layout.

    OUT/train/<sequence>/{blur,sharp}/000000.png    OUT/test/...    OUT/contact_sheet.png    OUT/synthesis.json

A sequence appears under its name when it is complete; a run that was stopped continues where it was.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from pahs.data.from_video import VideoBlurConfig, expose_video
from pahs.data.photos import SUFFIXES, PhotoPool, find_photos, read_photos
from pahs.data.sequences import contact_sheet, write_sequence
from pahs.data.synthesis import PhotoSource
from pahs.data.synthesis_config import SynthesisConfig
from pahs.errors import PahsError
from pahs.files import remove, remove_unfinished, write_text
from pahs.progress import Advance, bar
from pahs.training.footage import open_frames

log = logging.getLogger(__name__)

RECORD = "synthesis.json"
SHEET = "contact_sheet.png"
SHEET_ROWS = 8
"""Most sequences on the contact sheet, taken evenly from all."""
SHORTEST = 3
"""Stretches of video with fewer exposures are skipped."""


@dataclass(frozen=True)
class SynthesisReport:
    """What a run left on disk."""

    written: int
    """Sequences made now."""
    kept: int
    """Sequences that were there already."""
    skipped: int
    """Stretches of video whose motion could not be followed."""
    contact_sheet: Path
    """A picture of blurry and sharp frames side by side."""


def synthesize(
    sources: Sequence[Path],
    out: Path,
    *,
    count: int = 20,
    config: SynthesisConfig | None = None,
    video: VideoBlurConfig | None = None,
    folder_rate: float | None = None,
    test_share: float = 0.1,
    seed: int = 0,
    device: torch.device | str = "cpu",
    overwrite: bool = False,
    quiet: bool = False,
) -> SynthesisReport:
    """Make sequences of `config.frames` blurry and sharp frames from photos and sharp videos.

    sources      image files, video files, folders of either
    count        sequences from photos, however many there are; a video gives as many as it holds
    folder_rate  frames per second: folders then hold the numbered frames of a sharp video instead of photos
    test_share   share that goes to test/: photos and whole videos that train/ does not see, at least one of them; of a
                 single video its last part, with a gap of one sequence before it
    overwrite    replace what an earlier run with other options left in `out`
    """
    config = config or SynthesisConfig(frames=20, height=360, width=640)
    video = video or VideoBlurConfig()
    if count < 1:
        raise PahsError(f"count: must be at least 1, got {count}")
    if not 0 <= test_share <= 0.5:
        raise PahsError(f"test share: must be between 0 and 0.5, got {test_share}")
    photos, videos = _sort_sources(sources, folder_rate)
    options = {
        "sources": sorted(str(p) for p in sources),
        "count": count,
        "config": asdict(config),
        "video": asdict(video),
        "folder_rate": folder_rate,
        "test_share": test_share,
        "seed": seed,
    }
    if videos:
        options["held_out"] = "whole videos, or the end of the only one"
    new, dataset = not out.exists(), None
    try:
        _claim(out, options, overwrite)
        period = round(1 / max(test_share, 1e-9)) if test_share else 0
        with bar("synthesizing", None if videos else count, "sequences", quiet) as advance:
            dataset = _Dataset(out, config, video, folder_rate, seed, torch.device(device), period, advance)
            if photos:
                dataset.add_photos(photos, count)
            dataset.add_videos(videos, test_share)
        if not dataset.sequences:
            raise PahsError(
                f"{videos[0]}: no stretch of it can be followed; give sharp, steady, longer video"
            )
        spacing = -(-len(dataset.sequences) // SHEET_ROWS)
        contact_sheet(dataset.sequences[::spacing], out / SHEET)
    except BaseException as error:
        if new and (dataset is None or not dataset.written):
            remove(out)
        if not isinstance(error, OSError):
            raise
        raise PahsError(
            f"{out}: cannot be written ({error}); free some space or choose another folder"
        ) from error
    return SynthesisReport(dataset.written, dataset.kept, dataset.skipped, out / SHEET)


@dataclass
class _Dataset:
    """The dataset that is being written."""

    out: Path
    config: SynthesisConfig
    video: VideoBlurConfig
    folder_rate: float | None
    seed: int
    device: torch.device
    test_period: int
    """Every sequence of this number from photos goes to test/; 0: none."""
    advance: Advance
    sequences: list[Path] = field(default_factory=list)
    written: int = 0
    kept: int = 0
    skipped: int = 0

    def add_photos(self, files: list[Path], count: int) -> None:
        period = self.test_period if len(files) > 1 else 0
        unseen = files[period - 1 :: period] or files[-1:] if period else files
        seen = [f for f in files if f not in set(unseen)] if period else files
        sources: dict[bool, PhotoSource] = {}
        for index in range(count):
            test = self.test_period > 0 and index % self.test_period == self.test_period - 1
            path = self._path(f"photos_{index:05d}", test)
            if not self._keep(path):
                if test not in sources:
                    sources[test] = self._open_photos(unseen if test else seen)
                # Each sequence has its own seed, so that it does not matter which ones were there before.
                sources[test].generator.manual_seed(_mixed(self.seed, f"photos {index}"))
                blurry, sharp = sources[test].batch(1)
                self._write(path, blurry[0], sharp[0])
            self.advance()

    def add_videos(self, videos: list[Path], test_share: float) -> None:
        held_out = _spread(len(videos), test_share)
        for number, (name, path) in enumerate(_named(videos)):
            test_from = 0 if number in held_out else None
            if test_share and len(videos) == 1:
                test_from = self._last_part(path, test_share)
            self._add_video(name, path, test_from)

    def _last_part(self, path: Path, test_share: float) -> int | None:
        """The first stretch that goes to test/, where that leaves one for train/ and one between them."""
        rate = _rate(path, self.folder_rate)
        length = self.video.frames_needed(self.config.frames, rate)
        whole, rest = divmod(_count_frames(path), length)
        count = whole + (rest > length // 2)
        if count < 3:
            log.warning("%s: is too short for test sequences; give longer video, or several", path)
            return None
        return max(2, count - max(1, round(test_share * count)))

    def _add_video(self, name: str, path: Path, test_from: int | None) -> None:
        """Stretches from `test_from` on go to test/, and the one before it to neither: it is too much like both."""
        frames, video = self.config.frames, self.video
        rate = _rate(path, self.folder_rate)
        pictures = open_frames(path, video.short_side)
        found = False
        for index, span in enumerate(_spans(pictures, video.frames_needed(frames, rate))):
            if test_from is not None and index == test_from - 1:
                continue
            test = test_from is not None and index >= test_from
            target = self._path(f"{name}_{index:03d}", test)
            if self._keep(target):
                found = True
                continue
            choice = random.Random(_mixed(self.seed, f"{name} {index}"))
            low, high = video.average
            gamma = choice.uniform(*video.gamma) if choice.random() < video.linear_share else 1.0
            pairs = expose_video(
                [frame.to(self.device) for frame in span],
                factor=video.factor(rate),
                average=choice.choice([n for n in range(low, high + 1) if n % 2]),
                gamma=gamma,
                unreliable=video.unreliable,
            )[:frames]
            if len(pairs) < min(frames, SHORTEST):
                self.skipped += 1
                continue
            found = True
            blurry, sharp = zip(*pairs, strict=True)
            self._write(target, torch.stack(blurry), torch.stack(sharp))
            self.advance()
        if not found:
            log.warning("skipped %s: none of it can be followed from frame to frame", path)

    def _open_photos(self, files: list[Path]) -> PhotoSource:
        short = max(704, self.config.height)
        images = read_photos(files, short_side=short, long_side=2 * short)
        pool = PhotoPool.from_images(images, self.device, smallest_scale=self.config.scale[0])
        return PhotoSource(pool, self.config, self.seed)

    def _path(self, name: str, test: bool) -> Path:
        return self.out / ("test" if test else "train") / name

    def _keep(self, path: Path) -> bool:
        """Count a sequence that was written earlier; False if there is none."""
        if path.is_dir():
            self.kept += 1
            self.sequences.append(path)
            return True
        return False

    def _write(self, path: Path, blurry: Tensor, sharp: Tensor) -> None:
        write_sequence(path, blurry, sharp)
        self.written += 1
        self.sequences.append(path)


def _named(videos: list[Path]) -> Iterator[tuple[str, Path]]:
    """Each video with a name of its own for its sequences."""
    used: dict[str, int] = {}
    for path in videos:
        stem = path.name if path.is_dir() else path.stem
        used[stem] = used.get(stem, 0) + 1
        yield (stem if used[stem] == 1 else f"{stem}-{used[stem]}"), path


def _spread(count: int, share: float) -> set[int]:
    """That share of so many things, at least one, spread evenly over them."""
    chosen = max(1, round(share * count)) if share and count > 1 else 0
    return {(2 * number + 1) * count // (2 * chosen) for number in range(chosen)}


def _spans(frames: Iterator[Tensor], length: int) -> Iterator[list[Tensor]]:
    """Stretches of `length` frames one after the other; a shorter rest counts from half of that."""
    spans = iter(lambda: list(islice(frames, length)), [])
    return (span for span in spans if len(span) > length // 2)


def _rate(path: Path, folder_rate: float | None) -> float:
    """Frames per second of a video file or a folder of numbered images."""
    if path.is_dir():
        return folder_rate or 0.0

    from pahs.video import probe

    return float(probe(path).rate)


def _count_frames(path: Path) -> int:
    """How many frames a video file or a folder of numbered images holds; files are decoded, as headers may be wrong."""
    from pahs.video import VideoReader
    from pahs.video.images import images_in

    if path.is_dir():
        return len(images_in(path))
    with VideoReader(path) as reader:
        return sum(1 for _ in reader)


def _sort_sources(sources: Sequence[Path], folder_rate: float | None) -> tuple[list[Path], list[Path]]:
    """Image files and videos among `sources`."""
    from pahs.choices import VIDEO_SUFFIXES

    if folder_rate is not None and not 0.1 <= folder_rate <= 1e6:
        raise PahsError(f"folder rate: must be from 0.1 to 1000000 frames per second, got {folder_rate}")
    photos: list[Path] = []
    videos: list[Path] = []
    for source in sources:
        if not source.exists():
            raise PahsError(f"{source}: no such file or folder")
        if source.is_dir() and folder_rate is not None:
            videos += sorted({file.parent for file in find_photos(source)})
        elif source.is_dir():
            clips = sorted(p for p in source.rglob("*") if p.suffix.lower() in VIDEO_SUFFIXES and p.is_file())
            videos += clips
            images = [p for p in source.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file()]
            photos += sorted(images)
            if not clips and not images:
                raise PahsError(f"{source}: holds neither photos nor videos")
        elif source.suffix.lower() in SUFFIXES:
            photos.append(source)
        elif source.suffix.lower() in VIDEO_SUFFIXES:
            videos.append(source)
        else:
            raise PahsError(f"{source}: neither a photo nor a video by its name")
    if not photos and not videos:
        raise PahsError("no source is given; name photos, sharp videos or folders of them")
    return photos, videos


def _claim(out: Path, options: dict[str, object], overwrite: bool) -> None:
    """Check that `out` is empty or holds a dataset made with the same options, and write the options into it."""
    record = out / RECORD
    text = json.dumps(options, indent=1, sort_keys=True)
    if out.exists() and not out.is_dir():
        raise PahsError(f"{out}: is a file; name a folder")
    if record.is_file():
        if record.read_text() == text and not overwrite:
            remove_unfinished(out)
            return
        if not overwrite:
            raise PahsError(
                f"{out}: holds a dataset made with other options; add --overwrite or name another folder"
            )
        for split in ("train", "test"):
            shutil.rmtree(out / split, ignore_errors=True)
    elif out.is_dir() and any(out.iterdir()) and not overwrite:
        raise PahsError(f"{out}: is not empty; add --overwrite or name another folder")
    out.mkdir(parents=True, exist_ok=True)
    write_text(record, text)


def _mixed(seed: int, label: str) -> int:
    """A seed of its own for each thing that is drawn."""
    return int.from_bytes(hashlib.sha256(f"{seed} {label}".encode()).digest()[:7], "big")
