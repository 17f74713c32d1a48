"""What every network of the zoo must do, whichever way it works: one suite for all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clips import decoded, make_clip, moving_texture
from pahs import cli
from pahs.engine import stream
from pahs.networks import ARCHITECTURES, PRESETS, Deblurrer
from pahs.runtime import weights
from zoo import NARROW, build, clip, drive

WHOLE = 100
"""A look-ahead that no clip here is longer than."""
every = pytest.mark.parametrize("name", PRESETS)


def textured(frames: int, height: int, width: int) -> list[Tensor]:
    texture = torch.from_numpy(moving_texture(frames, height, width)).float()
    return list(texture.permute(0, 3, 1, 2).contiguous())


def at_once(model: Deblurrer, frames: list[Tensor]) -> Tensor:
    """The whole clip through `forward`, padded and cropped by hand."""
    height, width = frames[0].shape[1:]
    multiple = model.contract.multiple_of
    padding = (0, -width % multiple, 0, -height % multiple)
    assert model.contract.padded(height, width) == (height + padding[3], width + padding[1])
    padded = F.pad(torch.stack(frames), padding, mode="reflect")
    with torch.no_grad():
        restored: Tensor = model(padded[None])[0, ..., :height, :width]
    return restored


@every
def test_the_narrow_network_stands_for_its_preset(name: str) -> None:
    assert type(NARROW[name]) is type(PRESETS[name].config)
    assert build(name).contract.family == PRESETS[name].config.build().contract.family


@every
def test_returns_every_frame_at_its_size(name: str) -> None:
    model = build(name)
    with torch.no_grad():
        for frames in (clip(1), clip(2), clip(4, batch=2)):
            restored = model(frames)
            assert restored.shape == frames.shape
            assert restored.isfinite().all()


@every
def test_accepts_any_multiple_that_the_contract_allows(name: str) -> None:
    model = build(name)
    step = model.contract.multiple_of
    size = -(-model.contract.min_size // step) * step
    frames = clip(2, height=size + step, width=size + 3 * step)
    with torch.no_grad():
        assert model(frames).shape == frames.shape


@every
def test_gradient_reaches_every_parameter(name: str) -> None:
    model = build(name).train()
    model(clip(4, batch=2)).square().mean().backward()
    idle = [path for path, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not idle


@every
def test_the_future_counts_as_far_as_the_contract_says(name: str) -> None:
    """Frame t does not change when frame t + look-ahead + 1 does, unless a second sweep brings it all back."""
    model = build(name)
    delay = 1 if model.contract.family == "bidirectional" else model.contract.look_ahead
    frames = clip(delay + 4)
    changed = frames.clone()
    changed[:, delay + 2] = 1 - changed[:, delay + 2]
    with torch.no_grad():
        before, after = model(frames), model(changed)
    untouched = torch.equal(before[:, :2], after[:, :2])
    assert untouched == (model.contract.family != "bidirectional")
    assert not torch.allclose(before[:, 2], after[:, 2], atol=1e-6)


@every
@pytest.mark.parametrize("keeps", [[1, 1, 1, 1, 1, 1, 1], [3, 1, 3], [5, 2], [6, 1]])
def test_streamed_is_the_whole_clip(name: str, keeps: list[int]) -> None:
    model = build(name)
    frames = clip(7)
    with torch.no_grad():
        restored, _ = drive(model, frames, keeps)
        torch.testing.assert_close(restored, model(frames), atol=1e-5, rtol=0)


@every
def test_state_does_not_grow(name: str) -> None:
    model = build(name)
    with torch.no_grad():
        _, states = drive(model, clip(7), [1] * 7)
    # The last calls have less of a future to remember.
    sizes = [[tuple(x.shape) for x in state] for state in states[: 7 - min(2, model.contract.look_ahead)]]
    assert all(size == sizes[0] for size in sizes)
    # What a caller keeps must not hold on to the memory of a chunk.
    assert all(x.untyped_storage().nbytes() == x.nbytes for state in states for x in state)


@every
def test_batch_of_two_is_two_single_runs(name: str) -> None:
    model = build(name)
    frames = clip(3, batch=2)
    with torch.no_grad():
        singles = torch.cat([model(frames[:1]), model(frames[1:])])
        torch.testing.assert_close(model(frames), singles, atol=1e-5, rtol=0)


@every
def test_halos_make_a_band_exact(name: str) -> None:
    # In double precision, so that the faint outer edge of what the layers reach shows.
    model = build(name).double()
    reach, other = model.contract.extract_halo, model.contract.reconstruct_halo
    if other is None:
        assert reach is None
        return
    top = max(reach or 0, other) + 16
    bottom, height = top + 16, 2 * top + 16
    frames = clip(1, height=height, width=16).double()
    with torch.no_grad():
        features = model.extract(frames)
        if reach is not None:
            band = model.extract(frames[..., top - reach : bottom + reach, :])
            for whole, part in zip(features, band, strict=True):
                s = height // whole.shape[3]
                inner = part[..., reach // s : (reach + bottom - top) // s, :]
                torch.testing.assert_close(inner, whole[..., top // s : bottom // s, :], atol=1e-12, rtol=0)
        latents, _ = model.propagate(features, None, 1)
        scaled = [(x, height // x.shape[3]) for x in latents]
        cut = tuple(x[..., (top - other) // s : (bottom + other) // s, :] for x, s in scaled)
        inner = model.reconstruct(cut)[..., other : other + bottom - top, :]
        whole = model.reconstruct(latents)[..., top:bottom, :]
        torch.testing.assert_close(inner, whole, atol=1e-12, rtol=0)


@every
def test_memory_format_and_precision_hardly_matter(name: str) -> None:
    model, frames = build(name), clip(3)
    with torch.no_grad():
        plain = model(frames)
        channels_last = model.to(memory_format=torch.channels_last)(frames)
        double = model.double()(frames)
    torch.testing.assert_close(channels_last, plain, atol=1e-5, rtol=0)
    assert double.dtype == torch.float32, "frames keep their own precision"
    torch.testing.assert_close(double, plain, atol=1e-3, rtol=0)


@cache
def survives_bf16() -> bool:
    """Asked of a child process: some processors die of it."""
    return (
        subprocess.run([sys.executable, "-m", "pahs.runtime.probe", "bfloat16"], check=False).returncode == 0
    )


@every
def test_bf16_is_close_and_keeps_the_frames_precision(name: str) -> None:
    if not survives_bf16():
        pytest.skip("this CPU cannot run bf16 convolutions")
    model, frames = build(name), clip(3)
    with torch.no_grad():
        exact = model(frames)
        rounded = model.bfloat16()(frames)
    assert rounded.dtype == frames.dtype
    assert (rounded - exact).abs().mean() < 0.03 * (1 + exact.abs().mean())


@every
def test_overfits_one_clip(name: str) -> None:
    """Its loss falls below a third of the start; and, where the start was far off, below that of a grey frame."""
    coarse = torch.rand(2, 3, 3, 4, 4, generator=torch.Generator().manual_seed(5))
    sharp = F.interpolate(coarse.flatten(0, 1), scale_factor=4, mode="bilinear")
    blurry = F.avg_pool2d(sharp, 5, 1, 2, count_include_pad=False)
    sharp, blurry = (x.unflatten(0, (2, 3)) for x in (sharp, blurry))
    torch.manual_seed(1)
    model = NARROW[name].build().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    for _ in range(200):
        loss = F.mse_loss(model(blurry), sharp)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        if losses[-1] < min(losses[0] / 3, 0.9 * sharp.var().item()):
            return
    pytest.fail(f"loss went from {losses[0]:.4f} to {losses[-1]:.4f} only")


@every
def test_every_model_turns_a_video_file_into_one_with_every_frame(name: str, tmp_path: Path) -> None:
    source, target = tmp_path / "clip.mp4", tmp_path / "sharp.mp4"
    make_clip(source, frames=3, width=32, height=16)
    arguments = ["deblur", str(source), "-o", str(target), "--model", name, "--random-weights"]
    assert cli.main([*arguments, "--device", "cpu", "--preset", "ultrafast"]) == 0
    frames = decoded(target)
    assert [(frame.width, frame.height) for frame in frames] == [(32, 16)] * 3


@every
def test_a_stream_of_odd_frames_is_the_whole_clip(name: str) -> None:
    model = build(name)
    frames = textured(6, 21, 37)
    streamed = torch.stack(list(stream(model, frames, look_ahead=WHOLE, chunk=2, scene_cuts=False)))
    torch.testing.assert_close(streamed, at_once(model, frames), atol=1e-5, rtol=1e-4)
    assert streamed.std() > 1e-3, "an output without contrast proves nothing"


@every
def test_one_frame_is_a_clip(name: str) -> None:
    model = build(name)
    frames = textured(1, 18, 23)
    (restored,) = stream(model, frames)
    torch.testing.assert_close(restored, at_once(model, frames)[0], atol=1e-5, rtol=1e-4)


@every
def test_a_scene_cut_is_a_new_video(name: str) -> None:
    """Whatever a network carries from frame to frame, past and future, ends there."""
    model = build(name)
    first = textured(3, 16, 24)
    second = [1 - frame for frame in first]
    whole = list(stream(model, first + second, chunk=2))
    apart = [*stream(model, first, chunk=2), *stream(model, second, chunk=2)]
    assert all(torch.equal(a, b) for a, b in zip(whole, apart, strict=True))
    assert not torch.allclose(whole[0], whole[3], atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_weights_file_is_the_network(architecture: str, tmp_path: Path) -> None:
    kind = ARCHITECTURES[architecture]
    model = build(next(name for name, preset in PRESETS.items() if type(preset.config) is kind))
    weights.save(model, tmp_path / "net.safetensors")
    again = weights.load(tmp_path / "net.safetensors")
    assert type(again) is type(model) and again.config == model.config
    frames = textured(3, 16, 32)
    assert torch.equal(at_once(again, frames), at_once(model, frames))


def test_the_example_in_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```\n\nprints `(.*?)`", text, re.DOTALL)
    exec(compile(example[0], "docs/models.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip() == example[1]


def test_the_documentation_knows_every_preset_and_recipe() -> None:
    root = Path(__file__).parent.parent
    text = (root / "docs" / "models.md").read_text(encoding="utf-8")
    assert [name for name in PRESETS if f"| `{name}` |" not in text] == []
    assert [
        path.name for path in (root / "recipes" / "zoo").glob("*.toml") if f"zoo/{path.name}`" not in text
    ] == []


@pytest.mark.parametrize("name", NARROW)
def test_features_may_come_frame_by_frame(name: str) -> None:
    """As they do when they are offloaded, which only a network may ask for that fetches them one by one."""
    model = build(name)
    assert model.contract.offloads == (type(model).propagate_frames is not Deblurrer.propagate_frames)
    with torch.no_grad():
        features = model.extract(clip(5))
        frames = [tuple(x[:, t] for x in features) for t in range(5)]
        keep = 5 - model.contract.look_ahead if model.contract.family != "bidirectional" else 3
        together, after = model.propagate(features, None, keep)
        apart, after_apart = model.propagate_frames(frames, None, keep)
    for one, other in zip((*together, *after), (*apart, *after_apart), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
