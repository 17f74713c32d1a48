"""Sources of training batches: a dataset on disk, or blur synthesised on the device.

A source is a function of its seed and the number of the step, so any step can be repeated, and one number says where a
source stands. With several processes, each makes its own part of the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pahs.data.crops import CropDataset
from pahs.data.footage import FootageSource, Take
from pahs.data.layouts import open_dataset
from pahs.data.photos import PhotoPool
from pahs.data.synthesis import PhotoSource
from pahs.errors import PahsError
from pahs.training.dataset import DatasetSource
from pahs.training.footage import open_footage
from pahs.training.losses import RANDOM_SHARE
from pahs.training.recipe import DataSection, Recipe
from pahs.training.share import Batch, Inputs, Share, mixed_seed
from pahs.training.textures import draw_textures

STATES, PIXELS = -1, -2
"""Stand for the resets of states, and for the random pixels of a loss, among the random streams."""


class Source(Protocol):
    """Batches on the training device."""

    steps_per_epoch: int
    """0: there are no epochs."""
    material: int
    """How many clips, or pictures and videos, it draws from."""

    def batch(self) -> Inputs: ...

    def state_dict(self) -> dict[str, int]: ...

    def load_state_dict(self, state: dict[str, int]) -> None: ...


class SynthesisSource:
    """Moves and blurs photos, and averages sharp video, on the device that holds them."""

    steps_per_epoch = 0

    def __init__(
        self, photos: PhotoPool, data: DataSection, batch: int, share: Share, footage: Sequence[Take] = ()
    ) -> None:
        streams = data.streams or 1
        if batch % streams:
            raise PahsError(
                f"train.batch = {batch} is not a multiple of data.streams = {streams}; change either"
            )
        self.photos = PhotoSource(photos, data.synthesis, seed=0)
        self.footage = FootageSource(footage, data.footage, data.synthesis) if footage else None
        self.seed, self.step, self.size = data.seed, 0, batch // streams
        self.filmed = data.footage.clips_of(self.size) if footage else 0
        self.material = photos.count + len(footage)
        mine = share.clips(batch)
        # A stream is drawn as a whole, also where it is shared: its clips are then the same in any number of processes.
        self.streams = range(mine.start // self.size, (mine.stop - 1) // self.size + 1)
        before = self.streams.start * self.size
        self.mine = slice(mine.start - before, mine.stop - before)
        self.dropped: int = len(self.streams) * self.size - (mine.stop - mine.start)
        """Clips of each batch that are made here and used by other processes."""

    def batch(self) -> Batch:
        parts = [self._part(stream) for stream in self.streams]
        self.step += 1
        blurry, sharp = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True))
        return blurry[self.mine], sharp[self.mine]

    def _part(self, stream: int) -> Batch:
        seed = mixed_seed(self.seed, stream, self.step)
        made = []
        if self.size > self.filmed:
            self.photos.generator.manual_seed(seed)
            made.append(self.photos.batch(self.size - self.filmed))
        if self.footage and self.filmed:
            self.footage.generator.manual_seed(seed)
            made.append(self.footage.batch(self.filmed))
        blurry, sharp = zip(*made, strict=True)
        return torch.cat(blurry), torch.cat(sharp)

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


class Ahead:
    """Makes the next batch of another source on a CUDA stream of its own, while a step uses the last batch.

    A step's small kernels leave a part of the device idle, which synthesis then uses.
    """

    def __init__(self, source: Source, device: torch.device) -> None:
        self.source = source
        self.steps_per_epoch, self.material = source.steps_per_epoch, source.material
        self.side: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.used: list[torch.cuda.Event] = []
        self.position = source.state_dict()
        self.made: Inputs | None = None

    def batch(self) -> Inputs:
        here = torch.cuda.current_stream(self.side.device)
        made = self._make() if self.made is None else self.made
        here.wait_stream(self.side)
        for x in made:
            x.record_stream(here)
        # The host may be at most two steps ahead of the device, because every queued batch takes memory.
        self.used.append(here.record_event())
        if len(self.used) > 2:
            self.used.pop(0).synchronize()
        self.position, self.made = self.source.state_dict(), self._make()
        return made

    def _make(self) -> Inputs:
        with torch.cuda.stream(self.side):
            return self.source.batch()

    def state_dict(self) -> dict[str, int]:
        """The position after the last batch that was returned."""
        return self.position

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.source.load_state_dict(state)
        self.position, self.made = state, None


class _WithDraws:
    """Another source, to whose batches random numbers are added.

    Drawn on the device and apart from the step, which may be recorded: every replay sees new ones.
    """

    def __init__(self, source: Source, recipe: Recipe, share: Share, device: torch.device) -> None:
        self.source, self.seed = source, recipe.data.seed
        self.steps_per_epoch, self.material = source.steps_per_epoch, source.material
        self.generator = torch.Generator(device)
        self.mine = share.clips(recipe.train.batch)

    def draw(self, stream: int, shape: tuple[int, ...]) -> Tensor:
        self.generator.manual_seed(mixed_seed(self.seed, stream, self.source.state_dict()["step"]))
        return torch.rand(shape, generator=self.generator, device=self.generator.device)

    def state_dict(self) -> dict[str, int]:
        return self.source.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.source.load_state_dict(state)


class WithResets(_WithDraws):
    """Another source, whose batches say too when their clips' states are reset in the warm passes."""

    def __init__(self, source: Source, recipe: Recipe, share: Share, device: torch.device) -> None:
        super().__init__(source, recipe, share, device)
        with torch.device("meta"):
            directions = recipe.model.config.build().contract.directions
        wish, passes = recipe.states, recipe.states.warm_passes
        if not directions:
            raise PahsError(
                f"states.warm_passes is {passes}, but {recipe.model.preset} restores frames from a window and has "
                "no state; set it to 0"
            )
        self.shape = passes, directions, recipe.train.batch
        self.chance = torch.tensor([wish.reset] * (passes - 1) + [wish.counted_reset], device=device)

    def batch(self) -> Inputs:
        resets = self.draw(STATES, self.shape) < self.chance[:, None, None]
        return *self.source.batch(), resets[..., self.mine]


class WithPixels(_WithDraws):
    """Another source, whose batches say too which pixels the loss takes at random: `hard-example`."""

    def __init__(self, source: Source, recipe: Recipe, share: Share, device: torch.device) -> None:
        super().__init__(source, recipe, share, device)
        self.shape = recipe.train.batch, recipe.data.frames, 1, recipe.data.size, recipe.data.size

    def batch(self) -> Inputs:
        drawn = self.draw(PIXELS, self.shape)
        return *self.source.batch(), drawn[self.mine] < RANDOM_SHARE


@dataclass(frozen=True)
class Photos:
    """Pictures to synthesise from, on the training device."""

    train: PhotoPool
    held_out: PhotoPool
    """Never trained with."""


def open_photos(recipe: Recipe, device: torch.device) -> Photos | None:
    """The photos that a recipe synthesises clips from; None for a dataset, which has its own blur."""
    data, validation = recipe.data, recipe.validation
    smallest = data.synthesis.scale[0]
    if data.kind == "dataset":
        return None
    if data.kind == "generated":
        train, held_out = (
            PhotoPool.from_images(draw_textures(data.textures, seed=seed), device, smallest_scale=smallest)
            for seed in (data.seed, validation.seed)
        )
        return Photos(train, held_out)
    pool = PhotoPool.load(data.root, device, smallest_scale=smallest)
    if validation.root:
        return Photos(pool, pool)
    if pool.count < 2:
        raise PahsError(f"{data.root}: one photo cannot be split; add photos or set validation.root")
    unseen = torch.arange(pool.count, device=device) % max(2, round(1 / validation.hold_out)) == 0
    return Photos(_subset(pool, ~unseen), _subset(pool, unseen))


def _subset(pool: PhotoPool, which: Tensor) -> PhotoPool:
    return replace(
        pool, offsets=pool.offsets[:, which], heights=pool.heights[:, which], widths=pool.widths[:, which]
    )


def open_source(
    recipe: Recipe, photos: Photos | None, share: Share, device: torch.device, say: Callable[[str], None]
) -> Source:
    """The training data that a recipe asks for."""
    data, batch = recipe.data, recipe.train.batch
    source: Source
    if photos is not None:
        footage = open_footage(data.footage, device, say) if data.footage.root else []
        source = SynthesisSource(photos.train, data, batch, share, footage)
        if source.dropped:
            fits = next(n for n in range(share.world, batch + 1) if batch % n == 0)
            say(
                f"this process also draws {source.dropped} clips of each batch that others use; "
                f"a new run with data.streams = {fits} avoids that"
            )
        source = Ahead(source, device) if device.type == "cuda" else source
    else:
        dataset = open_dataset(data.root, data.layout, data.split, data.variant)
        crops = CropDataset(dataset, data.frames, data.size, data.seed)
        source = DatasetSource(crops, batch, share, device, data.workers, say)
    source = WithResets(source, recipe, share, device) if recipe.states.warm_passes else source
    return WithPixels(source, recipe, share, device) if recipe.optim.loss == "hard-example" else source
