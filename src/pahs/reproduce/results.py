"""Everything that a reproduction came to, as one object and as `results.json`, which a resumed run repeats exactly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pahs import __version__
from pahs.files import write_json
from pahs.reproduce import cheap, store
from pahs.reproduce.claims import CLAIMS, PSNR
from pahs.reproduce.paper import paper
from pahs.reproduce.tables import SPECS, Line, Spec, lines
from pahs.reproduce.verdicts import AllScores, Judged, judge, steps

FORMAT = "pahs-reproduction-1"


@dataclass(frozen=True)
class Results:
    """Claims, tables and what they rest on."""

    scale: str
    judged: tuple[Judged, ...]
    cost: cheap.Cost
    speeds: cheap.Speeds | None
    tables: tuple[tuple[Spec, list[Line]], ...]
    scores: AllScores
    minutes: float
    machines: tuple[str, ...]
    steps: int | None
    """Of the longest training; None: nothing is trained, or it says nothing about it."""


def collect(out: Path, scale: str) -> Results:
    """Judge what lies in a folder, whole or not."""
    scores, speeds = store.all_scores(out), cheap.read_speeds(out)
    return Results(
        scale,
        tuple(judge(claim, scores) for claim in CLAIMS),
        cheap.cost(speeds),
        speeds,
        tuple((spec, lines(spec, scores)) for spec in SPECS),
        scores,
        store.minutes(out),
        tuple(store.machines(out)),
        longest(scores),
    )


def longest(scores: AllScores) -> int | None:
    """Steps of the longest training."""
    return max((step for arm in scores for step in steps(scores, arm, PSNR)), default=None)


def write(results: Results, out: Path) -> None:
    """`results.json`: no times in it, so that the same trainings give the same file."""
    claims: dict[str, Any] = {
        one.claim.label: {
            "hypothesis": one.claim.hypothesis,
            "verdict": one.verdict,
            "unit": one.claim.unit,
            "findings": [
                {
                    "contrast": f.contrast.name,
                    "paper": f.contrast.paper,
                    "ours": None if f.found is None else asdict(f.found),
                    "holm_p": f.p,
                    "over_steps": f.curve,
                    "verdict": f.verdict,
                    "control": f.contrast.ours,
                }
                for f in one.findings
            ],
        }
        for one in results.judged
    }
    claims[results.cost.label] = asdict(results.cost)
    content = {
        "format": FORMAT,
        "version": __version__,
        "scale": results.scale,
        "arms": {
            arm: {"parameters": next(iter(runs.values())).parameters, "seeds": sorted(runs)}
            for arm, runs in results.scores.items()
        },
        "claims": claims,
        "tables": {
            spec.label: {"number": paper().tables[spec.label].number, "rows": [asdict(line) for line in rows]}
            for spec, rows in results.tables
        },
    }
    write_json(out / "results.json", finite(content), allow_nan=False)


def finite(value: Any) -> Any:
    """Interval limits that are infinite (one seed) as null, which JSON can hold."""
    if isinstance(value, float):
        return value if abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: finite(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    return value
