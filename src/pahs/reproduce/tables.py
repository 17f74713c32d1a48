"""The rows of the paper's result tables, and the measurements that stand beside them.

Absolute values are never compared across data. What is compared is each row's difference from the reference row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pahs.reproduce.claims import PSNR
from pahs.reproduce.paper import PaperTable, paper
from pahs.reproduce.statistics import Estimate, estimate
from pahs.reproduce.verdicts import AllScores, table


@dataclass(frozen=True)
class Row:
    """One measurement of ours, and where the paper has its own."""

    name: str
    arm: str
    metric: str = PSNR
    paper_row: int | None = None
    """Row of the paper's table; None: a row of ours."""
    column: str = "psnr"
    ssim: str = "ssim"
    """Column of the paper's SSIM; empty: none."""


@dataclass(frozen=True)
class Spec:
    """A table: its rows, and which one the others are compared with."""

    label: str
    reference: int
    """Row that all are compared with."""
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True)
class Line:
    """One row of the report."""

    name: str
    paper: float | None
    paper_ssim: float | None
    ours: Estimate | None
    ssim: float | None
    paper_difference: float | None
    difference: Estimate | None
    """From the reference row, on the same clips and seeds."""


PEERS = (
    ("EDVR", "edvr"),
    ("OVD", "ovd"),
    ("IFI-RNN", "ifirnn"),
    ("STFAN", "stfan"),
    ("ESTRNN", "estrnn"),
    ("TSP", "tsp"),
    ("ARVo", "arvo"),
    ("PAHS", "B3"),
)


def _rows(names: tuple[tuple[str, str], ...], column: str = "psnr", ssim: str = "ssim") -> Iterator[Row]:
    for number, (name, arm) in enumerate(names):
        yield Row(name, arm, paper_row=number, column=column, ssim=ssim)


def _both_ways() -> Iterator[Row]:
    names = ("neither module", "PPRNN only", "SNLA only", "both modules")
    for letter, kind in (("U", "uni"), ("B", "bi")):
        for number, name in enumerate(names):
            yield Row(f"{kind}: {name}", f"{letter}{number}", PSNR, number, f"{kind}_psnr", f"{kind}_ssim")


def _plugged() -> Iterator[Row]:
    for number, (name, arm) in enumerate(
        (("LSTM", "lstm"), ("OVD", "ovd"), ("IFI-RNN", "ifirnn"), ("STFAN", "stfan"))
    ):
        yield Row(name, arm, PSNR, number, "baseline_psnr", "baseline_ssim")
        yield Row(f"{name} with PPRNN and SNLA", f"{arm}+", PSNR, number, "pahs_psnr", "pahs_ssim")
    yield Row("IFI-RNN, iterations replaced (ours)", "ifirnn-")


def _recurrences() -> Iterator[Row]:
    for number in range(8):
        n, first = number // 2 + 1, number % 2
        arm = ("B3" if n == 4 else f"N{n}") if first else f"R{n}"
        yield Row(f"n = {n}, {'f_B' if first else 'f_L'} first", arm, PSNR, number)


def _neighbour() -> Iterator[Row]:
    for number, (name, arm) in enumerate((("TSP", "tsp"), ("ARVo", "arvo"), ("PAHS", "BL"))):
        yield Row(name, arm, PSNR, number)
        yield Row(f"{name}, one neighbour sharp", arm, "neighbour", number, "psnr_replaced", "ssim_replaced")


SPECS = (
    Spec(
        "tab:GOPRO_REDS",
        7,
        tuple(_rows(PEERS, "gopro_psnr", "gopro_ssim")),
        "The paper's columns are its GOPRO values; ours are networks of about equal size after equal training.",
    ),
    Spec(
        "tab:input_seq",
        5,
        (
            Row("0: one direction (U3 trained on)", "UL", "future:own", 0),
            *(
                Row(f"{n} future frames", "BL", f"future:{n}", i + 1)
                for i, n in enumerate((3, 7, 11, 15, 19, 23))
            ),
            Row("0 future frames, both directions (ours)", "BL", "future:0"),
        ),
        "The paper's row 0 equals its uni-directional network to all digits.",
    ),
    Spec(
        "tab:pprnnupdate",
        3,
        tuple(
            _rows((("neither feature", "B2"), ("f_L only", "IL"), ("f_B only", "IB"), ("f_L and f_B", "B3")))
        ),
    ),
    Spec(
        "tab:snla",
        2,
        tuple(_rows((("no attention", "B1"), ("non-local", "NL"), ("selective (SNLA)", "B3")))),
        "PPRNN stays on in all rows.",
    ),
    Spec("tab:compatibility", 0, tuple(_plugged())),
    Spec("tab:cross_analysis", 7, tuple(_both_ways())),
    Spec("sup_tab:pprnn_ablation", 7, tuple(_recurrences())),
    Spec(
        "sub_tab:snla_ablation",
        1,
        tuple(_rows((("query from the hidden state", "SE"), ("query from the frame", "B3")))),
    ),
    Spec("sup_tab:pahs_s", 0, (), "Not part of the scales tiny and small."),
    Spec(
        "sup_tab:large_motion",
        4,
        (
            Row("ESTRNN", "estrnn", "large-motion", 0),
            Row("TSP", "tsp", "large-motion", 1),
            Row("ARVo", "arvo", "large-motion", 2),
            Row("PAHS-S", "", "large-motion", 3),
            Row("PAHS (BL)", "BL", "large-motion", 4),
        ),
        "The paper's loss against all frames of GOPRO is 4.89 dB for PAHS, 4.30 for ARVo, 4.51 for ESTRNN.",
    ),
    Spec(
        "sup_fig:cnn_based",
        5,
        tuple(_neighbour()),
        "Rows pair up: each system, then the same with one sharp neighbour.",
    ),
)


def lines(spec: Spec, scores: AllScores) -> list[Line]:
    """The rows of one table."""
    printed = paper().tables[spec.label]
    found = []
    for row in spec.rows:
        against = _reference(spec, row)
        ours = table(scores, ((1, row.arm, row.metric),)) if row.arm else None
        d = (
            table(scores, ((1, row.arm, row.metric), (-1, against.arm, against.metric)))
            if row.arm and against is not row
            else None
        )
        ssims = table(scores, ((1, row.arm, "ssim"),)) if row.arm and row.metric == PSNR else None
        theirs, reference = _printed(printed, row), _printed(printed, against)
        found.append(
            Line(
                row.name,
                theirs,
                printed.value(row.paper_row, row.ssim) if row.paper_row is not None and row.ssim else None,
                None if ours is None else estimate(ours),
                None if ssims is None else float(ssims.mean()),
                None if theirs is None or reference is None or against is row else theirs - reference,
                None if d is None else estimate(d),
            )
        )
    return found


def _printed(printed: PaperTable, row: Row) -> float | None:
    return None if row.paper_row is None else printed.value(row.paper_row, row.column)


def _reference(spec: Spec, row: Row) -> Row:
    """The row to compare with: in tables of pairs, the plain system of the same pair."""
    if spec.label == "tab:compatibility":
        return next(r for r in spec.rows if r.arm == row.arm.rstrip("+-"))
    if spec.label == "sup_fig:cnn_based":
        return next(r for r in spec.rows if r.arm == row.arm)
    return spec.rows[spec.reference]
