"""The report: verdicts, tables, plots and pictures, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from pahs import __version__
from pahs.evaluation.tables import shown, table
from pahs.reproduce import cheap
from pahs.reproduce.claims import PSNR, Claim
from pahs.reproduce.figures import Drawn
from pahs.reproduce.layers import layer_tables
from pahs.reproduce.paper import paper
from pahs.reproduce.plan import ARMS, PARTS
from pahs.reproduce.results import Results
from pahs.reproduce.scales import SCALES
from pahs.reproduce.statistics import Estimate
from pahs.reproduce.tables import Line
from pahs.reproduce.verdicts import Finding
from pahs.reproduce.verdicts import table as difference

TITLE = "Pay Attention to Hidden States for Video Deblurring (PAHS): its tables, figures and claims"

MEANING = (
    "Verdicts are about this scale. *confirmed*: the 95 % interval lies above zero and the mean is 0.02 dB or more "
    "(where two are claimed to be the same: the interval lies within the named margin). *refuted*: the interval lies "
    "below zero; *refuted so far*: so it does, but the difference grows with training. *no effect here*: the "
    "interval lies within +-0.02 dB. *open*: none of these. A claim with several contrasts holds where all of them do, "
    "*in part* where some do and none is refuted. "
    "Intervals are the wider of a bootstrap over seeds and clips and of Student's t over seeds; contrasts of one claim "
    "are adjusted by Holm's method. Absolute PSNR is never compared between the paper and this page, because data, "
    "network size and training differ. Differences are, by sign and order."
)

SMALL_CAVEATS = (
    "Networks of about 1 M parameters, trained for {steps} steps on blur that is synthesised from photos: motion "
    "alone, without noise, codec or highlights, averaged as stored values; the camera shakes, so that some frames are "
    "sharper than others. Scored on held-out clips of the same kind. The paper trains for hundreds of thousands of "
    "steps on GOPRO, DVD and REDS. ARVo is an approximation from its abstract."
)

PLOTS = "differences", "curves", "positions"

SLIPS = (
    "PAHS-S is said to keep a large gap to ARVo at large motion (Table S9), but its PSNR is below ARVo's.",
    "From GOPRO to Table S9 PAHS loses 4.89 dB, ARVo 4.30, ESTRNN 4.51: its robustness to large motion is one of "
    "level, not of loss.",
    "SSIM 0.9482 stands twice in Table 2, for 3 and for 7 future frames.",
    "Row 0 of Table 2 equals the uni-directional network of Table 6 to all digits.",
    "SRN and MTRNN are named as compared and are in no table.",
)


def markdown(results: Results, drawn: Sequence[Drawn], out: Path) -> str:
    """The whole report. Pictures are linked relative to OUT."""
    by_label = {one.label: one for one in drawn}
    return "\n".join(
        [
            *_head(results),
            *_verdicts(results),
            *_arms(results),
            *_claims(results),
            *chain.from_iterable(_picture(by_label.get(name), out) for name in PLOTS),
            *_tables(results),
            *_layers(),
            *_figures(by_label, out),
            *_slips(),
        ]
    )


def _head(results: Results) -> Iterator[str]:
    trained = sum(len(runs) for runs in results.scores.values())
    seeds = sorted({len(runs) for runs in results.scores.values()})
    scale = SCALES.get(results.scale)
    yield f"# The paper, reproduced at scale {results.scale}\n"
    yield f"*{TITLE}*\n"
    length = f"; {results.steps:,} steps" if results.steps else ""
    yield f"- scale: {scale.about if scale else 'the published datasets and networks'}{length}"
    yield f"- trainings: {trained} ({len(results.scores)} arms, {' or '.join(map(str, seeds)) or 'no'} seeds each)"
    yield f"- machine: {'; '.join(results.machines) or 'none yet'}; {results.minutes:.0f} minutes of training"
    yield f"- pahs {__version__}; repeat it with `{_command(results)}`\n"
    if results.scale == "small":
        yield SMALL_CAVEATS.format(steps=f"{results.steps or scale.steps:,}" if scale else "") + "\n"
    if results.scale == "tiny":
        yield "**Scale tiny rehearses the machinery. Its verdicts mean nothing.**\n"


def _command(results: Results) -> str:
    """What trains the same again."""
    words = ["pahs reproduce"]
    if results.scores.keys() != ARMS.keys():
        for part in PARTS:
            arms = [arm.name for arm in ARMS.values() if arm.part == part]
            there = [name for name in arms if name in results.scores]
            words += [part] if there == arms else there
    words.append(f"--scale {results.scale}")
    words += {"small": ["--data photos=FOLDER"], "full": ["--data DATASET=FOLDER"]}.get(results.scale, [])
    scale = SCALES.get(results.scale)
    if scale and results.steps not in (None, scale.steps):
        words.append(f"--steps {results.steps}")
    return " ".join(words)


def _verdicts(results: Results) -> Iterator[str]:
    yield "## Verdicts\n"
    yield MEANING + "\n"
    rows = [(one.claim.label, one.claim.hypothesis, f"**{one.verdict}**") for one in results.judged]
    rows.append((results.cost.label, cheap.HYPOTHESIS, f"**{results.cost.verdict}**"))
    yield from table("claim |  | verdict", rows, text=3)
    yield ""


def _arms(results: Results) -> Iterator[str]:
    yield "## Arms\n"
    yield "The trained networks. Arms of one seed see the same batches, and begin alike wherever they share a layer.\n"
    rows = []
    for name, runs in results.scores.items():
        millions = next(iter(runs.values())).parameters / 1e6
        rows.append((name, ARMS[name].about, f"{millions:.2f} M", len(runs), _gain(results, name, PSNR)))
    yield from table("arm |  | parameters | seeds | gain over the blurry input", rows, text=2)
    yield ""
    yield from _shown(results)


def _gain(results: Results, arm: str, metric: str) -> str:
    """What a network adds to the PSNR of its blurry input."""
    gain = difference(results.scores, ((1, arm, metric), (-1, arm, f"{metric}:input")))
    return "-" if gain is None else f"{gain.mean():+.2f} dB"


def _shown(results: Results) -> Iterator[str]:
    """Real clips, which never decide."""
    names = {name for runs in results.scores.values() for run in runs.values() for name in run.metrics}
    groups = sorted(x for x in names - {PSNR, "large-motion"} if f"{x}:input" in names)
    if not groups:
        return
    yield "On real clips, shown and without a say in any verdict (gain over the blurry input, mean over seeds):\n"
    rows = ((arm, *(_gain(results, arm, group) for group in groups)) for arm in results.scores)
    yield from table(" | ".join(("arm", *groups)), rows)
    yield ""


def _claims(results: Results) -> Iterator[str]:
    yield "## Each claim\n"
    for one in results.judged:
        yield f"### {one.claim.label}: {one.claim.hypothesis}\n"
        yield f"**{one.verdict}** at this scale.\n"
        yield from table(
            "contrast | paper | ours | 95 % interval | seeds | p (Holm) | over steps | verdict",
            (_finding(one.claim, finding) for finding in one.findings),
            words="95 % interval | over steps | verdict",
        )
        yield ""
    yield f"### {results.cost.label}: {cheap.HYPOTHESIS}\n"
    text = paper().text
    yield (
        f"The selection (both directions) is {results.cost.selection_percent:.3f} % of the network with c = 192; the "
        f"paper says {text['snla_over_nla_parameters_percent']} %.\n"
    )
    ratios = (
        (*others, "not measured" if ours is None else f"{ours:.2f}") for *others, ours in results.cost.ratios
    )
    yield from table("ratio of speeds | paper | ours", ratios)
    if results.speeds:
        yield f"\n{results.speeds.conditions}. Our ARVo has no flow network."
    yield ""


def _finding(claim: Claim, finding: Finding) -> tuple[object, ...]:
    contrast, found = finding.contrast, finding.found
    name = f"{contrast.name} (ours, a control)" if contrast.ours else contrast.name
    theirs = shown(contrast.paper, "+.2f")
    if found is None:
        return name, theirs, "-", "-", "-", "-", "-", "not run"
    ours = f"{found.mean:+.3f} {claim.unit}".rstrip()
    steps = ", ".join(f"{step}: {value:+.3f}" for step, value in finding.curve) or "-"
    return name, theirs, ours, interval(found), found.seeds, f"{finding.p:.3f}", steps, finding.verdict


def interval(found: Estimate) -> str:
    if math.isinf(found.low):
        return "one seed: none"
    return f"{found.low:+.3f} to {found.high:+.3f}"


def _picture(one: Drawn | None, out: Path) -> Iterator[str]:
    """A picture and what one sees in it, if it is drawn."""
    if one is not None:
        yield f"![{one.title}]({one.path.relative_to(out).as_posix()})\n"
        yield f"*{one.about}*\n"


def _tables(results: Results) -> Iterator[str]:
    yield "## Tables\n"
    yield (
        "Differences are from the row without one (in tables of pairs: from the plain system). SSIM is shown and "
        "decides nothing.\n"
    )
    for spec, rows in results.tables:
        printed = paper().tables[spec.label]
        yield f"### {printed.number}: {printed.title}\n\n`{spec.label}`\n"
        if spec.note:
            yield f"{spec.note}\n"
        if rows:
            headings = " | paper PSNR | SSIM | ours PSNR | SSIM | difference: paper | ours | 95 % interval"
            yield from table(headings, map(_row, rows), words="95 % interval")
        else:
            yield "The paper's values:\n"
            yield from table(" | ".join(printed.columns), printed.rows, text=len(printed.columns))
        yield ""


def _row(line: Line) -> tuple[str, ...]:
    ours = "-" if line.ours is None else f"{line.ours.mean:.2f}"
    if line.ours is not None and math.isfinite(line.ours.half):
        ours += f" ± {line.ours.half:.2f}"
    less = ("-", "-")
    if line.difference is not None:
        less = f"{line.difference.mean:+.3f}", interval(line.difference)
    theirs = shown(line.paper), shown(line.paper_ssim, ".4f")
    return line.name, *theirs, ours, shown(line.ssim, ".4f"), shown(line.paper_difference, "+.2f"), *less


def _layers() -> Iterator[str]:
    yield "## Layers\n"
    yield "The paper's layer tables and the network as it is built (c = 192, a frame of 64x96).\n"
    for layers in layer_tables():
        yield f"### {layers.number}: {layers.title}\n\n`{layers.label}`\n"
        headings = "layer | kernel | stride | channels | scale | built | agrees"
        yield from table(headings, layers.rows, words="channels | built | agrees")
        yield ""


def _figures(drawn: dict[str, Drawn], out: Path) -> Iterator[str]:
    yield "## Figures\n"
    for label, figure in paper().figures.items():
        yield f"### {figure.number}: {figure.title}\n\n`{label}`\n"
        if label in drawn:
            yield from _picture(drawn[label], out)
        else:
            yield _instead(label, figure.kind, drawn) + "\n"
    if "selection" in drawn:
        yield "### Not in the paper: the selection over the frame\n"
        yield from _picture(drawn["selection"], out)


def _instead(label: str, kind: str, drawn: dict[str, Drawn]) -> str:
    if kind == "diagram":
        return "A diagram: see the drawing in docs/models.md."
    if kind == "video":
        return "The first held-out clip: `videos/held-out.mp4`, written where PyAV is installed."
    if label in ("fig:real", "fig:spiderman", "fig:real_comparisons"):
        return "The paper's real videos are not at hand; `pahs visualize` draws the same for a video of your own."
    same = next((name for name in ("fig:gopro_reds", "fig:dvd", "fig:overview") if name in drawn), None)
    if kind == "picture" and same:
        return (
            f"The same systems as in {paper().figures[same].number}, on data that this scale does not have."
        )
    return (
        "Not drawn: the arms it needs are not trained yet, their pictures or clips.npz were not brought along, or "
        "matplotlib is missing (pip install 'pahs[figures]')."
    )


def _slips() -> Iterator[str]:
    yield "## Where the paper contradicts itself\n"
    for slip in SLIPS:
        yield f"- {slip}"
    yield ""
