"""Batches: the same whoever makes them, whenever, with however many workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pahs.data.crops import CropDataset
from pahs.data.layouts import open_dataset
from pahs.errors import PahsError
from pahs.training.dataset import DatasetSource
from pahs.training.recipe import OptimSection, Recipe
from pahs.training.recipe_file import parse_recipe
from pahs.training.share import Share, mixed_seed
from pahs.training.sources import Photos, SynthesisSource, open_photos, open_source
from pahs.training.textures import draw_textures
from pahs.training.validate import open_clips

CPU = torch.device("cpu")


def recipe(**data: Any) -> Recipe:
    table = {
        "kind": "generated",
        "frames": 2,
        "size": 32,
        "textures": 3,
        "synthesis": {"sub_frames": 3},
        **data,
    }
    return parse_recipe(
        {"train": {"steps": 2, "batch": 4}, "data": table, "validation": {"clips": 3, "frames": 3}}
    )


@pytest.fixture(scope="module")
def photos() -> Photos:
    found = open_photos(recipe(), CPU)
    assert found is not None
    return found


def pairs(root: Path, sequences: int = 3, frames: int = 4, size: int = 40) -> Path:
    for sequence in range(sequences):
        for t in range(frames):
            picture = np.random.default_rng((sequence, t)).integers(0, 256, (size, size + 8, 3), np.uint8)
            for side in ("blur", "sharp"):
                path = root / f"take{sequence}" / side / f"{t:03d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture).save(path)
    return root


def crops(root: Path) -> CropDataset:
    return CropDataset(open_dataset(root), frames=2, size=32, seed=5)


def test_synthesis_can_be_taken_up_anywhere(photos: Photos) -> None:
    data = recipe().data
    source, later = (SynthesisSource(photos.train, data, 2, Share()) for _ in range(2))
    source.batch()
    position = source.state_dict()
    expected = source.batch()
    later.load_state_dict(position)
    assert all(torch.equal(a, b) for a, b in zip(expected, later.batch(), strict=True))
    assert not torch.equal(expected[0], later.batch()[0])


@pytest.mark.parametrize(("streams", "world", "dropped"), [(0, 2, 2), (2, 2, 0), (2, 3, 1), (4, 3, 0)])
def test_processes_share_a_synthesised_batch(photos: Photos, streams: int, world: int, dropped: int) -> None:
    """Whatever the streams, and also where the batch is not a multiple of the processes."""
    data = replace(recipe().data, streams=streams)
    whole = SynthesisSource(photos.train, data, 4, Share())
    parts = [SynthesisSource(photos.train, data, 4, Share(rank, world)) for rank in range(world)]
    for _ in range(2):
        expected = whole.batch()
        made = [part.batch() for part in parts]
        for side in (0, 1):
            assert torch.equal(expected[side], torch.cat([part[side] for part in made]))
    assert not torch.equal(made[0][0][:1], made[1][0][:1])
    assert parts[0].dropped == dropped


@pytest.mark.parametrize(("streams", "batch", "world"), [(3, 4, 1), (2, 3, 1), (1, 4, 5), (4, 4, 5)])
def test_a_batch_that_cannot_be_shared_is_refused(
    photos: Photos, streams: int, batch: int, world: int
) -> None:
    with pytest.raises(PahsError, match=r"streams|a clip for each of 5 processes"):
        SynthesisSource(photos.train, replace(recipe().data, streams=streams), batch, Share(0, world))


def test_a_process_says_that_it_draws_clips_for_others() -> None:
    said: list[str] = []
    wish = recipe()
    open_source(wish, open_photos(wish, CPU), Share(0, 2), CPU, said.append)
    assert len(said) == 1 and "also draws 2 clips" in said[0] and "data.streams = 2" in said[0]
    open_source(wish, open_photos(wish, CPU), Share(0, 3), CPU, said.append)
    assert "data.streams = 4" in said.pop(), "the batch of 4 is a multiple of it"
    wish = recipe(streams=2)
    open_source(wish, open_photos(wish, CPU), Share(0, 2), CPU, said.append)
    assert len(said) == 1


def test_the_random_pixels_of_a_loss_are_shared_too() -> None:
    wish = replace(recipe(), optim=OptimSection(loss="hard-example"))
    whole, *parts = (
        open_source(wish, open_photos(wish, CPU), share, CPU, print)
        for share in (Share(), Share(0, 2), Share(1, 2))
    )
    pixels = whole.batch()[2]
    assert pixels.shape == (4, 2, 1, 32, 32) and pixels.float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert torch.equal(pixels, torch.cat([part.batch()[2] for part in parts]))
    assert not torch.equal(pixels, whole.batch()[2])


def test_an_epoch_shows_every_clip_once(tmp_path: Path) -> None:
    dataset = crops(pairs(tmp_path))
    source = DatasetSource(dataset, 3, Share(), CPU)
    assert len(dataset) == 9 and source.steps_per_epoch == 3
    epochs = []
    for epoch in range(2):
        source.order.epoch = epoch
        order = [index for batch in source.order for index in batch]
        assert sorted(order) == list(range(9))
        epochs.append(order)
    assert epochs[0] != epochs[1]


def test_workers_and_resumption_change_nothing(tmp_path: Path) -> None:
    """Five steps reach into the second epoch; a source that starts at step 1 or 3 gives the same batches."""
    root = pairs(tmp_path)
    source = DatasetSource(crops(root), 3, Share(), CPU)
    expected = [source.batch() for _ in range(5)]
    assert not torch.equal(expected[0][0], expected[3][0])
    for workers, first in ((2, 0), (0, 1), (0, 3)):
        other = DatasetSource(crops(root), 3, Share(), CPU, workers)
        other.load_state_dict({"step": first})
        for blurry, sharp in expected[first:]:
            got = other.batch()
            assert torch.equal(got[0], blurry) and torch.equal(got[1], sharp)
        assert other.state_dict() == {"step": 5}


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_a_batch_of_a_dataset(world: int, tmp_path: Path) -> None:
    root = pairs(tmp_path)
    whole = DatasetSource(crops(root), 4, Share(), CPU)
    parts = [DatasetSource(crops(root), 4, Share(rank, world), CPU) for rank in range(world)]
    for _ in range(3):
        assert torch.equal(whole.batch()[0], torch.cat([part.batch()[0] for part in parts]))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_picture_is_named_and_replaced(tmp_path: Path, workers: int) -> None:
    root = pairs(tmp_path)
    dataset = crops(root)
    broken = root / "take1" / "blur" / "001.png"
    broken.write_bytes(broken.read_bytes()[:200])
    said: list[str] = []
    source = DatasetSource(dataset, 3, Share(), CPU, workers, said.append)
    for _ in range(6):
        blurry, _ = source.batch()
        assert blurry.shape == (3, 2, 3, 32, 32)
    assert len(said) == 1 and str(broken) in said[0] and "\n" not in said[0]


def test_a_damaged_dataset_stops_training(tmp_path: Path) -> None:
    root = pairs(tmp_path)
    dataset = crops(root)
    for path in root.rglob("*.png"):
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(PahsError, match="png") as caught:
        DatasetSource(dataset, 3, Share(), CPU, 1).batch()
    assert "\n" not in str(caught.value)


def test_small_datasets_and_batches_are_refused(tmp_path: Path) -> None:
    dataset = crops(pairs(tmp_path))
    with pytest.raises(PahsError, match="9 clips"):
        DatasetSource(dataset, 10, Share(), CPU)
    with pytest.raises(PahsError, match="a clip for each of 4 processes"):
        DatasetSource(dataset, 3, Share(0, 4), CPU)


def test_photos_are_split_and_the_parts_do_not_meet(tmp_path: Path) -> None:
    for i, picture in enumerate(draw_textures(5, 64)):
        picture.save(tmp_path / f"{i}.png")
    found = open_photos(recipe(kind="photos", root=str(tmp_path)), CPU)
    assert found is not None
    assert (found.train.count, found.held_out.count) == (4, 1)
    starts = {*found.train.offsets[0].tolist()}, {*found.held_out.offsets[0].tolist()}
    assert not starts[0] & starts[1]
    for path in list(tmp_path.glob("*.png"))[1:]:
        path.unlink()
    with pytest.raises(PahsError, match="one photo"):
        open_photos(recipe(kind="photos", root=str(tmp_path)), CPU)


def test_validation_clips_are_the_same_every_time_and_not_from_training(photos: Photos) -> None:
    first, again = (open_clips(recipe(), photos) for _ in range(2))
    assert len(first) == 3
    for a, b in zip(first, again, strict=True):
        assert a.blurry.shape == (3, 3, 32, 32) and a.blurry.dtype == torch.uint8
        assert torch.equal(a.blurry, b.blurry) and not torch.equal(a.blurry, a.sharp)
    held_out, trained = (
        SynthesisSource(pool, recipe().data, 1, Share()) for pool in (photos.held_out, photos.train)
    )
    assert not torch.equal(held_out.batch()[1], trained.batch()[1])
    parts = [clip for rank in (0, 1) for clip in open_clips(recipe(), photos, Share(rank, 2))]
    assert [clip.name for clip in parts] == ["000", "002", "001"], "each clip is one process's"
    assert torch.equal(parts[1].blurry, first[2].blurry)


def test_validation_on_a_folder_of_pairs(tmp_path: Path) -> None:
    root = pairs(tmp_path)
    table = {"root": str(root), "clips": 2, "frames": 3, "size": 32}
    wish = parse_recipe({"train": {"steps": 1}, "validation": table})
    clips = open_clips(wish, None)
    assert [clip.name for clip in clips] == ["take0", "take1"]
    whole = np.asarray(Image.open(root / "take0" / "blur" / "000.png"))
    assert np.array_equal(clips[0].blurry[0].permute(1, 2, 0).numpy(), whole[4:36, 8:40])
    with pytest.raises(PahsError, match="larger than"):
        open_clips(parse_recipe({"train": {"steps": 1}, "validation": {**table, "size": 64}}), None)


def test_pairs_without_a_test_part_need_a_folder_for_validation(tmp_path: Path) -> None:
    wish = recipe(kind="dataset", root=str(pairs(tmp_path)), workers=0)
    assert isinstance(open_source(wish, open_photos(wish, CPU), Share(), CPU, print), DatasetSource)
    with pytest.raises(PahsError, match=r"validation\.root"):
        open_clips(wish, None)


def test_textures_depend_on_their_seed_alone() -> None:
    a, b, other = draw_textures(4, 64, 1), draw_textures(4, 64, 1), draw_textures(4, 64, 2)
    for i in range(4):
        assert np.array_equal(a[i], b[i]) and not np.array_equal(a[i], other[i])
        edges = np.abs(np.diff(np.asarray(a[i], np.float32), axis=1)).mean()
        assert a[i].size == (64, 64) and edges > 3, "sharp texture, not a flat picture"


def test_seeds_are_spread() -> None:
    seeds = {mixed_seed(a, b) for a in range(30) for b in range(30)}
    assert len(seeds) == 900 and all(0 <= seed < 2**63 for seed in seeds)
