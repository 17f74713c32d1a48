"""Which videos there are, and where each is cut into segments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.choices import VIDEO_SUFFIXES
from pahs.cluster import store
from pahs.cluster.manifest import Segment, Settings, Video
from pahs.errors import PahsError
from pahs.progress import Advance

if TYPE_CHECKING:
    from pahs.deblur import DeblurOptions
    from pahs.video.paths import Naming

WARM_UP = 40
"""Frames before a segment that its forward state is made of, where it does not begin with a scene."""
LENGTH = {"cpu": 256, "cuda": 1024}
"""Frames of a segment, about: 40 + 19 frames more are read for each, and a killed worker loses one at most."""
WORTH_CUTTING = 1.5
"""A video that is longer by this factor than a segment shall be is cut into segments."""


def make_settings(model: str, options: DeblurOptions, length: int | None) -> Settings:
    """Decide, once for all units, what `pahs deblur` decides for a file.

    A plan for GPUs can be made on a machine without one: with `device` cuda.
    """
    import torch

    from pahs.engine.plan import longest_chunk
    from pahs.runtime import weights
    from pahs.runtime.device import choose_device
    from pahs.runtime.load import default_model
    from pahs.runtime.precision import DTYPES, choose_dtype, name_of_dtype

    absent = options.device == "cuda" and not torch.cuda.is_available()
    device = torch.device("cuda") if absent else choose_device(options.device)
    if device.type not in LENGTH:
        raise PahsError(
            f"--device {device.type}: plans are for cpu or cuda, so that every machine computes alike"
        )
    precision = options.precision
    if precision == "auto":
        precision = "bf16" if absent else name_of_dtype(choose_dtype("auto", device))
    elif precision not in DTYPES:
        raise PahsError(f"--precision {precision}: plans are for PyTorch; choose auto, {', '.join(DTYPES)}")
    name = default_model(device) if model == "auto" else model
    bundled = weights.bundled(name)
    if bundled is None and not store.is_remote(name):
        if not name.endswith(".safetensors") and not Path(name).exists():
            weights.load(name)  # says what is wrong with it
        name = str(Path(name).absolute())
    with store.fetched(name if bundled is None else str(bundled)) as file:
        network = weights.read(file)
        checksum = weights.describe(file).metadata["sha256"]
    contract = network.contract
    settable = contract.family == "bidirectional" and options.look_ahead is not None
    return Settings(
        model=name,
        sha256=checksum,
        device=device.type,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
        chunk=options.chunk or longest_chunk(device),
        look_ahead=options.look_ahead if settable and options.look_ahead is not None else contract.look_ahead,
        warm_up=WARM_UP,
        length=LENGTH[device.type] if length is None else length,
        scene_cuts=options.scene_cuts,
        strength=options.strength,
        deinterlace=options.deinterlace,
        encode=options.encode,
    )


def list_videos(inputs: list[str], output: str, recursive: bool = False, images: bool = False) -> list[Video]:
    """Pair every video that the inputs name with its result in the folder `output`; no file is opened.

    `images` says that the results are folders of images.
    """
    from pahs.video.paths import Naming, default_name, outputs_for

    if not output or Path(output).suffix.lower() in VIDEO_SUFFIXES:
        raise PahsError(f"--output {output!r}: name the folder for the results")
    naming = Naming(images=images or None, recursive=recursive)
    found: list[tuple[str, str]] = []
    """Each source, and the name of its result below the output."""
    for given in inputs:
        if store.is_remote(given):
            found += _remote_videos(given, naming)
        else:
            for path, _ in outputs_for([Path(given)], None, naming):
                inside = Path(given).is_dir() and path != Path(given)
                below = path.parent.relative_to(given) if inside else Path()
                found.append((str(path.absolute()), str(below / default_name(path, naming))))
    folder = output.rstrip("/") if store.is_remote(output) else str(Path(output).absolute())
    taken: dict[str, str] = {}
    for source, name in found:
        if taken.setdefault(name, source) != source:
            raise PahsError(
                f"{source} and {taken[name]} would both be written to {folder}/{name}; give each a folder of its own"
            )
    return [Video(source, f"{folder}/{name}", None) for name, source in taken.items()]


def _remote_videos(address: str, naming: Naming) -> list[tuple[str, str]]:
    from pahs.video.paths import default_name, is_result

    found = []
    files = store.files_below(address)
    if not files:
        raise PahsError(f"{address}: no such file or folder, or nothing is in it")
    for file in files:
        path = Path(file)
        alone = file.rstrip("/") == address.rstrip("/")
        below = "" if alone else file.removeprefix(address.rstrip("/") + "/").rpartition("/")[0]
        if alone or (
            path.suffix.lower() in VIDEO_SUFFIXES
            and not is_result(path.stem)
            and (naming.recursive or not below)
        ):
            found.append((file, str(Path(below) / default_name(Path(path.name), naming))))
    if not found:
        raise PahsError(f"{address}: holds no videos")
    return found


@dataclass(frozen=True)
class Survey:
    """What is known of a video once all its frames were decoded."""

    times: tuple[int, ...]
    """When each frame is shown, in units of the video's time base."""
    cuts: tuple[int, ...]
    """The frames with which scenes begin; 0 is none of them."""
    lost: int


def survey(path: Path, settings: Settings, advance: Advance | None = None) -> Survey:
    """Decode a video, and find its scenes as the engine would."""
    from pahs.engine.scenes import CutDetector
    from pahs.video import VideoReader, to_rgb

    detector, times, cuts = CutDetector(), [], []
    with VideoReader(path, settings.deinterlace) as reader:
        for number, frame in enumerate(reader):
            times.append(frame.pts)
            if settings.scene_cuts and detector.cuts([to_rgb(frame.planes, reader.info.pixels)])()[0]:
                cuts.append(number)
            if advance is not None:
                advance()
        return Survey(tuple(times), tuple(cuts), reader.lost)


def plan_video(video: Video, settings: Settings, file: Path, advance: Advance | None = None) -> Video:
    """The video with its size, and its segments where it is long enough; `file` is where it lies on this machine."""
    from pahs.video import probe

    if file.is_dir():
        return video
    info = probe(file)
    measured = replace(video, size=file.stat().st_size, frames=info.frame_count)
    # A file that does not say how long it is may be long.
    length = info.frame_count if info.frame_count is not None else 1 << 30
    if not settings.length or settings.encode.images or length < WORTH_CUTTING * settings.length:
        return measured
    found = survey(file, settings, advance)
    segments = cut_up(found, settings)
    if len(segments) < 2:
        return replace(measured, frames=len(found.times))
    return replace(measured, frames=len(found.times), lost=found.lost, segments=tuple(segments))


def cut_up(found: Survey, settings: Settings) -> list[Segment]:
    """Segments of about the same length, which begin with scenes, or else at multiples of the chunk in a scene."""
    total, scenes = len(found.times), [0, *found.cuts]
    parts = max(1, round(total / settings.length))
    begins = [0]
    for number in range(1, parts):
        place = _nearest(number * total / parts, scenes, settings.chunk, total / parts / 2)
        if begins[-1] < place < total:
            begins.append(place)
    segments = []
    for number, begin in enumerate(begins):
        end = begins[number + 1] if number + 1 < len(begins) else total
        scene = max(cut for cut in scenes if cut <= begin)
        first = max(scene, begin - settings.warm_up)
        last = min([end + settings.look_ahead, total, *(cut for cut in found.cuts if cut >= end)])
        cuts = tuple(cut for cut in found.cuts if begin < cut < last)
        segments.append(
            Segment(number, first, begin, end, last, found.times[first], found.times[last - 1], cuts)
        )
    return segments


def _nearest(wanted: float, scenes: Iterable[int], chunk: int, reach: float) -> int:
    """The place to cut that is nearest to a wanted one."""
    scenes = list(scenes)
    cut = min(scenes, key=lambda x: abs(x - wanted))
    if cut and abs(cut - wanted) <= reach:
        return cut
    scene = max(x for x in scenes if x <= wanted)
    place = scene + round((wanted - scene) / chunk) * chunk
    following = min((x for x in scenes if x > scene), default=place)
    return min(place, following)


def check_output(output: str, settings: Settings) -> str:
    """The folder of the results as an address, made if it is on this machine."""
    if store.is_remote(output):
        if settings.encode.images:
            raise PahsError("--images: folders of images are written to this machine only; name a folder")
        return output.rstrip("/")
    try:
        Path(output).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PahsError(f"{output}: cannot be created ({error.strerror}); choose another --output") from None
    return str(Path(output).absolute())
