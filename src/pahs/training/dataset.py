"""Batches from a dataset on disk: each process reads its own clips of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from pahs.data.crops import CropDataset
from pahs.errors import PahsError
from pahs.training.share import Batch, Share, mixed_seed

REPLACEMENTS = 8
"""Clips that are tried in place of one that cannot be read."""


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
        if len(crops) < batch:
            raise PahsError(f"the dataset has {len(crops)} clips, fewer than train.batch = {batch}")
        self.crops, self.device, self.say, self.step = crops, device, say, 0
        self.order = _Order(len(crops), crops.seed, batch, share)
        self.steps_per_epoch, self.material = len(crops) // batch, len(crops)
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
        self.length, self.seed, self.batch, self.mine = length, seed, batch, share.clips(batch)
        self.epoch = self.first = 0

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, self.epoch))
        order: list[int] = torch.randperm(self.length, generator=generator).tolist()
        for start in range(self.first * self.batch, self.length - self.batch + 1, self.batch):
            yield order[start : start + self.batch][self.mine]


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
