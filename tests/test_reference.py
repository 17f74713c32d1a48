"""The paper's inference written out, and the engine that must give the same frames with less work."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pahs.benchmarks.reference import literal_stream
from pahs.engine import stream
from pahs.networks import PAHS, PAHSConfig, RefineConfig

TINY = PAHSConfig(width=12, look_ahead=3, global_skip=True)


def lively(config: PAHSConfig) -> PAHS:
    """A network whose attention and states matter: fresh weights hardly let them through."""
    network = config.build().eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1.3)
    return network


def both(network: PAHS, clip: Tensor, look_ahead: int | None) -> tuple[Tensor, Tensor]:
    literal = torch.stack(list(literal_stream(network, clip, look_ahead)))
    ours = torch.stack(list(stream(network, clip, look_ahead=look_ahead, chunk=1, scene_cuts=False)))
    return literal, ours


@pytest.mark.parametrize(
    ("look_ahead", "length", "height", "width"),
    [(0, 4, 32, 32), (1, 5, 17, 33), (2, 2, 48, 16), (None, 7, 31, 50), (9, 6, 29, 64)],
)
def test_the_engine_gives_the_papers_frames(
    look_ahead: int | None, length: int, height: int, width: int
) -> None:
    clip = torch.rand(length, 3, height, width)
    literal, ours = both(lively(TINY), clip, look_ahead)
    assert literal.shape == clip.shape
    assert (literal - clip).abs().max() > 0.1
    torch.testing.assert_close(ours, literal, rtol=0, atol=1e-5)


def test_features_that_are_kept_change_nothing() -> None:
    network, clip = lively(TINY), torch.rand(7, 3, 20, 36)
    again, kept = (list(literal_stream(network, clip, keep_features=keep)) for keep in (False, True))
    assert torch.equal(torch.stack(again), torch.stack(kept))


@pytest.mark.parametrize(
    "change",
    [
        {"bidirectional": False},
        {"shared_extractor": True, "global_skip": False},
        {"refine": RefineConfig(ping_pongs=2, order="past-first", query="hidden")},
        {"refine": RefineConfig(inputs="current", attention="non-local")},
        {"refine": RefineConfig(inputs="past", attention="none")},
        {"refine": RefineConfig(ping_pongs=0)},
    ],
    ids=lambda change: "-".join(change),
)
def test_every_ablation_has_its_reference(change: dict) -> None:
    literal, ours = both(lively(replace(TINY, **change)), torch.rand(5, 3, 24, 40), None)
    torch.testing.assert_close(ours, literal, rtol=0, atol=1e-5)


def test_each_frame_sees_its_window_and_no_further() -> None:
    network, clip = lively(TINY), torch.rand(6, 3, 16, 16)
    changed = clip.clone()
    changed[4] = torch.rand(3, 16, 16)
    pairs = zip(literal_stream(network, clip, 2), literal_stream(network, changed, 2), strict=True)
    assert [not torch.equal(a, b) for a, b in pairs] == [False, False, True, True, True, True]


def test_frames_are_read_as_they_are_needed() -> None:
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield torch.rand(3, 16, 16)

    result = literal_stream(lively(TINY), endless(), 3)
    for done in range(1, 5):
        next(result)
        assert taken == done + 3


def test_no_frames_give_no_frames() -> None:
    assert list(literal_stream(lively(TINY), [])) == []
