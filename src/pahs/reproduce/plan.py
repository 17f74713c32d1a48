"""What is trained: the arms. 19 networks serve the 32 rows of the paper's ablation tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from pahs.networks import ModelConfig, RefineConfig
from pahs.networks.ifirnn import IFIRNNConfig
from pahs.reproduce.scales import Scale, System, plugged

Part = Literal["core", "plug-ins", "peers", "recurrences"]
PARTS: tuple[Part, ...] = ("core", "plug-ins", "peers", "recurrences")
"""In the order in which they are trained; the core has more seeds."""

Extra = Literal["future", "large-motion", "neighbour"]
"""What else is measured: with other numbers of future frames, at doubled displacement, beside one sharp neighbour."""
EVERY_EXTRA: tuple[Extra, ...] = ("future", "large-motion", "neighbour")

FUTURE = (0, 3, 7, 11, 15, 19, 23)
"""Future frames of the paper's Table 2; its row 0 is the uni-directional network, ours is shown too."""


FILMED = ("B0", "B3")
"""Arms in the report's video."""
PICTURED = (*FILMED, "B1", "NL", "ifirnn", "stfan", "estrnn", "tsp", "arvo")
"""Arms in the report's pictures. Those of the others would not be looked at, and of all would be 100 MB."""


@dataclass(frozen=True)
class Arm:
    """One network to train."""

    name: str
    about: str
    part: Part = "core"
    system: System = "pahs"
    bidirectional: bool = True
    refine: RefineConfig = RefineConfig()  # noqa: RUF009 - frozen
    """Of PAHS; a peer has the default or, plain, none."""
    plugged: bool = False
    """A peer with PPRNN and SNLA."""
    replaces_iterations: bool = False
    """Of IFI-RNN."""
    like: str = ""
    """Widened until it has as many parameters as this arm."""
    continues: str = ""
    """The arm whose weights are trained on with longer clips."""
    extras: tuple[Extra, ...] = ()
    paper: bool = True
    """False: a control of ours, which the paper does not have."""


NEITHER = RefineConfig(ping_pongs=0, attention="none")
PPRNN_ONLY = RefineConfig(attention="none")
SNLA_ONLY = RefineConfig(ping_pongs=0)


def _ablations() -> list[Arm]:
    arms = []
    modules = (
        ("neither module", NEITHER),
        ("PPRNN", PPRNN_ONLY),
        ("SNLA", SNLA_ONLY),
        ("PPRNN and SNLA", RefineConfig()),
    )
    for letter, words, both in (("U", "one direction", False), ("B", "both directions", True)):
        for number, (about, refine) in enumerate(modules):
            arms.append(Arm(f"{letter}{number}", f"{words}, {about}", bidirectional=both, refine=refine))
    arms += [
        Arm("NL", "non-local attention, without the selection", refine=RefineConfig(attention="non-local")),
        Arm("SE", "the hidden state asks for itself", refine=RefineConfig(query="hidden")),
        Arm("IL", "PPRNN reads f_L only", refine=RefineConfig(inputs="past")),
        Arm("IB", "PPRNN reads f_B only", refine=RefineConfig(inputs="current")),
        Arm("BL", "B3 trained on with clips of 20 frames", continues="B3", extras=EVERY_EXTRA),
        Arm(
            "UL",
            "U3 trained on with clips of 20 frames",
            bidirectional=False,
            continues="U3",
            extras=("future",),
        ),
    ]
    for n in (1, 2, 3):
        arms.append(
            Arm(f"N{n}", f"{n} recurrences of PPRNN", "recurrences", refine=RefineConfig(ping_pongs=n))
        )
    for n in (1, 2, 3, 4):
        refine = RefineConfig(ping_pongs=n, order="past-first")
        arms.append(Arm(f"R{n}", f"{n} recurrences, f_L first", "recurrences", refine=refine))
    control = "neither module, as many parameters as B3"
    arms.append(Arm("BW", control, "recurrences", refine=NEITHER, like="B3", paper=False))
    return arms


def _peers() -> list[Arm]:
    arms = []
    plain: tuple[tuple[System, str], ...] = (
        ("lstm", "LSTM"),
        ("ovd", "OVD"),
        ("ifirnn", "IFI-RNN"),
        ("stfan", "STFAN"),
    )
    for system, title in plain:
        arms.append(Arm(system, title, "plug-ins", system))
        arms.append(Arm(f"{system}+", f"{title} with PPRNN and SNLA", "plug-ins", system, plugged=True))
    replaced = "IFI-RNN with PPRNN and SNLA for its iterations"
    arms.append(
        Arm("ifirnn-", replaced, "plug-ins", "ifirnn", plugged=True, replaces_iterations=True, paper=False)
    )
    arms += [
        Arm("estrnn", "ESTRNN", "peers", "estrnn", extras=("large-motion",)),
        Arm("edvr", "EDVR", "peers", "edvr"),
        Arm("tsp", "TSP", "peers", "tsp", extras=("large-motion", "neighbour")),
        Arm("arvo", "ARVo, an approximation", "peers", "arvo", extras=("large-motion", "neighbour")),
    ]
    return arms


ARMS: dict[str, Arm] = {arm.name: arm for arm in (*_ablations(), *_peers())}


@dataclass(frozen=True)
class Unit:
    """One training: what a run makes whole or not at all."""

    arm: Arm
    seed: int

    @property
    def folder(self) -> str:
        return f"{self.arm.name}/{self.seed}"


def units(names: set[str], scale: Scale, seeds: int | None = None) -> list[Unit]:
    """The trainings of these arms: part by part, in each seed by seed, so that a stop leaves whole seeds behind."""
    wanted = names | {ARMS[name].continues for name in names if ARMS[name].continues}
    found = []
    for part in PARTS:
        count = seeds or (scale.seeds if part == "core" else scale.seeds_more)
        arms = [arm for arm in ARMS.values() if arm.part == part and arm.name in wanted]
        found += [Unit(arm, seed) for seed in range(count) for arm in arms]
    return found


def config(arm: Arm, scale: Scale) -> ModelConfig:
    """The network of an arm at a scale."""
    if arm.system != "pahs":
        plain = scale.peers[arm.system]
        shape = plugged(plain) if arm.plugged else plain
        if arm.replaces_iterations:
            assert isinstance(shape, IFIRNNConfig)
            shape = replace(shape, iterations_replaced=True)
        return shape
    shape = replace(scale.base, bidirectional=arm.bidirectional, refine=arm.refine)
    if arm.like:
        goal = count(config(ARMS[arm.like], scale))
        while count(shape) < goal:
            shape = replace(shape, width=shape.width + 1)
    return shape


def count(shape: ModelConfig) -> int:
    """Parameters of a network, counted without building its weights."""
    with torch.device("meta"):
        return sum(x.numel() for x in shape.build().parameters())
