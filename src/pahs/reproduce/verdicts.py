"""From the scores of all trainings to a verdict for each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pahs.reproduce.claims import Claim, Combination, Contrast
from pahs.reproduce.statistics import Estimate, Table, estimate, holm

Verdict = Literal[
    "confirmed", "confirmed in part", "refuted", "refuted so far", "no effect here", "open", "not run"
]
ALPHA = 0.05


@dataclass(frozen=True)
class Scores:
    """What one training came to."""

    arm: str
    seed: int
    fingerprint: str
    """Of everything that decides the numbers: a run with another one is made anew."""
    parameters: int
    metrics: Mapping[str, tuple[float, ...]]
    """By name, one number per clip: `psnr`, `psnr@250`, `ssim`, `future:19`, `selection:forward`, ..."""
    positions: tuple[float, ...] = ()
    """Mean PSNR by position in the clip."""
    histograms: Mapping[str, tuple[int, ...]] | None = None
    """S_Sel by direction, in equal bins over 0..1."""


AllScores = Mapping[str, Mapping[int, Scores]]
"""By arm and seed."""


@dataclass(frozen=True)
class Finding:
    """One contrast with what was found."""

    contrast: Contrast
    found: Estimate | None
    """None: an arm that it needs has not been trained."""
    p: float
    """Holm's adjusted probability among the contrasts of its claim."""
    curve: tuple[tuple[int, float], ...]
    """The mean difference over training steps."""
    verdict: Verdict


@dataclass(frozen=True)
class Judged:
    """A claim with its findings."""

    claim: Claim
    findings: tuple[Finding, ...]
    verdict: Verdict


def table(scores: AllScores, terms: Combination) -> Table | None:
    """The combination on every clip, for the seeds that all its arms have; None where there is none."""
    total: Table | None = None
    seeds = set.intersection(*({*scores.get(arm, {})} for _, arm, _ in terms))
    having = [s for s in sorted(seeds) if all(metric in scores[arm][s].metrics for _, arm, metric in terms)]
    if not having:
        return None
    for weight, arm, metric in terms:
        part = weight * np.array([scores[arm][seed].metrics[metric] for seed in having], np.float64)
        total = part if total is None else total + part
    return total


def curve(scores: AllScores, terms: Combination) -> tuple[tuple[int, float], ...]:
    """The mean difference over the training steps after which all of its metrics were taken, of the same seeds."""
    final, looks = table(scores, terms), [steps(scores, arm, metric) for _, arm, metric in terms]
    if final is None or len({max(some, default=0) for some in looks}) > 1:
        return ()  # arms that are trained on end where others are half way
    points = []
    for step in sorted(set.intersection(*looks)):
        d = table(scores, tuple((weight, arm, f"{metric}@{step}") for weight, arm, metric in terms))
        if d is not None and len(d) == len(final):
            points.append((step, float(d.mean())))
    return tuple(points)


def steps(scores: AllScores, arm: str, metric: str) -> set[int]:
    """After how many steps a metric of an arm was taken."""
    names = {name for run in scores.get(arm, {}).values() for name in run.metrics}
    return {int(name.partition("@")[2]) for name in names if name.startswith(f"{metric}@")}


def judge(claim: Claim, scores: AllScores) -> Judged:
    """A verdict for each contrast and for the claim."""
    tables = [table(scores, contrast.terms) for contrast in claim.contrasts]
    found = [None if d is None else estimate(d) for d in tables]
    tested = [
        i
        for i, c in enumerate(claim.contrasts)
        if c.expected == "more" and found[i] is not None and not c.ours
    ]
    p = {i: e.p for i, e in enumerate(found) if e is not None}
    p |= dict(zip(tested, holm([p[i] for i in tested]), strict=True))
    findings = []
    for i, contrast in enumerate(claim.contrasts):
        rising = curve(scores, contrast.terms)
        verdict = decide(contrast, found[i], p.get(i, 1.0), rising)
        findings.append(Finding(contrast, found[i], p.get(i, 1.0), rising, verdict))
    return Judged(claim, tuple(findings), together([f for f in findings if not f.contrast.ours]))


def decide(
    contrast: Contrast, found: Estimate | None, p: float, curve: tuple[tuple[int, float], ...]
) -> Verdict:
    """The verdict of one contrast."""
    if found is None:
        return "not run"
    margin = contrast.margin
    inside = -margin <= found.low and found.high <= margin
    if contrast.expected == "same":
        outside = found.low > margin or found.high < -margin
        return "confirmed" if inside else "refuted" if outside else "open"
    if found.low > 0 and found.mean >= margin and p < ALPHA:
        return "confirmed"
    if found.high < 0 and p < ALPHA:
        rises = len(curve) > 1 and curve[-1][1] > curve[0][1]
        return "refuted so far" if rises else "refuted"
    return "no effect here" if inside else "open"


def together(findings: Sequence[Finding]) -> Verdict:
    """A claim holds where all its contrasts do, and falls with one of them."""
    all_of_them = {finding.verdict for finding in findings}
    worst_first: tuple[Verdict, ...] = ("refuted", "refuted so far", "not run")
    for worst in worst_first:
        if worst in all_of_them:
            return worst
    if len(all_of_them) == 1:
        return all_of_them.pop()
    # That two arms are the same is no part of a claim yet: arms that have learnt nothing are, too.
    gains = {finding.verdict for finding in findings if finding.contrast.expected == "more"}
    return "confirmed in part" if "confirmed" in gains else "open"
