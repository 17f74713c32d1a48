"""What every network of the zoo has in common: a file in and a file out, streams, weights files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clips import decoded, make_clip, moving_texture
from pahs import cli, weights
from pahs.engine import stream
from pahs.networks import ARCHITECTURES, PRESETS, Deblurrer
from pahs.networks.pwcnet import PWCConfig

NARROW: dict[str, dict[str, Any]] = {
    "pahs": {"width": 12},
    "lstm": {"width": 4, "blocks": 1},
    "ovd": {"width": 8, "blocks": 1},
    "ifirnn": {"width": 4, "blocks": 1},
    "stfan": {"width": 4, "filter_size": 3},
    "estrnn": {"width": 4, "blocks": 2},
    "edvr": {"width": 8, "groups": 2, "extract_blocks": 1, "trunk_blocks": 1, "output_width": 8},
    "tsp": {"width": 4, "blocks": 1, "flow": PWCConfig(narrow=16, reach=1)},
    "arvo": {"width": 12, "trunk_blocks": 1},
}
WHOLE = 100
"""A look-ahead that no clip here is longer than."""


def narrow(preset: str) -> Deblurrer:
    """The preset with fewer channels and blocks, and everything else as it is; weights of a lively size."""
    config = PRESETS[preset].config
    architecture = next(name for name, kind in ARCHITECTURES.items() if type(config) is kind)
    model = replace(config, **NARROW[architecture]).build().eval()  # type: ignore[type-var]
    with torch.no_grad():
        for x in model.parameters():
            x.mul_(1.5)
    return model


def clip(frames: int, height: int, width: int) -> list[Tensor]:
    texture = torch.from_numpy(moving_texture(frames, height, width)).float()
    return list(texture.permute(0, 3, 1, 2).contiguous())


def at_once(model: Deblurrer, frames: list[Tensor]) -> Tensor:
    """The whole clip through `forward`, padded and cropped by hand."""
    height, width = frames[0].shape[1:]
    multiple = model.contract.multiple_of
    padded = F.pad(torch.stack(frames), (0, -width % multiple, 0, -height % multiple), mode="reflect")
    with torch.no_grad():
        restored: Tensor = model(padded[None])[0, ..., :height, :width]
    return restored


@pytest.mark.parametrize("name", PRESETS)
def test_every_model_turns_a_video_file_into_one_with_every_frame(name: str, tmp_path: Path) -> None:
    source, target = tmp_path / "clip.mp4", tmp_path / "sharp.mp4"
    make_clip(source, frames=3, width=32, height=16)
    arguments = ["deblur", str(source), "-o", str(target), "--model", name, "--random-weights"]
    assert cli.main([*arguments, "--device", "cpu", "--preset", "ultrafast"]) == 0
    frames = decoded(target)
    assert [(frame.width, frame.height) for frame in frames] == [(32, 16)] * 3


@pytest.mark.parametrize("name", PRESETS)
def test_a_stream_of_odd_frames_is_the_whole_clip(name: str) -> None:
    model = narrow(name)
    frames = clip(6, 21, 37)
    streamed = torch.stack(list(stream(model, frames, look_ahead=WHOLE, chunk=2, scene_cuts=False)))
    torch.testing.assert_close(streamed, at_once(model, frames), atol=1e-5, rtol=1e-4)
    assert streamed.std() > 1e-3, "an output without contrast proves nothing"


@pytest.mark.parametrize("name", PRESETS)
def test_one_frame_is_a_clip(name: str) -> None:
    model = narrow(name)
    frames = clip(1, 18, 23)
    (restored,) = stream(model, frames)
    torch.testing.assert_close(restored, at_once(model, frames)[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", PRESETS)
def test_a_scene_cut_is_a_new_video(name: str) -> None:
    """Whatever a network carries from frame to frame, past and future, ends there."""
    model = narrow(name)
    first = list((moving_texture(3, 16, 24) * 200).astype(np.uint8))
    second = [255 - frame for frame in first]
    whole = list(stream(model, first + second, chunk=2))
    apart = [*stream(model, first, chunk=2), *stream(model, second, chunk=2)]
    assert all(np.array_equal(a, b) for a, b in zip(whole, apart, strict=True))
    assert not np.array_equal(whole[0], whole[3])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_weights_file_is_the_network(architecture: str, tmp_path: Path) -> None:
    kind = ARCHITECTURES[architecture]
    model = narrow(next(name for name, preset in PRESETS.items() if type(preset.config) is kind))
    weights.save(model, tmp_path / "net.safetensors")
    again = weights.load(tmp_path / "net.safetensors")
    assert type(again) is type(model) and again.config == model.config
    frames = clip(3, 16, 32)
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
