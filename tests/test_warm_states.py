"""Training from warmed-up states: what they are, when they start anew, and where gradients end."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from pahs.errors import PahsError
from pahs.networks import PAHS, PRESETS, Deblurrer
from pahs.networks.warm_up import LIMIT, restarted
from pahs.train import train
from pahs.training.capture import Compiled, frames_last
from pahs.training.recipe import OptimSection, Recipe
from pahs.training.recipe_file import load_recipe, parse_recipe
from pahs.training.share import Share
from pahs.training.sources import Source, open_photos, open_source
from pahs.training.step import EagerStep, Objective
from pahs.training.update import Update
from test_train import TINY
from zoo import NARROW, build, clip

CPU = torch.device("cpu")
RECURRENT = [name for name in NARROW if PRESETS[name].config.build().contract.family != "windowed"]
every = pytest.mark.parametrize("name", RECURRENT)


def never(model: Deblurrer, passes: int, batch: int = 2) -> Tensor:
    """No clip starts anew."""
    return torch.zeros(passes, model.contract.directions, batch, dtype=torch.bool)


def warmed(model: Deblurrer, frames: Tensor, resets: Tensor) -> tuple[tuple[Tensor, ...], ...]:
    with torch.no_grad():
        return model.warm_up(model.extract(frames), resets)


@every
def test_a_state_that_starts_anew_gives_the_plain_step(name: str) -> None:
    model, frames = build(name), clip(3, batch=2)
    resets = never(model, 2)
    resets[-1] = True
    for warm, plain in zip(model.warm_outputs(frames, resets), model.training_outputs(frames), strict=True):
        torch.testing.assert_close(warm, plain, atol=1e-6, rtol=0)


@every
def test_a_warm_state_is_that_of_a_camera_that_turned_round(name: str) -> None:
    """After three passes: the state at the end of one long clip, there and back, without a cut."""
    model, frames = build(name), clip(3, batch=2)
    with torch.no_grad():
        features = model.extract(frames)
        back = tuple(x.flip(1) for x in features)
        state = None
        for part in (back, features, back):
            state = model.propagate(part, state, 3)[1]
        warm = model.warm_up(features, never(model, 3))
    assert state is not None
    for one, other in zip(warm[0], state, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_warm_passes_leave_running_statistics_alone() -> None:
    """Of normalisation by batches: a frame counts once, and the passes are normalised as training is."""
    model, frames = build("ovd").train(), clip(3, batch=2)
    resets = never(model, 2)
    resets[-1] = True
    outputs = {}
    buffers = {}
    start = {name: x.clone() for name, x in model.state_dict().items()}
    for kind in ("plain", "warm"):
        model.load_state_dict(start)
        made = model.training_outputs(frames) if kind == "plain" else model.warm_outputs(frames, resets)
        outputs[kind], buffers[kind] = made[0], {name: x.clone() for name, x in model.named_buffers()}
    torch.testing.assert_close(outputs["warm"], outputs["plain"], atol=1e-6, rtol=0)
    changed = [name for name, x in buffers["plain"].items() if not torch.equal(x, start[name])]
    assert changed, "the network has running statistics"
    for name, plain in buffers["plain"].items():
        torch.testing.assert_close(buffers["warm"][name], plain, msg=name)


def test_both_directions_of_pahs_warm_up() -> None:
    """The backward cell goes over the frames in the opposite order, and its sweep begins where that ended."""
    model, frames = build("pahs"), clip(3, batch=2)
    assert isinstance(model, PAHS) and model.backward_cell is not None
    with torch.no_grad():
        features = model.extract(frames)
        reads = [x[:, :] for x in features[len(features) // 2 + 1 :]]
        steps = [tuple(x[:, t] for x in reads) for t in range(3)]
        state = model.backward_cell.start(steps[0])
        for t in (2, 1, 0, 0, 1, 2):
            state = model.backward_cell.step(steps[t], state)
        _, warm = model.warm_up(features, never(model, 2))
        for one, other in zip(warm, state, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
        zero = model.forward_cell.start(steps[0])
        _, f_L = model.propagate_from(features, (zero, warm))
        last = model.backward_cell.step(steps[2], warm)[0]
        torch.testing.assert_close(f_L[:, 2, model.config.width :], last, atol=1e-6, rtol=0)


@every
def test_gradients_end_where_the_counted_sweep_begins(name: str) -> None:
    """They are those of a plain step from the given states, down to the frames."""
    resets = never(build(name), 2)
    resets[0, :, 1] = True

    def gradients(model: Deblurrer, given: bool) -> list[Tensor | None]:
        frames = clip(3, batch=2).requires_grad_()
        if given:
            states = warmed(model, frames, resets)
            output = model.reconstruct(model.propagate_from(model.extract(frames), states))
        else:
            (output,) = model.warm_outputs(frames, resets)
        output.square().mean().backward()
        return [frames.grad, *(p.grad for p in model.parameters())]

    for one, other in zip(gradients(build(name), True), gradients(build(name), False), strict=True):
        assert one is not None and other is not None and one.abs().sum() > 0
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-5)


@every
def test_a_clip_whose_state_is_not_finite_starts_anew_and_the_others_live_on(name: str) -> None:
    model, frames = build(name), clip(3, batch=2)
    broken = frames.clone()
    broken[0, 1] = float("inf")
    mended, good = (warmed(model, x, never(model, 2)) for x in (broken, frames))
    resets = never(model, 2)
    resets[-1, :, 0] = True
    for warm, expected in zip(mended, warmed(model, frames, resets), strict=True):
        for x, y in zip(warm, expected, strict=True):
            torch.testing.assert_close(x, y, atol=1e-6, rtol=0)
    assert all(torch.equal(x[1], y[1]) for x, y in zip(mended[0], good[0], strict=True))
    assert not all(torch.equal(x[0], y[0]) for x, y in zip(mended[0], good[0], strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1.01 * LIMIT, -1.01 * LIMIT])
def test_one_bad_number_is_enough(value: float) -> None:
    state = (torch.full((3, 2, 4, 4), 0.99 * LIMIT), torch.ones(3, 5, 2, 2), torch.ones(3, 0, 2, 4, 4))
    state[1][1, 3, 0, 1] = value
    start = tuple(torch.zeros_like(x) for x in state)
    after = restarted(state, start, torch.tensor([False, False, True]))
    assert [bool(x.any()) for x in after[0]] == [bool(x.any()) for x in after[1]] == [True, False, False]
    assert torch.equal(after[0][0], state[0][0]) and torch.equal(after[1][0], state[1][0])


@pytest.mark.parametrize("name", ["pahs-s", "lstm+pahs"])
def test_half_precision_keeps_every_gradient(name: str) -> None:
    """Autocast keeps rounded weights: those rounded in a warm pass must not be used where gradients count."""
    model = build(name)
    with torch.autocast("cpu", torch.bfloat16):
        (output,) = model.warm_outputs(clip(2, batch=2), never(model, 1))
    output.float().square().mean().backward()
    assert [path for path, p in model.named_parameters() if p.grad is None] == []
    assert not torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled()


@pytest.mark.parametrize("name", [name for name in RECURRENT if name not in ("pahs-s-paper", "pahs-t")])
def test_every_network_learns_from_warm_states(name: str) -> None:
    torch.manual_seed(1)
    model = NARROW[name].build().train()
    optim = OptimSection(lr=2e-3, clip=1.0)
    objective = Objective(model.warm_outputs, nullcontext, optim)
    step = EagerStep(objective, Update(model, optim), lambda loss: loss.backward(), lambda loss: loss)
    step.update.set(2e-3, 0.0)
    sharp = nn.functional.interpolate(
        clip(3, 2).flatten(0, 1)[..., ::4, ::4], scale_factor=4, mode="bilinear"
    )
    blurry = nn.functional.avg_pool2d(sharp, 5, 1, 2)
    batch = (blurry.unflatten(0, (2, 3)), sharp.unflatten(0, (2, 3)), never(model, 2))
    losses = [step(*batch).item() for _ in range(15)]
    assert losses[-1] < 0.9 * losses[0]


def test_a_pass_without_gradients_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step has two variants for the sweep that counts, as without warm passes, and one more."""
    built = torch.compile

    def variants(passes: int) -> int:
        torch.compiler.reset()
        counter = CompileCounter()
        monkeypatch.setattr(torch, "compile", lambda f, **options: built(f, backend=counter, **options))
        model = build("pahs-s").to(memory_format=torch.channels_last)
        Compiled(model)
        frames, resets = frames_last(clip(4, batch=2, width=64, height=48)), never(model, max(1, passes))
        for number in range(2):
            resets[:, :, number] = True
            outputs = model.warm_outputs(frames, resets) if passes else model.training_outputs(frames)
            outputs[0].square().mean().backward()
        return int(counter.frame_count)

    assert variants(3) == variants(0) + 1


# The trainer


def recipe(**states: Any) -> Recipe:
    data = {"frames": 2, "size": 16, "textures": 2, "synthesis": {"sub_frames": 3}}
    return parse_recipe({"train": {"steps": 2, "batch": 8}, "data": data, "states": states})


def source(wish: Recipe, share: Share = Share()) -> Source:  # noqa: B008 - frozen
    return open_source(wish, open_photos(wish, CPU), share, CPU, print)


def test_batches_say_when_states_start_anew() -> None:
    wish = recipe(warm_passes=3, reset=0.25, counted_reset=0.75)
    batches = source(wish)
    drawn = [batches.batch()[2] for _ in range(60)]
    assert drawn[0].shape == (3, 2, 8) and drawn[0].dtype == torch.bool
    rates = torch.stack(drawn).float().mean((0, 2, 3))
    torch.testing.assert_close(rates, torch.tensor([0.25, 0.25, 0.75]), atol=0.06, rtol=0)
    assert not torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0][:, 0], drawn[0][:, 1])

    again = source(wish)
    again.load_state_dict({"step": 7})
    assert torch.equal(again.batch()[2], drawn[7])
    assert again.state_dict() == {"step": 8}

    parts = [source(wish, Share(rank, 2)).batch()[2] for rank in range(2)]
    assert torch.equal(torch.cat(parts, 2), drawn[0]), "two processes draw what one does"
    assert len(source(recipe()).batch()) == 2, "without the option a batch is what it was"


@pytest.mark.parametrize("preset", ["edvr-l", "tsp", "arvo"])
def test_a_network_without_states_is_refused_in_one_line(preset: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TINY.replace("pahs-t", preset).replace("config =", "# config ="))
    with pytest.raises(
        PahsError, match=rf"states\.warm_passes is 2, but {preset} restores .*; set it to 0"
    ) as error:
        train(path, ["states.warm_passes=2"], out=tmp_path / "out")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"), [("warm_passes", "-1"), ("reset", "1.5"), ("counted_reset", "-0.1")]
)
def test_a_wrong_value_is_named(key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TINY)
    with pytest.raises(PahsError, match=rf"states\.{key} is {value}"):
        load_recipe(path, [f"states.{key}={value}"])


def test_a_run_that_stopped_goes_on_with_the_same_weights(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TINY)
    sets = ["states.warm_passes=2", "states.reset=0.5", "schedule.kind=constant"]
    whole = load_file(train(path, [*sets, "train.steps=6"], out=tmp_path / "whole"))
    train(path, [*sets, "train.steps=3"], out=tmp_path / "parts")
    parts = load_file(train(path, [*sets, "train.steps=6"], resume=True, out=tmp_path / "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    never_reset = [*sets[:1], "states.reset=0.0", "states.counted_reset=0.0", *sets[2:], "train.steps=6"]
    other = load_file(train(path, never_reset, out=tmp_path / "other"))
    assert any(not torch.equal(whole[name], other[name]) for name in whole), "resets count"
