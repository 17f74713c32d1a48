"""The folder layouts of public deblurring datasets: which blurry frame belongs to which sharp one.

Opening a dataset lists its folders and looks at the header of each picture; pixels are read frame by frame.

    gopro   {train,test}/<seq>/{blur,blur_gamma,sharp}/000001.png             GOPRO_Large
    dvd     [quantitative_datasets/]<seq>/{input,GT}/00000.jpg                DVD; also {train,test}/<seq>/...
    reds    [{train,val}/]{train,val}_{blur,sharp}/<seq>/00000000.png         REDS
    bsd     [<exposure>/]{train,valid,test}/<seq>/{Blur,Sharp}/RGB/*.png      BSD
    pairs   <any>/<folders>/{blur,sharp}/*.png                                your own, or several of the above
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from pahs.choices import AnyLayout, Kind, Layout, Split, check_choice
from pahs.data.threads import map_in_threads
from pahs.errors import PahsError

Frame = NDArray[np.uint8]

DVD_TEST = ("720p_240fps_2", *(f"IMG_{number:04d}" for number in (3, 21, 30, 31, 32, 33, 37, 39, 49)))
"""The ten DVD sequences that its authors, and everybody since, hold out for testing; the other 61 train."""

_SPLITS: tuple[Split, ...] = get_args(Split)
_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"})
_PAIR_FOLDERS = (
    ("blur", "sharp"),
    ("blurry", "sharp"),
    ("input", "GT"),
    ("input", "target"),
    ("Blur/RGB", "Sharp/RGB"),
)
_PAIR_DEPTH = 5
_READERS = 16
"""Threads that read headers: on a network's disk most of the time is waiting."""


@dataclass(frozen=True)
class Sequence:
    """Consecutive frames of one take, blurry and sharp side by side."""

    name: str
    """Its folder below the root, such as `test/GOPR0384_11_00`: unique in its dataset."""
    blurry: tuple[Path, ...]
    """The frames in order of time."""
    sharp: tuple[Path, ...]
    """The ground truth of each."""
    size: tuple[int, int]
    """Height and width of every frame."""

    def __len__(self) -> int:
        return len(self.blurry)

    def read_blurry(self, index: int) -> Frame:
        return self._read(self.blurry[index])

    def read_sharp(self, index: int) -> Frame:
        return self._read(self.sharp[index])

    def middles(self, paths: Iterable[Path], height: int, width: int) -> Frame:
        """The middles of pictures: (number, height, width, 3)."""
        top, left = (self.size[0] - height) // 2, (self.size[1] - width) // 2
        return np.stack([self._read(path)[top : top + height, left : left + width] for path in paths])

    def _read(self, path: Path) -> Frame:
        frame = read_image(path)
        if frame.shape[:2] != self.size:
            raise _size_error(path, frame.shape[:2], self.size)
        return frame


@dataclass(frozen=True)
class PairedDataset:
    """Blurry sequences with their ground truth."""

    root: Path
    """The folder it was opened from."""
    layout: Layout
    """How its folders are arranged."""
    split: Split | None
    """The part that was asked for; None: everything."""
    sequences: tuple[Sequence, ...]
    """In order of name."""

    @property
    def frames(self) -> int:
        return sum(len(sequence) for sequence in self.sequences)


@dataclass(frozen=True)
class _Found:
    """Two folders that should hold one sequence; nothing in them has been read yet."""

    name: str
    split: Split | None
    blurry: Path
    sharp: Path


def open_dataset(
    root: str | os.PathLike[str],
    layout: AnyLayout = "auto",
    split: Split | None = None,
    kind: Kind = "blur",
    *,
    check: bool = True,
) -> PairedDataset:
    """Find the sequences below `root`, each blurry frame paired with its sharp one.

    `split` None takes everything; REDS calls its test part `val`, which answers to both `test` and `valid`; plain
    pairs have no parts, so any split is all of them. `kind` chooses between GOPRO's two ways of averaging.
    `check` reads the header of every picture, so that a damaged file is found now and not after hours.
    """
    root = Path(root)
    if not root.is_dir():
        raise PahsError(f"{root}: no such folder; give the folder that the dataset was unpacked into")
    check_choice("layout", layout, AnyLayout)
    check_choice("kind", kind, Kind)
    if split is not None:
        check_choice("split", split, Split)
    chosen, found = _recognise(root, layout, kind)
    found = _of_split(root, chosen, found, split)
    sequences = tuple(_pair_up(item, check) for item in sorted(found, key=lambda item: item.name))
    return PairedDataset(root=root, layout=chosen, split=split, sequences=sequences)


def read_image(path: str | os.PathLike[str]) -> Frame:
    """A picture as (height, width, 3) RGB bytes."""
    try:
        with Image.open(path) as image:
            if image.mode[0] in "IF":
                raise PahsError(
                    f"{path}: more than 8 bits per channel ({image.mode}); convert it to 8-bit RGB"
                )
            return np.array(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise _unreadable(path, error) from error


def _recognise(root: Path, layout: AnyLayout, kind: Kind) -> tuple[Layout, list[_Found]]:
    finders: dict[Layout, Callable[[], Iterator[_Found]]] = {
        "reds": lambda: _find_reds(root),
        "bsd": lambda: _find_bsd(root),
        "dvd": lambda: _find_dvd(root),
        "gopro": lambda: _find_gopro(root, kind),
        "pairs": lambda: _find_pairs(root, kind),
    }
    candidates = [(name, list(find())) for name, find in finders.items() if layout in ("auto", name)]
    candidates = [(name, found) for name, found in candidates if found]
    if not candidates:
        wanted = f"GOPRO, DVD, REDS, BSD, or folders named {kind} and sharp" if layout == "auto" else layout
        raise PahsError(f"{root}: no pairs of blurry and sharp folders found; expected {wanted}")
    whole = (item for item in candidates if any(f.blurry.is_dir() and f.sharp.is_dir() for f in item[1]))
    name, found = next(whole, candidates[0])
    if kind != "blur" and name not in ("gopro", "pairs"):
        raise PahsError(f"{root}: the {name} layout has no {kind} frames; use kind blur")
    return name, found


def _find_gopro(root: Path, kind: Kind) -> Iterator[_Found]:
    for split in _SPLITS:
        for folder in _folders(root / split):
            if (folder / kind).is_dir() or (folder / "sharp").is_dir():
                yield _Found(f"{split}/{folder.name}", split, folder / kind, folder / "sharp")


def _find_dvd(root: Path) -> Iterator[_Found]:
    parts: tuple[tuple[str, Split | None], ...] = (
        ("", None),
        ("quantitative_datasets", None),
        ("train", "train"),
        ("test", "test"),
    )
    for part, split in parts:
        for folder in _folders(root / part):
            if (folder / "input").is_dir() or (folder / "GT").is_dir():
                by_name: Split = "test" if folder.name in DVD_TEST else "train"
                name = f"{part}/{folder.name}" if split else folder.name
                yield _Found(name, split or by_name, folder / "input", folder / "GT")


def _find_reds(root: Path) -> Iterator[_Found]:
    parts: tuple[tuple[str, Split], ...] = (("train", "train"), ("val", "test"))
    for part, split in parts:
        for base in (root, root / part):
            blurry, sharp = base / f"{part}_blur", base / f"{part}_sharp"
            for name in sorted({folder.name for side in (blurry, sharp) for folder in _folders(side)}):
                yield _Found(f"{part}/{name}", split, blurry / name, sharp / name)


def _find_bsd(root: Path) -> Iterator[_Found]:
    for base in (root, *_folders(root)):
        prefix = "" if base == root else f"{base.name}/"
        for split in _SPLITS:
            for folder in _folders(base / split):
                blurry, sharp = folder / "Blur" / "RGB", folder / "Sharp" / "RGB"
                if blurry.is_dir() or sharp.is_dir():
                    yield _Found(f"{prefix}{split}/{folder.name}", split, blurry, sharp)


def _find_pairs(root: Path, kind: Kind) -> Iterator[_Found]:
    names = _PAIR_FOLDERS if kind == "blur" else ((kind, "sharp"),)
    yield from _find_pairs_below(root, root, names, _PAIR_DEPTH)


def _find_pairs_below(
    folder: Path, root: Path, names: tuple[tuple[str, str], ...], depth: int
) -> Iterator[_Found]:
    complete = (pair for pair in names if all((folder / side).is_dir() for side in pair))
    lonely = names[0] if any((folder / side).is_dir() for side in names[0]) else None
    pair = next(complete, lonely)
    if pair is None:
        for below in _folders(folder) if depth else []:
            yield from _find_pairs_below(below, root, names, depth - 1)
        return
    blurry, sharp = folder / pair[0], folder / pair[1]
    name = folder.relative_to(root).as_posix() if folder != root else ""
    takes = sorted({take.name for side in (blurry, sharp) for take in _folders(side)})
    if takes and not (_pictures(blurry) or _pictures(sharp)):
        for take in takes:
            yield _Found(f"{name}/{take}" if name else take, None, blurry / take, sharp / take)
    else:
        yield _Found(name or root.resolve().name, None, blurry, sharp)


def _of_split(root: Path, layout: Layout, found: list[_Found], split: Split | None) -> list[_Found]:
    if split is None or layout == "pairs":
        return found
    wanted: Split = "test" if layout == "reds" and split == "valid" else split
    chosen = [item for item in found if item.split == wanted]
    if not chosen:
        there = ", ".join(sorted({str(item.split) for item in found}))
        raise PahsError(f"{root}: this {layout} dataset has no {split!r} part; there is: {there}")
    return chosen


def _pair_up(found: _Found, check: bool) -> Sequence:
    for folder, other in ((found.blurry, found.sharp), (found.sharp, found.blurry)):
        if not folder.is_dir():
            raise PahsError(f"{folder}: folder is missing, but {other} is there; unpack the dataset again")
    blurry, sharp = _by_stem(found.blurry), _by_stem(found.sharp)
    for frames, folder in ((blurry, found.blurry), (sharp, found.sharp)):
        if not frames:
            raise PahsError(f"{folder}: holds no pictures; unpack the dataset again or remove the folder")
    for stem in sorted(blurry.keys() ^ sharp.keys()):
        lonely, other = (blurry[stem], found.sharp) if stem in blurry else (sharp[stem], found.blurry)
        raise PahsError(f"{lonely}: has no partner in {other}; restore the missing frame or remove this one")
    order = list(blurry)
    sequence = Sequence(
        name=found.name,
        blurry=tuple(blurry[stem] for stem in order),
        sharp=tuple(sharp[stem] for stem in order),
        size=_header_size(blurry[order[0]]),
    )
    paths = (*sequence.blurry, *sequence.sharp) if check else (sequence.sharp[0],)
    for path, size in zip(paths, map_in_threads(_header_size, paths, _READERS), strict=True):
        if size != sequence.size:
            raise _size_error(path, size, sequence.size)
    return sequence


def _by_stem(folder: Path) -> dict[str, Path]:
    """Pictures in order of time: by number where names are numbers, else by name."""
    frames = {path.stem: path for path in _pictures(folder)}
    numbered = all(stem.isdecimal() for stem in frames)
    return dict(sorted(frames.items(), key=lambda item: (int(item[0]) if numbered else 0, item[0])))


def _header_size(path: Path) -> tuple[int, int]:
    try:
        with Image.open(path) as image:
            return image.height, image.width
    except (OSError, SyntaxError, ValueError) as error:
        raise _unreadable(path, error) from error


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))
    )


def _pictures(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in folder.iterdir() if p.suffix.lower() in _PICTURES and not p.name.startswith(".")]


def _size_error(path: Path, size: tuple[int, ...], expected: tuple[int, int]) -> PahsError:
    return PahsError(
        f"{path}: is {size[1]}x{size[0]}, but its sequence is {expected[1]}x{expected[0]}; replace this frame"
    )


def _unreadable(path: str | os.PathLike[str], error: Exception) -> PahsError:
    if isinstance(error, FileNotFoundError):
        return PahsError(f"{path}: no such file")
    reason = "not a picture" if isinstance(error, UnidentifiedImageError) else str(error)
    return PahsError(f"{path}: cannot be read ({reason}); copy or download this file again")
