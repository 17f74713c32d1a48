"""The command that only looks: inspect."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pahs.choices import Codec, EncodeOptions, seconds_of
from pahs.cli.options import (
    ENCODING,
    BackendOption,
    DeviceOption,
    EndOption,
    ModelOption,
    PrecisionOption,
    PreviewOption,
    StartOption,
    app,
)
from pahs.deblur import DeblurOptions

if TYPE_CHECKING:
    from pahs.inspect import Inspection


@app.command
def inspect(
    file: Annotated[Path, Parameter(name="FILE", help="A video, or a folder of numbered images.")],
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o", help="Where the result would go.")] = None,
    model: ModelOption = "auto",
    start: StartOption = None,
    end: EndOption = None,
    preview: PreviewOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    backend: BackendOption = "auto",
    codec: Annotated[Codec, Parameter(group=ENCODING)] = EncodeOptions.codec,
    measure: Annotated[bool, Parameter(help="Measure how fast the models run, which takes seconds.")] = True,
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="For programs.")] = False,
) -> None:
    """Tell what is in a file, and what `deblur` would make of it: what is kept, its size, the time it takes.

    Takes the options of `deblur` that matter for it, and writes nothing.
    """
    from pahs.inspect import inspect as run

    options = DeblurOptions(
        encode=EncodeOptions(codec),
        start=None if start is None else seconds_of(start),
        end=None if end is None else seconds_of(end),
        preview=preview,
        device=device,
        precision=precision,
        backend=backend,
    )
    found = run(file, options, target=output, model=model, measure=measure)
    print(json.dumps(asdict(found), default=str, indent=2) if as_json else describe(found))


def describe(x: Inspection) -> str:
    """An inspection for people."""
    length = "?" if x.frames is None or x.seconds is None else f"{x.frames} frames, {_time(x.seconds)}"
    part = f", from {_time(x.start)} on" if x.start else ""
    lines = [
        str(x.path),
        f"  {x.width}x{x.height}, {x.rate:.5g} frames/s, {length}{part}",
        f"  {x.codec}, {x.pixel_format}, in {x.container}",
    ]
    lines += [f"  stream {s.index}: {s.kind}, {s.codec}: {s.fate}" for s in x.streams]
    for heading, entries in (("kept", x.kept), ("changed", x.changed), ("lost", x.lost)):
        lines += [f"{heading:8}  {entry}" for entry in entries or ("nothing",)]
    if x.refused:
        lines.append(f"refused   {x.refused}")
    size = "" if x.output_bytes is None else f", about {x.output_bytes / 1e6:.3g} MB"
    encoder = f"  {x.encoder}, {x.output_format}" if x.encoder else ""
    lines.append(f"output    {x.output}{encoder}{size}")
    for t in x.times:
        how = "measured" if t.measured else "extrapolated"
        lines.append(
            f"time      {t.model:8} {_time(t.seconds):>9}  {t.frames_per_second:.3g} frames/s, {how}"
        )
    if x.suits:
        lines.append(f"suits     {x.suits}" + ("" if x.suits == x.model else f" (--model {x.suits})"))
    return "\n".join(lines)


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return str(timedelta(seconds=round(seconds)))
