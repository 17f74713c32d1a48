"""The steps of the network, against the network itself and against the paper's equations."""

from __future__ import annotations

import pytest
import torch

from pahs.benchmarks import reference
from pahs.networks import PAHSConfig, RefineConfig
from pahs.networks.steps import distances, look

CONFIGS = [
    PAHSConfig(width=12),
    PAHSConfig(width=12, shared_extractor=True, refine=RefineConfig(query="hidden", inputs="past")),
    PAHSConfig(width=12, bidirectional=False, refine=RefineConfig(ping_pongs=0, attention="none")),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_looks_are_steps_of_the_network(config: PAHSConfig) -> None:
    network = config.build().double()
    clip = torch.rand(2, 4, 3, 32, 48, dtype=torch.float64)
    looks = look(network, clip, [1, 2])
    assert set(looks) == ({"forward", "backward"} if config.bidirectional else {"forward"})
    cells = {"forward": network.forward_cell, "backward": network.backward_cell}
    for way, steps in looks.items():
        extractor = network.forward_extractor
        if way == "backward" and network.backward_extractor is not None:
            extractor = network.backward_extractor
        cell, state = cells[way], None
        assert cell is not None
        with torch.no_grad():
            for t in range(4) if way == "forward" else reversed(range(4)):
                f_B = extractor(clip[:, t])
                before = state or (torch.zeros_like(f_B), torch.zeros_like(f_B[:, :4]))
                if t in (1, 2):
                    seen = steps[t - 1]
                    torch.testing.assert_close(seen.h, before[1])
                    torch.testing.assert_close(seen.h_snla, reference.refine(cell.refiner, f_B, *before))
                state = reference.step(cell, f_B, state)


def test_attention_is_the_map_of_the_equations() -> None:
    network = PAHSConfig(width=12).build().double()
    seen = look(network, torch.rand(1, 2, 3, 32, 48, dtype=torch.float64), [1])["forward"][0]
    snla = network.forward_cell.refiner.snla
    assert snla is not None and snla.filter is not None and seen.selection is not None
    with torch.no_grad():
        q, k = (
            x.flatten(2).transpose(1, 2) for x in (snla.to_query(seen.feature), snla.to_key(seen.h_pprnn))
        )
        scores = q @ k.transpose(1, 2)
        selection = snla.filter(scores.mean(2, keepdim=True)).sigmoid()[..., 0]
    torch.testing.assert_close(seen.attention().double(), scores.softmax(2), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(seen.attention(4), seen.attention()[:, 4])
    torch.testing.assert_close(seen.selection, selection)
    assert seen.grid == (2, 3)


def test_distances_are_pixels_between_tokens() -> None:
    far = distances((2, 3), torch.device("cpu"))
    assert far.shape == (6, 6)
    assert far[0].tolist() == pytest.approx([0, 16, 32, 16, 16 * 2**0.5, 16 * 5**0.5])
