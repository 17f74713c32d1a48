"""What `pahs deblur` would do with a file: what is in it, what stays, how large and how long."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pahs.choices import EncodeOptions
from pahs.deblur import DeblurOptions, chosen_part, naming
from pahs.errors import PahsError

if TYPE_CHECKING:
    from pahs.networks import Deblurrer
    from pahs.video import FrameSource, VideoInfo, VideoReader
    from pahs.video.sample import Sample

PATIENCE = 600.0
"""Seconds: the best model that needs no longer suits."""
Fate = Literal["deblurred", "kept", "stored in another way", "not kept"]


@dataclass(frozen=True)
class StreamInfo:
    """One stream of the file."""

    index: int
    kind: str
    """video, audio, subtitle, data or attachment."""
    codec: str
    language: str | None
    fate: Fate


@dataclass(frozen=True)
class Estimate:
    """How long one model takes for the file, from file to file."""

    model: str
    seconds: float
    frames_per_second: float
    measured: bool
    """At the size of the video on this machine; otherwise extrapolated by pixels from a smaller size."""


@dataclass(frozen=True)
class Inspection:
    """What is in a file, and what `deblur` with the same options would make of it."""

    path: Path
    container: str
    """FFmpeg's name, or images."""
    codec: str
    width: int
    """Stored width; a rotation of 90 degrees swaps it with the height when the video is shown."""
    height: int
    rotation: int
    """Counter-clockwise degrees."""
    pixel_format: str
    """FFmpeg's name of the samples' layout."""
    rate: float
    """Average frames per second."""
    frames: int | None
    """Frames to restore, of the part that the options choose; an estimate, None where the file does not tell."""
    seconds: float | None
    """Their duration."""
    start: float
    """Seconds after the first frame at which the part begins."""
    streams: tuple[StreamInfo, ...]
    output: Path
    encoder: str | None
    """FFmpeg's name of it; None where nothing can be written, and for images."""
    output_format: str | None
    """FFmpeg's name of the layout in which samples are stored."""
    output_bytes: int | None
    """About how large the result will be."""
    kept: tuple[str, ...]
    """What stays as it is, in words."""
    changed: tuple[str, ...]
    lost: tuple[str, ...]
    refused: str | None
    """Why `deblur` would refuse the job, if it would."""
    model: str
    """What `deblur` would take with these options."""
    times: tuple[Estimate, ...]
    """Of `model` first, then of the other networks with weights in the package; empty if not measured."""
    suits: str | None
    """The best of them that needs no more than ten minutes, or else the fastest."""


def inspect(
    path: str | Path,
    options: DeblurOptions = DeblurOptions(),  # noqa: B008 - frozen
    *,
    target: str | Path | None = None,
    model: str | Path | Deblurrer = "auto",
    measure: bool = True,
) -> Inspection:
    """Look at a video file or a folder of images. Nothing is written but measured speeds, in the cache folder.

    Without `measure` there are no times. A file that cannot be read raises `PahsError`; one that `deblur` would refuse
    for other reasons is described, with the reason in `refused`.
    """
    from pahs.video import outputs_for
    from pahs.video.cut import open_source
    from pahs.video.pipeline import check_targets
    from pahs.video.sample import encode_sample

    pairs = outputs_for([Path(path)], Path(target) if target is not None else None, naming(options))
    if len(pairs) > 1:
        raise PahsError(f"{path}: holds {len(pairs)} videos; give one of them")
    source, output = pairs[0]
    refused = None
    try:
        check_targets(source, output, options.encode, overwrite=options.overwrite, compare=options.compare)
    except PahsError as error:
        refused = str(error)
    part = chosen_part(source, options)
    with open_source(source, part, options.fps, options.deinterlace) as reader:
        info, frames = reader.info, reader.info.frame_count
        trial = _trial(reader, output, options.encode)
    sample = None if trial.encoder is None else encode_sample(source, info, part, options.encode)
    rate = float(info.rate)
    times = _estimates(model, options, info, frames, sample) if measure else ()
    return Inspection(
        path=source,
        container=info.container,
        codec=info.codec,
        width=info.width,
        height=info.height,
        rotation=info.rotation,
        pixel_format=info.source_format,
        rate=rate,
        frames=frames,
        seconds=None if frames is None else frames / rate,
        start=float(part.start) if part is not None else 0.0,
        streams=trial.streams,
        output=output,
        encoder=trial.encoder,
        output_format=trial.layout,
        output_bytes=None if sample is None or frames is None else sample.size(frames),
        kept=trial.kept,
        changed=trial.changed,
        lost=trial.lost,
        refused=refused or trial.refused,
        model=_name(model, options),
        times=times,
        suits=_suiting(times),
    )


@dataclass(frozen=True)
class _Trial:
    """What a writer that is opened for real says about a job."""

    streams: tuple[StreamInfo, ...] = ()
    encoder: str | None = None
    layout: str | None = None
    kept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    refused: str | None = None


def _trial(reader: FrameSource, output: Path, encode: EncodeOptions) -> _Trial:
    """Write the start of the output in a folder of its own, with all streams, and throw it away."""
    from pahs.video import VideoReader
    from pahs.video.paths import gives_images
    from pahs.video.trial import try_output

    if not isinstance(reader, VideoReader):
        return _Trial(
            kept=("names and format of the images",), changed=("pictures",), lost=(*reader.warnings,)
        )
    if gives_images(reader.path, output, True if encode.images else None):
        streams = tuple(_streams(reader, frozenset()))
        others = tuple(_words(s) for s in streams if s.fate == "not kept")
        return _Trial(streams, changed=("frames become images",), lost=others)
    kept: frozenset[int] = frozenset()
    altered: frozenset[int] = frozenset()
    encoder = layout = refused = None
    notes = list(reader.warnings)
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / output.name
        try:
            tried, losses = try_output(reader, trial, encode)
            kept, altered, encoder, layout = tried.kept, tried.changed, tried.encoder, tried.layout
            notes += [*tried.warnings, *losses]
        except PahsError as error:
            refused = str(error).replace(str(trial), str(output))
    lost = tuple(x for x in notes if any(word in x for word in ("not kept", "dropped", "cannot store")))
    changed = [f"the pictures are encoded again, by {encoder}"] if encoder else []
    changed += [x for x in notes if x not in lost]
    streams = tuple(_streams(reader, kept, altered))
    facts = (*_facts(reader), *(_words(s) for s in streams if s.fate == "kept"))
    return _Trial(streams, encoder, layout, facts if encoder else (), tuple(changed), lost, refused)


def _streams(
    reader: VideoReader, kept: frozenset[int], changed: frozenset[int] = frozenset()
) -> Iterator[StreamInfo]:
    from pahs.video.copies import codec_of

    for stream in reader.container.streams:
        fate: Fate = "kept" if stream.index in kept else "not kept"
        if stream.index in changed:
            fate = "stored in another way"
        if stream.index == reader.stream.index:
            fate = "deblurred"
        language = stream.metadata.get("language")
        yield StreamInfo(stream.index, stream.type, codec_of(stream), language, fate)


def _words(stream: StreamInfo) -> str:
    language = f", {stream.language}" if stream.language and stream.language != "und" else ""
    return f"{stream.kind} {stream.index} ({stream.codec}{language})"


def _facts(reader: VideoReader) -> Iterator[str]:
    """What the writer takes over besides streams."""
    from pahs.video.copies import STALE_TAGS

    info = reader.info
    yield "when each frame is shown"
    yield f"{info.pixels.depth} bit, {info.pixels.family}"
    if info.rotation:
        yield f"rotation of {info.rotation} degrees"
    if info.sample_aspect_ratio not in (None, 1):
        yield f"sample aspect ratio {info.sample_aspect_ratio}"
    if info.is_hdr:
        yield "HDR: transfer, primaries, matrix"
    chapters = reader.chapters()
    if chapters:
        yield f"{len(chapters)} chapters"
    tags = [name for name in reader.container.metadata if name.lower() not in STALE_TAGS]
    if tags:
        yield f"tags: {', '.join(tags)}"


def _name(model: str | Path | Deblurrer, options: DeblurOptions) -> str:
    from pahs.networks import Deblurrer
    from pahs.runtime.device import choose_device
    from pahs.runtime.load import default_model

    if isinstance(model, Deblurrer):
        return type(model).__name__
    return default_model(choose_device(options.device)) if str(model) == "auto" else str(model)


def _estimates(
    model: str | Path | Deblurrer,
    options: DeblurOptions,
    info: VideoInfo,
    frames: int | None,
    sample: Sample | None,
) -> tuple[Estimate, ...]:
    """Of the chosen model at the video's size, of the others from a small size."""
    from pahs.backends.load import load
    from pahs.networks import Deblurrer
    from pahs.runtime.catalog import models
    from pahs.runtime.speed import speed

    name = _name(model, options)
    bundled = [m.name for m in sorted(models(), key=lambda m: m.parameters) if m.weights]
    found = []
    for other in (name, *(x for x in bundled if x != name)):
        given = model if other == name else other
        network = given
        if not isinstance(network, Deblurrer):
            # Graphs of models that nobody asked for would have to be made first.
            backend = options.backend if other == name else "torch"
            precision = "auto" if options.precision == "int8" and other != name else options.precision
            network = load(other, options.device, precision, backend=backend)
        known = speed(network, info.width, info.height, at_size=other == name)
        network_seconds, coding = 1 / known.frames_per_second, sample.seconds if sample else 0.0
        # A GPU computes while the codecs work; on a CPU they share the cores.
        on_cpu = network.device.type == "cpu"
        each = network_seconds + coding if on_cpu else max(network_seconds, coding)
        found.append(Estimate(other, each * (frames or 0), 1 / each, known.measured))
    return tuple(found)


def _suiting(times: tuple[Estimate, ...]) -> str | None:
    """More arithmetic is more quality among the networks with weights, so the slowest that is quick enough."""
    if not times:
        return None
    quick = [t for t in times if t.seconds <= PATIENCE]
    if quick:
        return max(quick, key=lambda t: t.seconds).model
    return min(times, key=lambda t: t.seconds).model
