"""README.md and docs/ are true: their commands and their Python run, and the files they name exist.

What needs a GPU, a dataset or a cluster is marked with its reason (`doc_blocks.py`), and parsed.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import shlex
import tomllib
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from clips import decoded, make_clip
from doc_blocks import COMMAND, Block, blocks
from pahs.cli import app, main
from pahs.data.street import paint_street
from pahs.training.recipe_file import load_recipe

ROOT = Path(__file__).parents[1]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text("utf-8")
    for page in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))
}
README = PAGES["README.md"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
RUNNABLE = [page for page in PAGES if page.startswith("docs/") and list(blocks(PAGES[page]))]


def commands(text: str) -> list[str]:
    return [line for block in blocks(text) if block.kind == "shell" for line in block.commands()]


def inline(text: str) -> list[str]:
    """The shell commands between a page's words, which need not be complete."""
    return [line for line in re.findall(r"`([^`\n]+)`", text) if COMMAND.match(line)]


def test_the_commands_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_clip(tmp_path / "shaky.mp4", frames=3, audio="aac")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    seen = set()
    for command in commands(README) + inline(README):
        words = shlex.split(command)
        seen.add(" ".join(words[:2]))
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", MAKEFILE, re.MULTILINE), command
        elif words[0] == ".":
            assert words[1] == ".venv/bin/activate" and "VENV ?= .venv\n" in MAKEFILE
        elif words[0] in ("uv", "pipx"):
            assert "install" in words[1:3] and "constraints.txt" in command, (
                command
            )  # make test-tools runs it
        elif words[0] == "pip":
            assert words[1:3] == ["install", "-c"] and (ROOT / words[3]).is_file(), command
        elif words[1] in ("--install-completion", "serve", "batch"):  # test_cluster_batch.py runs a batch
            app.parse_args(words[1:], exit_on_error=False, print_error=False)
        else:
            assert words[0] == "pahs" and main(words[1:]) in (0, None), (command, capsys.readouterr().err)
    assert {"make demo", "make test", "pahs deblur", "pip install"} <= seen
    assert len(decoded(tmp_path / "shaky-deblurred.mp4")) == 3
    for extra in re.findall(r"\.\[(\w+)\]", README):
        assert extra in EXTRAS, extra


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clip(tmp_path / "shaky.mp4", frames=3)
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (3, 48, 64, 3), np.uint8)
    names: dict[str, object] = {"frames": list(noise)}
    examples = [block.text for block in blocks(README) if block.kind == "python"]
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    assert len(decoded(tmp_path / "sharp.mp4")) == 3
    sharp = names["sharp"]
    assert isinstance(sharp, np.ndarray) and sharp.shape == (48, 64, 3) and sharp.dtype == np.uint8


@pytest.mark.parametrize("page", RUNNABLE)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From top to bottom, in a folder with a video, a folder of videos, and one of photos."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    if any(block.reason is None and block.kind in ("python", "shell") for block in blocks(PAGES[page])):
        lay_out(tmp_path)
    for block in blocks(PAGES[page]):
        where = f"{page}:{block.line}"
        if block.kind == "json":
            json.loads(block.text)
        elif block.kind == "python":
            for module in imported(ast.parse(block.text, where)):
                assert not module.startswith("pahs") or import_module(module), where
            if block.reason is None:
                exec(compile(block.text, where, "exec"), names)
        elif block.kind == "shell" and block.reason is None:
            for command in shortened(block, where):
                run(command, where, monkeypatch, capsys)


def lay_out(folder: Path) -> None:
    make_clip(folder / "shaky.mp4", frames=15, audio="aac")
    (folder / "holiday").mkdir()
    make_clip(folder / "holiday" / "beach.mp4", frames=3)
    (folder / "photos").mkdir()
    street = paint_street()
    for number in range(4):
        street.crop((300 * number, 0, 300 * number + 240, 200)).save(folder / "photos" / f"{number}.png")
    for name in ("docs", "recipes", "examples"):
        (folder / name).symlink_to(ROOT / name)


def shortened(block: Block, where: str) -> list[str]:
    """What a block's commands run as: as shown, or that and some more."""
    shown = block.commands()
    if block.run_as is None:
        return shown
    assert len(shown) == 1 and block.run_as.startswith(shown[0]), f"{where}: it runs as something else"
    return [block.run_as]


def run(
    command: str, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", MAKEFILE, re.MULTILINE), f"{where}: {command}"
    elif words[0] == "pip":
        extras = re.findall(r"\[([\w,]+)\]", command)
        assert words[1] == "install" and {e for each in extras for e in each.split(",")} <= {*EXTRAS}, where
    elif words[0] in ("uv", "pipx"):
        assert command in README, f"{where}: make test-tools runs the README's lines; this is another"
    elif words[0] == "python":
        monkeypatch.setattr("sys.argv", words[1:])
        runpy.run_path(words[1], run_name="__main__")
    else:
        assert words[0] == "pahs", f"{where}: {command}: say why it is not run"
        assert main(words[1:]) in (0, None), (where, command, capsys.readouterr().err)


def imported(tree: ast.Module) -> set[str]:
    """The modules that a program imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_command_line_takes_the_commands_of_a_page(page: str) -> None:
    for command in commands(PAGES[page]):
        _, pahs, options = command.partition("pahs ")
        if pahs and "..." not in options and not options.startswith("/"):
            app.parse_args(shlex.split(options), exit_on_error=False, print_error=False)
        words = shlex.split(options)
        if pahs and words[0] == "train":
            sets = [value for option, value in pairwise(words) if option == "--set"]
            load_recipe(ROOT / words[1], sets)
    for command in inline(PAGES[page]):
        words = command.split()
        if words[0] == "pahs" and words[1].isalpha():
            assert words[1] in app, f"{page}: {command}"


@pytest.mark.parametrize("page", PAGES)
def test_the_files_and_modules_that_a_page_names_exist(page: str) -> None:
    text = PAGES[page]
    for path in re.findall(r"\b((?:src|tests|docs|recipes|examples)/[\w./-]*\w/?)", text):
        assert (ROOT / path).exists() or "NAME" in path, f"{page}: {path}"
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / link).exists(), f"{page}: {link}"
    for name in re.findall(r"(?<![\w/-])pahs(?:\.[A-Za-z_]\w*)+", text):
        parts = name.split(".")
        if parts[-1] not in ("safetensors", "py"):
            resolve(parts)


def resolve(parts: list[str]) -> object:
    """The module, or what a module holds, that dotted names stand for."""
    for length in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(".".join(parts))
