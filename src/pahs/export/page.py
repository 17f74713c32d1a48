"""A folder that any static server serves: a page that restores videos inside the browser, by ONNX graphs.

The page is in `static/`; what it shares with the page of `pahs serve` comes from there. Two packages of npm run in it,
fetched by `npm pack` in exact versions: onnxruntime-web computes, mediabunny reads and writes video files.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pahs.backends.graphs import Description, is_folder_of_graphs
from pahs.errors import PahsError
from pahs.export.folder import export
from pahs.files import cache_folder, remove, whole

GRAPHS, RUNTIME = "graphs", "runtime"
SHARED = ("app.css", "viewer.css", "dom.js", "theme.js", "viewer.js", "icon.svg")
"""Files of the page of `pahs serve` that this one uses too."""
NPM_SECONDS = 300


@dataclass(frozen=True)
class Package:
    """A package of npm in one version."""

    name: str
    version: str
    sha256: str
    """Of the archive that `npm pack` writes."""
    licence: str
    members: tuple[str, ...]
    """The files of it that the page loads."""

    @property
    def archive(self) -> str:
        return f"{self.name}-{self.version}.tgz"


PACKAGES = (
    Package(
        "onnxruntime-web",
        "1.30.0",
        "d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71",
        "MIT",
        (
            *("dist/ort.wasm.min.mjs", "dist/ort-wasm-simd-threaded.mjs", "dist/ort-wasm-simd-threaded.wasm"),
            *("dist/ort.webgpu.min.mjs", "dist/ort-wasm-simd-threaded.asyncify.mjs"),
            "dist/ort-wasm-simd-threaded.asyncify.wasm",
        ),
    ),
    Package(
        "mediabunny",
        "1.61.0",
        "2105c960b161cbfcba037c91527e73b89d5208e92d6fb64a14000e7addbe1a8f",
        "MPL-2.0",
        ("dist/bundles/mediabunny.min.mjs",),
    ),
)


def export_page(
    model: str | Path,
    output: Path,
    runtime: Path | None = None,
    random_weights: bool = False,
    overwrite: bool = False,
    quiet: bool = True,
) -> Description:
    """Write page, graphs and runtime into the folder `output`, whole or not at all.

    `runtime` is a folder with the packages' archives; without one they are taken from the cache, or fetched into it.
    """
    ours = is_folder_of_graphs(output / GRAPHS)
    if output.exists() and not (overwrite and ours):
        hint = "use --overwrite or name another folder" if ours else "name another folder"
        raise PahsError(f"{output}: exists already; {hint}")
    archives = find_archives(runtime)
    with whole(output) as partial:
        partial.mkdir()
        about = export(model, partial / GRAPHS, random_weights=random_weights, quiet=quiet)
        for file in (files("pahs") / "export" / "static").iterdir():
            (partial / file.name).write_bytes(file.read_bytes())
        for name in SHARED:
            (partial / name).write_bytes((files("pahs") / "web" / "static" / name).read_bytes())
        (partial / RUNTIME).mkdir()
        for package, archive in archives.items():
            unpack(package, archive, partial / RUNTIME)
        (partial / "README.md").write_text(readme(about), encoding="utf-8")
        if output.exists():
            remove(output)
    return about


def find_archives(folder: Path | None) -> dict[Package, Path]:
    """Where the packages' archives are, each of them checked."""
    if folder is None:
        folder = cache_folder() / "npm"
        fetch(folder)
    found = {package: folder / package.archive for package in PACKAGES}
    for package, archive in found.items():
        if not archive.is_file():
            raise PahsError(f"--runtime {folder}: holds no {archive.name}; {_by_hand(PACKAGES)} in it")
        with archive.open("rb") as opened:
            if hashlib.file_digest(opened, "sha256").hexdigest() != package.sha256:
                raise PahsError(
                    f"{archive}: is damaged or another file, its checksum does not match; remove it"
                )
    return found


def fetch(folder: Path) -> None:
    """Let npm fetch the archives that a folder lacks; it knows the registry and the proxy of this machine."""
    packages = [package for package in PACKAGES if not (folder / package.archive).is_file()]
    if not packages:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise PahsError(
            f"the page needs {' and '.join(p.archive for p in packages)} from npm, which is not installed; "
            f"where it is, {_by_hand(packages)}, and name that folder with --runtime"
        )
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{package.name}@{package.version}" for package in packages]
    try:
        subprocess.run(
            [npm, "pack", "--silent", "--pack-destination", str(folder), *names],
            check=True,
            capture_output=True,
            timeout=NPM_SECONDS,
            text=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines() or [""]
        raise PahsError(f"npm cannot fetch {' and '.join(names)}: {said[-1]}") from None


def _by_hand(packages: Sequence[Package]) -> str:
    return "run `npm pack " + " ".join(f"{package.name}@{package.version}" for package in packages) + "`"


def unpack(package: Package, archive: Path, folder: Path) -> None:
    """Take the files that the page loads out of an archive, which was checked, so that they lie side by side."""
    with tarfile.open(archive) as opened:
        for member in package.members:
            source = opened.extractfile(f"package/{member}")
            assert source is not None, member
            with source, (folder / Path(member).name).open("wb") as target:
                shutil.copyfileobj(source, target)


def readme(about: Description) -> str:
    used = "\n".join(f"- `runtime/` holds {p.name} {p.version} of npm, {p.licence}" for p in PACKAGES)
    return f"""# A page that restores videos inside the browser

Serve this folder and open it; nothing that is chosen there leaves the browser:

    python -m http.server

Any static server will do, by https or on the machine itself: browsers decode video for no other pages.

- `graphs/` holds {about.model} as ONNX, written by pahs {about.pahs}; {about.licence}
{used}
- the rest is the page, {about.licence if about.licence == "Apache-2.0" else "Apache-2.0"}
"""
