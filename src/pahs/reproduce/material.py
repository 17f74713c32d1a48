"""What all trainings of a run share: the device, the photos, and the held-out clips. Opened once."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pahs.data.layouts import open_dataset
from pahs.data.photos import find_photos
from pahs.errors import PahsError
from pahs.levels import to_levels
from pahs.reproduce.plan import ARMS, Unit, config
from pahs.reproduce.scales import SIMPLE_BLUR, Scale
from pahs.training.recipe import (
    DataSection,
    ModelSection,
    OptimSection,
    Recipe,
    ScheduleSection,
    TrainSection,
    ValidationSection,
)
from pahs.training.recipe_file import to_toml
from pahs.training.setup import setup
from pahs.training.share import Share
from pahs.training.sources import Photos, SynthesisSource, open_photos

if TYPE_CHECKING:
    from lightning_fabric import Fabric

HELD_OUT_SEED = 12345


@dataclass(frozen=True)
class Clips:
    """Held-out clips, (K, T, 3, H, W) uint8 on the device."""

    blurry: Tensor
    sharp: Tensor


@dataclass(frozen=True)
class ShownClip:
    """A real clip of the folder `eval`: scored and reported, without a say in any verdict."""

    group: str
    """The folder it is in, such as `reds_180p`."""
    blurry: Tensor
    """(T, 3, H, W) uint8."""
    sharp: Tensor


def recipe_of(unit: Unit, scale: Scale, photos: str = "") -> Recipe:
    """The training of an arm, in the words of `pahs train`. All arms of a seed and part see the same batches."""
    on = bool(unit.arm.continues)
    batch, frames, size, steps = (
        (scale.batch_on, scale.frames_on, scale.size_on, scale.steps_on)
        if on
        else (scale.batch, scale.frames, scale.size, scale.steps)
    )
    # Trained-on arms keep a lower rate: they start from weights that are good already.
    lr = scale.lr / 3 if on else scale.lr
    return Recipe(
        model=ModelSection(preset="pahs-t", config=config(unit.arm, scale)),
        data=DataSection(
            kind="generated" if scale.textures else "photos",
            root=photos,
            frames=frames,
            size=size,
            seed=unit.seed,
            textures=scale.textures or 1,
            synthesis=SIMPLE_BLUR,
        ),
        optim=OptimSection(name="adamw", lr=lr, betas=(0.9, 0.99), clip=0.2, ema=scale.ema),
        schedule=ScheduleSection(warmup_steps=min(scale.warmup, steps)),
        train=TrainSection(
            batch=batch, steps=steps, seed=unit.seed, precision="bf16", compile=False, init="scaled"
        ),
        validation=ValidationSection(seed=HELD_OUT_SEED, clips=scale.clips, frames=scale.clip_frames),
    )


class Material:
    """Opened once for all trainings; clips that only some arms need are made when they are needed."""

    def __init__(self, scale: Scale, photos: Path | None, shown: Path | None) -> None:
        if not scale.textures and photos is None:
            raise PahsError("--data photos=FOLDER is missing: scale small makes its clips from photos")
        self.scale, self.folder, self.eval_folder = scale, str(photos or ""), shown
        self.plan = recipe_of(Unit(ARMS["B0"], 0), scale, self.folder)
        self.fabric: Fabric = setup(self.plan)
        self.device = self.fabric.device
        opened = open_photos(self.plan, self.device)
        assert opened is not None
        self.photos: Photos = opened
        # Read at once: a wrong folder is then found before anything has been trained.
        self.shown = [] if shown is None else self._open_shown(shown)

    def use(self, scale: Scale) -> None:
        """Go on with other lengths of training; photos and clips stay."""
        self.scale = scale

    @cached_property
    def identity(self) -> str:
        """Of the photos and the real clips: other ones give other numbers."""
        digest = hashlib.sha256()
        for root in (self.folder, str(self.eval_folder or "")):
            files = find_photos(Path(root)) if root else []
            for file in files:
                digest.update(f"{file.relative_to(root)} {file.stat().st_size}\n".encode())
        return digest.hexdigest()

    def fingerprint(self, unit: Unit, version: str) -> str:
        recipe = to_toml(recipe_of(unit, self.scale, "photos"))  # wherever they lie
        parts = (version, recipe, repr(asdict(self.scale)), self.identity, self.device.type)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def clips(self) -> Clips:
        return self._made(self.scale.clips, self.scale.clip_frames, 0)

    @cached_property
    def twice_as_long(self) -> Clips:
        """Every second frame of these is a clip of doubled displacement."""
        return self._made(self.scale.clips, 2 * self.scale.clip_frames, 1)

    @cached_property
    def long_clips(self) -> Clips:
        return self._made(self.scale.long_clips, self.scale.long_frames, 2)

    def _made(self, count: int, frames: int, kind: int) -> Clips:
        data = replace(
            self.plan.data, frames=frames, size=self.scale.clip_size, seed=HELD_OUT_SEED + kind, streams=1
        )
        source = SynthesisSource(self.photos.held_out, data, batch=1, share=Share())
        pairs = [tuple(to_levels(x) for x in source.batch()) for _ in range(count)]
        blurry, sharp = (torch.cat(side) for side in zip(*pairs, strict=True))
        return Clips(blurry, sharp)

    def _open_shown(self, folder: Path) -> list[ShownClip]:
        """Real clips below `--data eval=FOLDER`, a group for each folder in it."""
        found = []
        for sequence in open_dataset(folder).sequences:
            sides = (
                torch.from_numpy(np.stack([read(t) for t in range(len(sequence))])).permute(0, 3, 1, 2)
                for read in (sequence.read_blurry, sequence.read_sharp)
            )
            blurry, sharp = (x.to(self.device) for x in sides)
            found.append(ShownClip(sequence.name.split("/")[0], blurry, sharp))
        return found
