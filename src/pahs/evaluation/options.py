"""What `pahs evaluate` can be asked for. The docstrings below are the help of its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.choices import AnyLayout, Backend, Device, Kind, Precision, Split
from pahs.errors import PahsError

if TYPE_CHECKING:
    from pahs.networks.contract import Family

REPLACE_PERIOD = 5
"""With `replace_neighbour`, a windowed network is given one sharp frame in any five: one in its window."""
PAPER_LOOK_AHEAD = 19
"""Future frames in the paper's main comparison."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Everything that the user chooses and that changes a number."""

    look_ahead: int | None = None
    """Each output sees exactly so many future frames, on every device; 19: the paper's protocol. None: the chunks of
    `pahs deblur`, and so at least the network's own look-ahead."""
    every_second: bool = False
    """Large motion: keep frames 0, 2, 4, ... of each sequence and drop the others."""
    replace_neighbour: bool = False
    """Each frame is scored while the frame before it (for the first frame: the next) is sharp: slow."""
    limit: int | None = None
    """Use only the first frames of each sequence."""
    scene_cuts: bool = False
    """Reset the hidden state at scene cuts; datasets have none, and a false alarm would cost."""

    def __post_init__(self) -> None:
        if self.look_ahead is not None and self.look_ahead < 0:
            raise PahsError(f"look-ahead is {self.look_ahead}; it must be 0 or more")
        if self.limit is not None and self.limit < 1:
            raise PahsError(f"limit is {self.limit}; it must be 1 frame or more")

    def text(self, look_ahead: int, chunk: int, family: Family) -> str:
        """One line that belongs to every number; a backward sweep for `chunk` frames shows some of them more future."""
        future = f"{look_ahead} future frames"
        if self.look_ahead is not None:
            paper = ", as in the paper's main comparison" if look_ahead == PAPER_LOOK_AHEAD else ""
            future = f"exactly {future} (fewer at the end{paper})"
        elif chunk > 1:
            most = look_ahead + chunk - 1
            future = f"at least {future} (up to {most}: one backward sweep for {chunk} frames)"
        parts = [
            "PSNR and SSIM on 8-bit RGB",
            f"first {self.limit} frames of each sequence" if self.limit else "all frames, borders included",
            future,
        ]
        if self.every_second:
            parts.append("large motion: every second frame")
        if self.replace_neighbour:
            others = f"1 in {REPLACE_PERIOD} frames" if family == "windowed" else "all other frames blurry"
            parts.append(f"one neighbour sharp ({others})")
        if self.scene_cuts:
            parts.append("state reset at scene cuts")
        return "; ".join(parts)


@dataclass(frozen=True)
class EvaluateTask:
    """What is read, and what is written besides the table and the numbers."""

    data: Path | None = None
    """Folder of blurry and sharp frames."""
    layout: AnyLayout = "auto"
    """auto recognises it by looking."""
    split: Split | None = "test"
    """Part of the dataset."""
    kind: Kind = "blur"
    """Which of GOPRO's blurry versions."""
    markdown: Path | None = None
    """Write the table here."""
    strips: Path | None = None
    """Write comparison pictures into this folder."""
    overwrite: bool = False
    """Replace a --json file of another run."""
    long: bool = False
    """Compare long sweeps with short ones instead; needs no --data."""
    selection: bool = False
    """Measure instead what SNLA's selection could gain, by gradients on the frames of --data."""
    frames: int = 1000
    """With --long: frames of each film."""
    size: tuple[int, int] = (96, 64)
    """With --long: their width and height."""
    device: Device = "auto"
    """auto takes a GPU if there is one."""
    precision: Precision = "auto"
    """auto: half precision on GPUs, and on CPUs that are faster with it; float32 with --long and --selection."""
    backend: Backend = "torch"
    """What computes; the graphs of other backends round differently."""

    def __post_init__(self) -> None:
        if self.long and self.selection:
            raise PahsError("--long and --selection are two measurements; choose one")
        if self.data is None and not self.long:
            raise PahsError("--data is missing: name a folder of blurry and sharp frames, or use --long")
