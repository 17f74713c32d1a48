"""Clips from sharp video: real frames as truth, the moments around them as blur."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from pahs.data.footage import FootageConfig, FootageSource, Take, takes
from pahs.data.motion import exposure_times, exposure_weights
from pahs.data.synthesis import Layers, expose
from pahs.data.synthesis_config import SynthesisConfig
from pahs.errors import PahsError
from pahs.training.footage import open_footage
from pahs.training.recipe import Recipe
from pahs.training.recipe_file import parse_recipe
from pahs.training.share import Share
from pahs.training.sources import SynthesisSource, open_photos

CPU = torch.device("cpu")
SIDE = 32
PLAIN = SynthesisConfig(
    frames=3,
    height=SIDE,
    width=SIDE,
    brightness=(1, 1),
    tint=0,
    linear_share=0,
    noise_share=0,
    codec_share=0,
    highlight_share=0,
)
"""What a camera does is left out, so that a clip can be compared with its video."""


def film(frames: int, *, seed: int = 0, step: int = 2, side: int = SIDE) -> list[Tensor]:
    """A smooth picture that moves `step` pixels a frame, (3, side, side) uint8 each."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (12, 40, 3), np.uint8))
    wide = np.asarray(coarse.resize((side * 5, side), Image.Resampling.BICUBIC))
    cut = (wide[:, step * t : step * t + side] for t in range(frames))
    return [torch.from_numpy(x.copy()).permute(2, 0, 1) for x in cut]


def numbered(moments: int, per_frame: int, side: int = SIDE) -> Take:
    """A take whose moments are all different and known."""
    generator = torch.Generator().manual_seed(1)
    pictures = torch.randint(0, 256, (moments, 3, side, side), generator=generator, dtype=torch.uint8)
    return Take(pictures, per_frame)


def views(x: Tensor) -> list[Tensor]:
    """`x` (..., H, W) in the eight ways that a square can be turned and mirrored."""
    turned = [x, x.transpose(-2, -1)]
    return [t.flip(axes) for t in turned for axes in ([], [-2], [-1], [-2, -1])]


@given(st.integers(0, 2**32), st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]))
@settings(max_examples=12, deadline=None)
def test_a_clip_is_what_averaging_the_video_by_hand_gives(seed: int, kind: tuple[int, int]) -> None:
    """Sharp: frames of the video, `stride` apart. Blurry: the mean of the moments around each of them."""
    stride, shrink = kind
    take = numbered(4 * 10 + 1, 4, SIDE * shrink)
    video = FootageConfig(
        root="films", moments=4, average=(3, 3), stride=(stride, stride), shrink=(shrink, shrink)
    )
    source = FootageSource([take], video, PLAIN)
    source.generator.manual_seed(seed)
    blurry, sharp = (x[0] for x in source.batch(1))

    pictures = take.moments.float() / 255
    pictures = pictures.unflatten(-1, (SIDE, shrink)).unflatten(-3, (SIDE, shrink)).mean((-1, -3))
    hop, reach = 4 * stride, stride
    found = []
    for first, back in product(range(hop, len(pictures) - 3 * hop, 4), (False, True)):
        centres = [first + k * hop for k in range(3)][:: -1 if back else 1]
        truth = torch.stack([pictures[c] for c in centres])
        average = torch.stack([pictures[c - reach : c + reach + 1].mean(0) for c in centres])
        for a, b in zip(views(truth), views(average), strict=True):
            found.append(torch.allclose(a, sharp, atol=1e-5) and torch.allclose(b, blurry, atol=1e-5))
    assert sum(found) == 1


def test_frames_of_the_video_are_kept_to_the_byte_and_moments_lie_between() -> None:
    frames = film(6)
    (take,) = takes(frames, FootageConfig(root="films", moments=4, average=(1, 7)), CPU)
    assert take.frames == 6
    assert torch.equal(take.moments[::4], torch.stack(frames))
    inner = (slice(None), slice(None), slice(8, -8))
    half = (take.moments[2][inner].float() - film(12, step=1)[1][inner].float()).abs().mean()
    apart = (frames[0][inner].float() - frames[1][inner].float()).abs().mean()
    assert half < apart / 8


def test_a_cut_separates_takes_and_no_clip_crosses_it() -> None:
    first, second = film(7), [255 - x.flip(-1) for x in film(6, seed=9)]
    found = takes(first + second, FootageConfig(root="films", moments=2, average=(1, 3), unreliable=0.3), CPU)
    assert [take.frames for take in found] == [7, 6]
    assert torch.equal(found[1].moments[0], second[0])


def test_a_seed_repeats_the_clips() -> None:
    source = FootageSource([numbered(60, 4)], FootageConfig(root="films", moments=4, average=(1, 7)), PLAIN)
    drawn = []
    for seed in (3, 4, 3):
        source.generator.manual_seed(seed)
        drawn.append(source.batch(2))
    assert all(torch.equal(a, b) for a, b in zip(drawn[0], drawn[2], strict=True))
    assert not torch.equal(drawn[0][1], drawn[1][1])


def test_short_and_small_videos_are_refused_by_name() -> None:
    for take in (numbered(4 * 3 + 1, 4), numbered(4 * 9 + 1, 4, SIDE - 2)):
        with pytest.raises(PahsError, match=r"films: no video can be followed over 5 frames of at least 32"):
            FootageSource([take], FootageConfig(root="films", moments=4, average=(1, 3)), PLAIN)


@pytest.mark.parametrize(
    ("field", "value"),
    [("share", 0.0), ("average", (4, 6)), ("average", (1, 21)), ("shrink", (0, 2)), ("stride", (3, 2))],
)
def test_wrong_configuration_names_the_field(field: str, value: object) -> None:
    with pytest.raises(PahsError, match=field):
        FootageConfig(root="films", **{field: value})


# ---------------------------------------------------------------- in training


def recipe(root: Path, **footage: object) -> Recipe:
    data = {
        "kind": "generated",
        "frames": 3,
        "size": SIDE,
        "textures": 3,
        "synthesis": {"sub_frames": 3},
        "footage": {"root": str(root), "share": 0.5, "moments": 2, "average": [1, 3], **footage},
    }
    return parse_recipe({"train": {"steps": 2, "batch": 4}, "data": data})


@pytest.fixture
def films(tmp_path: Path) -> Path:
    for number in range(2):
        folder = tmp_path / "films" / f"take{number}"
        folder.mkdir(parents=True)
        for t, frame in enumerate(film(8, seed=number)):
            Image.fromarray(frame.permute(1, 2, 0).numpy()).save(folder / f"{t}.png")
    return tmp_path / "films"


def test_a_batch_has_its_share_of_footage_wherever_it_is_taken_up(films: Path) -> None:
    wish = recipe(films, shrink=[1, 1], stride=[1, 1])
    lines: list[str] = []
    pool = open_footage(wish.data.footage, CPU, lines.append)
    assert lines == [f"footage {n + 1}/2: 8 of 8 frames of take{n}" for n in range(2)]
    photos = open_photos(wish, CPU)
    assert photos is not None
    source, later = (SynthesisSource(photos.train, wish.data, 4, Share(), pool) for _ in range(2))
    source.batch()
    position = source.state_dict()
    blurry, sharp = source.batch()
    later.load_state_dict(position)
    assert all(torch.equal(a, b) for a, b in zip((blurry, sharp), later.batch(), strict=True))
    only = SynthesisSource(photos.train, replace(wish.data, footage=FootageConfig()), 2, Share())
    only.load_state_dict(position)
    assert torch.equal(only.batch()[0], blurry[:2])
    assert sharp.shape == (4, 3, 3, SIDE, SIDE)


def test_wrong_folders_are_named(tmp_path: Path, films: Path) -> None:
    for root, wish, message in (
        (tmp_path / "nothing", {}, "no such folder"),
        (films, {"most_frames": 3}, "raise data.footage.most_frames"),
    ):
        with pytest.raises(PahsError, match=message):
            open_footage(recipe(root, **wish).data.footage, CPU, print)
    with pytest.raises(PahsError, match=r"data\.footage\.root"):
        parse_recipe(
            {
                "train": {"steps": 2},
                "data": {"kind": "dataset", "root": "x", "footage": {"root": str(films)}},
            }
        )


# ---------------------------------------------------------------- how many moments


def test_a_varying_number_of_moments_spans_the_exposure_and_counts_alike() -> None:
    duty, count = torch.tensor([0.8, 1.0]), torch.tensor([3, 7])
    times, weights = exposure_times(2, 9, duty, count), exposure_weights(9, count)
    assert torch.allclose(weights.sum(-1), torch.ones(2))
    for clip, n in enumerate(count.tolist()):
        inside = weights[clip] > 0
        assert torch.allclose(times[clip][:, inside], exposure_times(2, n, duty[clip : clip + 1])[0])

    generator = torch.Generator().manual_seed(0)
    background = torch.rand(2, 3, 24, 24, generator=generator)
    matrices = torch.eye(3).expand(2, 1, 2, 9, 3, 3).clone()
    matrices[..., 0, 2] = torch.rand(2, 1, 2, 9, generator=generator)
    average, middle = expose(Layers(background, background.new_zeros(2, 0, 4, 1, 1), matrices, weights), 8, 8)
    for clip, n in enumerate(count.tolist()):
        kept = matrices[clip : clip + 1, :, :, 4 - n // 2 : 5 + n // 2]
        alone = Layers(background[clip : clip + 1], background.new_zeros(1, 0, 4, 1, 1), kept)
        expected, sharp = expose(alone, 8, 8)
        assert torch.allclose(average[clip], expected[0], atol=1e-6)
        assert torch.equal(middle[clip], sharp[0])
