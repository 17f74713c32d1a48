"""Bands: the same numbers as the whole frame, and halos no smaller than needed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pahs import bands
from pahs.networks import PAHSConfig


@given(height=st.integers(1, 40), count=st.integers(1, 50))
def test_split_covers_every_row_once(height: int, count: int) -> None:
    height *= 16
    ranges = list(bands.split(height, count, 16))
    assert [row for top, bottom in ranges for row in range(top, bottom)] == list(range(height))
    assert len(ranges) <= count
    assert all(top % 16 == 0 for top, _ in ranges)


@pytest.mark.parametrize("count", [2, 5, 20])
def test_stages_in_bands_equal_whole_frames(count: int) -> None:
    net = PAHSConfig(width=6, global_skip=True).build().double().eval()
    frames = torch.rand(1, 2, 3, 320, 16, dtype=torch.float64)
    contract = net.contract
    assert contract.extract_halo is not None
    assert contract.reconstruct_halo is not None
    with torch.no_grad():
        features = net.extract(frames)
        banded = bands.run(
            lambda x: net.extract(*x), (frames,), 320, count, contract.extract_halo, contract.multiple_of
        )
        for a, b in zip(features, banded, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
        latents, _ = net.propagate(features, None, 2)
        (restored,) = bands.run(
            lambda x: (net.reconstruct(x),), latents, 320, count, contract.reconstruct_halo, 16
        )
        torch.testing.assert_close(restored, net.reconstruct(latents), rtol=0, atol=1e-13)
