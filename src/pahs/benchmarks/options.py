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
    """auto takes a GPU if there is one."""
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
    fleet: bool = False
    """Simulate many GPUs, for a folder of clips and for one film."""
    expected: bool = False
    """Nothing is measured: what consumer cards should reach is computed from measurements of an H200."""
    backends: bool = False
    """PyTorch, onnxruntime and OpenVINO on the CPU, in every precision they have, from file to file."""
    data: Path | None = None
    """With --backends or --model: a folder of blurry and sharp frames, on which each is scored too."""
    training_step: Path | None = None
    """Time every kind of training step on this recipe, or that of train.step."""
    steps: int = 200
    """With --training-step: how many of each kind."""
    file: Path | None = None
    """Measure this video from file to file, stage by stage; alone or with --reference."""
    clip: int | None = None
    """The same with a video of so many frames that is made for it."""
    plot: Path | None = None
    """With --scaling, --fleet, or --data: draw into this PNG."""

    def __post_init__(self) -> None:
        modes = self._modes()
        if len(modes) > 1:
            raise PahsError(f"{' and '.join(modes)} exclude each other; keep one of them")
        others = modes or self.from_file or self.training_step
        if self.data is not None and others and not self.backends:
            raise PahsError("--data: only --backends, and --model alone, are scored; or use `pahs evaluate`")
        if self.steps < 1:
            raise PahsError(f"--steps {self.steps}: use 1 or more")
        if self.file is not None and self.clip is not None:
            raise PahsError("--file and --clip are both given; keep one of them")
        if self.from_file and modes and not (self.reference or self.backends):
            raise PahsError(
                f"--file and --clip: measured alone, with --reference or --backends, and not with {modes[0]}"
            )
        if self.clip is not None and self.clip < 2:
            raise PahsError(f"--clip {self.clip}: use 2 frames or more")
        drawn = self.scaling or self.fleet or (self.data is not None and not self.backends)
        if self.plot is not None and not drawn:
            raise PahsError(
                "--plot: only --scaling and --fleet draw, and models with --data; give one of them too"
            )

    def _modes(self) -> list[str]:
        """What was chosen of the measurements of which there is one at a time."""
        modes = ("zoo", "reference", "scaling", "fleet", "expected", "backends")
        return [f"--{name}" for name in modes if getattr(self, name)]

    @property
    def from_file(self) -> bool:
        return self.file is not None or self.clip is not None

    def check(self, names: tuple[str, ...], sets: tuple[str, ...]) -> None:
        """Refuse models, and values of a recipe, that do not go with the measurement."""
        if self.training_step is None and sets:
            raise PahsError("--set: changes the recipe of --training-step; give both")
        others = self._modes() or self.from_file or names
        if self.training_step is not None and others:
            raise PahsError(
                "--training-step: measured alone, and the recipe names the model; leave the rest out"
            )
        if self.zoo and names:
            raise PahsError("--zoo and --model are both given; keep one of them")
        single = ["--file and --clip"] if self.from_file else [x for x in self._modes() if x != "--expected"]
        if len(names) > 1 and single:
            raise PahsError(f"--model {' '.join(names)}: {single[0]} can measure one model")


@dataclass(frozen=True)
class FleetOptions:
    """With --fleet: what is simulated, and what is not measured but set."""

    gpus: tuple[int, ...] = (1, 8, 64, 1000)
    """Numbers of GPUs."""
    rates: Path | None = None
    """Your own rates: what `pahs bench --clip N --json FILE` wrote. Default: those of docs/benchmarks.md."""
    clips: int = 10_000
    """Videos in the folder."""
    clip_seconds: float = 10.0
    """Length of each."""
    film_hours: float = 2.0
    """Length of the film."""
    video_rate: float = 30.0
    """Frames per second of the videos."""
    megabits: float = 3.8
    """Mbit/s of the videos, read and written alike."""
    network: float = 3.0
    """Gbit/s of one GPU's part of its machine's connection."""
    storage: float = 40.0
    """Gbit/s of the storage, read and written together."""
    joining: float = 1.6
    """Gbit/s, read and written together, at which one worker joins the segments of a video."""
    start_up: float = 20.0
    """Seconds until a worker is ready."""
    per_segment: float = 0.05
    """Seconds of a worker that each clip or segment costs beyond its frames."""
    per_task: float = 0.005
    """Seconds of the one driver for each clip or segment."""
    warm_up: int = 40
    """Frames that are computed before a segment, and thrown away: as many as `pahs plan` takes."""
    after: int = 19
    """The same after it: the look-ahead."""
    price: float | None = None
    """Price of a GPU for an hour; the tables then show the cost of an hour of video."""
    workers: tuple[int, ...] = ()
    """Compare with real runs instead, with so many processes on this machine."""
    sleep: float | None = None
    """With --workers: let the network sleep so many milliseconds a frame, to see what scheduling alone costs."""

    def __post_init__(self) -> None:
        positive = (
            "clips",
            "clip_seconds",
            "film_hours",
            "video_rate",
            "megabits",
            "network",
            "storage",
            "joining",
        )
        for name in positive:
            if getattr(self, name) <= 0:
                raise PahsError(f"--{name.replace('_', '-')} {getattr(self, name):g}: it must be above 0")
        for name in ("start_up", "per_segment", "per_task", "warm_up", "after", "price", "sleep"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise PahsError(f"--{name.replace('_', '-')} {value:g}: it must be 0 or more")
        for name in ("gpus", "workers"):
            if any(value < 1 for value in getattr(self, name)):
                raise PahsError(f"--{name}: use numbers of 1 or more")
        if self.sleep is not None and not self.workers:
            raise PahsError("--sleep: belongs to --workers; give both")
