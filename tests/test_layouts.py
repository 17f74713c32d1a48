"""Dataset layouts: each public shape is recognised, and damage is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pahs.data.layouts import DVD_TEST, open_dataset, read_image
from pahs.errors import PahsError


def write_frames(folder: Path, names: list[str], size: tuple[int, int] = (20, 24), seed: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    for name in names:
        Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)).save(folder / name)


def write_pair(blurry: Path, sharp: Path, names: list[str], size: tuple[int, int] = (20, 24)) -> None:
    write_frames(blurry, names, size, seed=1)
    write_frames(sharp, names, size, seed=2)


def gopro(root: Path) -> None:
    for split, take in (("train", "GOPR0372_07_00"), ("train", "GOPR0372_07_01"), ("test", "GOPR0384_11_00")):
        names = [f"{i:06d}.png" for i in range(47, 50)]
        write_pair(root / split / take / "blur", root / split / take / "sharp", names)
        write_frames(root / split / take / "blur_gamma", names, seed=3)


def dvd(root: Path) -> None:
    for take in ("720p_240fps_1", "720p_240fps_2", "IMG_0049", "IMG_0050"):
        folder = root / "quantitative_datasets" / take
        write_pair(folder / "input", folder / "GT", [f"{i:05d}.jpg" for i in range(3)])


def reds(root: Path) -> None:
    for part, takes in (("train", ("000", "239")), ("val", ("000",))):
        for take in takes:
            names = [f"{i:08d}.png" for i in range(3)]
            write_pair(root / part / f"{part}_blur" / take, root / part / f"{part}_sharp" / take, names)


def bsd(root: Path) -> None:
    for exposure in ("1ms-8ms", "2ms-16ms"):
        for split in ("train", "valid", "test"):
            folder = root / exposure / split / "000"
            write_pair(folder / "Blur" / "RGB", folder / "Sharp" / "RGB", [f"{i:08d}.png" for i in range(3)])


def pairs(root: Path) -> None:
    write_pair(root / "clip" / "blur", root / "clip" / "sharp", ["000008.png", "000009.png", "000010.png"])
    for take in ("a", "b"):
        write_pair(
            root / "more" / take / "blur", root / "more" / take / "sharp", ["1.png", "2.png", "10.png"]
        )


SHAPES = {
    "gopro": (
        gopro,
        {"train": ["train/GOPR0372_07_00", "train/GOPR0372_07_01"], "test": ["test/GOPR0384_11_00"]},
    ),
    "dvd": (dvd, {"train": ["720p_240fps_1", "IMG_0050"], "test": ["720p_240fps_2", "IMG_0049"]}),
    "reds": (reds, {"train": ["train/000", "train/239"], "test": ["val/000"], "valid": ["val/000"]}),
    "bsd": (
        bsd,
        {s: [f"{e}/{s}/000" for e in ("1ms-8ms", "2ms-16ms")] for s in ("train", "valid", "test")},
    ),
    "pairs": (pairs, {"train": ["clip", "more/a", "more/b"], "test": ["clip", "more/a", "more/b"]}),
}


@pytest.mark.parametrize("layout", SHAPES)
def test_layout_is_recognised_and_split(layout: str, tmp_path: Path) -> None:
    build, splits = SHAPES[layout]
    build(tmp_path)
    everything = open_dataset(tmp_path)
    assert everything.layout == layout
    assert everything.frames == 3 * len(everything.sequences)
    for split, names in splits.items():
        part = open_dataset(tmp_path, split=split)
        assert [sequence.name for sequence in part.sequences] == names
        assert {s.name for s in part.sequences} <= {s.name for s in everything.sequences}
    for sequence in everything.sequences:
        assert sequence.size == (20, 24)
        assert [b.stem for b in sequence.blurry] == [s.stem for s in sequence.sharp]
        assert not np.array_equal(sequence.read_blurry(0), sequence.read_sharp(0))
    forced = open_dataset(tmp_path, layout=layout)
    assert forced.sequences == everything.sequences


def test_dvd_test_split_is_the_public_one(tmp_path: Path) -> None:
    dvd(tmp_path)
    assert len(set(DVD_TEST)) == 10
    other = open_dataset(tmp_path / "quantitative_datasets", split="test")
    assert other.layout == "dvd"
    assert [sequence.name for sequence in other.sequences] == ["720p_240fps_2", "IMG_0049"]


def test_dvd_already_split_into_folders(tmp_path: Path) -> None:
    for split in ("train", "test"):
        folder = tmp_path / split / "IMG_0001"
        write_pair(folder / "input", folder / "GT", ["00000.jpg"])
    dataset = open_dataset(tmp_path, split="test")
    assert (dataset.layout, [s.name for s in dataset.sequences]) == ("dvd", ["test/IMG_0001"])


def test_reds_parts_directly_in_the_root(tmp_path: Path) -> None:
    reds(tmp_path)
    dataset = open_dataset(tmp_path / "val")
    assert (dataset.layout, [s.name for s in dataset.sequences]) == ("reds", ["val/000"])


def test_pair_in_the_root_itself_is_named_after_it(tmp_path: Path) -> None:
    write_pair(tmp_path / "holiday" / "blur", tmp_path / "holiday" / "sharp", ["a.png", "b.png"])
    dataset = open_dataset(tmp_path / "holiday")
    assert (dataset.layout, [s.name for s in dataset.sequences]) == ("pairs", ["holiday"])


def test_pairs_with_sequences_inside_the_two_folders(tmp_path: Path) -> None:
    for take in ("one", "two"):
        write_pair(tmp_path / "mine" / "blur" / take, tmp_path / "mine" / "sharp" / take, ["a.png"])
    dataset = open_dataset(tmp_path)
    assert [s.name for s in dataset.sequences] == ["mine/one", "mine/two"]


def test_frames_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    pairs(tmp_path)
    unpadded = open_dataset(tmp_path / "more").sequences[0]
    assert [path.name for path in unpadded.blurry] == ["1.png", "2.png", "10.png"]


def test_blur_gamma_is_another_set_of_blurry_frames(tmp_path: Path) -> None:
    gopro(tmp_path / "gopro")
    gamma = open_dataset(tmp_path / "gopro", kind="blur_gamma")
    assert {path.parent.name for s in gamma.sequences for path in s.blurry} == {"blur_gamma"}
    below = open_dataset(tmp_path / "gopro" / "train", kind="blur_gamma")
    assert {path.parent.name for s in below.sequences for path in s.blurry} == {"blur_gamma"}
    reds(tmp_path / "reds")
    with pytest.raises(PahsError, match="blur_gamma"):
        open_dataset(tmp_path / "reds", kind="blur_gamma")


def test_missing_frame_is_named(tmp_path: Path) -> None:
    gopro(tmp_path)
    (tmp_path / "train/GOPR0372_07_00/sharp/000048.png").unlink()
    with pytest.raises(PahsError, match=r"blur.000048\.png.*no partner"):
        open_dataset(tmp_path)
    assert open_dataset(tmp_path, split="test").frames == 3


def test_surplus_sharp_frame_is_named(tmp_path: Path) -> None:
    dvd(tmp_path)
    write_frames(tmp_path / "quantitative_datasets/IMG_0050/GT", ["00003.jpg"])
    with pytest.raises(PahsError, match=r"GT.00003\.jpg.*no partner"):
        open_dataset(tmp_path)


def test_frame_of_another_size_is_named(tmp_path: Path) -> None:
    reds(tmp_path)
    write_frames(tmp_path / "train/train_sharp/239", ["00000001.png"], size=(20, 26))
    with pytest.raises(PahsError, match=r"239.00000001\.png: is 26x20.*24x20"):
        open_dataset(tmp_path)
    unchecked = open_dataset(tmp_path, check=False).sequences[1]
    with pytest.raises(PahsError, match=r"239.00000001\.png: is 26x20"):
        unchecked.read_sharp(1)


def test_file_that_is_no_picture_is_named(tmp_path: Path) -> None:
    bsd(tmp_path)
    (tmp_path / "1ms-8ms/test/000/Blur/RGB/00000002.png").write_text("not a picture")
    with pytest.raises(PahsError, match=r"00000002\.png: cannot be read"):
        open_dataset(tmp_path)


def test_truncated_picture_is_named_when_read(tmp_path: Path) -> None:
    pairs(tmp_path)
    path = tmp_path / "clip/blur/000009.png"
    path.write_bytes(path.read_bytes()[:200])
    sequence = open_dataset(tmp_path).sequences[0]
    with pytest.raises(PahsError, match=r"000009\.png: cannot be read"):
        sequence.read_blurry(1)


def test_empty_folder_is_named(tmp_path: Path) -> None:
    gopro(tmp_path)
    for path in (tmp_path / "test/GOPR0384_11_00/sharp").iterdir():
        path.unlink()
    with pytest.raises(PahsError, match=r"GOPR0384_11_00.sharp: holds no pictures"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("lonely", ["blur", "sharp"])
def test_missing_side_is_named(lonely: str, tmp_path: Path) -> None:
    write_frames(tmp_path / "take" / lonely, ["a.png"])
    missing = {"blur": "sharp", "sharp": "blur"}[lonely]
    with pytest.raises(PahsError, match=rf"take.{missing}: folder is missing"):
        open_dataset(tmp_path)


def test_wrong_folders_and_options(tmp_path: Path) -> None:
    with pytest.raises(PahsError, match="no such folder"):
        open_dataset(tmp_path / "nowhere")
    with pytest.raises(PahsError, match="no pairs"):
        open_dataset(tmp_path)
    gopro(tmp_path)
    with pytest.raises(PahsError, match=r"no pairs.*expected reds"):
        open_dataset(tmp_path, layout="reds")
    with pytest.raises(PahsError, match="no 'valid' part; there is: test, train"):
        open_dataset(tmp_path, split="valid")
    for wrong in ({"layout": "vimeo"}, {"split": "all"}, {"kind": "noise"}):
        with pytest.raises(PahsError, match="is unknown"):
            open_dataset(tmp_path, **wrong)


def test_read_image_gives_rgb_bytes(tmp_path: Path) -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    frame = read_image(tmp_path / "grey.png")
    assert frame.dtype == np.uint8
    assert np.array_equal(frame, np.repeat(grey[..., None], 3, axis=2))
    with pytest.raises(PahsError, match="no such file"):
        read_image(tmp_path / "none.png")
    Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4)).save(tmp_path / "deep.png")
    with pytest.raises(PahsError, match="more than 8 bits"):
        read_image(tmp_path / "deep.png")
