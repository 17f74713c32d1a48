"""The paper's claims as differences between arms, each with what the paper measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Expected = Literal["more", "same"]
Combination = tuple[tuple[float, str, str], ...]
"""Sum of weight x (arm, metric): `((1, "B1", "psnr"), (-1, "B0", "psnr"))` is PPRNN's gain."""

PSNR = "psnr"
LEAST = 0.02
"""Smallest effect of interest, in dB."""


@dataclass(frozen=True)
class Contrast:
    """One difference that a claim rests on."""

    name: str
    terms: Combination
    paper: float | None = None
    """What the paper's table gives for it."""
    expected: Expected = "more"
    """more: above zero; same: within `margin` of zero."""
    margin: float = LEAST
    """more: an effect within it is none; same: what counts as the same."""
    ours: bool = False
    """A control that the paper does not have: shown, without a say in the verdict."""


@dataclass(frozen=True)
class Claim:
    """A hypothesis of the paper; it holds where all its contrasts do."""

    label: str
    hypothesis: str
    contrasts: tuple[Contrast, ...]
    unit: str = "dB"


def minus(a: str, b: str, paper: float | None = None, metric: str = PSNR, ours: bool = False) -> Contrast:
    """The PSNR of one arm less that of another."""
    return Contrast(f"{a} - {b}", ((1, a, metric), (-1, b, metric)), paper, ours=ours)


def same(a: str, b: str, paper: float, margin: float) -> Contrast:
    return Contrast(
        f"{a} = {b} within {margin}", ((1, a, PSNR), (-1, b, PSNR)), paper, expected="same", margin=margin
    )


def within(
    name: str, arm: str, a: str, b: str, paper: float, expected: Expected = "more", margin: float = LEAST
) -> Contrast:
    """A difference between two measurements of one arm."""
    return Contrast(name, ((1, arm, a), (-1, arm, b)), paper, expected, margin)


def _synergy(letter: str, paper: float) -> Contrast:
    terms = tuple(
        (weight, f"{letter}{number}", PSNR) for weight, number in ((1, 3), (-1, 2), (-1, 1), (1, 0))
    )
    return Contrast(f"{letter}3 - {letter}2 - {letter}1 + {letter}0", terms, paper)


def _order() -> Contrast:
    terms = [(0.25, arm, PSNR) for arm in ("N1", "N2", "N3", "B3")]
    terms += [(-0.25, f"R{n}", PSNR) for n in (1, 2, 3, 4)]
    return Contrast("mean over n of f_B first - f_L first", tuple(terms), 0.13)


def _slope() -> Contrast:
    weights = ((-0.3, "N1"), (-0.1, "N2"), (0.1, "N3"), (0.3, "B3"))
    return Contrast("slope over n = 1..4, a step", tuple((w, arm, PSNR) for w, arm in weights), 0.146)


CLAIMS = (
    Claim(
        "C1",
        "PPRNN helps, alone and together with SNLA",
        (
            minus("B1", "B0", 0.24),
            minus("B3", "B2", 1.38),
            minus("U1", "U0", 0.28),
            minus("U3", "U2", 0.87),
            minus("B3", "BW", ours=True),
        ),
    ),
    Claim(
        "C2",
        "SNLA helps, alone and together with PPRNN",
        (
            minus("B2", "B0", 0.66),
            minus("B3", "B1", 1.80),
            minus("U2", "U0", 0.69),
            minus("U3", "U1", 1.28),
        ),
    ),
    Claim(
        "C3",
        "Together the modules gain more than the sum of both alone",
        (_synergy("B", 1.14), _synergy("U", 0.59)),
    ),
    Claim(
        "C4",
        "Two directions are better than one",
        (
            minus("B0", "U0", 0.49),
            minus("B1", "U1", 0.45),
            minus("B2", "U2", 0.46),
            minus("B3", "U3", 0.97),
        ),
    ),
    Claim(
        "C5",
        "Selective attention is better than non-local attention, which is better than none",
        (minus("B3", "NL", 0.31), minus("NL", "B1", 1.49)),
    ),
    Claim(
        "C6", "A query from the frame is better than one from the hidden state", (minus("B3", "SE", 1.18),)
    ),
    Claim(
        "C7",
        "PPRNN needs both features; f_B alone helps, f_L alone does nothing",
        (minus("B3", "IB", 0.81), minus("IB", "IL", 0.56), same("IL", "B2", 0.01, 0.05)),
    ),
    Claim("C8", "PPRNN should read f_B before f_L", (_order(),)),
    Claim("C9", "One ping-pong helps, and more help more", (minus("N1", "B2", 0.96), _slope())),
    Claim(
        "C10",
        "More future frames help, and 19 are enough",
        (
            Contrast(
                "3 future frames - one direction", ((1, "BL", "future:3"), (-1, "UL", "future:own")), 0.67
            ),
            within("19 - 3 future frames", "BL", "future:19", "future:3", 0.30),
            within("23 = 19 future frames within 0.02", "BL", "future:23", "future:19", -0.01, "same"),
        ),
    ),
    Claim(
        "C11",
        "PPRNN and SNLA improve four other recurrent networks",
        (
            minus("lstm+", "lstm", 2.62),
            minus("ovd+", "ovd", 0.11),
            minus("ifirnn+", "ifirnn", 0.82),
            minus("stfan+", "stfan", 2.15),
            minus("ifirnn-", "ifirnn", ours=True),
        ),
    ),
    Claim(
        "C12",
        "PAHS is better than each compared system, of the same size, by the same training",
        (
            minus("B3", "ovd", 4.90),
            minus("B3", "ifirnn", 4.92),
            minus("B3", "stfan", 4.84),
            minus("B3", "estrnn", 2.72),
            minus("B3", "edvr", 3.62),
            minus("B3", "tsp", 2.15),
            minus("B3", "arvo", 1.66),
        ),
    ),
    Claim(
        "C13",
        "PAHS stays better than the others where displacements double",
        (
            minus("BL", "estrnn", 2.34, "large-motion"),
            minus("BL", "tsp", 2.76, "large-motion"),
            minus("BL", "arvo", 1.07, "large-motion"),
        ),
    ),
    Claim(
        "C14",
        "One sharp neighbour helps networks with a window, not PAHS",
        (
            within("TSP: replaced - plain", "tsp", "neighbour", PSNR, 0.06),
            within("ARVo: replaced - plain", "arvo", "neighbour", PSNR, 0.29),
            within("PAHS: replaced = plain within 0.05", "BL", "neighbour", PSNR, -0.03, "same", 0.05),
        ),
    ),
    Claim(
        "C15",
        "PPRNN raises the selection S_Sel",
        tuple(
            Contrast(f"B3 - B2, {cell} cell", ((1, "B3", metric), (-1, "B2", metric)))
            for cell, metric in (("forward", "selection:forward"), ("backward", "selection:backward"))
        ),
        unit="",
    ),
    Claim(
        "C16",
        "Attention reaches far",
        (
            Contrast(
                "mean distance of attention - of the same map with its keys shuffled",
                ((1, "B3", "attention:distance"), (-1, "B3", "attention:shuffled")),
                margin=1.0,
            ),
        ),
        unit="pixels",
    ),
)

CHEAP = "C17"
"""PAHS is cheap: parameters are counted and speeds measured, so there is no interval."""


def compared(arm: str) -> set[str]:
    """The metrics of an arm that claims compare, and its PSNR."""
    return {PSNR} | {m for claim in CLAIMS for c in claim.contrasts for _, name, m in c.terms if name == arm}
