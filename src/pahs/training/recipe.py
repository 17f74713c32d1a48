"""A training run as one TOML file: every choice has a name, a type, a default and a sentence.

The sections below are the keys that a recipe may have; `pahs.training.recipe_file` reads and writes it. Relative
folders are taken from the working directory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from pahs.choices import AnyLayout, Kind, Split, TrainingDevice
from pahs.configs import at_least
from pahs.data.footage import FootageConfig
from pahs.data.synthesis_config import SynthesisConfig
from pahs.networks import PRESETS, ModelConfig
from pahs.training.losses import LossKind


def need(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


@dataclass(frozen=True)
class ModelSection:
    """Which network."""

    preset: str = "pahs-t"
    """A name from `pahs models`."""
    config: ModelConfig = field(default_factory=lambda: PRESETS["pahs-t"].config)
    """The preset's configuration; keys under [model.config] replace single values of it."""


@dataclass(frozen=True)
class DataSection:
    """Where blurry and sharp clips come from."""

    kind: Literal["dataset", "photos", "generated"] = "generated"
    """dataset: blurry/sharp frames on disk; photos: blur synthesised from pictures; generated: from drawn textures."""
    root: str = ""
    """The dataset's folder, or the folder of photos."""
    layout: AnyLayout = "auto"
    """How a dataset's folder is arranged."""
    split: Split = "train"
    """Which part of a dataset."""
    variant: Kind = "blur"
    """Which of GOPRO's two blurry versions."""
    frames: int = 6
    """Frames in a clip. The paper does not say; it decides how far back the recurrence learns."""
    size: int = 192
    """Height and width of the random crop, a multiple of 16."""
    seed: int = 0
    """Decides every clip: the same seed and step give the same batch."""
    workers: int = 4
    """Processes that read a dataset; 0 reads in the training process."""
    streams: int = 0
    """Groups in which the clips of a batch are drawn; 0: one group. Every process draws the whole of each group that
    it needs a clip of, so with a group for each process no clip is drawn twice. A run cannot change this number,
    because other groups hold other clips."""
    textures: int = 24
    """Pictures drawn when kind is generated."""
    synthesis: SynthesisConfig = field(default_factory=SynthesisConfig)
    """How photos are moved and blurred; `frames` and `size` above replace its own."""
    footage: FootageConfig = field(default_factory=FootageConfig)
    """Sharp videos whose own motion is averaged, for a share of the clips; for photos and generated pictures."""

    def __post_init__(self) -> None:
        need(self.frames >= 2, f"data.frames is {self.frames}; a recurrence needs 2 or more")
        need(self.size >= 16 and self.size % 16 == 0, f"data.size is {self.size}; use a multiple of 16")
        at_least(0, self, "workers", "streams", section="data.")
        at_least(1, self, "textures", section="data.")
        need(
            self.kind == "generated" or self.root != "",
            f'data.root is missing; data.kind = "{self.kind}" needs it',
        )
        need(
            self.kind != "dataset" or self.footage.root == "",
            'data.footage.root is set, but data.kind = "dataset" has its own videos; leave it out',
        )
        # The values are replaced here, not where they are used, so that a saved recipe shows what was trained with.
        shown = replace(self.synthesis, frames=self.frames, height=self.size, width=self.size)
        object.__setattr__(self, "synthesis", shown)


@dataclass(frozen=True)
class OptimSection:
    """How the loss changes the weights."""

    loss: LossKind = "l1"
    """l1 is the paper's; mse; charbonnier is sqrt(d^2 + 1e-6), smooth at zero; psnr is the logarithm of each
    frame's squared error, which weighs good and bad frames alike; hard-example is l1 and twice l1 over the worse half
    of the pixels and a random tenth. A network with several outputs has the mean of their losses."""
    frequency_weight: float = 0.0
    """Adds this times the L1 distance of the 2-D Fourier transforms."""
    name: Literal["adam", "adamw"] = "adam"
    """adam is the paper's; adamw decays the weights independently of the gradient."""
    lr: float = 1e-4
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 0.0
    """Largest norm of the whole gradient; 0 does not clip."""
    ema: float = 0.0
    """Decay of the averaged weights that are validated and kept; 0 keeps the last weights."""

    def __post_init__(self) -> None:
        need(self.lr > 0, f"optim.lr is {self.lr}; it must be above 0")
        need(all(0 <= b < 1 for b in self.betas), f"optim.betas are {self.betas}; each must be in [0, 1)")
        need(0 <= self.ema < 1, f"optim.ema is {self.ema}; it must be in [0, 1)")
        need(self.eps > 0, f"optim.eps is {self.eps}; it must be above 0")
        at_least(0, self, "clip", "weight_decay", "frequency_weight", section="optim.")


@dataclass(frozen=True)
class ScheduleSection:
    """How the learning rate moves from the peak to the end."""

    kind: Literal["constant", "cosine", "milestones"] = "cosine"
    warmup_steps: int = 0
    """Steps in which the rate rises linearly from zero to the peak."""
    final: float = 0.0
    """cosine: the rate at the end, as a fraction of the peak."""
    milestones: tuple[float, ...] = ()
    """milestones: when the rate is multiplied by `factor`; in epochs if train.epochs is set, else in steps."""
    factor: float = 0.5

    def __post_init__(self) -> None:
        at_least(0, self, "warmup_steps", section="schedule.")
        need(0 <= self.final <= 1, f"schedule.final is {self.final}; it must be in [0, 1]")
        need(self.factor > 0, f"schedule.factor is {self.factor}; it must be above 0")


@dataclass(frozen=True)
class StatesSection:
    """Sweeps that begin with warmed-up states, as in the middle of a long video; for recurrent networks.

    A network that only knows the first frames after an empty state may diverge in long sweeps.
    """

    warm_passes: int = 0
    """Times that each direction goes over the clip without gradient, back and forth, before the sweep that counts.
    0: sweeps begin with an empty state."""
    reset: float = 0.2
    """Probability that a clip's state is reset after a pass, so that all ages are seen. A state that is not finite
    or beyond 100 always is."""
    counted_reset: float = 0.35
    """The same after the last pass, before the sweep that counts."""

    def __post_init__(self) -> None:
        at_least(0, self, "warm_passes", section="states.")
        for name in ("reset", "counted_reset"):
            value = getattr(self, name)
            need(0 <= value <= 1, f"states.{name} is {value}; it must be in [0, 1]")


@dataclass(frozen=True)
class TrainSection:
    """The run itself."""

    batch: int = 4
    """Clips in a step, over all processes, however many there are."""
    at_once: int = 0
    """Clips that a process computes at once; the gradients of several passes are added up to those of its part of
    the batch. 0: all of its part, but no more than before where a run continues on fewer processes."""
    steps: int = 0
    """Length of the run; 0: given by epochs or max_minutes."""
    epochs: int = 0
    """Length of the run in passes over a dataset; a pass sees every clip of `frames` frames once."""
    max_minutes: float = 0.0
    """Length of the run in minutes, preparation included; the schedule ends with it. 0: no limit."""
    seed: int = 0
    """Decides the initial weights."""
    init_from: str = ""
    """Weights to start from, for a training in stages: a weights file, or the name of bundled weights.
    Those of a narrower PAHS network are widened, so that training begins with what the narrow one can do."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes in bfloat16 with float32 weights, on CUDA; elsewhere training uses fp32 and says so."""
    step: Literal["auto", "eager", "captured"] = "auto"
    """captured replays a whole step as one CUDA graph: the same result in less time. auto: on a single CUDA GPU."""
    compile: bool = True
    """Compile the network's stages on CUDA."""
    fused: bool = True
    """Train residual blocks and ping-pong recurrences by fused kernels, in bf16 on Hopper GPUs."""
    channels_last: bool = True
    """Store images with all channels of a pixel together, which convolutions on GPUs read fastest."""
    init: Literal["torch", "scaled"] = "scaled"
    """The initial weights: PyTorch's own, or scaled to keep the variance of features, which learns sooner."""
    device: TrainingDevice = "auto"
    """auto: CUDA where there is a GPU."""
    checkpoint_minutes: float = 10.0
    """A checkpoint is written this often; also after every validation and at the end."""
    checkpoint_steps: int = 0
    """The same in steps; 0: by minutes only."""
    log_steps: int = 50
    """A line in metrics.jsonl this often."""
    report_seconds: float = 10.0
    """A line of plain text this often, where there is no terminal."""
    timeout_minutes: float = 30.0
    """How long a process waits for the others before it takes them for lost."""
    max_bad_steps: int = 20
    """Steps in a row whose loss or gradient is not finite before the run stops; such steps change nothing."""

    def __post_init__(self) -> None:
        at_least(1, self, "batch", "log_steps", "max_bad_steps", section="train.")
        at_least(0, self, "at_once", "steps", "epochs", "max_minutes", section="train.")
        need(self.timeout_minutes > 0, f"train.timeout_minutes is {self.timeout_minutes}; it must be above 0")
        at_least(0, self, "checkpoint_minutes", "checkpoint_steps", "report_seconds", section="train.")
        ends = self.steps or self.epochs or self.max_minutes
        need(bool(ends), "the run has no end; set train.steps, train.epochs or train.max_minutes")
        need(not (self.steps and self.epochs), "train.steps and train.epochs are both set; keep one of them")


@dataclass(frozen=True)
class ValidationSection:
    """PSNR on clips that training never sees: mean over frames, RGB rounded to 8 bits."""

    every: int = 1000
    """Steps between validations; there is always one at the end. 0: only that one."""
    root: str = ""
    """A folder of blurry/sharp pairs; empty: clips synthesised once, from a seed of their own."""
    layout: AnyLayout = "auto"
    split: Split = "test"
    variant: Kind = "blur"
    clips: int = 8
    """At most this many clips."""
    frames: int = 10
    """At most this many frames of a clip."""
    size: int = 0
    """Centre crop to this size, a multiple of 16; 0: whole frames (synthesised: data.size)."""
    hold_out: float = 0.1
    """Fraction of the photos kept from training for synthesised validation."""
    seed: int = 12345
    samples: int = 2
    """Clips drawn as pictures: blurry, output, sharp."""

    def __post_init__(self) -> None:
        at_least(0, self, "every", section="validation.")
        at_least(1, self, "clips", "frames", section="validation.")
        need(self.size >= 0 and self.size % 16 == 0, f"validation.size is {self.size}; use a multiple of 16")
        need(0 < self.hold_out < 1, f"validation.hold_out is {self.hold_out}; it must be between 0 and 1")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run."""

    model: ModelSection = field(default_factory=ModelSection)
    data: DataSection = field(default_factory=DataSection)
    optim: OptimSection = field(default_factory=OptimSection)
    schedule: ScheduleSection = field(default_factory=ScheduleSection)
    states: StatesSection = field(default_factory=StatesSection)
    train: TrainSection = field(default_factory=TrainSection)
    validation: ValidationSection = field(default_factory=ValidationSection)
