"""Training crops: both sides stay together, and workers change nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from pahs.data.crops import CropDataset
from pahs.data.layouts import PairedDataset, open_dataset
from pahs.errors import PahsError

HEIGHT, WIDTH, SIZE = 20, 28, 12


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PairedDataset:
    """Every pixel tells its row, column and time (red, green, blue); the sharp side is the complement."""
    root = tmp_path_factory.mktemp("crops")
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    for take, length in (("a", 5), ("b", 4)):
        for t in range(length):
            frame = np.stack([rows, columns, np.full_like(rows, t)], axis=2).astype(np.uint8)
            for side, picture in (("blur", frame), ("sharp", 255 - frame)):
                folder = root / take / side
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture).save(folder / f"{t:03d}.png")
    return open_dataset(root)


def test_both_sides_are_the_same_piece_of_consecutive_frames(dataset: PairedDataset) -> None:
    crops = CropDataset(dataset, frames=3, size=SIZE, seed=4)
    assert len(crops) == (5 - 3 + 1) + (4 - 3 + 1)
    seen = set()
    for epoch in range(20):
        crops.set_epoch(epoch)
        for index in range(len(crops)):
            blurry, sharp = crops[index]
            assert blurry.shape == sharp.shape == (3, 3, SIZE, SIZE)
            assert blurry.dtype == torch.float32
            torch.testing.assert_close(blurry, 1 - sharp)
            rows, columns, times = (blurry * 255).round().int().unbind(1)
            assert torch.equal(times, times[:, :1, :1].expand_as(times))
            steps = (times[1:, 0, 0] - times[:-1, 0, 0]).tolist()
            assert steps in ([1, 1], [-1, -1])
            assert rows.unique().numel() == columns.unique().numel() == SIZE
            turned = bool(rows[0, 0, 0] == rows[0, 0, 1])
            seen.add(
                (
                    steps[0],
                    turned,
                    int(rows[0, 0, 0]) > int(rows[0, -1, -1]),
                    bool(columns[0, 0, 0] > columns[0, -1, -1]),
                )
            )
    assert len(seen) == 16, "8 orientations in space, 2 directions of time"


def test_without_augmentation_only_the_place_is_random(dataset: PairedDataset) -> None:
    crops = CropDataset(dataset, frames=2, size=SIZE, augment=False)
    places = set()
    for index in range(len(crops)):
        rows, columns, times = (crops[index][0] * 255).round().int().unbind(1)
        assert (times[1, 0, 0] - times[0, 0, 0]).item() == 1
        assert (rows[0, :, 0].diff() == 1).all() and (columns[0, 0].diff() == 1).all()
        places.add((rows[0, 0, 0].item(), columns[0, 0, 0].item()))
    assert len(places) > 1


def test_windows_cover_every_start_and_never_cross_sequences(dataset: PairedDataset) -> None:
    crops = CropDataset(dataset, frames=4, size=SIZE, augment=False)
    first = [int((crops[i][0][0, 2, 0, 0] * 255).round()) for i in range(len(crops))]
    assert first == [0, 1, 0]
    with pytest.raises(IndexError):
        crops[len(crops)]


def test_seed_epoch_and_index_decide(dataset: PairedDataset) -> None:
    one, two, other = (CropDataset(dataset, frames=3, size=SIZE, seed=seed) for seed in (1, 1, 2))
    items = range(len(one))
    assert all(torch.equal(one[i][0], two[i][0]) for i in reversed(items))
    assert not all(torch.equal(one[i][0], other[i][0]) for i in items)
    two.set_epoch(1)
    assert not all(torch.equal(one[i][0], two[i][0]) for i in items)


def test_running_workers_give_the_same_items_and_follow_the_epoch(dataset: PairedDataset) -> None:
    crops = CropDataset(dataset, frames=3, size=SIZE, seed=3)
    loader = DataLoader(crops, batch_size=2, num_workers=2, persistent_workers=True)
    alone = CropDataset(dataset, frames=3, size=SIZE, seed=3)
    for epoch in (0, 1):
        crops.set_epoch(epoch)
        alone.set_epoch(epoch)
        together = torch.cat([blurry for blurry, _ in loader])
        assert torch.equal(together, torch.stack([alone[i][0] for i in range(len(alone))]))


def test_short_or_small_sequences_are_named(dataset: PairedDataset) -> None:
    with pytest.raises(PahsError, match="sequence b has 4 frames"):
        CropDataset(dataset, frames=5, size=SIZE)
    with pytest.raises(PahsError, match=f"sequence a is {WIDTH}x{HEIGHT}"):
        CropDataset(dataset, frames=2, size=HEIGHT + 1)
    with pytest.raises(PahsError, match="frames >= 1"):
        CropDataset(dataset, frames=0)


def test_crop_as_large_as_the_frame(tmp_path: Path) -> None:
    for side in ("blur", "sharp"):
        (tmp_path / side).mkdir()
        Image.fromarray(np.full((SIZE, SIZE, 3), 51, np.uint8)).save(tmp_path / side / "0.png")
    blurry, _ = CropDataset(open_dataset(tmp_path), frames=1, size=SIZE)[0]
    torch.testing.assert_close(blurry, torch.full((1, 3, SIZE, SIZE), 0.2))
