"""Every name that the file system allows, as input and as output."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import pahs
from clips import decoded, make_clip
from pahs.cli import main
from pahs.errors import PahsError
from pahs.networks import PRESETS
from pahs.runtime.weights import save
from pahs.video import outputs_for, transform

NAMES = [
    "[Group] Show - 01", "[1, 2]", '["a", "b"]', "[red]", "{a,b}", "Talk: intro", "file:x", "http:__x", "concat:a|b",
    "pipe:1", "data:,x", "-lead", "--model", "a%03d", "%d", "a*b?", "$HOME `ls` 'q' \"", "back\\slash", "line\nbreak",
    "\x1b[31mred", " blank ", "ü€日本", "日" * 80, "n" * 236, os.fsdecode(b"not \xff\xfe text"),
]  # fmt: skip


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", frames=2).path


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.safetensors"
    save(PRESETS["pahs-t"].config.build(), path)
    return path


def names(folder: Path = Path()) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def identity(frames):
    yield from frames


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("name", NAMES)
def test_a_video_of_any_name(tmp_path, monkeypatch, clip, name, suffix, absolute):
    monkeypatch.chdir(tmp_path)
    source = (tmp_path if absolute else Path()) / (name + ".mp4")
    target = (tmp_path if absolute else Path()) / "out" / (name + suffix)
    source.write_bytes(clip.read_bytes())
    assert transform(source, target, identity).frames == 2
    assert names(tmp_path) == sorted([name + ".mp4", "out"])
    assert names(tmp_path / "out") == [name + suffix]
    target.rename("plain" + suffix)
    assert len(decoded(Path("plain" + suffix))) == 2


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("-")] + ["./dot"])
def test_the_command_takes_any_name(tmp_path, monkeypatch, capsys, clip, net, name):
    monkeypatch.chdir(tmp_path)
    Path(name + ".mp4").write_bytes(clip.read_bytes())
    assert main(["deblur", name + ".mp4", "--model", str(net), "-o", f"out/{name}.mkv"]) == 0
    assert names(Path("out")) == [Path(name).name + ".mkv"]
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and "\x1b" not in out + err
    assert main(["deblur", name + ".mp4", "--model", str(net), "-o", f"out/{name}.mkv"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "\x1b" not in error and "--overwrite" in error


def test_names_with_a_leading_dash(tmp_path, monkeypatch, capsys, clip, net):
    monkeypatch.chdir(tmp_path)
    Path("-lead.mp4").write_bytes(clip.read_bytes())
    assert main(["deblur", "-lead.mp4", "--model", str(net)]) == 2
    assert "./-lead.mp4" in capsys.readouterr().err
    assert main(["deblur", "--model", str(net), "--output=-out.mp4", "--", "-lead.mp4"]) == 0
    assert main(["deblur", "--model", str(net), "./-lead.mp4"]) == 0
    assert names() == ["-lead-deblurred.mp4", "-lead.mp4", "-out.mp4"]


def test_a_gif_whose_name_looks_like_a_pattern(tmp_path):
    frames = [Image.new("RGB", (64, 64), (40 * i, 0, 0)) for i in range(3)]
    frames[0].save(tmp_path / "shot%03d.gif", save_all=True, append_images=frames[1:])
    assert transform(tmp_path / "shot%03d.gif", tmp_path / "out.mkv", identity).frames == 3


@pytest.mark.parametrize("name", ["[a]: %03d", "line\nbreak", os.fsdecode(b"\xff"), "日" * 70])
def test_an_image_folder_of_any_name(tmp_path, name):
    source, target = tmp_path / name, tmp_path / "out" / name
    source.mkdir()
    (tmp_path / "out").mkdir()
    for i in range(3):
        Image.new("RGB", (32, 24), (i, 2, 3)).save(source / f"{name} {i}.png", "PNG")
    assert transform(source, target, identity).frames == 3
    assert names(target) == names(source)


def test_a_name_that_is_too_long_is_one_line(tmp_path, clip, capsys):
    assert main(["deblur", str(tmp_path / ("n" * 300))]) == 2
    assert "File name too long" in capsys.readouterr().err
    source = tmp_path / ("n" * 250 + ".mp4")
    source.write_bytes(clip.read_bytes())
    assert main(["deblur", str(source), "--model", "pahs-t"]) == 2
    error = capsys.readouterr().err
    assert "too long" in error and error.count("\n") == 1
    assert names(tmp_path) == [source.name]


@pytest.mark.parametrize(
    "arguments",
    [["deblur", ""], ["deblur", "x.mp4", "-o", ""], ["deblur", "x.mp4", "--output="], ["demo", "-o="]],
)
def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch, capsys, clip, arguments):
    monkeypatch.chdir(tmp_path)
    Path("x.mp4").write_bytes(clip.read_bytes())
    assert main(arguments) == 2
    assert "is empty" in capsys.readouterr().err
    assert names() == ["x.mp4"]
    for paths in (("",), ("x.mp4", "")):
        with pytest.raises(PahsError, match="is empty"):
            pahs.deblur(*paths)


def test_pipes_and_devices_are_named(tmp_path, capsys, clip):
    assert main(["deblur", "-"]) == 2
    assert "pipes" in capsys.readouterr().err
    os.mkfifo(tmp_path / "in.mp4")
    assert main(["deblur", str(tmp_path / "in.mp4"), "--model", "pahs-t"]) == 2
    assert "is a pipe" in capsys.readouterr().err
    with pytest.raises(PahsError, match="is a pipe or a device"):
        transform(clip, tmp_path / "in.mp4", identity, overwrite=True)
    assert stat.S_ISFIFO((tmp_path / "in.mp4").stat().st_mode)


def test_the_bar_on_a_terminal_takes_any_name(tmp_path, clip, net):
    """Rich reads brackets as markup."""
    source = tmp_path / "[red] [bold]x.mp4"
    source.write_bytes(clip.read_bytes())
    terminal, other = pty.openpty()
    command = [sys.executable, "-m", "pahs", "deblur", str(source), "--model", str(net)]
    done = subprocess.run(command, stderr=other, stdout=subprocess.PIPE, timeout=60, check=False)
    os.close(other)
    shown = os.read(terminal, 100_000)
    os.close(terminal)
    assert done.returncode == 0, shown
    assert b"[red] [bold]x.mp4" in shown


def test_results_can_be_printed_in_any_locale(tmp_path, clip, net):
    source = tmp_path / "ü €.mp4"
    source.write_bytes(clip.read_bytes())
    command = [sys.executable, "-m", "pahs", "deblur", str(source), "--model", str(net)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_folders_without_permission_are_one_line(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "a.mp4").touch()
    folder.chmod(0)
    root = os.geteuid() == 0
    if root:
        tmp_path.chmod(0o755)
        os.seteuid(65534)  # permissions do not bind root
    try:
        with pytest.raises(PahsError, match="cannot be used"):
            outputs_for([folder])
        with pytest.raises(PahsError, match="cannot be used"):
            outputs_for([folder / "a.mp4"])
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
