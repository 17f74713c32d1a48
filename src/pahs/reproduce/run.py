"""Train arm by arm and seed by seed, and keep what was measured.

A training is the unit of work: it is below 100 s at scale small, and its folder appears under its name only when it is
whole. So a run can be stopped at any time, and continues where it stopped with the same numbers.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from pahs import __version__
from pahs.evaluation.flops import parameters
from pahs.files import remove_unfinished, whole
from pahs.networks import Deblurrer
from pahs.progress import say
from pahs.reproduce import store
from pahs.reproduce.claims import compared
from pahs.reproduce.group import Group
from pahs.reproduce.material import Material, recipe_of
from pahs.reproduce.measure import Measured, Metrics, along, measure
from pahs.reproduce.pace import known_pace
from pahs.reproduce.pictures import film, pictures, shown
from pahs.reproduce.plan import ARMS, FILMED, PICTURED, Unit
from pahs.reproduce.verdicts import Scores
from pahs.runtime import weights
from pahs.runtime.device import device_name
from pahs.training.setup import make_model


@dataclass(frozen=True)
class Outcome:
    """How far a run came."""

    left: int
    """Trainings that were not begun."""
    failed: dict[str, str]
    """Trainings that came to nothing, by name, and why."""


def run(
    material: Material,
    units: Sequence[Unit],
    out: Path,
    deadline: float | None = None,
    together: int = 1,
    calibrated: Mapping[str, float] | None = None,
) -> Outcome:
    """Train what is not there yet; what failed before is tried again, after everything else.

    Nothing begins that is expected to end after `deadline`, a time of `time.monotonic`; no lighter arm goes first then,
    so that seeds stay whole. `calibrated` has expected seconds by arm.
    """
    remove_unfinished(out)
    marks = {unit.folder: material.fingerprint(unit, __version__) for unit in units}
    left = [unit for unit in units if not store.finished(out, unit, marks[unit.folder])]
    say(f"{len(units) - len(left)} of {len(units)} trainings are there already")
    before = store.read_failures(out)
    left.sort(key=lambda unit: bool({unit.folder, base_of(unit)} & before.keys()))
    failed: dict[str, str] = {}
    while left:
        group = first_group(left, together)
        began, names = time.monotonic(), ", ".join(unit.folder for unit in group)
        if deadline is not None:
            needed = known_pace(out, machine_name(material), calibrated or {}).of(group)
            if began + (needed or 0) > deadline:
                takes = "" if needed is None else f"{needed:.0f} s are needed, "
                say(f"{names}: {takes}{max(0, deadline - began):.0f} s are left")
                break
            if needed is None:
                say(f"{names}: how long this takes is not known yet")
        ready, lost = startable(group, out)
        if ready:
            lost |= train_group(material, ready, out, marks)
        for name, reason in lost.items():
            say(f"{name} failed: {reason}")
        failed |= lost
        store.write_failures(out, {**store.read_failures(out), **failed})
        left = left[len(group) :]
        say(f"{names}: {time.monotonic() - began:.1f} s; {len(left)} left")
    return Outcome(len(left), failed)


def check_settings(material: Material, out: Path) -> None:
    """Refuse a folder with trainings of other settings, whatever is asked for: the report compares all of them."""
    for name, runs in store.all_scores(out).items():
        for seed in runs:
            unit = Unit(ARMS[name], seed)
            store.finished(out, unit, material.fingerprint(unit, __version__))


def machine_name(material: Material) -> str:
    return f"{device_name(material.device)}, torch {torch.__version__}"


def base_of(unit: Unit) -> str:
    """The training that this one continues; empty: none."""
    return Unit(ARMS[unit.arm.continues], unit.seed).folder if unit.arm.continues else ""


def startable(group: Sequence[Unit], out: Path) -> tuple[list[Unit], dict[str, str]]:
    """The trainings whose first weights are there; the others, and why they cannot be made."""
    ready, lost = [], {}
    for unit in group:
        base = base_of(unit)
        if base and not (out / "runs" / base / store.WEIGHTS).exists():
            lost[unit.folder] = f"it continues {base}, whose weights are not there"
        else:
            ready.append(unit)
    return ready, lost


def first_group(left: Sequence[Unit], together: int) -> Sequence[Unit]:
    """The next trainings that share every batch: of one seed, and with clips of one length."""
    first = left[0]
    count = 1
    while count < min(together, len(left)):
        unit = left[count]
        if unit.seed != first.seed or bool(unit.arm.continues) != bool(first.arm.continues):
            break
        count += 1
    return left[:count]


def train_group(
    material: Material, group: Sequence[Unit], out: Path, marks: dict[str, str]
) -> dict[str, str]:
    """Train some arms on the same batches, each on a CUDA stream of its own if there are several, and keep each.

    Returns the trainings that could not be measured, and why: the others of the group are kept.
    """
    began = time.monotonic()
    scale, device = material.scale, material.device
    together = Group(group, [first_weights(unit, material, out) for unit in group], material)
    together.prepare()
    length = together.recipe.train.steps
    looks = scale.curve_on if group[0].arm.continues else scale.curve
    curves: list[Metrics] = [{} for _ in group]
    for number in range(1, length + 1):
        together.advance(number - 1)
        if number in looks and number < length:
            parts = zip(group, together.updates, together.models, curves, strict=True)
            for unit, update, model, curve in parts:
                with update.averaged(), left_out(f"{unit.folder}, step {number}", device):
                    curve |= at(number, along(unit.arm, model.eval(), material))
                model.train()
    together.settle()
    share = (time.monotonic() - began) / len(group)
    failed = {}
    for unit, update, model, curve in zip(group, together.updates, together.models, curves, strict=True):
        began = time.monotonic() - share
        report = update.read()
        if report.skipped:
            say(f"{unit.folder}: {report.skipped} steps were not finite and changed nothing")
        with update.averaged():
            model.eval()
            try:
                found = measure(unit.arm, model, material)
                drawn = {}
                if unit.seed == 0 and unit.arm.name in PICTURED:
                    if not store.any_pictures(out):
                        store.write_clips(out, shown(material))
                    drawn[store.PICTURES] = pictures(model, material)
                if unit.seed == 0 and unit.arm.name in FILMED:
                    drawn[store.FILM] = film(model, material)
            except Exception as error:
                if sticks(error, device):
                    raise
                failed[unit.folder] = reason(error)
                continue
            last = {name: found.metrics[name] for name in compared(unit.arm.name) & found.metrics.keys()}
            curve |= at(length, last)
            keep(unit, model, found, drawn, curve, marks[unit.folder], material, out, began)
    del together
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return failed


@contextmanager
def left_out(what: str, device: torch.device) -> Iterator[None]:
    """A measurement that costs its own numbers alone if it fails."""
    try:
        yield
    except Exception as error:
        if sticks(error, device):
            raise
        say(f"{what}: not measured ({reason(error)})")


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def sticks(error: Exception, device: torch.device) -> bool:
    """Whether every later call would fail too, as after an error on the device; a lack of memory passes."""
    if device.type != "cuda" or isinstance(error, torch.cuda.OutOfMemoryError):
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return "CUDA error" in str(error)


def first_weights(unit: Unit, material: Material, out: Path) -> Deblurrer:
    """The network with its first weights: drawn by name, or those of the arm that this one continues."""
    model = make_model(recipe_of(unit, material.scale, material.folder))
    if unit.arm.continues:
        path = store.folder(out, Unit(ARMS[unit.arm.continues], unit.seed)) / store.WEIGHTS
        model.load_state_dict(weights.read(path).state_dict())
    return model.to(material.device)


def at(step: int, metrics: Metrics) -> Metrics:
    """The same under names that tell the step."""
    return {f"{name}@{step}": values for name, values in metrics.items()}


def keep(
    unit: Unit,
    model: Deblurrer,
    found: Measured,
    drawn: Mapping[str, store.Pictures],
    curve: dict[str, tuple[float, ...]],
    mark: str,
    material: Material,
    out: Path,
    began: float,
) -> None:
    """Write the training's folder, all or nothing. It took the time since `began`."""
    arm = unit.arm
    metrics, lost = finite({**curve, **found.metrics})
    positions = found.positions if all(map(math.isfinite, found.positions)) else ()
    if lost:
        say(f"{unit.folder}: not finite and left out: {', '.join(lost)}")
    scores = Scores(
        arm.name,
        unit.seed,
        mark,
        parameters(model),
        metrics,
        positions,
        found.histograms,
    )
    with whole(store.folder(out, unit)) as partial:
        partial.mkdir(parents=True)
        store.write_scores(partial / store.SCORES, scores)
        if unit.seed == 0 or any(other.continues == arm.name for other in ARMS.values()):
            notes = {"arm": arm.name, "seed": str(unit.seed), "scale": material.scale.name}
            weights.save(model, partial / store.WEIGHTS, notes, half=True)
        for name, arrays in drawn.items():
            store.write_arrays(partial / name, arrays)
        record = {
            "minutes": (time.monotonic() - began) / 60,
            "machine": machine_name(material),
        }
        (partial / store.MINUTES).write_text(json.dumps(record) + "\n")


def finite(metrics: Metrics) -> tuple[Metrics, list[str]]:
    """The metrics that are finite on every clip, and the names of the others, as of a network that diverged."""
    kept = {name: values for name, values in metrics.items() if all(map(math.isfinite, values))}
    return kept, sorted({*metrics} - {*kept})
