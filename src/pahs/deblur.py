"""The main job: blurry video files in, sharp video files out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.progress import bar

if TYPE_CHECKING:
    from torch import Tensor

    from pahs.networks import Deblurrer
    from pahs.video import EncodeOptions, TransformReport


def deblur(
    src: str | Path,
    dst: str | Path | None = None,
    model: str | Path | Deblurrer = "auto",
    *,
    device: str = "auto",
    precision: str = "auto",
    look_ahead: int | None = None,
    scene_cuts: bool = True,
    encode: EncodeOptions | None = None,
    overwrite: bool = False,
    quiet: bool = True,
) -> TransformReport:
    """Deblur one video file or folder of numbered images; the report says where the result is.

    Without `dst` the result lies beside the source. `model` is a name, a weights file, or a network that
    `pahs.load` returned, which then decides device and precision.
    """
    from pahs.networks import Deblurrer
    from pahs.runtime.load import load
    from pahs.video import outputs_for

    ((source, target),) = outputs_for([Path(src)], Path(dst) if dst is not None else None)
    network = model if isinstance(model, Deblurrer) else load(model, device, precision)
    return deblur_file(network, source, target, look_ahead, scene_cuts, encode, overwrite, quiet)


def deblur_file(
    network: Deblurrer,
    source: Path,
    target: Path,
    look_ahead: int | None = None,
    scene_cuts: bool = True,
    encode: EncodeOptions | None = None,
    overwrite: bool = False,
    quiet: bool = True,
) -> TransformReport:
    """One file with a network that is already loaded."""
    import torch

    from pahs import engine
    from pahs.video import transform

    device = next(network.parameters(), torch.empty(0)).device

    with bar(source.name, None, quiet=quiet) as advance:

        def seen(frames: Iterator[Tensor]) -> Iterator[Tensor]:
            for count, frame in enumerate(frames, 1):
                advance.before(f"looking ahead, {count} read")
                yield frame

        def restore(frames: Iterator[Tensor]) -> Iterator[Tensor]:
            return engine.stream(network, seen(frames), look_ahead=look_ahead, scene_cuts=scene_cuts)

        return transform(
            source,
            target,
            restore,
            encode=encode,
            device=device,
            started=lambda info: advance.expect(info.frame_count),
            progress=advance,
            overwrite=overwrite,
        )
