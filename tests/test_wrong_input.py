"""Wrong input is named, not guessed at: frames, weights, options and files."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import pahs
from clips import make_clip
from pahs.cli import main
from pahs.errors import PahsError
from pahs.networks import PRESETS, Deblurrer
from pahs.runtime.weights import save
from pahs.video import outputs_for

U8, TENSOR = np.zeros((32, 40, 3), np.uint8), torch.zeros(3, 32, 40)


@pytest.fixture(scope="module")
def model() -> Deblurrer:
    return PRESETS["pahs-t"].config.build().eval()


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([U8[..., 0]], r"uint8 array \(32, 40\)"),
        ([U8[..., :1]], r"uint8 array \(32, 40, 1\)"),
        ([np.zeros((32, 40, 4), np.uint8)], r"\(32, 40, 4\)"),
        ([U8.astype(np.float32)], "float32 array"),
        ([U8.astype(np.uint16)], "uint16 array"),
        ([U8.transpose(2, 0, 1)], r"\(3, 32, 40\)"),
        ([None], "NoneType"),
        ([U8, None], "NoneType"),
        ([U8, TENSOR], "float32 tensor .* after frames of type ndarray"),
        ([TENSOR, U8], "after frames of type Tensor"),
        ([TENSOR.byte()], "uint8 tensor"),
        ([TENSOR.long()], "int64 tensor"),
        ([TENSOR.permute(1, 2, 0)], r"\(32, 40, 3\)"),
        ([torch.full((3, 32, 40), 200.0)], "reaches 200; frames are in"),
        ([torch.full((3, 32, 40), torch.nan)], "reaches nan"),
        ([Image.new("RGB", (40, 32))], "got Image"),
        ("clip.mp4", "got str"),
        ([U8[:8]], "frames are 40x8; the smallest is 16x16"),
        ([U8, U8[:16]], "changes from 40x32 to 40x16"),
    ],
)
def test_frames_that_are_none(model, frames, words):
    with pytest.raises(PahsError, match=words):
        list(pahs.stream(model, frames))


def test_frames_that_may_not_be_written_and_views(model):
    picture = np.asarray(Image.effect_noise((40, 32), 90).convert("RGB"))
    assert not picture.flags.writeable
    with warnings.catch_warnings(action="error"):
        (result,) = pahs.stream(model, [picture])
        (mirrored,) = pahs.stream(model, [picture[:, ::-1][:, ::-1]])
    np.testing.assert_array_equal(result, mirrored)
    assert list(pahs.stream(model, [])) == []


def test_a_model_whose_training_diverged(model, tmp_path):
    broken = PRESETS["pahs-t"].config.build().eval()
    with torch.no_grad():
        list(broken.parameters())[5].view(-1)[0] = torch.nan
    with pytest.raises(PahsError, match="not numbers"):
        list(pahs.stream(broken, [U8]))
    save(broken, tmp_path / "net.safetensors")
    with pytest.raises(PahsError, match=r"net\.safetensors: holds values that are not numbers"):
        pahs.load(tmp_path / "net.safetensors")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[1, 2]", "it is a list"),
        ("null", "it is a NoneType"),
        ('"x"', "it is a str"),
        ("{", "cannot be used"),
        ("[" * 100_000, "cannot be used"),
        ({"width": 50_000}, "do not fit its configuration"),
        ({"width": 10**12}, "more than any network has"),
        ({"look_ahead": [[10**12]]}, "more than any network has"),
        ({"width": 1e300}, "more than any network has"),
        ({"width": None}, "width is None"),
        ({"refine": 5}, "refine"),
    ],
)
def test_weights_with_a_strange_configuration(model, tmp_path, config, words):
    good = tmp_path / "good.safetensors"
    save(model, good)
    header = json.loads(good.read_bytes()[8 : 8 + int.from_bytes(good.read_bytes()[:8], "little")])
    metadata = header["__metadata__"]
    text = config if isinstance(config, str) else json.dumps({**json.loads(metadata["config"]), **config})
    save_file(load_file(good), tmp_path / "bad.safetensors", {**metadata, "config": text})
    with pytest.raises(PahsError, match=words) as caught:
        pahs.load(tmp_path / "bad.safetensors")
    assert "bad.safetensors" in str(caught.value) and "\n" not in str(caught.value)


def test_weights_that_cannot_be_read(model, tmp_path):
    path = tmp_path / "locked" / "net.safetensors"
    path.parent.mkdir()
    save(model, path)
    root = os.geteuid() == 0
    for folder in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        folder.chmod(0o755)
    for locked in (path, path.parent):
        mode = locked.stat().st_mode
        locked.chmod(0)
        if root:
            os.seteuid(65534)  # permissions do not bind root
        try:
            with pytest.raises(PahsError, match=r"net\.safetensors: cannot be read"):
                pahs.load(path)
        finally:
            if root:
                os.seteuid(0)
            locked.chmod(mode)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "-o", "a.mp4", "--frames", "2"], "a.mp4: no folder can be made"),
        (["demo", "--frames", "0"], "--frames 0"),
        (["demo", "--frames", "-3"], "--frames -3"),
        (["deblur", "a.mp4", "--crf", "20", "--lossless"], "exclude each other"),
        (["deblur", "tiny.mkv", "--model", "pahs-t"], "tiny.mkv: is 12x10; the smallest is 16x16"),
        (["deblur", "moving.webp"], "animated images are not read"),
        (["deblur", "moving.png"], "animated images are not read"),
        (["deblur", "still.png"], "is a single image"),
        (["deblur", "a.mp4", "--memory", "nan"], "--memory nan: it must be above 0"),
        (["deblur", "a.mp4", "--memory", "inf"], "--memory inf: it must be above 0"),
        (["deblur", "a.mp4", "--memory", "1e300"], "--memory 1e+300: it must be above 0"),
        (["deblur", "a.mp4", "--preview", "inf"], "--preview inf"),
        (["inspect", "a.mp4", "--preview", "inf"], "--preview inf"),
        (["synthesize", ".", "-o", "data", "--rate", "nan"], "folder rate: must be from 0.1"),
        (["synthesize", ".", "-o", "data", "--rate", "1e-320"], "folder rate: must be from 0.1"),
        (["visualize", "a.mp4", "--frame", "0", "-o", "still.png"], "still.png: no folder can be made"),
        (["synthesize", "noise.mp4", "-o", "data", "--count", "1"], "noise.mp4"),
    ],
)
def test_one_line_and_nothing_left(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    make_clip(Path("a.mp4"), frames=2)
    make_clip(Path("tiny.mkv"), frames=2, width=12, height=10, codec="ffv1")
    Path("noise.mp4").write_bytes(b"no video" * 100)
    frames = [Image.new("RGB", (64, 64), (40 * i, 0, 0)) for i in range(3)]
    for name in ("moving.webp", "moving.png"):
        frames[0].save(name, save_all=True, append_images=frames[1:])
    frames[0].save("still.png")
    before = {p: p.read_bytes() for p in Path().iterdir()}
    assert main(arguments) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert {p: p.read_bytes() if p.is_file() else None for p in Path().iterdir()} == before


def test_any_look_ahead_and_chunk_above_the_length_mean_the_whole(model):
    frames = [np.roll(np.asarray(Image.effect_noise((40, 32), 90).convert("RGB")), n, 1) for n in range(4)]
    whole = list(pahs.stream(model, frames, look_ahead=4, chunk=4))
    for number in (10**6, 2**63, 10**25):
        for a, b in zip(pahs.stream(model, frames, look_ahead=number, chunk=number), whole, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_folder_that_holds_one_video_or_several(tmp_path, model):
    folder = tmp_path / "clips"
    folder.mkdir()
    make_clip(folder / "a.mp4", frames=2)
    assert outputs_for([folder], tmp_path / "out.mkv") == [(folder / "a.mp4", tmp_path / "out.mkv")]
    assert outputs_for([folder], tmp_path / "out") == [
        (folder / "a.mp4", tmp_path / "out" / "a-deblurred.mp4")
    ]
    assert pahs.deblur(folder, tmp_path / "out.mkv", model=model).dst == tmp_path / "out.mkv"
    make_clip(folder / "b.mp4", frames=2)
    with pytest.raises(PahsError, match="holds 2 videos; call deblur for each"):
        pahs.deblur(folder, model=model)
    assert sorted(os.listdir(folder)) == ["a.mp4", "b.mp4"]  # noqa: PTH208
