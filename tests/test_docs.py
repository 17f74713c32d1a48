"""README.md and docs/ are true: their commands run or parse, their Python runs, and the files they name exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from clips import decoded, make_clip
from pahs.cli import app, main

ROOT = Path(__file__).parents[1]
PAGES = {page.name: page.read_text("utf-8") for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))}
README = PAGES["README.md"]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


COMMAND = re.compile(r"(pahs|make|pip|uv|pipx|pytest|torchrun|\.) \S")


def blocks(text: str) -> list[str]:
    """The shell commands in a page's indented lines, continued ones joined, without comments."""
    joined = re.sub(r"\\\n\s+", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = re.findall(r"^    (\S.*)$", joined, re.MULTILINE)
    return [re.sub(r"\s+#.*", "", line) for line in lines if COMMAND.match(line)]


def inline(text: str) -> list[str]:
    """The shell commands between a page's words, which need not be complete."""
    return [line for line in re.findall(r"`([^`\n]+)`", text) if COMMAND.match(line)]


def test_the_commands_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_clip(tmp_path / "shaky.mp4", frames=3, audio="aac")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    makefile = (ROOT / "Makefile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    seen = set()
    for command in blocks(README) + inline(README):
        words = shlex.split(command)
        seen.add(" ".join(words[:2]))
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), command
        elif words[0] == ".":
            assert words[1] == ".venv/bin/activate" and "VENV ?= .venv\n" in makefile
        elif words[0] in ("uv", "pipx"):
            assert "install" in words[1:3] and "constraints.txt" in command, (
                command
            )  # make test-tools runs it
        elif words[0] == "pip":
            assert words[1:3] == ["install", "-c"] and (ROOT / words[3]).is_file(), command
        elif words[1] in ("--install-completion", "serve"):
            app.parse_args(words[1:], exit_on_error=False, print_error=False)
        else:
            assert words[0] == "pahs" and main(words[1:]) in (0, None), (command, capsys.readouterr().err)
    assert {"make demo", "make test", "pahs deblur", "pip install"} <= seen
    assert len(decoded(tmp_path / "shaky-deblurred.mp4")) == 3
    for extra in re.findall(r"\.\[(\w+)\]", README):
        assert extra in extras, extra


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clip(tmp_path / "shaky.mp4", frames=3)
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (3, 48, 64, 3), np.uint8)
    names: dict[str, object] = {"frames": list(noise)}
    examples = PYTHON.findall(README)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    assert len(decoded(tmp_path / "sharp.mp4")) == 3
    sharp = names["sharp"]
    assert isinstance(sharp, np.ndarray) and sharp.shape == (48, 64, 3) and sharp.dtype == np.uint8


@pytest.mark.parametrize("page", PAGES)
def test_the_command_line_takes_the_commands_of_a_page(page: str) -> None:
    for command in blocks(PAGES[page]):
        _, pahs, options = command.partition("pahs ")
        if pahs and "..." not in options:
            app.parse_args(shlex.split(options), exit_on_error=False, print_error=False)
    for command in inline(PAGES[page]):
        words = command.split()
        if words[0] == "pahs" and words[1].isalpha():
            assert words[1] in app, f"{page}: {command}"


@pytest.mark.parametrize("page", PAGES)
def test_the_files_and_modules_that_a_page_names_exist(page: str) -> None:
    text = PAGES[page]
    for path in re.findall(r"\b((?:src|tests|docs|recipes)/[\w./-]*\w/?)", text):
        assert (ROOT / path).exists() or "NAME" in path, f"{page}: {path}"
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT if (ROOT / page).exists() else ROOT / "docs") / link).exists(), f"{page}: {link}"
    for name in re.findall(r"\bpahs(?:\.[A-Za-z_]\w*)+", text):
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
