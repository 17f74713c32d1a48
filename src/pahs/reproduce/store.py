"""What a training leaves on disk: `runs/ARM/SEED/`, under its name only when it is whole.

scores.json           all numbers
weights.safetensors   of the first seed, and of arms that others continue (half precision)
pictures.npz          of the first seed of `plan.PICTURED`: restored frames of the clips that the report shows, and maps
film.npz              of the first seed of `plan.FILMED`: a clip for the report's video
minutes.json          how long it took, which is no result

Next to `runs/`, `clips.npz` has the frames that belong to all pictures, and `failures.json` names trainings that came
to nothing, and why.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pahs.errors import PahsError
from pahs.files import whole, write_json
from pahs.reproduce.plan import ARMS, Unit
from pahs.reproduce.verdicts import AllScores, Scores

SCORES, WEIGHTS, MINUTES = "scores.json", "weights.safetensors", "minutes.json"
PICTURES, FILM, CLIPS = "pictures.npz", "film.npz", "clips.npz"
FAILURES = "failures.json"

Pictures = Mapping[str, NDArray[np.generic]]


def folder(out: Path, unit: Unit) -> Path:
    return out / "runs" / unit.folder


def write_scores(path: Path, scores: Scores) -> None:
    path.write_text(json.dumps(asdict(scores), indent=1, sort_keys=True, allow_nan=False) + "\n")


def read_scores(path: Path) -> Scores:
    try:
        data = json.loads(path.read_text())
        return Scores(
            data["arm"],
            data["seed"],
            data["fingerprint"],
            data["parameters"],
            {name: tuple(values) for name, values in data["metrics"].items()},
            tuple(data["positions"]),
            {cell: tuple(counts) for cell, counts in (data["histograms"] or {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PahsError(
            f"{path}: cannot be read as scores of this version ({error}); remove its folder"
        ) from None


def finished(out: Path, unit: Unit, fingerprint: str) -> bool:
    """Whether this training is there; one of other settings is refused rather than mixed in."""
    path = folder(out, unit) / SCORES
    if not path.exists():
        return False
    if read_scores(path).fingerprint != fingerprint:
        raise PahsError(
            f"{path.parent}: was made with other settings, data, device or version; name another --output"
        )
    return True


def read_failures(out: Path) -> dict[str, str]:
    """Trainings that came to nothing, by name, and why."""
    path = out / FAILURES
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_failures(out: Path, failures: Mapping[str, str]) -> None:
    """Note them; those that have been trained since are dropped."""
    there = {name: why for name, why in failures.items() if not (out / "runs" / name / SCORES).exists()}
    if there != read_failures(out):
        write_json(out / FAILURES, there)


def all_scores(out: Path) -> AllScores:
    """Every training below a folder, in the order of the plan."""
    found: dict[str, dict[int, Scores]] = {}
    for name in ARMS:
        for path in sorted((out / "runs" / name).glob(f"*/{SCORES}"), key=lambda p: int(p.parent.name)):
            scores = read_scores(path)
            found.setdefault(name, {})[scores.seed] = scores
    return found


def minutes(out: Path) -> float:
    """Of all trainings together."""
    return sum(float(json.loads(path.read_text())["minutes"]) for path in _records(out))


def seconds(out: Path, machine: str) -> dict[str, float]:
    """By arm, what its trainings on this machine took: the median, since the first of a process takes longer."""
    found: dict[str, list[float]] = {}
    for path in _records(out):
        record, arm = json.loads(path.read_text()), path.parent.parent.name
        if record["machine"] == machine:
            found.setdefault(arm, []).append(60 * float(record["minutes"]))
    return {arm: median(values) for arm, values in found.items()}


def machines(out: Path) -> list[str]:
    """Where the trainings were made."""
    return sorted({json.loads(path.read_text())["machine"] for path in _records(out)})


def _records(out: Path) -> Iterator[Path]:
    yield from sorted((out / "runs").glob(f"*/*/{MINUTES}"))


def write_arrays(path: Path, arrays: Pictures) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def any_pictures(out: Path) -> bool:
    """Whether there are pictures already, and so the frames that belong to them."""
    return (out / CLIPS).exists() and any((out / "runs").glob(f"*/0/{PICTURES}"))


def write_clips(out: Path, arrays: Pictures) -> None:
    """The frames that belong to all pictures, since all trainings share them."""
    with whole(out / CLIPS) as partial:
        write_arrays(partial, arrays)


def read_pictures(out: Path, arm: str) -> Pictures | None:
    """What the first seed of an arm looks like, with what it was given; None: not trained."""
    clips, pictures = read_arrays(out / CLIPS), read_arrays(out / "runs" / arm / "0" / PICTURES)
    return None if clips is None or pictures is None else {**clips, **pictures}


def read_film(out: Path, arm: str) -> Pictures | None:
    """The clip of the first seed of an arm; None: not trained."""
    return read_arrays(out / "runs" / arm / "0" / FILM)


def read_arrays(path: Path) -> Pictures | None:
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise PahsError(f"{path}: cannot be read ({error}); copy it again, or remove it") from None
