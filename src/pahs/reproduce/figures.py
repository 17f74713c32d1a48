"""The report's plots and pictures. Each is drawn if what it needs is there; matplotlib is the extra `figures`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pahs.evaluation.strips import most_changed
from pahs.figures import inside, new_figure, save
from pahs.reproduce import store
from pahs.reproduce.claims import PSNR
from pahs.reproduce.paper import paper
from pahs.reproduce.plan import ARMS
from pahs.reproduce.statistics import Estimate, estimate
from pahs.reproduce.verdicts import AllScores, Judged, table

CROP = 128
"""Height and width of the details that are compared."""


@dataclass(frozen=True)
class Drawn:
    """One picture of the report."""

    label: str
    """The paper's label, or a name of ours."""
    title: str
    path: Path
    about: str
    """What one sees, in a sentence or two."""


Panels = dict[str, tuple[tuple[str, str], ...]]
SYSTEMS: Panels = {
    "fig:overview": (("IFI-RNN", "ifirnn"), ("STFAN", "stfan"), ("ESTRNN", "estrnn"), ("PAHS", "B3")),
    "fig:dvd": (("TSP", "tsp"), ("ARVo", "arvo"), ("PAHS", "B3")),
    "fig:gopro_reds": (("IFI-RNN", "ifirnn"), ("ESTRNN", "estrnn"), ("PAHS", "B3")),
    "fig:snla_ablation": (("no attention", "B1"), ("non-local", "NL"), ("selective (SNLA)", "B3")),
}
"""The paper's pictures of several systems, and the arms that stand in for them."""


def draw(out: Path, scores: AllScores, judged: Sequence[Judged]) -> list[Drawn]:
    """Everything that can be drawn, into OUT/figures; nothing without matplotlib."""
    if find_spec("matplotlib") is None:
        return []
    # Each draws into a file and says what is seen; empty: there is nothing to draw yet.
    makers: list[tuple[str, str, Callable[[Path], str]]] = [
        ("differences", "Each difference, in the paper and here", partial(differences, judged)),
        ("curves", "Each difference over the training steps", partial(curves, judged)),
        ("fig:pprnn-graph", "PSNR over the recurrences of PPRNN", partial(recurrences, scores)),
        ("fig:distribution", "Distribution of the selection", partial(distribution, scores)),
        ("positions", "PSNR by position in the clip", partial(positions, scores)),
        ("fig:featurevisualization", "Features", partial(of_arm, out, "B3", "maps")),
        ("fig:longrange", "Where one point attends to", partial(of_arm, out, "B3", "attention")),
        ("selection", "The selection over the frame", partial(of_arm, out, "B3", "selection")),
        *((x, paper().figures[x].title, partial(systems, out, panels)) for x, panels in SYSTEMS.items()),
    ]
    drawn = []
    for label, title, make in makers:
        path = out / "figures" / f"{label.replace(':', '-')}.png"
        if about := make(path):
            drawn.append(Drawn(label, title, path, about))
    return drawn


def differences(judged: Sequence[Judged], path: Path) -> str:
    rows = [
        (f"{j.claim.label}  {f.contrast.name}", f.found, f.contrast.paper)
        for j in judged
        if j.claim.unit == "dB"
        for f in j.findings
        if f.found is not None
    ]
    if not rows:
        return ""
    figure = new_figure(1, 1)
    figure.set_size_inches(8, 1 + 0.24 * len(rows))
    axes = figure.subplots()
    for y, (_, found, theirs) in enumerate(rows):
        assert found is not None
        axes.errorbar([found.mean], [y], xerr=_error(found), fmt="o", color="tab:blue", ms=4, capsize=2)
        if theirs is not None:
            axes.plot([theirs], [y], "x", color="tab:red", ms=5)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("difference of PSNR in dB")
    limits = [v for _, f, p in rows for v in (f.mean, p or 0.0) if f is not None]
    reach = max(abs(v) for v in limits) * 1.15 + 0.05
    axes.set_xlim(-reach, reach)
    axes.set_title("blue: here, with 95 % interval; red cross: the paper", fontsize=10)
    save(figure, path)
    return (
        "Every difference that a claim rests on. Only sign and order compare: data, size and training differ."
    )


def _error(found: Estimate) -> list[list[float]]:
    low, high = found.mean - found.low, found.high - found.mean
    return [[low if np.isfinite(low) else 0.0], [high if np.isfinite(high) else 0.0]]


def curves(judged: Sequence[Judged], path: Path) -> str:
    shown = [j for j in judged if any(len(f.curve) > 1 for f in j.findings)]
    if not shown:
        return ""
    rows, columns = -(-len(shown) // 3), 3
    figure = new_figure(rows, columns)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    for axes, one in zip(grid.flat, shown, strict=False):
        for finding in one.findings:
            if len(finding.curve) > 1 and finding.found is not None:
                xs, ys = zip(*finding.curve, strict=True)
                (line,) = axes.plot(xs, ys, marker="o", ms=3, label=finding.contrast.name)
                axes.errorbar(xs[-1:], ys[-1:], yerr=_error(finding.found), color=line.get_color(), capsize=2)
        axes.axhline(0, color="black", lw=0.8)
        axes.set(title=f"{one.claim.label}: {one.verdict}", xlabel="training steps", ylabel=one.claim.unit)
        axes.legend(fontsize=6)
    save(figure, path)
    return "How each difference grows or shrinks while the networks learn; the bar at the end is the 95 % interval."


def recurrences(scores: AllScores, path: Path) -> str:
    series = (
        ("f_B first (the paper's)", ("B2", "N1", "N2", "N3", "B3")),
        ("f_L first", ("B2", "R1", "R2", "R3", "R4")),
    )
    figure = new_figure(1, 1)
    axes = figure.subplots()
    points = 0
    for name, arms in series:
        found = [(n, table(scores, ((1, arm, PSNR), (-1, "B2", PSNR)))) for n, arm in enumerate(arms)]
        known = [(n, estimate(d)) for n, d in found if d is not None]
        points += len(known)
        if known:
            xs, ys = zip(*((n, e.mean) for n, e in known), strict=True)
            errors = np.array([_error(e) for _, e in known])[..., 0].T
            axes.errorbar(xs, ys, yerr=errors, marker="o", capsize=3, label=name)
    if points < 3:
        return ""
    theirs = np.array(paper().figures["fig:pprnn-graph"].points)
    axes.plot(theirs[:, 0], theirs[:, 1] - theirs[0, 1], "x--", color="tab:red", label="paper")
    axes.set(xlabel="recurrences n of PPRNN", ylabel="PSNR above n = 0, dB", xticks=range(5))
    axes.legend()
    save(figure, path)
    return "PSNR over the number of ping-pongs, less that of the network without PPRNN, with 95 % intervals."


def distribution(scores: AllScores, path: Path) -> str:
    cells = ("forward", "backward")
    found = {
        (arm, cell): np.sum(
            [
                r.histograms[cell]
                for r in scores.get(arm, {}).values()
                if r.histograms and cell in r.histograms
            ],
            0,
        )
        for arm in ("B2", "B3")
        for cell in cells
    }
    if not all(np.size(x) > 1 for x in found.values()):
        return ""
    figure = new_figure(1, 2)
    for axes, cell in zip(figure.subplots(1, 2), cells, strict=True):
        for arm, colour, name in (("B2", "tab:blue", "without PPRNN"), ("B3", "tab:red", "with PPRNN")):
            counts = found[arm, cell]
            edges = np.linspace(0, 1, len(counts) + 1)
            axes.stairs(counts / counts.sum(), edges, fill=True, alpha=0.55, color=colour, label=name)
        axes.set(title=f"{cell} cell", xlim=(0, 1), ylabel="share of all tokens")
        axes.set_xlabel("S_Sel: 0 nothing let through, 1 all")
        axes.legend()
    save(figure, path)
    return (
        "How much of what attention found is let through, over all tokens, clips and seeds. "
        "A narrow peak means a constant."
    )


def positions(scores: AllScores, path: Path) -> str:
    known = {
        arm: [run.positions for run in scores.get(arm, {}).values() if run.positions]
        for arm in ("U0", "U3", "B0", "B3", "BL")
    }
    means = {arm: np.mean(rows, 0) for arm, rows in known.items() if rows}
    if not means:
        return ""
    figure = new_figure(1, 1)
    axes = figure.subplots()
    first = next(iter(means))
    for arm, mean in means.items():
        axes.plot(range(len(mean)), mean - means[first], marker="o", ms=3, label=f"{arm}: {ARMS[arm].about}")
    axes.set(xlabel="frame of the clip", ylabel=f"PSNR above that of {first}, dB")
    axes.legend(fontsize=7)
    save(figure, path)
    return "PSNR along the clip: what the past gives to one direction, and past and future to both."


def of_arm(out: Path, arm: str, what: str, path: Path) -> str:
    found = store.read_pictures(out, arm)
    if found is None or what not in found:
        return ""
    frames, pictures = found["blurry"][:2], found[what][:2]
    if what == "maps":
        inside.features(frames, pictures, path)
        return (
            "What the network holds at the middle frame of two clips: the frame's feature, and the hidden state "
            "before and after each module."
        )
    if what == "attention":
        inside.attention(frames, pictures, found["point"][:2], path)
        return "Where in the hidden state the busiest token of the frame finds what it needs."
    inside.selection(frames, pictures, path)
    return "How much of the attended memory each token of the frame lets through."


def systems(out: Path, panels: Sequence[tuple[str, str]], path: Path) -> str:
    found = [(title, store.read_pictures(out, arm)) for title, arm in panels]
    there = [(title, pictures) for title, pictures in found if pictures is not None]
    if len(there) < 2:
        return ""
    first = there[0][1]
    rows = []
    for i, (blurry, sharp) in enumerate(zip(first["blurry"], first["sharp"], strict=True)):
        window = most_changed(blurry, sharp, CROP, CROP)
        rows.append([x[window] for x in (blurry, *(p["restored"][i] for _, p in there), sharp)])
    missing = [title for title, pictures in found if pictures is None]
    text = (
        "Details of the first held-out clips, cropped where the blur does most harm; never chosen by result."
    )
    text += f" Not trained yet: {', '.join(missing)}." if missing else ""
    inside.side_by_side(["blurry", *(title for title, _ in there), "sharp"], rows, text, path)
    return text
