"""What `pahs bench` can be asked for. The docstrings below are the help of its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pahs.choices import Device, Precision
from pahs.errors import PahsError


@dataclass(frozen=True)
class BenchConfig:
    """The settings of a measurement, the same for every network."""

    size: tuple[int, int] = (1280, 720)
    """Width and height of the frames."""
    frames: int = 32
    """Length of the clip at most."""
    seconds: float = 2.0
    """Time for a model, about: a slow one is timed on the first frames of the clip."""
    device: Device = "auto"
    """auto takes a CUDA GPU if there is one."""
    precision: Precision = "auto"
    """auto: half precision on GPUs, and on CPUs that are faster with it."""
    memory: float | None = None
    """GiB of the GPU's memory to use at most; all that is free by default."""

    @property
    def width(self) -> int:
        return self.size[0]

    @property
    def height(self) -> int:
        return self.size[1]

    @property
    def limit(self) -> str:
        """The command's option that sets `memory`, with a space before it."""
        return "" if self.memory is None else f" --memory {self.memory:g}"

    def __post_init__(self) -> None:
        for name, length in zip(("width", "height"), self.size, strict=True):
            if length < 16:
                raise PahsError(f"--size: {name} is {length}; the smallest frames are 16x16")
        if self.frames < 1:
            raise PahsError(f"--frames {self.frames}: use 1 or more")
        if self.seconds <= 0:
            raise PahsError(f"--seconds {self.seconds}: it must be above 0")


@dataclass(frozen=True)
class Task:
    """What to measure; if nothing is chosen, the speed of the named models."""

    zoo: bool = False
    """Every model of `pahs models`."""
    reference: bool = False
    """The paper's inference as it is written, and ours, stage by stage."""
    scaling: bool = False
    """Sizes up to --size, and videos up to ten times --frames."""
    training_step: Path | None = None
    """Time every kind of training step on this recipe, or that of train.step."""
    steps: int = 200
    """With --training-step: how many of each kind."""
    file: Path | None = None
    """Measure this video from file to file, stage by stage; alone or with --reference."""
    clip: int | None = None
    """The same with a video of so many frames that is made for it."""
    plot: Path | None = None
    """With --scaling: draw the curves into this PNG."""

    def __post_init__(self) -> None:
        if sum((self.zoo, self.reference, self.scaling)) > 1:
            raise PahsError("--zoo, --reference and --scaling are three measurements; keep one of them")
        if self.steps < 1:
            raise PahsError(f"--steps {self.steps}: use 1 or more")
        if self.file is not None and self.clip is not None:
            raise PahsError("--file and --clip are both given; keep one of them")
        if self.from_file and (self.zoo or self.scaling):
            raise PahsError(
                "--file and --clip: measured alone or with --reference, not with --zoo or --scaling"
            )
        if self.clip is not None and self.clip < 2:
            raise PahsError(f"--clip {self.clip}: use 2 frames or more")
        if self.plot is not None and not self.scaling:
            raise PahsError("--plot: only --scaling draws; give both")

    @property
    def from_file(self) -> bool:
        return self.file is not None or self.clip is not None

    def check(self, names: tuple[str, ...], sets: tuple[str, ...]) -> None:
        """Refuse models, and values of a recipe, that do not go with the measurement."""
        if self.training_step is None and sets:
            raise PahsError("--set: changes the recipe of --training-step; give both")
        others = self.zoo or self.reference or self.scaling or self.from_file or names
        if self.training_step is not None and others:
            raise PahsError(
                "--training-step: measured alone, and the recipe names the model; leave the rest out"
            )
        if self.zoo and names:
            raise PahsError("--zoo and --model are both given; keep one of them")
        single = "--file and --clip" if self.from_file else "--reference and --scaling"
        if len(names) > 1 and (self.from_file or self.reference or self.scaling):
            raise PahsError(f"--model {' '.join(names)}: {single} measure one model")
