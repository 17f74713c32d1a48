"""Bands: the same numbers as the whole frame, and halos no smaller than needed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pahs.engine import bands
from pahs.kernels import dispatch, ops
from pahs.kernels.dispatch import Call, Kernel, Table
from pahs.networks import PRESETS, PAHSConfig


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


@pytest.fixture(params=["Hopper", "another GPU"])
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Which kernel is chosen for every call on such a GPU; what runs are native ones, on shapes without values."""
    libraries = frozenset({"triton", "cudnn"} | ({"hopper"} if request.param == "Hopper" else set()))
    kernels: list[tuple[object, ...]] = []

    def choose(table: Table, call: Call, libraries: frozenset[str]) -> Kernel:
        # Hollow convolutions forget that their tensors are channels-last.
        kernels.append(
            (dispatch.choose(table, call._replace(dense=True), libraries).name, call.inputs, call.outputs)
        )
        return next(kernel for kernel in table.kernels if kernel.name == "native")

    monkeypatch.setattr(dispatch, "fused", lambda x, weight: libraries)
    monkeypatch.setattr(ops, "choose", choose)
    return kernels


@pytest.mark.parametrize("name", ["pahs", "pahs-s", "pahs-t"])
@pytest.mark.parametrize("size", [(2160, 3840), (1088, 1920)])
def test_bands_take_the_kernels_of_the_whole_frame(name: str, size: tuple[int, int], chosen: list) -> None:
    """In half precision another kernel may round otherwise: how often a frame is cut must not be seen."""
    with torch.device("meta"):
        net = PRESETS[name].config.build().eval().bfloat16()
        frames = torch.empty(1, 1, 3, *size)
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    contract = net.contract

    def through(count: int) -> tuple[list, list]:
        found = []
        with torch.inference_mode():
            stages = (
                (lambda x: net.extract(*x), (frames,), contract.extract_halo),
                (
                    lambda x: (net.reconstruct(x),),
                    latents,
                    contract.reconstruct_halo,
                ),
            )
            for stage, inputs, halo in stages:
                chosen.clear()
                bands.run(stage, inputs, size[0], count, halo or 0, contract.multiple_of)
                found.append(list(chosen))
        return found[0], found[1]

    with torch.inference_mode():
        latents, _ = net.propagate(net.extract(frames), None, 1)
    whole = through(1)
    assert all(len({kernel for kernel, *_ in stage}) > 1 for stage in whole), (
        "not all kernels are the same one"
    )
    for count in (2, 3, 4, 8, 16):
        times = len(list(bands.split(size[0], count, contract.multiple_of)))
        for cut, uncut in zip(through(count), whole, strict=True):
            assert cut == times * uncut
