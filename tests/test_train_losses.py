"""Losses of the zoo, and that every recipe of the zoo trains."""

from __future__ import annotations

import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pahs.networks.ovd import OVDConfig
from pahs.networks.pwcnet import PWCConfig
from pahs.networks.tsp import TSPConfig
from pahs.runtime import weights
from pahs.train import train
from pahs.training import losses
from pahs.training.losses import restoration_loss
from pahs.training.recipe import OptimSection
from pahs.training.recipe_file import load_recipe, parse_recipe, to_toml
from pahs.training.setup import make_model
from pahs.training.step import EagerStep, Objective
from pahs.training.update import Update

RECIPES = Path(__file__).parent.parent / "recipes"
NARROW = {
    "lstm": {"width": 4, "blocks": 1},
    "ovd": {"width": 8, "blocks": 1},
    "ifirnn": {"width": 4, "blocks": 1},
    "stfan": {"width": 4, "filter_size": 3},
    "estrnn": {"width": 4, "blocks": 2},
    "edvr": {"width": 8, "groups": 2, "extract_blocks": 1, "trunk_blocks": 1, "output_width": 8},
    "tsp": {"width": 4, "blocks": 1, "flow.narrow": 16, "flow.reach": 1},
    "arvo": {"width": 12, "trunk_blocks": 1},
}
TINY = [
    "data.kind=generated",
    "data.frames=2",
    "data.size=32",
    "data.textures=2",
    "data.synthesis={ sub_frames = 3, objects = [0, 1] }",
    "train.batch=1",
    "train.epochs=0",
    "train.steps=1",
    "train.device=cpu",
    "train.log_steps=1",
    "validation.every=0",
    "validation.clips=1",
    "validation.frames=2",
]


def clips() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(2, 3, 3, 16, 24), torch.rand(2, 3, 3, 16, 24)


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_is_read_and_survives_being_written_out(path: Path) -> None:
    recipe = load_recipe(path)
    assert parse_recipe(tomllib.loads(to_toml(recipe))) == recipe


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("lstm", "l1"),
        ("ovd", "mse"),
        ("ifirnn", "l1"),
        ("stfan", "mse"),
        ("estrnn", "charbonnier"),
        ("edvr", "charbonnier"),
        ("tsp", "hard-example"),
        ("arvo", "l1"),
    ],
)
def test_every_system_has_a_recipe_whose_step_changes_its_weights(
    name: str, loss: str, tmp_path: Path
) -> None:
    path = RECIPES / "zoo" / f"{name}.toml"
    sets = [*TINY, *(f"model.config.{key}={value}" for key, value in NARROW[name].items())]
    recipe = load_recipe(path, sets)
    assert recipe.optim.loss == loss
    trained = weights.read(train(path, sets, out=tmp_path / "run"))
    first = make_model(recipe).state_dict()
    changed = [key for key, value in trained.state_dict().items() if not torch.equal(value, first[key])]
    assert changed
    assert all(torch.isfinite(x).all() for x in trained.state_dict().values())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert '"skipped": 0' in lines


def test_mse_is_the_mean_square() -> None:
    a, b = clips()
    assert restoration_loss(a, b, "mse").item() == pytest.approx(((a - b) ** 2).mean().item())


def test_hard_examples_are_the_worse_half_of_each_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "RANDOM_SHARE", 0.0)
    a, b = clips()
    b[0] = a[0] + 0.01 * (b[0] - a[0])  # an easy clip has its own worse half
    apart = np.abs(a.numpy() - b.numpy()).astype(np.float64)
    mined = 0.0
    for frame in apart.reshape(6, 3, -1):
        worst = np.argsort(frame.sum(0))[frame.shape[1] // 2 :]
        mined += frame[:, worst].sum()
    expected = apart.mean() + 2 * mined / apart.size
    assert restoration_loss(a, b, "hard-example").item() == pytest.approx(expected, rel=1e-5)


def test_a_tenth_of_the_good_pixels_is_mined_too() -> None:
    apart = torch.rand(1, 4, 3, 96, 96)
    mask = losses.hard_examples(apart)
    residual = apart.sum(-3, keepdim=True)
    good = residual < residual.flatten(-2).median(-1).values[..., None, None]
    assert mask[~good].mean() > 0.99
    assert mask[good].mean().item() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("kind", ["l1", "mse", "charbonnier", "hard-example"])
def test_a_perfect_clip_has_a_finite_gradient(kind: Any) -> None:
    sharp = clips()[0]
    output = sharp.clone().requires_grad_()
    restoration_loss(output, sharp, kind).backward()  # type: ignore[no-untyped-call]
    assert output.grad is not None and torch.isfinite(output.grad).all()


def test_the_loss_is_the_mean_over_all_outputs_of_a_network() -> None:
    model = TSPConfig(4, 1, flow=PWCConfig(16, 1)).build()
    blurry, sharp = torch.rand(2, 1, 3, 3, 16, 16)
    first, second = model.training_outputs(blurry)
    loss = Objective(model.training_outputs, nullcontext, OptimSection())(blurry, sharp)
    expected = ((first - sharp).abs().mean() + (second - sharp).abs().mean()) / 2
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert not torch.equal(first, second)


def test_a_network_without_stages_has_one_output() -> None:
    model = OVDConfig(8, 1).build().eval()
    clip = torch.rand(1, 2, 3, 16, 16)
    (output,) = model.training_outputs(clip)
    assert torch.equal(output, model(clip))


def test_a_rehearsal_leaves_running_statistics_and_random_numbers_alone() -> None:
    model = OVDConfig(8, 1).build()
    optim = OptimSection(loss="hard-example")
    objective = Objective(model.training_outputs, nullcontext, optim)
    step = EagerStep(objective, Update(model, optim), lambda loss: loss.backward(), lambda loss: loss)
    before, random = [x.clone() for x in model.buffers()], torch.get_rng_state()
    batch = torch.rand(1, 2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert before
    step.prepare(batch, batch)
    assert all(torch.equal(x, y) for x, y in zip(before, model.buffers(), strict=True))
    assert torch.equal(random, torch.get_rng_state())
    step(batch, batch)
    assert not all(torch.equal(x, y) for x, y in zip(before, model.buffers(), strict=True))
    assert not torch.equal(random, torch.get_rng_state())
