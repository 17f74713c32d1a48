"""From labels of the paper to the arms that they need."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from pahs.errors import PahsError
from pahs.reproduce.claims import CHEAP, CLAIMS
from pahs.reproduce.paper import paper
from pahs.reproduce.plan import ARMS, PARTS
from pahs.reproduce.tables import SPECS

FIGURES = {
    "fig:pprnn-graph": ("B2", "N1", "N2", "N3", "B3", "R1", "R2", "R3", "R4"),
    "fig:snla_ablation": ("B1", "NL", "B3"),
    "fig:featurevisualization": ("B3",),
    "fig:distribution": ("B2", "B3"),
    "fig:longrange": ("B3",),
    "fig:overview": ("ifirnn", "stfan", "estrnn", "B3"),
    "fig:dvd": ("tsp", "arvo", "B3"),
    "fig:gopro_reds": ("ifirnn", "estrnn", "B3"),
}
"""Arms of the figures that are drawn."""


def chosen_arms(labels: Sequence[str]) -> set[str]:
    """The arms behind tables, figures, claims, parts and arms by name; no label: all of them."""
    if not labels:
        return set(ARMS)
    needs = needed()
    found: set[str] = set()
    for label in labels:
        if label not in needs:
            close = get_close_matches(label, needs, 1)
            hint = (
                f"did you mean {close[0]}?"
                if close
                else f"such as tab:snla, C5, core; arms: {', '.join(ARMS)}"
            )
            raise PahsError(f"{label}: no table, figure, claim, part or arm is called so; {hint}")
        found |= needs[label]
    return found


def needed() -> dict[str, set[str]]:
    """The arms of every label."""
    needs: dict[str, set[str]] = {label: set() for label in paper().labels}
    needs |= {label: set(arms) for label, arms in FIGURES.items()}
    needs |= {spec.label: {row.arm for row in spec.rows if row.arm} for spec in SPECS}
    needs |= {c.label: {arm for x in c.contrasts for _, arm, _ in x.terms} for c in CLAIMS}
    needs |= {part: {arm.name for arm in ARMS.values() if arm.part == part} for part in PARTS}
    needs |= {name: {name} for name in ARMS}
    return needs | {CHEAP: set()}
