"""The check before a release: it passes for what is built here, and says what is wrong with a damaged wheel or tree."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import release

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and source archive of this tree, as `make dist` builds them."""
    if not (ROOT / ".git").exists():
        pytest.skip("the tree is no git checkout, and what belongs into a wheel is what git tracks")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "-o", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    return folder


def test_what_is_built_here_is_complete(built: Path) -> None:
    assert release.built_problems(built, ROOT) == []
    assert release.built_problems(built / "nothing", ROOT)[0].endswith("run `make dist`")


def test_a_damaged_wheel_is_refused(built: Path, tmp_path: Path) -> None:
    """Each file that lacks, differs or does not belong is named."""
    wheel = next(built.glob("*.whl"))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(tmp_path / wheel.name, "w") as new:
        for name in old.namelist():
            if not name.endswith(("pahs-t.safetensors", "licenses/LICENSE", "web/static/index.html")):
                new.writestr(name, old.read(name) + (b"#" if name.endswith("networks/snla.py") else b""))
        new.writestr("tests/test_cli.py", "")
    assert release.wheel_problems(tmp_path / wheel.name, ROOT) == [
        f"{wheel.name}: lacks pahs/bundled/pahs-t.safetensors",
        f"{wheel.name}: lacks pahs/web/static/index.html",
        f"{wheel.name}: tests/test_cli.py does not belong there",
        f"{wheel.name}: pahs/networks/snla.py is not the one of the tree",
        f"{wheel.name}: lacks the licence",
    ]


def test_metadata_is_read() -> None:
    metadata = message_from_string(
        "Name: pahs\nVersion: 1.2.2\nLicense-Expression: MIT\nSummary: Video\nRequires-Python: >=3.11\n"
        "Project-URL: Home, https://your-host/pahs\n"
    )
    assert release.metadata_problems(metadata, "1.2.3") == [
        "its Version is 1.2.2, not 1.2.3",
        "its License-Expression is MIT, not Apache-2.0",
        "the address Home, https://your-host/pahs is invented",
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A committed tree that is ready to be released as 1.2.3."""
    (tmp_path / "src" / "pahs").mkdir(parents=True)
    (tmp_path / "src" / "pahs" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changes\n\n## Unreleased\n\n## 1.2.3\n\nNew.\n\n## 1.2.2\n\nOld.\n"
    )
    release.git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    assert release.tree_problems(tmp_path) == []
    return tmp_path


def commit(tree: Path) -> None:
    release.git(tree, "add", "--all")
    name = ("-c", "user.name=A", "-c", "user.email=a@localhost")
    release.git(tree, *name, "commit", "--quiet", "--allow-empty", "-m", "Change")


def test_a_tree_that_is_not_ready_is_refused(tree: Path) -> None:
    changelog = tree / "CHANGELOG.md"
    text = changelog.read_text()
    (tree / "left.txt").write_text("")
    assert release.tree_problems(tree) == ["left.txt: is not committed"]
    (tree / "left.txt").unlink()
    for old, new, said in (
        ("## Unreleased\n", "## Unreleased\n\n- more\n", "CHANGELOG.md: move what is unreleased under 1.2.3"),
        ("## 1.2.3", "## 1.2.4", "CHANGELOG.md: its first version is not 1.2.3, or says nothing"),
        ("New.\n", "", "CHANGELOG.md: its first version is not 1.2.3, or says nothing"),
    ):
        changelog.write_text(text.replace(old, new))
        commit(tree)
        assert release.tree_problems(tree) == [said]
    changelog.write_text(text)
    commit(tree)
    release.git(tree, "tag", "v1.2.3")
    assert release.tree_problems(tree) == []
    commit(tree)
    assert release.tree_problems(tree) == ["the tag v1.2.3 is on another commit; raise the version"]


def test_a_version_is_one_number_in_one_place(tree: Path) -> None:
    (tree / "src" / "pahs" / "__init__.py").write_text('__version__ = "1.2.x"\n')
    commit(tree)
    assert "is no version" in release.tree_problems(tree)[0]
    assert release.version(ROOT)
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'dynamic = ["version"]' in text and 'path = "src/pahs/__init__.py"' in text
