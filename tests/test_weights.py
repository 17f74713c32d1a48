"""Weights files: what goes in comes out, and nothing else gets in."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pahs.errors import PahsError
from pahs.networks import PRESETS, PAHSConfig, RefineConfig
from pahs.runtime import weights

CONFIG = PAHSConfig(width=9, global_skip=True, refine=RefineConfig(ping_pongs=2, attention="non-local"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    weights.save(CONFIG.build(), path, {"minutes": "3"})
    return path


def test_a_file_is_enough_to_run_the_network(tmp_path: Path) -> None:
    net = CONFIG.build().eval()
    weights.save(net, tmp_path / "net.safetensors", {"minutes": "3"})
    again = weights.load(tmp_path / "net.safetensors")
    assert again.config == CONFIG
    clip = torch.rand(1, 2, 3, 16, 16)
    assert torch.equal(again(clip), net(clip))
    assert not again.training
    assert weights.describe(tmp_path / "net.safetensors").metadata["minutes"] == "3"
    assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]


def test_half_storage_is_half_as_large_and_reads_as_float32(tmp_path: Path, file: Path) -> None:
    net = weights.read(file)
    weights.save(net, tmp_path / "half.safetensors", half=True)
    assert (tmp_path / "half.safetensors").stat().st_size < 0.7 * file.stat().st_size
    half = weights.read(tmp_path / "half.safetensors")
    for a, b in zip(half.parameters(), net.parameters(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b.half().float())


def rewrite(path: Path, **metadata: str) -> None:
    """The same tensors with other metadata."""
    with safe_open(path, "pt") as f:
        tensors, old = {k: f.get_tensor(k) for k in f.keys()}, f.metadata()  # noqa: SIM118
    save_file(tensors, path, {**old, **metadata})


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.unlink(), "no such weights file"),
        (lambda p: p.write_bytes(b""), "not a readable safetensors file"),
        (lambda p: p.write_bytes(p.read_bytes()[:-100]), "not a readable safetensors file"),
        (lambda p: p.write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR."), "not a readable safetensors file"),
        (flip_last_byte, "checksum does not match"),
        (lambda p: rewrite(p, format="pahs-99"), "weights format is pahs-99"),
        (lambda p: rewrite(p, architecture="gpt"), "unknown architecture 'gpt'"),
        (lambda p: rewrite(p, config="not json"), "configuration cannot be used"),
        (lambda p: rewrite(p, config=json.dumps({"widht": 9})), "did you mean 'width'"),
        (lambda p: rewrite(p, config=json.dumps({"width": "9"})), "width is '9'; it must be int"),
        (lambda p: rewrite(p, config=json.dumps({"width": 12})), "tensors do not fit"),
        (lambda p: save_file({"x": torch.zeros(1)}, p), "weights format is none"),
    ],
)
def test_a_wrong_or_damaged_file_is_named(file: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def]
    damage(file)
    with pytest.raises(PahsError, match=message) as caught:
        weights.load(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(PahsError, match="is a folder"):
        weights.load(tmp_path)


def test_unknown_names_point_to_the_list() -> None:
    with pytest.raises(PahsError, match=r"no model named 'pahs-xl'.*pahs models"):
        weights.load("pahs-xl")


def test_names_without_weights_need_to_be_asked_for() -> None:
    with pytest.raises(PahsError, match="no weights come with model 'pahs-s-paper'"):
        weights.load("pahs-s-paper")
    net = weights.load("pahs-s-paper", random_weights=True)
    assert net.config == PRESETS["pahs-s-paper"].config


def test_nothing_is_left_when_the_target_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.safetensors" / "full").mkdir(parents=True)
    for target in (tmp_path / "file" / "net.safetensors", tmp_path / "folder.safetensors"):
        with pytest.raises(PahsError, match="cannot be written"):
            weights.save(CONFIG.build(), target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.safetensors"]


def test_bundled_weights_are_of_their_preset() -> None:
    names = [name for name in PRESETS if weights.bundled(name)]
    assert "pahs-t" in names
    for name in names:
        assert weights.load(name).config == PRESETS[name].config
