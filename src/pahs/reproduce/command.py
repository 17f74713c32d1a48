"""`pahs reproduce`: choose what to train, train it, write the report."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.errors import PahsError
from pahs.files import write_text
from pahs.progress import say
from pahs.reproduce import results, store
from pahs.reproduce.claims import CHEAP, CLAIMS
from pahs.reproduce.figures import SYSTEMS, draw
from pahs.reproduce.html import page
from pahs.reproduce.paper import paper
from pahs.reproduce.plan import ARMS, PARTS, Unit, units
from pahs.reproduce.record import Calibration, Record, check, read_record, write_record
from pahs.reproduce.report import TITLE, markdown
from pahs.reproduce.scales import SCALES, Scale, ScaleName, with_steps
from pahs.reproduce.tables import SPECS
from pahs.reproduce.videos import write_videos

if TYPE_CHECKING:
    from pahs.reproduce.material import Material

DATA: dict[ScaleName, tuple[str, ...]] = {
    "small": ("photos", "eval"),
    "tiny": ("eval",),
    "full": ("gopro", "dvd", "reds", "start"),
}
"""The names of --data that a scale uses."""
FIGURES = {
    "fig:pprnn-graph": ("B2", "N1", "N2", "N3", "B3", "R1", "R2", "R3", "R4"),
    "fig:featurevisualization": ("B3",),
    "fig:distribution": ("B2", "B3"),
    "fig:longrange": ("B3",),
}
"""Arms of the figures that are drawn, besides those of several systems."""


@dataclass(frozen=True)
class Task:
    """What the user asks for."""

    labels: tuple[str, ...] = ()
    """Tables, figures, claims or arms; none: everything."""
    scale: ScaleName = "small"
    data: tuple[str, ...] = ()
    """NAME=FOLDER each."""
    seeds: int | None = None
    steps: int | None = None
    minutes: float | None = None
    began: float | None = None
    """The time of `time.monotonic` from which the minutes count; None: from the call."""
    together: int | None = None
    """Arms that train at the same time on one GPU, on the same batches; None: as calibrated, or one."""
    calibrate: float | None = None
    """Minutes that all trainings together may take: time them first, and choose steps and together; once a folder."""
    report_only: bool = False
    out: Path = Path("reproduction")


def reproduce(task: Task) -> results.Results:
    """Train what is missing, as far as the minutes go, and write report.md, report.html and results.json."""
    arms, folders = chosen_arms(task.labels), data_folders(task.data, task.scale)
    for name, value in (("--seeds", task.seeds), ("--steps", task.steps), ("--together", task.together)):
        if value is not None and value < 1:
            raise PahsError(f"{name} is {value}; use 1 or more")
    check_choices(task)
    failed: dict[str, str] = {}
    if task.report_only:
        read_record(task.out)
    elif task.scale == "full":
        from pahs.reproduce.full import run_full

        run_full(arms, folders, task.out, task.seeds, deadline(task))
    else:
        failed = train(task, SCALES[task.scale], arms, folders)
    found = write_report(task.out)
    if failed:
        which = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise PahsError(
            f"{len(failed)} trainings failed, and the report does without them ({which}); "
            "the same command tries them again"
        )
    return found


def chosen_arms(labels: Sequence[str]) -> set[str]:
    """The arms behind tables, figures, claims, parts and arms by name; no label: all of them."""
    if not labels:
        return set(ARMS)
    needs = needed()
    found: set[str] = set()
    for label in labels:
        if label not in needs:
            hint = f"such as tab:snla, C5, core; arms: {', '.join(ARMS)}"
            for close in get_close_matches(label, needs, 1):
                hint = f"did you mean {close}?"
            raise PahsError(f"{label}: no table, figure, claim, part or arm is called so; {hint}")
        found |= needs[label]
    return found


def needed() -> dict[str, set[str]]:
    """The arms of every label."""
    needs: dict[str, set[str]] = {label: set() for label in paper().labels}
    needs |= {label: set(arms) for label, arms in FIGURES.items()}
    needs |= {label: {arm for _, arm in panels} for label, panels in SYSTEMS.items()}
    needs |= {spec.label: {row.arm for row in spec.rows if row.arm} for spec in SPECS}
    needs |= {c.label: {arm for x in c.contrasts for _, arm, _ in x.terms} for c in CLAIMS}
    needs |= {part: {arm.name for arm in ARMS.values() if arm.part == part} for part in PARTS}
    needs |= {name: {name} for name in ARMS}
    return needs | {CHEAP: set()}


def train(task: Task, scale: Scale, arms: set[str], folders: dict[str, Path]) -> dict[str, str]:
    """The scales tiny and small; returns the trainings that failed, and why."""
    import torch

    from pahs.reproduce import cheap
    from pahs.reproduce.material import Material
    from pahs.reproduce.run import check_settings, run

    ends = deadline(task)
    record = check(task.out, scale.name)
    known = record.calibration
    before = record.steps or (known.steps if known else results.longest(store.all_scores(task.out)))
    check_steps(task, before or scale.steps)
    material = Material(scale, folders.get("photos"), folders.get("eval"))
    write_record(task.out, record)  # a folder that cannot be written is found before anything is timed
    wanted = units(arms, scale, task.seeds)
    found = known or calibrated(task, material, wanted)
    steps = task.steps or (found.steps if found and not known else before)
    if steps:
        material.use(with_steps(scale, steps))
    check_settings(material, task.out)
    write_record(task.out, Record(scale.name, steps, found))
    together = task.together or (found.together if found else 1)
    # Seconds that were calibrated are those of the steps that were chosen.
    seconds = found.seconds if found and steps == found.steps else {}
    outcome = run(material, wanted, task.out, ends, together, seconds)
    if outcome.left:
        say(f"{outcome.left} trainings are still to do: the same command continues with them")
        return outcome.failed
    left = math.inf if ends is None else (ends - time.monotonic()) / 60
    asked = not task.labels or CHEAP in task.labels
    if asked and scale.name != "tiny" and torch.cuda.is_available() and cheap.read_speeds(task.out) is None:
        if left > cheap.MINUTES:
            cheap.measure_speeds(task.out)
        else:
            say("speeds are still to be measured: the same command does it")
    return outcome.failed


def calibrated(task: Task, material: Material, wanted: Sequence[Unit]) -> Calibration | None:
    """Calibrate if that is asked for; a folder that holds trainings has its steps already."""
    if task.calibrate is None:
        return None
    from pahs.reproduce.calibrate import AT_ONCE, calibrate

    if begun(task.out):
        raise PahsError(f"{task.out}: holds trainings that were not calibrated; name another --output")
    return calibrate(material, wanted, task.calibrate, task.together or AT_ONCE)


def begun(out: Path) -> bool:
    """Whether a folder holds trainings."""
    return any((out / "runs").glob(f"*/*/{store.SCORES}"))


def check_steps(task: Task, steps: int) -> None:
    """Trainings of different lengths are not compared with each other."""
    if task.steps not in (None, steps) and begun(task.out):
        raise PahsError(
            f"{task.out}: was made with other settings, trainings of {steps} steps; leave --steps out, or name another "
            "--output"
        )


def check_choices(task: Task) -> None:
    """Refuse options that would be ignored."""
    if task.scale == "full":
        for name, given in (("--steps", task.steps), ("--together", task.together)):
            if given is not None and not task.report_only:
                raise PahsError(
                    f"{name} is for the scales tiny and small; at --scale full the paper's recipes decide"
                )
    if task.calibrate is None:
        return
    if task.calibrate <= 0:
        raise PahsError(f"--calibrate is {task.calibrate:g}; use minutes above 0")
    if task.scale == "full" or task.steps or task.report_only:
        other = "--scale full" if task.scale == "full" else "--steps" if task.steps else "--report-only"
        raise PahsError(f"--calibrate chooses the steps of the scales tiny and small; leave {other} out")


def deadline(task: Task) -> float | None:
    """When the minutes are over, on the clock of `time.monotonic`."""
    if task.minutes is None:
        return None
    return (time.monotonic() if task.began is None else task.began) + 60 * task.minutes


def write_report(out: Path) -> results.Results:
    """Everything that can be told from what lies in the folder."""
    found = results.collect(out, read_record(out).scale)
    results.write(found, out)
    drawn, videos = draw(out, found.scores, found.judged), write_videos(out)
    text = markdown(found, drawn, out)
    shown = "".join(f"\n![{path.stem}]({path.relative_to(out).as_posix()})\n" for path in videos)
    write_text(out / "report.md", text)
    if find_spec("markdown_it") is None:
        (out / "report.html").unlink(missing_ok=True)  # it would be of an earlier state
        print(
            f"markdown-it-py is missing: {out / 'report.md'} is written, report.html is not; where it is installed, "
            "--report-only writes both",
            file=sys.stderr,
        )
    else:
        write_text(out / "report.html", page(text + (f"\n## Videos\n{shown}" if shown else ""), out, TITLE))
    return found


def data_folders(given: Sequence[str], scale: ScaleName) -> dict[str, Path]:
    """NAME=FOLDER, each known, there and of use."""
    found: dict[str, Path] = {}
    names = list(dict.fromkeys(chain.from_iterable(DATA.values())))
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or name not in names:
            raise PahsError(f"--data {text}: write it as NAME=FOLDER; the names are {', '.join(names)}")
        if not Path(folder).is_dir():
            raise PahsError(f"--data {text}: no such folder")
        if name not in DATA[scale]:
            raise PahsError(
                f"--data {text}: --scale {scale} does not use it, but {', '.join(DATA[scale])}; leave it out"
            )
        if name in found:
            raise PahsError(f"--data {text}: {name} is given twice")
        found[name] = Path(folder)
    return found
