"""One step: what it changes, and what a step that is not finite must not change."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pahs.networks import PAHS, Deblurrer, PAHSConfig, RefineConfig
from pahs.networks.edvr import EDVRConfig
from pahs.training.capture import CapturedStep, Compiled, frames_last
from pahs.training.initial import draw_weights, scale_weights
from pahs.training.losses import restoration_loss
from pahs.training.recipe import OptimSection
from pahs.training.setup import prepare
from pahs.training.share import divided
from pahs.training.step import EagerStep, Objective
from pahs.training.update import Update

OPTIM = OptimSection(name="adamw", lr=1e-2, clip=1.0, ema=0.9, weight_decay=0.1)


def net(**changes: Any) -> PAHS:
    torch.manual_seed(0)
    return PAHSConfig(width=12, shared_extractor=True, global_skip=True, **changes).build()


def make(model: Deblurrer, optim: OptimSection = OPTIM) -> EagerStep:
    objective = Objective(model.training_outputs, nullcontext, optim)
    return EagerStep(objective, Update(model, optim), lambda loss: loss.backward(), lambda loss: loss)


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sharp = torch.rand(2, 2, 3, 32, 32, generator=generator)
    return nn.functional.avg_pool3d(sharp, (1, 3, 3), 1, (0, 1, 1)), sharp


def state(step: EagerStep) -> list[Tensor]:
    moments = [x.clone() for s in step.update.optimizer.state.values() for x in s.values()]
    return (
        [p.detach().clone() for p in step.update.parameters] + [e.clone() for e in step.update.ema] + moments
    )


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_steps_reduce_the_loss() -> None:
    model = net()
    scale_weights(model)
    step = make(model)
    step.update.set(3e-3, 0.9)
    losses = [step(*batch()).item() for _ in range(40)]
    assert losses[-1] < 0.97 * losses[0]


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_step_is_the_textbook_one(name: Any) -> None:
    optim = OptimSection(name=name, lr=1e-2, clip=0.05, ema=0.9, weight_decay=0.1)
    ours, plain = net(), net()
    step = make(ours, optim)
    step.update.set(1e-2, 0.75)
    reference = (torch.optim.Adam if name == "adam" else torch.optim.AdamW)(
        plain.parameters(), lr=1e-2, weight_decay=0.1
    )
    averages = [p.detach().clone() for p in plain.parameters()]
    for number in range(3):
        blurry, sharp = batch(number)
        step(blurry, sharp)
        reference.zero_grad()
        nn.functional.l1_loss(plain(blurry), sharp).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.05)
        reference.step()
        averages = [0.75 * a + 0.25 * p.detach() for a, p in zip(averages, plain.parameters(), strict=True)]
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    for a, b in zip(step.update.ema, averages, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
def test_gradients_of_passes_add_up_to_those_of_the_batch(at_once: int) -> None:
    """The norm is clipped once, over their sum, and the average moves once."""
    whole, passes = make(net()), replace(make(net()), at_once=at_once)
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        blurry, sharp = torch.rand(2, 4, 2, 3, 32, 32, generator=generator)
        for step in (whole, passes):
            step.update.set(1e-2, 0.75)
        assert passes(blurry, sharp).item() == pytest.approx(whole(blurry, sharp).item(), rel=1e-6)
    for a, b in zip(state(whole), state(passes), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert passes.update.read().gradient_norm == pytest.approx(whole.update.read().gradient_norm, rel=1e-4)


def test_one_pass_that_is_not_finite_spoils_the_step() -> None:
    step = replace(make(net()), at_once=1)
    step.update.set(1e-2, 0.9)
    before = state(step)
    blurry, sharp = batch()
    blurry[0, 0, 0, 0, 0] = float("nan")
    step(blurry, sharp)
    assert same(before[: len(step.update.parameters)], state(step)[: len(step.update.parameters)])
    assert step.update.read().skipped == 1


def test_passes_take_the_resets_and_pixels_of_their_own_clips() -> None:
    frames, resets, pixels = torch.rand(3, 2, 3, 8, 8), torch.rand(4, 2, 3), torch.rand(3, 2, 1, 8, 8)
    parts = divided((frames, frames, resets, pixels), 2)
    assert [len(part[0]) for part in parts] == [2, 1]
    assert torch.equal(parts[1][2], resets[..., 2:]) and torch.equal(parts[1][3], pixels[2:])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_changes_nothing(value: float) -> None:
    step = make(net())
    step.update.set(1e-2, 0.9)
    step(*batch())
    before = state(step)
    blurry, sharp = batch()
    blurry[0, 0, 0, 0, 0] = value
    for _ in range(3):
        step(blurry, sharp)
    assert same(before, state(step))
    report = step.update.read()
    assert (report.skipped, report.skipped_now, report.longest_row) == (3, 3, 3)
    assert report.loss == pytest.approx(nn.functional.l1_loss(net()(batch()[0]), batch()[1]).item(), rel=1e-5)

    step(*batch())
    assert not same(before, state(step))
    report = step.update.read()
    assert (report.skipped, report.skipped_now) == (3, 0)
    assert report.longest_row == 3, "the row of three reached into this report"
    assert step.update.read().longest_row == 0


def test_a_rehearsal_changes_nothing_and_is_not_counted() -> None:
    step, plain = make(net()), make(net())
    before = [p.detach().clone() for p in step.update.parameters]
    step.prepare(*batch())
    assert same(before, [p.detach() for p in step.update.parameters])
    assert same(before, step.update.ema)
    for one in (step, plain):
        one.update.set(1e-2, 0.9)
        one(*batch())
    assert same(state(step), state(plain))
    assert step.update.read() == plain.update.read()


def test_averaged_weights_are_lent() -> None:
    model = net()
    step = make(model)
    step.update.set(1e-2, 0.5)
    step(*batch())
    own = [p.detach().clone() for p in model.parameters()]
    with step.update.averaged():
        assert same([p.detach() for p in model.parameters()], step.update.ema)
        assert not same([p.detach() for p in model.parameters()], own)
    assert same([p.detach() for p in model.parameters()], own)

    without = make(net(), OptimSection())
    with without.update.averaged():
        assert not without.update.ema


def test_what_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CUDA both the compiler (here: broken) and the capture fail, and training goes on."""

    def broken(function: object, **options: object) -> object:
        def call(*arguments: object) -> None:
            raise RuntimeError("no compiler\nmore")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    model = net()
    compiled = Compiled(model)
    with pytest.raises(RuntimeError):
        model(batch()[0])
    with compiled.paused():
        assert model(batch()[0]).shape == batch()[0].shape
    eager = make(model)
    said: list[str] = []
    captured = CapturedStep(eager.objective, eager.update)
    step, left = prepare(captured, compiled, batch(), said.append)
    assert isinstance(step, EagerStep) and left is None
    assert len(said) == 2 and "compiling" in said[0] and "capturing" in said[1]
    assert not any("\n" in line for line in said)
    step.update.set(1e-2, 0.9)
    assert torch.isfinite(step(*batch()))


def test_a_failure_without_a_way_out_is_raised() -> None:
    step = make(net())
    with pytest.raises(RuntimeError):
        prepare(step, None, (torch.rand(1, 2, 4, 32, 32), torch.rand(1, 2, 4, 32, 32)), print)


def test_frames_last_keeps_values() -> None:
    clip = torch.rand(2, 3, 3, 8, 8)
    copy = frames_last(clip)
    assert torch.equal(copy, clip) and copy.data_ptr() != clip.data_ptr()
    assert copy.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


def test_losses() -> None:
    a, b = batch()
    assert restoration_loss(a, b).item() == pytest.approx((a - b).abs().mean().item())
    smooth = restoration_loss(a, b, "charbonnier").item()
    assert (a - b).abs().mean().item() <= smooth <= (a - b).abs().mean().item() + 1e-3
    assert restoration_loss(a, b, frequency_weight=0.5) > restoration_loss(a, b)
    same_frames = a.clone().requires_grad_()
    for kind in ("l1", "charbonnier", "psnr"):
        loss = restoration_loss(same_frames, a, kind, frequency_weight=1.0)  # type: ignore[arg-type]
        loss.backward()
        assert same_frames.grad is not None and torch.isfinite(same_frames.grad).all()


def test_psnr_loss_gains_alike_from_good_and_from_bad_frames() -> None:
    """A tenth off the error of one frame is worth as much whichever frame it is, short of the floor."""
    sharp = torch.zeros(1, 2, 3, 8, 8)
    good, bad = torch.full_like(sharp[:, :1], 0.04), torch.full_like(sharp[:, :1], 0.4)
    both = restoration_loss(torch.cat([good, bad], 1), sharp, "psnr")
    better = [torch.cat([0.9 * good, bad], 1), torch.cat([good, 0.9 * bad], 1)]
    gains = [float(both - restoration_loss(x, sharp, "psnr")) for x in better]
    assert gains[0] == pytest.approx(gains[1], rel=0.05) and gains[0] > 0


def test_scaled_weights_let_a_picture_through() -> None:
    model, plain = net(), net()
    scale_weights(model)
    frames = batch()[0]
    assert torch.equal(model(frames), frames), "a global skip begins as the identity"
    details = [m.extract(frames)[1].std(dim=(-2, -1)).mean() for m in (model, plain)]
    assert details[0] > 2 * details[1]


@pytest.mark.parametrize("draw", [draw_weights, scale_weights])
def test_first_weights_are_shared_by_name(draw: Any) -> None:
    """Arms of an ablation begin alike wherever they have a parameter in common."""
    plain = RefineConfig(ping_pongs=0, attention="none")
    nets = [PAHSConfig(width=12, refine=refine).build() for refine in (plain, RefineConfig())]
    for model in nets:
        draw(model, 3)
    one, other = (model.state_dict() for model in nets)
    assert len(one) < len(other)
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    draw(nets[0], 4)
    assert not torch.equal(nets[0].forward_cell.fuse.weight, other["forward_cell.fuse.weight"])
    weight = other["forward_cell.fuse.weight"]
    assert not torch.equal(weight, other["backward_cell.fuse.weight"]), "two layers are two draws"


def test_drawn_weights_have_the_spread_of_pytorchs_own() -> None:
    ours, own = EDVRConfig(width=16).build(), EDVRConfig(width=16).build()
    draw_weights(ours, 0)
    for (name, a), b in zip(ours.named_parameters(), own.parameters(), strict=True):
        if a.numel() > 2000:
            assert a.std().item() == pytest.approx(b.std().item(), rel=0.1), name
        assert bool((a == 0).all()) == bool((b == 0).all()), f"{name}: offsets begin at zero"
