"""Training on a GPU: a captured step is the eager one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import Tensor

from pahs.kernels import training as kernels
from pahs.networks import PAHSConfig
from pahs.networks.blocks import ResidualBlock
from pahs.networks.pprnn import PPRNN
from pahs.training.capture import CapturedStep, Compiled
from pahs.training.recipe import OptimSection
from pahs.training.recipe_file import parse_recipe
from pahs.training.setup import prepare
from pahs.training.share import Share
from pahs.training.sources import open_photos, open_source
from pahs.training.step import EagerStep, Objective
from pahs.training.update import Update

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.usefixtures("plain_float32"),
]


OPTIM = OptimSection(name="adamw", lr=1e-3, clip=1.0, ema=0.9)
STEPS = 6


def batches(seed: int) -> list[tuple[Tensor, ...]]:
    """Of three warm passes, with resets of their own."""
    recipe = parse_recipe(
        {
            "train": {"steps": STEPS, "batch": 4},
            "data": {"frames": 4, "size": 64, "textures": 2, "seed": seed, "synthesis": {"sub_frames": 3}},
            "states": {"warm_passes": 3, "reset": 0.5, "counted_reset": 0.5},
        }
    )
    device = torch.device("cuda")
    source = open_source(recipe, open_photos(recipe, device), Share(), device, print)
    return [source.batch() for _ in range(STEPS)]


def losses(given: list[tuple[Tensor, ...]], captured: bool, compiled: bool, half: bool) -> list[float]:
    torch.manual_seed(0)
    model = PAHSConfig(width=24, shared_extractor=True, global_skip=True).build().cuda()
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.no_grad():  # first weights hardly look at the state
        for p in model.parameters():
            p.add_(0.04 * torch.randn_like(p))
    autocast = partial(torch.autocast, "cuda", torch.bfloat16) if half else nullcontext
    objective, update = Objective(model.warm_outputs, autocast, OPTIM), Update(model, OPTIM)
    step = (
        CapturedStep(objective, update)
        if captured
        else EagerStep(objective, update, torch.autograd.backward, lambda loss: loss)
    )
    said: list[str] = []
    step, _ = prepare(step, Compiled(model) if compiled else None, given[0], said.append)
    assert not said and isinstance(step, CapturedStep) == captured
    update.set(1e-3, 0.9)
    return [float(step(*batch)) for batch in given]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_captured_steps_from_warm_states_are_the_eager_ones(compiled: bool, half: bool) -> None:
    """With fresh resets at every replay: those of the first batch would give other losses."""
    given = batches(0)
    eager = losses(given, captured=False, compiled=False, half=half)
    captured = losses(given, captured=True, compiled=compiled, half=half)
    assert captured == pytest.approx(eager, rel=2e-2 if half else 2e-3)


def test_every_replay_uses_its_own_resets() -> None:
    """Recorded with the first batch's resets, a step that ignored later ones would have other losses."""
    blurry, sharp, resets = batches(1)[0]
    given = [(blurry, sharp, torch.full_like(resets, anew)) for anew in (True, False, True)]
    eager, captured = (losses(given, on, compiled=False, half=False) for on in (False, True))
    assert captured == pytest.approx(eager, rel=2e-3)
    frozen = losses([given[0]] * 3, captured=True, compiled=False, half=False)
    assert captured[2] != pytest.approx(frozen[2], rel=8e-3)


@pytest.fixture
def fused() -> Iterator[None]:
    if not kernels.enable(torch.device("cuda", 0)):
        pytest.skip("the fused kernels of training are for Hopper GPUs")
    yield
    kernels.enable(None)


def gradients(run: Callable[[], Tensor], wanted: list[Tensor]) -> list[Tensor]:
    y = run()
    weight = torch.linspace(-1, 1, y.numel(), device="cuda").view_as(y).to(y.dtype)
    return [y, *torch.autograd.grad((y * weight).sum(), wanted)]


def distance(a: Tensor, b: Tensor) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm())


@pytest.mark.parametrize("channels, size", [(16, 48), (32, 44), (64, 44), (64, 176), (48, 36), (192, 44)])
def test_a_fused_residual_block_is_as_exact_as_autograd(fused: None, channels: int, size: int) -> None:
    """In bfloat16, against float32: 16, 32 and 64 channels by our kernel, others by cuDNN's."""
    block = ResidualBlock(channels).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(3, channels, size, size, device="cuda").to(memory_format=torch.channels_last)

    def run(half: bool) -> list[Tensor]:
        given = (x.bfloat16() if half else x).requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            return gradients(lambda: block(given), [given, *block.parameters()])

    exact, ours = run(False), run(True)
    kernels.enable(None)
    for a, b, c in zip(ours, run(True), exact, strict=True):
        assert distance(a, c) <= 1.3 * distance(b, c) + 1e-3


def test_a_fused_ping_pong_is_as_exact_as_autograd(fused: None) -> None:
    network = PPRNN(96, 32, 4, "both", "current-first").cuda()
    given = [torch.randn(4, 32, 44, 44, device="cuda") for _ in range(3)]
    wanted = [p for p in network.parameters() if p is not network.mix.bias]

    def run(half: bool) -> list[Tensor]:
        inputs = [(x.bfloat16() if half else x).requires_grad_() for x in given]
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            return gradients(lambda: network(*inputs), [*inputs, *wanted])

    exact, ours = run(False), run(True)
    kernels.enable(None)
    for a, b, c in zip(ours, run(True), exact, strict=True):
        assert distance(a, c) <= 1.3 * distance(b, c) + 1e-3


@pytest.mark.parametrize("compiled", [False, True])
def test_fused_steps_have_the_losses_of_plain_ones(fused: None, compiled: bool) -> None:
    given = batches(0)
    ours = losses(given, captured=True, compiled=compiled, half=True)
    kernels.enable(None)
    assert ours == pytest.approx(losses(given, captured=True, compiled=False, half=True), rel=2e-2)
