"""C17, what the modules cost: parameters are counted, speeds are measured where there is a GPU."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pahs.files import write_json
from pahs.networks import PAHSConfig, RefineConfig
from pahs.progress import say
from pahs.reproduce.claims import CHEAP
from pahs.reproduce.paper import paper
from pahs.reproduce.plan import count
from pahs.reproduce.verdicts import Verdict

HYPOTHESIS = "The modules are cheap, and PAHS is faster than ARVo"
FILE = "speed.json"
MINUTES = 4.0
"""More than the measurement takes."""
MEASURED = ("pahs-paper", "pahs-s-paper", "arvo", "edvr-l", "ovd", "ifirnn", "stfan", "estrnn-c80b15", "tsp")
"""Networks as large as the paper's, at 1280x720."""
NEEDED = ("pahs-paper", "pahs-s-paper", "arvo")
"""Those that the claim compares."""


@dataclass(frozen=True)
class Speeds:
    """Frames per second by preset, and the machine."""

    fps: dict[str, float]
    conditions: str


@dataclass(frozen=True)
class Cost:
    """What the claim of a small cost comes to."""

    label: str
    selection_percent: float
    """Share of the whole network that the selection adds, both directions."""
    ratios: tuple[tuple[str, float, float | None], ...]
    """Name, the paper's ratio of speeds, ours; None: not measured."""
    verdict: Verdict


def measure_speeds(out: Path) -> None:
    """Time the networks once, in the conditions of `pahs bench`; kept if the claim can be judged by it."""
    from pahs.benchmarks.options import BenchConfig
    from pahs.benchmarks.zoo import measure_all

    result = measure_all(MEASURED, BenchConfig())
    fps = {row.model: row.speed for row in result.rows if row.speed is not None}
    for row in result.rows:
        if row.speed is None:
            say(f"the speed of {row.model} could not be measured: {row.error}")
    if missing := [name for name in NEEDED if name not in fps]:
        say(f"no speeds are kept, since {', '.join(missing)} is missing; a later call measures them again")
        return
    write_json(out / FILE, asdict(Speeds(fps, result.conditions)))


def read_speeds(out: Path) -> Speeds | None:
    path = out / FILE
    if not path.exists():
        return None
    return Speeds(**json.loads(path.read_text()))


def cost(speeds: Speeds | None) -> Cost:
    """Parameters always, speeds if they were measured."""
    whole = PAHSConfig()
    without = replace(whole, refine=RefineConfig(attention="non-local"))
    percent = 100 * (count(whole) - count(without)) / count(whole)
    text = paper().text
    fps = speeds.fps if speeds else {}
    arvo = fps.get("arvo")
    pairs = (
        ("PAHS to ARVo", text["pahs_over_arvo_speed"], fps.get("pahs-paper")),
        ("PAHS-S to ARVo", text["pahs_s_over_arvo_speed"], fps.get("pahs-s-paper")),
    )
    ratios = tuple((name, theirs, ours / arvo if ours and arvo else None) for name, theirs, ours in pairs)
    known = [ours for _, _, ours in ratios if ours is not None]
    verdict: Verdict = "not run"
    if len(known) == len(ratios):
        verdict = "confirmed" if min(known) > 1 and percent < 0.1 else "refuted"
    return Cost(CHEAP, percent, ratios, verdict)
