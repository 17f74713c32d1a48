"""The main job: a blurry video file in, a sharp video file out. Every front end calls `deblur`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.choices import Backend, Compare, Device, EncodeOptions, Precision, check_choice, check_memory
from pahs.errors import PahsError, Stopped
from pahs.progress import Advance, Stop

if TYPE_CHECKING:
    from torch import Tensor

    from pahs.networks import Deblurrer
    from pahs.video import TransformReport
    from pahs.video.cut import Part
    from pahs.video.paths import Naming


@dataclass(frozen=True)
class DeblurOptions:
    """What a job needs to know besides its files and its model."""

    look_ahead: int | None = None
    """Future frames that each frame is restored from at least; None: what the model was made for, mostly 19."""
    scene_cuts: bool = True
    """Forget the past where the scene changes."""
    chunk: int | None = None
    """Frames that one backward sweep restores; None: as many as are fast, and fit the memory."""
    encode: EncodeOptions = field(default_factory=EncodeOptions)
    """How the result is compressed."""
    start: float | None = None
    """Seconds after the first frame at which the result begins; None: at the first frame."""
    end: float | None = None
    """Seconds after the first frame before which the result ends; None: after the last frame."""
    preview: float | None = None
    """Only so many seconds (of those from `start` to `end`), where the blur is worst."""
    strength: float = 1.0
    """Share of the network's change that is made: 0 gives back the input's own samples, 1 all that it restores."""
    deinterlace: bool = False
    """Make one whole picture of the two fields of interlaced video before it is restored."""
    compare: Compare = "off"
    """Write a comparison next to the result, <result>-compare: both pictures side by side, or half of each (split)."""
    fps: float | None = None
    """Make a video of a folder of images, with so many frames per second."""
    overwrite: bool = False
    """Replace an output that exists."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda (NVIDIA, AMD), xpu (Intel), mps (Apple), or one of several: cuda:1."""
    precision: str = "auto"
    """auto, fp32, bf16, fp16, or int8 for graphs. A network that is loaded already has its own device and precision."""
    backend: str = "auto"
    """What computes: torch; on CPUs also onnxruntime, openvino; auto is the fastest here that restores as well."""
    memory: float | None = None
    """GiB of memory that may be used, of the GPU, or on a CPU by the whole process; None: all that is free."""

    def __post_init__(self) -> None:
        if self.look_ahead is not None and self.look_ahead < 0:
            raise PahsError(f"look-ahead is {self.look_ahead}; it must be 0 or more")
        if self.chunk is not None and self.chunk < 1:
            raise PahsError(f"chunk is {self.chunk}; it must be 1 or more")
        if self.start is not None and not 0 <= self.start < inf:
            raise PahsError(f"--start {self.start:g}: it must be 0 or more")
        if self.end is not None and not (self.start or 0) < self.end < inf:
            raise PahsError(f"--end {self.end:g}: it must be above --start ({self.start or 0:g})")
        if self.preview is not None and not 0 < self.preview < inf:
            raise PahsError(f"--preview {self.preview:g}: it must be above 0; give seconds, such as 5")
        if not 0 <= self.strength <= 1:
            raise PahsError(f"--strength {self.strength:g}: choose 0 (the input) to 1 (all that is restored)")
        if self.fps is not None and not 0.1 <= self.fps <= 1000:
            raise PahsError(f"--fps {self.fps:g}: choose frames per second from 0.1 to 1000")
        check_choice("compare", self.compare, Compare)
        check_choice("device", self.device.partition(":")[0], Device)
        check_choice("precision", self.precision, Precision)
        check_choice("backend", self.backend, Backend)
        if self.memory is not None:
            check_memory(self.memory)


def deblur(
    source: str | Path,
    target: str | Path | None = None,
    options: DeblurOptions = DeblurOptions(),  # noqa: B008 - frozen
    model: str | Path | Deblurrer = "auto",
    advance: Advance | None = None,
    stop: Stop | None = None,
) -> TransformReport:
    """Deblur one video file or folder of numbered images; the report says where the result is.

    Without `target` the result goes into the folder of the source. `model` is a name, a weights file, a folder that
    `pahs export` wrote, or a network that `pahs.load` returned. `advance` is told how far the job is. Once `stop` is
    set, by any thread or process, the job raises `Stopped` and leaves no file behind.
    """
    from pahs import engine
    from pahs.backends.load import load
    from pahs.engine.plan import limited
    from pahs.engine.sharpness import Gain
    from pahs.networks import Deblurrer
    from pahs.runtime.device import limited_memory
    from pahs.runtime.malloc import return_memory
    from pahs.video import outputs_for, transform

    advance = advance or Advance()
    advance.enter("opening")
    if not str(source) or (target is not None and not str(target)):
        raise PahsError("the input's or output's name is empty; name a file")
    pairs = outputs_for([Path(source)], Path(target) if target is not None else None, naming(options))
    if len(pairs) > 1:
        raise PahsError(f"{source}: holds {len(pairs)} videos; call deblur for each of them")
    if stop is not None and stop.is_set():
        raise Stopped(f"{source}: stopped")
    if not isinstance(model, Deblurrer):
        model = load(model, options.device, options.precision, backend=options.backend)
    network = model
    gain = Gain()

    def restore(frames: Iterator[Tensor]) -> Iterator[Tensor]:
        if not options.strength:
            return frames
        restored = engine.stream(
            network,
            gain.before(_large_enough(frames, network, source)),
            look_ahead=options.look_ahead,
            scene_cuts=options.scene_cuts,
            chunk=options.chunk,
        )
        return gain.after(restored)

    with limited_memory(network.device, options.memory), _shortage_said(pairs[0][0]):
        if network.device.type == "cpu" and limited():
            return_memory()
        report = transform(
            *pairs[0],
            restore,
            encode=options.encode,
            device=network.device,
            overwrite=options.overwrite,
            advance=advance,
            stop=stop,
            part=chosen_part(pairs[0][0], options),
            rate=options.fps,
            strength=options.strength,
            deinterlace=options.deinterlace,
            compare=options.compare,
        )
    return replace(report, sharpness=gain.means()) if options.strength == 1 else report


def _large_enough(frames: Iterator[Tensor], network: Deblurrer, source: str | Path) -> Iterator[Tensor]:
    smallest = network.contract.min_size
    for frame in frames:
        height, width = frame.shape[1:]
        if min(height, width) < smallest:
            raise PahsError(f"{source}: is {width}x{height}; the smallest is {smallest}x{smallest}")
        yield frame


@contextmanager
def _shortage_said(source: Path) -> Iterator[None]:
    """Memory that runs out where no smaller plan helps, such as in a codec, in one line."""
    from pahs.engine.plan import is_shortage

    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
        raise PahsError(f"{source}: not enough memory; allow more, or use a smaller model or video") from None


def naming(options: DeblurOptions, recursive: bool = False) -> Naming:
    """What the options mean for the names of results."""
    from pahs.video.paths import Naming

    mark = "-preview" if options.preview is not None else ""
    if not mark and (options.start or options.end is not None):
        mark = "-part"
    images = True if options.encode.images else None if options.fps is None else False
    return Naming(mark, images, recursive)


def chosen_part(source: Path, options: DeblurOptions) -> Part | None:
    """The part of a video that the options ask for; None for all of it."""
    from pahs.engine.sharpness import sharpness
    from pahs.video.cut import blurriest, part_of

    part = part_of(options.start, options.end)
    if options.preview is None:
        return part
    return blurriest(source, options.preview, part, sharpness, options.fps)
