"""What must hold before a version is given away; `make release-check` runs it over a fresh `dist/`.

python tests/release.py dist
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILT = re.compile(r"pahs-(?P<version>[^-]+?)(-py3-none-any\.whl|\.tar\.gz)")
FINAL = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
ENTRY = re.compile(r"^## (.+)$\n((?:(?!## ).*\n?)*)", re.MULTILINE)
NEEDED = ("LICENSE", "Makefile", "README.md", "CHANGELOG.md", "constraints.txt", "pyproject.toml")
"""What somebody with the source alone needs to build and test."""


def git(root: Path, *words: str) -> list[str]:
    found = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if line]


def kept(root: Path, *folders: str) -> set[str]:
    """The files that are committed, or will be: all that .gitignore does not name."""
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders)
    return {name for name in listed if (root / name).is_file()}


def version(root: Path) -> str:
    """The version, from the one file that names it."""
    found = re.search(r'^__version__ = "(.*)"$', (root / "src" / "pahs" / "__init__.py").read_text(), re.M)
    return found[1] if found else ""


def tree_problems(root: Path) -> list[str]:
    """Version, changelog, tag, and a tree in which everything is committed."""
    number = version(root)
    problems = []
    if not FINAL.fullmatch(number):
        problems.append(f"src/pahs/__init__.py: {number!r} is no version; write 1.2.3 or 1.2.3rc1")
    entries = ENTRY.findall((root / "CHANGELOG.md").read_text("utf-8"))
    if entries and entries[0][0] == "Unreleased":
        if entries[0][1].strip():
            problems.append(f"CHANGELOG.md: move what is unreleased under {number}")
        entries = entries[1:]
    if not entries or entries[0][0].split(" ")[0] != number or not entries[0][1].strip():
        problems.append(f"CHANGELOG.md: its first version is not {number}, or says nothing")
    problems += [f"{line[3:]}: is not committed" for line in git(root, "status", "--porcelain")]
    tags = git(root, "tag", "--list", f"v{number}")
    if tags and git(root, "rev-parse", f"{tags[0]}^{{commit}}") != git(root, "rev-parse", "HEAD"):
        problems.append(f"the tag {tags[0]} is on another commit; raise the version")
    return problems


def wheel_problems(wheel: Path, root: Path) -> list[str]:
    """Files and metadata of a wheel: all that git tracks of the package, the licence, and nothing else."""
    number = version(root)
    problems = []
    tracked = {name.removeprefix("src/") for name in kept(root, "src/pahs")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"pahs-{number}.dist-info"
        inside = {name for name in names if not name.startswith(f"{info}/")}
        problems += [f"{wheel.name}: lacks {name}" for name in sorted(tracked - inside)]
        problems += [f"{wheel.name}: {name} does not belong there" for name in sorted(inside - tracked)]
        problems += [
            f"{wheel.name}: {name} is not the one of the tree"
            for name in sorted(tracked & inside)
            if archive.read(name) != (root / "src" / name).read_bytes()
        ]
        if f"{info}/METADATA" not in names:
            return [*problems, f"{wheel.name}: is not of version {number}"]
        if f"{info}/licenses/LICENSE" not in names:
            problems.append(f"{wheel.name}: lacks the licence")
        if b"pahs = pahs.cli:main" not in archive.read(f"{info}/entry_points.txt"):
            problems.append(f"{wheel.name}: lacks the command pahs")
        metadata = BytesParser().parsebytes(archive.read(f"{info}/METADATA"))
    return problems + [f"{wheel.name}: {problem}" for problem in metadata_problems(metadata, number)]


def metadata_problems(metadata: Message, number: str) -> list[str]:
    problems = []
    for field, value in (("Name", "pahs"), ("Version", number), ("License-Expression", "Apache-2.0")):
        if metadata[field] != value:
            problems.append(f"its {field} is {metadata[field]}, not {value}")
    if not metadata["Requires-Python"] or not metadata["Summary"]:
        problems.append("does not say which Python it needs, or what it is")
    for url in metadata.get_all("Project-URL", []):
        if re.search(r"example\.|localhost|your-|TODO", url):
            problems.append(f"the address {url} is invented")
    return problems


def source_problems(source: Path, root: Path) -> list[str]:
    """A source archive holds what builds, tests and documents the package, and nothing that git does not track."""
    tracked = kept(root)
    with tarfile.open(source) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if not m.isdir()} - {"PKG-INFO"}
    wanted = {name for name in tracked if name.startswith(("src/", "tests/", "docs/", "recipes/"))} | {
        *NEEDED
    }
    problems = [f"{source.name}: lacks {name}" for name in sorted(wanted - names)]
    return problems + [f"{source.name}: {name} does not belong there" for name in sorted(names - tracked)]


def built_problems(folder: Path, root: Path) -> list[str]:
    """One wheel and one source archive, both of this version."""
    number = version(root)
    wheels, sources = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sources) != 1:
        return [f"{folder}: holds {len(wheels)} wheels and {len(sources)} source archives; run `make dist`"]
    problems = []
    for file in (*wheels, *sources):
        match = BUILT.fullmatch(file.name)
        if match is None or match["version"] != number:
            problems.append(f"{file.name}: is not version {number}")
    return problems + wheel_problems(wheels[0], root) + source_problems(sources[0], root)


def main() -> int:
    problems = tree_problems(ROOT) + built_problems(Path(sys.argv[1]), ROOT)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"version {version(ROOT)} is ready: tag it v{version(ROOT)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
