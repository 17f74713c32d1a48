"""Training that starts from a narrower network begins with its function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pahs.errors import PahsError
from pahs.networks import PAHS, PAHSConfig, RefineConfig
from pahs.runtime import weights
from pahs.training.recipe_file import parse_recipe
from pahs.training.setup import make_model
from pahs.training.widen import copies, shares, widen
from zoo import clip

REFINES: dict[str, dict[str, Any]] = {
    "selective": {},
    "non-local": {"attention": "non-local"},
    "no attention": {"attention": "none"},
    "asked by the hidden state": {"query": "hidden"},
    "non-local, asked by the hidden state": {"attention": "non-local", "query": "hidden"},
    "current only": {"inputs": "current"},
    "past only": {"inputs": "past"},
    "past first": {"order": "past-first"},
    "no ping-pong": {"ping_pongs": 0},
    "neither": {"ping_pongs": 0, "attention": "none"},
}


def trained(config: PAHSConfig) -> PAHS:
    """Weights under which every part counts: states and attention are as large as features."""
    torch.manual_seed(0)
    model = config.build().double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5).add_(0.02 * torch.randn_like(p))
    return model


def outputs(model: PAHS) -> Tensor:
    with torch.no_grad():
        y: Tensor = model(clip(4, width=48, height=32).to(next(model.parameters()).dtype))
        return y


def begun(narrow: PAHS, config: PAHSConfig) -> PAHS:
    torch.manual_seed(1)
    wide = config.build().double()
    widen(narrow, wide, seed=3)
    return wide


@pytest.mark.parametrize("refine", REFINES)
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("widths", [(12, 24), (15, 25), (12, 40)])
def test_the_function_is_kept(refine: str, bidirectional: bool, widths: tuple[int, int]) -> None:
    """Doubled, and with channels that are copied once or twice, three or four times."""
    config = PAHSConfig(
        width=widths[0],
        bidirectional=bidirectional,
        refine=RefineConfig(**{"ping_pongs": 2, **REFINES[refine]}),
    )
    narrow = trained(config)
    expected = outputs(narrow)
    assert expected.std() > 1e-2
    wide = begun(narrow, replace(config, width=widths[1]))
    torch.testing.assert_close(outputs(wide), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("global_skip", [True, False])
@pytest.mark.parametrize(("shared", "then"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("widths", [(12, 12), (12, 24), (48, 64), (60, 92)])
def test_one_extractor_may_become_two(
    widths: tuple[int, int], shared: bool, then: bool, global_skip: bool
) -> None:
    config = PAHSConfig(width=widths[0], shared_extractor=shared, global_skip=global_skip)
    narrow = trained(config)
    wide = begun(narrow, replace(config, width=widths[1], shared_extractor=then, look_ahead=7))
    torch.testing.assert_close(outputs(wide), outputs(narrow), atol=1e-9, rtol=0)


def test_copies_do_not_stay_twins() -> None:
    """Their weights differ, and so do the gradients of all, even of their biases."""
    wide = begun(trained(PAHSConfig(width=12)), PAHSConfig(width=24))
    layer = wide.forward_cell.residual[1].first
    apart = (layer.weight[:12] - layer.weight[12:]).detach().abs().amax((1, 2, 3))
    assert (apart > 1e-3).all(), "each output splits its weight in a way of its own"
    wide(clip(2).double()).square().mean().backward()
    assert layer.bias.grad is not None
    one, other = layer.bias.grad[:12], layer.bias.grad[12:]
    alive = one != 0
    assert alive.sum() >= 6 and ((one - other).abs() > 1e-3 * one.abs())[alive].all()


def test_shares_are_unequal_parts_of_one() -> None:
    inputs = copies(3, 8)
    assert inputs.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    parts = shares(50, inputs, torch.Generator().manual_seed(0))
    for channel in range(3):
        torch.testing.assert_close(parts[:, inputs == channel].sum(1), torch.ones(50).double())
    of_two = parts[:, inputs == 2]
    assert of_two.min() >= 0.25 and of_two.max() <= 0.75 and of_two.std() > 0.08


def recipe(start: Path | str, preset: str = "pahs-t", **config: Any) -> Any:
    return parse_recipe(
        {"model": {"preset": preset, "config": config}, "train": {"steps": 1, "init_from": str(start)}}
    )


def test_a_recipe_widens_what_it_starts_from() -> None:
    wish = recipe("pahs-t", width=64, shared_extractor=False)
    first, second = (make_model(wish) for _ in range(2))
    start = weights.load("pahs-t")
    assert isinstance(first, PAHS) and isinstance(start, PAHS) and first.config.width == 64
    torch.testing.assert_close(outputs(first), outputs(start), atol=1e-5, rtol=0)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other), "the seed decides"


@pytest.mark.parametrize(
    ("preset", "config", "reason"),
    [
        ("pahs-t", {"width": 9}, "width is 12, more than the 9"),
        ("pahs-t", {"width": 24, "shared_extractor": True}, "two extractors"),
        ("pahs-t", {"width": 24, "shared_extractor": False, "global_skip": True}, "global_skip is False"),
        ("pahs-s-paper", {"width": 24, "refine": {"ping_pongs": 1}}, "ping_pongs is 4"),
        ("pahs-s-paper", {"width": 24, "refine": {"query": "hidden"}}, "query is frame"),
        ("pahs-s-paper", {"width": 24, "bidirectional": False}, "bidirectional is True"),
        ("lstm", {}, "another kind of network"),
    ],
)
def test_what_cannot_be_widened_is_said_in_one_line(
    preset: str, config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "narrow.safetensors"
    weights.save(PAHSConfig(width=12).build(), path)
    with pytest.raises(
        PahsError, match=rf"train\.init_from = .*narrow\.safetensors .*{reason}.*; use"
    ) as error:
        make_model(recipe(path, preset, **config))
    assert "\n" not in str(error.value)
