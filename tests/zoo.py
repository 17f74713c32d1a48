"""Every network of the zoo, narrow enough for tests, and the three stages driven by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from pahs.networks import Deblurrer, ModelConfig, PAHSConfig, RefineConfig, Tensors
from pahs.networks.arvo import ARVoConfig
from pahs.networks.edvr import EDVRConfig
from pahs.networks.estrnn import ESTRNNConfig
from pahs.networks.ifirnn import IFIRNNConfig
from pahs.networks.lstm import LSTMConfig
from pahs.networks.ovd import OVDConfig
from pahs.networks.pwcnet import PWCConfig
from pahs.networks.stfan import STFANConfig
from pahs.networks.tsp import TSPConfig

REFINE = RefineConfig(ping_pongs=1)

NARROW: dict[str, ModelConfig] = {
    "pahs": PAHSConfig(width=12, global_skip=True),
    "pahs-paper": PAHSConfig(width=12),
    "pahs-s-paper": PAHSConfig(width=14),
    "pahs-s": PAHSConfig(width=12, shared_extractor=True, global_skip=True),
    "pahs-t": PAHSConfig(width=9, shared_extractor=True, global_skip=True),
    "rnn": PAHSConfig(width=12, refine=RefineConfig(ping_pongs=0, attention="none")),
    "lstm": LSTMConfig(width=4, blocks=2),
    "lstm+pahs": LSTMConfig(width=4, blocks=2, refine=REFINE),
    "ovd": OVDConfig(width=8, blocks=1),
    "ovd+pahs": OVDConfig(width=8, blocks=1, refine=REFINE),
    "ifirnn": IFIRNNConfig(width=6, blocks=2),
    "ifirnn+pahs": IFIRNNConfig(width=4, blocks=2, refine=REFINE),
    "ifirnn-1+pahs": IFIRNNConfig(width=4, blocks=2, refine=REFINE, iterations_replaced=True),
    "stfan": STFANConfig(width=3),
    "stfan+pahs": STFANConfig(width=3, refine=REFINE),
    "estrnn-c80b15": ESTRNNConfig(width=4, blocks=3),
    "estrnn-c90b10": ESTRNNConfig(width=6, blocks=2),
    "edvr-l": EDVRConfig(width=8, groups=2, extract_blocks=1, trunk_blocks=2, output_width=6),
    "edvr-paper": EDVRConfig(
        width=8,
        groups=2,
        extract_blocks=1,
        trunk_blocks=1,
        output_width=6,
        predeblur=False,
        strided_convs=False,
    ),
    "edvr-m": EDVRConfig(
        width=8, groups=4, extract_blocks=1, trunk_blocks=1, output_width=4, predeblur=False
    ),
    "tsp": TSPConfig(width=4, blocks=1, flow=PWCConfig(narrow=8, reach=2)),
    "arvo": ARVoConfig(width=12, trunk_blocks=2),
}
"""By the name of the preset that each stands for."""


def build(name: str, seed: int = 0) -> Deblurrer:
    """A network with everything at work, as after training: some offsets, flows and gates start at zero."""
    torch.manual_seed(seed)
    model = NARROW[name].build().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return model


def clip(frames: int, batch: int = 1, seed: int = 1, height: int = 16, width: int = 32) -> Tensor:
    return torch.rand(batch, frames, 3, height, width, generator=torch.Generator().manual_seed(seed))


def ahead(model: Deblurrer, frames: Tensor, done: int, keep: int) -> Tensor:
    """The frames of one call: those to keep, and the look-ahead; for a backward sweep, all that are left."""
    if model.contract.family == "bidirectional":
        return frames[:, done:]
    return frames[:, done : done + keep + model.contract.look_ahead]


def drive(model: Deblurrer, frames: Tensor, keeps: list[int]) -> tuple[Tensor, list[Tensors]]:
    """The three stages as the engine calls them: the frames, and the state after each call."""
    state: Tensors | None = None
    done, restored, states = 0, [], []
    for keep in keeps:
        latents, state = model.propagate(model.extract(ahead(model, frames, done, keep)), state, keep)
        restored.append(model.reconstruct(latents))
        states.append(state)
        done += keep
    assert done == frames.shape[1]
    return torch.cat(restored, 1), states
