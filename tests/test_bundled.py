"""The weights in the package: what somebody with a real video gets."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pahs.data import street
from pahs.engine import stream
from pahs.engine.plan import MAX_CHUNK
from pahs.evaluation.long import BLOCK, films, score_long
from pahs.networks import PRESETS
from pahs.runtime import weights
from pahs.runtime.load import load

LONG = 44
"""Frames: several times what the networks see in training, and longer than a chunk on a CPU."""


@pytest.fixture(scope="module")
def filmed() -> tuple[Tensor, Tensor]:
    """Blurry and sharp frames of a hand-held camera."""
    blurry, sharp = zip(*street.film(LONG, width=256, height=192), strict=True)
    return torch.stack(blurry), torch.stack(sharp)


def psnr(a: Tensor, b: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Of each frame."""
    result: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = (
        -10 * (a - b).double().square().mean((1, 2, 3)).log10()
    ).numpy()
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pahs-t", "pahs-s"])
def test_a_long_video_stays_good_to_both_ends(name: str, filmed: tuple[Tensor, Tensor]) -> None:
    """A state that diverges shows at the far end of a sweep: in brightness first, then in everything."""
    blurry, sharp = filmed
    network = load(name, "cpu", "fp32")
    restored = torch.stack(list(stream(network, blurry, scene_cuts=False))).clamp(0, 1)
    gain = psnr(restored, sharp) - psnr(blurry, sharp)
    print(name, "gain in dB:", gain.round(1).tolist())
    assert gain.mean() > 1.5
    assert (gain > -0.5).all()
    for part in (gain[: LONG // 3], gain[-LONG // 3 :]):
        assert part.mean() > 0.5 * gain.mean()
    brighter = 255 * (restored - sharp).mean((1, 2, 3)).abs()
    assert brighter.max() < 6, "the blurry frames are off by up to 4 levels themselves"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PRESETS if weights.bundled(name)])
def test_the_far_future_is_forgotten(name: str) -> None:
    """A GPU sweeps back over 83 frames: weights once passed every test of 44, and were black there."""
    network = load(name, "cpu", "fp32")
    longest = 2 * (MAX_CHUNK["cuda"] + network.contract.look_ahead)
    for name_of_film, clip in films(96, 64):
        # Noise is the hardest film for those that diverged; `pahs` takes 25 s for it.
        if name_of_film == "noise" or name != "pahs":
            score = score_long(network, name_of_film, clip, longest, restored=BLOCK)
            print(score)
            assert score.passed
