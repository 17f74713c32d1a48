"""How large a reproduction is: networks, batches, steps and clips of the scales tiny and small."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pahs.data.synthesis_config import SynthesisConfig
from pahs.networks import ModelConfig, PAHSConfig, RefineConfig
from pahs.networks.arvo import ARVoConfig
from pahs.networks.edvr import EDVRConfig
from pahs.networks.estrnn import ESTRNNConfig
from pahs.networks.ifirnn import IFIRNNConfig
from pahs.networks.lstm import LSTMConfig
from pahs.networks.ovd import OVDConfig
from pahs.networks.pwcnet import PWCConfig
from pahs.networks.stfan import STFANConfig
from pahs.networks.tsp import TSPConfig

ScaleName = Literal["tiny", "small", "full"]
System = Literal["pahs", "lstm", "ovd", "ifirnn", "stfan", "estrnn", "edvr", "tsp", "arvo"]

SIMPLE_BLUR = SynthesisConfig(
    speed=(3.0, 20.0),
    still_share=0.0,
    shake=(0.5, 1.0),
    objects=(0, 2),
    noise_share=0.0,
    codec_share=0.0,
    highlight_share=0.0,
    linear_share=0.0,
)
"""Motion alone, so that little has to be learnt before time matters. Cameras shake: some frames are sharper than
others, which is what a hidden state can use."""


@dataclass(frozen=True)
class Scale:
    """Everything that the scales tiny and small decide."""

    name: ScaleName
    about: str
    """One line for the head of the report."""
    base: PAHSConfig
    """The configuration that the ablations change."""
    peers: dict[System, ModelConfig]
    """The other systems, as plain networks."""
    batch: int
    frames: int
    """Frames of a training clip."""
    size: int
    steps: int
    warmup: int
    curve: tuple[int, ...]
    """Steps after which the held-out clips are scored too."""
    lr: float
    ema: float
    batch_on: int
    """For the arms that are trained on with longer clips: clips in a batch, their frames, size, and steps."""
    frames_on: int
    size_on: int
    steps_on: int
    seeds: int
    """Of the core; the other arms have `seeds_more`."""
    seeds_more: int
    clips: int
    """Held-out clips, with so many frames of so many pixels."""
    clip_frames: int
    clip_size: int
    long_clips: int
    """Held-out clips for the number of future frames, which counts on their first `long_scored` frames."""
    long_frames: int
    long_scored: int
    textures: int = 0
    """Drawn pictures to make clips from; 0: the user's photos."""

    @property
    def curve_on(self) -> tuple[int, ...]:
        """The same as `curve`, for the arms that are trained on."""
        return tuple(sorted({max(1, self.steps_on * number // self.steps) for number in self.curve}))


def with_steps(scale: Scale, steps: int) -> Scale:
    """The same over another number of steps: clips are scored at the same fractions, and arms that are trained on make
    half as many steps."""
    curve = tuple(sorted({max(1, steps * number // scale.steps) for number in scale.curve}))
    return replace(scale, steps=steps, curve=curve, steps_on=max(1, steps // 2))


def plugged(config: ModelConfig) -> ModelConfig:
    """A peer with PPRNN and SNLA."""
    assert isinstance(config, LSTMConfig | OVDConfig | IFIRNNConfig | STFANConfig)
    return replace(config, refine=RefineConfig())


TINY = Scale(
    name="tiny",
    about="a rehearsal in seconds, on drawn textures, which decide nothing",
    base=PAHSConfig(width=12, shared_extractor=True, global_skip=True),
    peers={
        "lstm": LSTMConfig(width=4, blocks=1, global_skip=True),
        "ovd": OVDConfig(width=8, blocks=1, global_skip=True),
        "ifirnn": IFIRNNConfig(width=4, blocks=1, global_skip=True),
        "stfan": STFANConfig(width=3),
        "estrnn": ESTRNNConfig(width=4, blocks=1, global_skip=True),
        "edvr": EDVRConfig(
            width=8, groups=2, extract_blocks=1, trunk_blocks=1, output_width=4, predeblur=False
        ),
        "tsp": TSPConfig(width=4, blocks=1, flow=PWCConfig(narrow=8, reach=2), global_skip=True),
        "arvo": ARVoConfig(width=12, trunk_blocks=1),
    },
    batch=1,
    frames=3,
    size=32,
    steps=2,
    warmup=1,
    curve=(1, 2),
    lr=1e-3,
    ema=0.5,
    batch_on=1,
    frames_on=4,
    size_on=32,
    steps_on=1,
    seeds=2,
    seeds_more=2,
    clips=2,
    clip_frames=4,
    clip_size=32,
    long_clips=1,
    long_frames=25,
    long_scored=1,
    textures=4,
)

SMALL = Scale(
    name="small",
    about="networks of about 1 M parameters, on blur synthesised from photos; one GPU",
    base=PAHSConfig(width=48, shared_extractor=True, global_skip=True),
    peers={
        "lstm": LSTMConfig(global_skip=True),
        "ovd": OVDConfig(global_skip=True),
        "ifirnn": IFIRNNConfig(global_skip=True),
        "stfan": STFANConfig(width=16),
        "estrnn": ESTRNNConfig(width=10, global_skip=True),
        "edvr": EDVRConfig(width=32, trunk_blocks=12, predeblur=False),
        "tsp": TSPConfig(width=10, flow=PWCConfig(narrow=6), global_skip=True),
        "arvo": ARVoConfig(width=48, trunk_blocks=12),
    },
    batch=6,
    frames=8,
    size=128,
    steps=1000,
    warmup=100,
    curve=(250, 500, 1000),
    lr=1e-3,
    ema=0.99,
    batch_on=3,
    frames_on=20,
    size_on=96,
    steps_on=500,
    seeds=5,
    seeds_more=3,
    clips=32,
    clip_frames=12,
    clip_size=256,
    long_clips=16,
    long_frames=40,
    long_scored=16,
)

SCALES = {"tiny": TINY, "small": SMALL}
