"""Sources of training batches: a dataset on disk, or blur synthesised on the device.

A source is a function of its seed and the number of the step, so any step can be repeated, and one number says where a
source stands. With several processes, each makes its own part of the same batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from pahs.data.crops import CropDataset
from pahs.data.footage import FootageSource, Take
from pahs.data.layouts import open_dataset
from pahs.data.photos import PhotoPool
from pahs.data.synthesis import PhotoSource
from pahs.errors import PahsError
from pahs.training.footage import open_footage
from pahs.training.recipe import DataSection, Recipe
from pahs.training.textures import draw_textures

Batch = tuple[Tensor, Tensor]
"""Blurry and sharp clips, (n, T, 3, H, W) in [0, 1]."""
Inputs = tuple[Tensor, ...]
"""What a step takes: a batch, and with [states] the resets of its clips' states."""
REPLACEMENTS = 8
"""Clips that are tried in place of one that cannot be read."""
STATES = -1
"""Stands for the resets of states among the random streams."""


@dataclass(frozen=True)
class Share:
    """The part of every batch that this process makes."""

    rank: int = 0
    world: int = 1


class Source(Protocol):
    """Batches on the training device."""

    steps_per_epoch: int
    """0: there are no epochs."""

    def batch(self) -> Inputs: ...

    def state_dict(self) -> dict[str, int]: ...

    def load_state_dict(self, state: dict[str, int]) -> None: ...


class SynthesisSource:
    """Moves and blurs photos, and averages sharp video, on the device that holds them."""

    steps_per_epoch = 0

    def __init__(
        self, photos: PhotoPool, data: DataSection, batch: int, share: Share, footage: Sequence[Take] = ()
    ) -> None:
        streams = data.streams or share.world
        if streams % share.world or batch % streams:
            raise PahsError(
                f"data.streams = {streams} and train.batch = {batch} do not divide among {share.world} processes; "
                "the batch must be a multiple of the streams, and the streams of the processes"
            )
        self.photos = PhotoSource(photos, data.synthesis, seed=0)
        self.footage = FootageSource(footage, data.footage, data.synthesis) if footage else None
        self.seed, self.step, self.size = data.seed, 0, batch // streams
        self.filmed = data.footage.clips_of(self.size) if footage else 0
        mine = streams // share.world
        self.streams = range(share.rank * mine, (share.rank + 1) * mine)

    def batch(self) -> Batch:
        parts = [self._part(stream) for stream in self.streams]
        self.step += 1
        if len(parts) == 1:
            return parts[0]
        blurry, sharp = zip(*parts, strict=True)
        return torch.cat(blurry), torch.cat(sharp)

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
        self.source, self.steps_per_epoch = source, source.steps_per_epoch
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


class WithResets:
    """Another source, whose batches say too when their clips' states are reset in the warm passes.

    Drawn on the device and apart from the step, which may be recorded: every replay sees new ones.
    """

    def __init__(self, source: Source, recipe: Recipe, share: Share, device: torch.device) -> None:
        with torch.device("meta"):
            directions = recipe.model.config.build().contract.directions
        wish, passes = recipe.states, recipe.states.warm_passes
        if not directions:
            raise PahsError(
                f"states.warm_passes is {passes}, but {recipe.model.preset} restores frames from a window and has "
                "no state; set it to 0"
            )
        self.source, self.steps_per_epoch, self.seed = source, source.steps_per_epoch, recipe.data.seed
        self.generator = torch.Generator(device)
        self.shape = passes, directions, recipe.train.batch
        mine = recipe.train.batch // share.world
        self.mine = slice(share.rank * mine, (share.rank + 1) * mine)
        self.chance = torch.tensor([wish.reset] * (passes - 1) + [wish.counted_reset], device=device)

    def batch(self) -> Inputs:
        self.generator.manual_seed(mixed_seed(self.seed, STATES, self.source.state_dict()["step"]))
        drawn = torch.rand(self.shape, generator=self.generator, device=self.chance.device)
        return *self.source.batch(), (drawn < self.chance[:, None, None])[..., self.mine]

    def state_dict(self) -> dict[str, int]:
        return self.source.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.source.load_state_dict(state)


class DatasetSource:
    """Random crops of a dataset, prefetched by worker processes; each epoch has its own order."""

    def __init__(
        self,
        crops: CropDataset,
        batch: int,
        share: Share,
        device: torch.device,
        workers: int = 0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        if batch % share.world:
            raise PahsError(f"train.batch = {batch} does not divide among {share.world} processes")
        if len(crops) < batch:
            raise PahsError(f"the dataset has {len(crops)} clips, fewer than train.batch = {batch}")
        self.crops, self.device, self.say, self.step = crops, device, say, 0
        self.order = _Order(len(crops), crops.seed, batch, share)
        self.steps_per_epoch = len(crops) // batch
        self.loader = DataLoader(
            _Readable(crops),
            batch_sampler=self.order,
            num_workers=workers,
            collate_fn=_collate,
            pin_memory=device.type == "cuda",
            persistent_workers=workers > 0,
        )
        self.batches: Iterator[tuple[Batch | None, tuple[str, ...]]] | None = None
        self.reported: set[str] = set()

    def batch(self) -> Batch:
        epoch, position = divmod(self.step, self.steps_per_epoch)
        if self.batches is None or position == 0:
            self.order.epoch, self.order.first = epoch, position
            self.crops.set_epoch(epoch)
            self.batches = iter(self.loader)
        clips, errors = next(self.batches)
        for error in errors:
            if error not in self.reported:
                self.reported.add(error)
                self.say(f"another clip is used instead: {error}")
        if clips is None:
            raise PahsError(f"{errors[-1]} ({REPLACEMENTS} clips in a row failed)")
        self.step += 1
        blurry, sharp = (clip.to(self.device, non_blocking=True) for clip in clips)
        return blurry, sharp

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step, self.batches = state["step"], None


class _Order(Sampler[list[int]]):
    """Yields this process's part of every batch of one epoch, from batch `first` on."""

    def __init__(self, length: int, seed: int, batch: int, share: Share) -> None:
        self.length, self.seed, self.batch, self.share = length, seed, batch, share
        self.epoch = self.first = 0

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, self.epoch))
        order: list[int] = torch.randperm(self.length, generator=generator).tolist()
        mine = self.batch // self.share.world
        for start in range(self.first * self.batch, self.length - self.batch + 1, self.batch):
            own = start + self.share.rank * mine
            yield order[own : own + mine]


_Sample = tuple[Batch | None, tuple[str, ...]]


class _Readable(Dataset[_Sample]):
    """Returns a clip, or error messages: an exception from a worker would arrive as a traceback instead of one line."""

    def __init__(self, crops: CropDataset) -> None:
        self.crops = crops

    def __getitem__(self, index: int) -> _Sample:
        errors: list[str] = []
        for other in range(index, index + REPLACEMENTS):
            try:
                return self.crops[other % len(self.crops)], tuple(errors)
            except PahsError as error:
                errors.append(str(error))
        return None, tuple(errors)


def _collate(samples: list[_Sample]) -> _Sample:
    errors = tuple(error for _, found in samples for error in found)
    clips = [clip for clip, _ in samples if clip is not None]
    if len(clips) < len(samples):
        return None, errors
    blurry, sharp = zip(*clips, strict=True)
    return (torch.stack(blurry), torch.stack(sharp)), errors


def mixed_seed(*numbers: int) -> int:
    """One well-spread seed from several numbers, the same on every machine."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


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
        source = Ahead(source, device) if device.type == "cuda" else source
    else:
        dataset = open_dataset(data.root, data.layout, data.split, data.variant)
        crops = CropDataset(dataset, data.frames, data.size, data.seed)
        source = DatasetSource(crops, batch, share, device, data.workers, say)
    return WithResets(source, recipe, share, device) if recipe.states.warm_passes else source
