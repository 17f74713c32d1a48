"""The networks, by name."""

from __future__ import annotations

from dataclasses import dataclass

from pahs.networks.arvo import ARVoConfig
from pahs.networks.contract import Contract, Deblurrer, ModelConfig, Tensors
from pahs.networks.edvr import EDVRConfig
from pahs.networks.estrnn import ESTRNNConfig
from pahs.networks.ifirnn import IFIRNNConfig
from pahs.networks.lstm import LSTMConfig
from pahs.networks.ovd import OVDConfig
from pahs.networks.pahs import PAHS, PAHSConfig
from pahs.networks.refine import RefineConfig, Refiner
from pahs.networks.stfan import STFANConfig
from pahs.networks.tsp import TSPConfig

__all__ = [
    "ARCHITECTURES",
    "PAHS",
    "PRESETS",
    "Contract",
    "Deblurrer",
    "ModelConfig",
    "PAHSConfig",
    "Preset",
    "RefineConfig",
    "Refiner",
    "Tensors",
]

ARCHITECTURES: dict[str, type[ModelConfig]] = {
    "pahs": PAHSConfig,
    "lstm": LSTMConfig,
    "ovd": OVDConfig,
    "ifirnn": IFIRNNConfig,
    "stfan": STFANConfig,
    "estrnn": ESTRNNConfig,
    "edvr": EDVRConfig,
    "tsp": TSPConfig,
    "arvo": ARVoConfig,
}
"""The name that a weights file carries, and the configuration it stands for."""


@dataclass(frozen=True)
class Preset:
    """A network that can be asked for by name."""

    config: ModelConfig
    about: str
    """One line for `pahs models`."""
    paper_millions: float | None = None
    """Parameters in the paper's table, in millions."""


PRESETS: dict[str, Preset] = {
    "pahs": Preset(PAHSConfig(global_skip=True), "the paper's network, c = 192, with a global skip", 21.0),
    "pahs-paper": Preset(PAHSConfig(), "the paper's network as published, c = 192", 21.0),
    "pahs-s-paper": Preset(PAHSConfig(width=92), "the paper's small one, c = 92", 4.8),
    "pahs-s": Preset(
        PAHSConfig(width=96, shared_extractor=True, global_skip=True),
        "small, for GPUs: c = 96, one extractor",
    ),
    "pahs-t": Preset(
        PAHSConfig(width=48, shared_extractor=True, global_skip=True), "tiny, for CPUs: c = 48, one extractor"
    ),
    "rnn": Preset(
        PAHSConfig(refine=RefineConfig(ping_pongs=0, attention="none")),
        "the paper's baseline: neither module",
    ),
    "lstm": Preset(LSTMConfig(), "ConvLSTM between encoder and decoder"),
    "lstm+pahs": Preset(LSTMConfig(refine=RefineConfig()), "the same with PPRNN and SNLA"),
    "ovd": Preset(OVDConfig(), "dynamic temporal blending (Kim 2017)", 1.4),
    "ovd+pahs": Preset(OVDConfig(refine=RefineConfig()), "the same with PPRNN and SNLA"),
    "ifirnn": Preset(IFIRNNConfig(), "intra-frame iterations, C2H3 (Nah 2019)", 3.6),
    "ifirnn+pahs": Preset(IFIRNNConfig(refine=RefineConfig()), "the same with PPRNN and SNLA"),
    "ifirnn-1+pahs": Preset(
        IFIRNNConfig(refine=RefineConfig(), iterations_replaced=True), "PPRNN and SNLA for the iterations"
    ),
    "stfan": Preset(STFANConfig(), "filter adaptive convolution (Zhou 2019)", 5.4),
    "stfan+pahs": Preset(STFANConfig(refine=RefineConfig()), "the same with PPRNN and SNLA"),
    "estrnn-c80b15": Preset(ESTRNNConfig(), "spatio-temporal attention (Zhong 2020)", 22.4),
    "estrnn-c90b10": Preset(ESTRNNConfig(width=18, blocks=10), "the same, wider and shallower"),
    "edvr-l": Preset(EDVRConfig(), "deformable alignment (Wang 2019), large"),
    "edvr-paper": Preset(
        EDVRConfig(predeblur=False, strided_convs=False),
        "the size in the paper's table: its trunk alone",
        20.6,
    ),
    "edvr-m": Preset(EDVRConfig(width=64, trunk_blocks=10, predeblur=False), "the same, medium"),
    "tsp": Preset(TSPConfig(), "temporal sharpness prior (Pan 2020)", 16.1),
    "arvo": Preset(ARVoConfig(), "all-range correlation (Li 2021), an approximation", 20.6),
}
