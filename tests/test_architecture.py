"""How src/pahs is built: imports point one way, files are short, and the top level is a table of contents."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

SMALL = ("errors", "levels", "configs", "progress", "choices", "files")
"""Small files without a network or a video in them."""

ARROWS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "levels": (),
    "configs": (),
    "progress": (),
    "choices": ("errors",),
    "files": ("errors",),
    # Rooms that know nothing of each other. The only kernels that video uses are copies to and from a GPU.
    "kernels": SMALL,
    "networks": (*SMALL, "kernels.ops"),
    "video": (*SMALL, "kernels.streams"),
    "data": SMALL,
    "evaluation.metrics": (),
    # video file -> video file
    "engine": (*SMALL, "kernels", "networks"),
    "runtime": (*SMALL, "networks", "engine"),
    # Networks as graphs: what is in a folder of them, how they run, and how they are written.
    "backends.graphs": (*SMALL, "networks.contract"),
    "backends.sessions": SMALL,
    "backends.network": (*SMALL, "networks", "engine"),
    "export": (
        *(*SMALL, "networks", "engine", "runtime", "data.street", "evaluation.metrics"),
        *("backends.graphs", "backends.sessions", "backends.network"),
    ),
    "backends": (*SMALL, "networks", "engine", "runtime", "export"),
    "deblur": (*SMALL, "networks", "engine", "runtime", "backends.load", "video"),
    "vapoursynth": (*SMALL, "networks", "engine", "runtime"),
    # Many machines: a plan as data, its units of work, and a batch on Ray.
    "cluster": (*SMALL, "networks", "engine", "runtime", "video", "deblur"),
    "inspect": (*SMALL, "networks", "runtime", "backends.load", "video", "deblur"),
    # photos, videos, datasets -> training -> weights -> evaluation -> report
    "evaluation": (*SMALL, "networks", "engine", "data.layouts"),
    "training.footage": (*SMALL, "data", "video"),
    "training": (*SMALL, "networks", "kernels.training", "engine", "runtime", "data", "evaluation.metrics"),
    # Measurements, and the pictures that are drawn of them. They may look into every room.
    "benchmarks": (
        *(
            *SMALL,
            "networks",
            "engine",
            "runtime",
            "backends",
            "video",
            "data.layouts",
            "deblur",
            "evaluation",
        ),
        "training",
    ),
    "figures": (*SMALL, "benchmarks"),
    # What users import.
    "version": (*SMALL, "engine", "runtime", "backends.load", "deblur"),
    # One file for each command.
    "synthesize": (*SMALL, "data", "video", "training.footage"),
    "train": (*SMALL, "training"),
    "evaluate": (*SMALL, "data", "networks", "engine", "runtime", "backends", "evaluation", "version"),
    "bench": (*SMALL, "networks", "runtime", "benchmarks", "figures"),
    "demo": (*SMALL, "data", "video", "runtime", "backends.load", "deblur", "evaluation.metrics"),
    # The paper again: trains its arms, judges its claims, writes the report.
    "reproduce": (
        *(*SMALL, "networks", "engine", "runtime", "video", "data", "training", "evaluation", "benchmarks"),
        *("figures", "version", "train", "evaluate"),
    ),
    # The web page: a queue on disk, a server, and workers that call `deblur`.
    "web": (*SMALL, "networks", "runtime", "backends.load", "video", "deblur", "inspect", "version"),
    "cli": (
        *(
            *SMALL,
            "video",
            "data",
            "runtime",
            "evaluation.options",
            "benchmarks",
            "figures",
            "version",
            "export",
            "backends.load",
        ),
        *("deblur", "inspect", "demo", "synthesize", "train", "evaluate", "bench", "web", "reproduce"),
        "cluster",
    ),
    "__main__": ("cli",),
}
"""Who may import whom, room by room and bottom up: an entry names only rooms above it in this table.

`room.module` stands for that module alone; an entry of its own goes before its room's. "version" is
`pahs/__init__.py`, the public interface, which its own submodules import for the version number only.
"""


def modules() -> dict[str, Path]:
    """Each module of the package by its dotted name without `pahs.`; the package itself is called version."""
    found = {}
    for path in sorted((SOURCE / "pahs").rglob("*.py")):
        parts = path.relative_to(SOURCE / "pahs").with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name or "version"] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of `known` that a file imports anywhere: at its top, inside functions, and for types only.

    What is imported for types counts, because a type in a signature is knowledge about its room as well.
    """
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name of the module"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.add(inner if inner.removeprefix("pahs.") in known else str(node.module))
    ours = {name.removeprefix("pahs.") for name in names if name.startswith("pahs.")}
    return (ours | ({"version"} if "pahs" in names else set())) & set(known)


GRAPH = {name: imports(path, modules()) - {name} for name, path in modules().items()}


def covers(entry: str, name: str) -> bool:
    return name == entry or name.startswith(f"{entry}.")


def test_no_module_imports_itself_through_others() -> None:
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle of imports: {' <- '.join(error.args[1])}")


def test_imports_point_one_way() -> None:
    broken = []
    for name, targets in GRAPH.items():
        entry = next((entry for entry in ARROWS if covers(entry, name)), None)
        assert entry is not None, f"pahs.{name}: say in ARROWS what this room may import"
        room = name.split(".")[0]
        for target in sorted(targets):
            if not any(covers(allowed, target) for allowed in (room, *ARROWS[entry])):
                broken.append(f"pahs.{name} imports pahs.{target}")
    assert not broken, "; ".join(broken)


def test_the_table_of_arrows_has_no_cycle_and_no_dead_entry() -> None:
    rooms = list(ARROWS)
    for place, entry in enumerate(rooms):
        for allowed in ARROWS[entry]:
            assert allowed.split(".")[0] in rooms[:place] or allowed in rooms[:place], f"{entry} -> {allowed}"
    for entry in rooms:
        assert any(covers(entry, name) for name in GRAPH), f"there is no pahs.{entry}"


def test_a_broken_arrow_is_seen(tmp_path: Path) -> None:
    """Imports are found wherever they stand."""
    file = tmp_path / "module.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from pahs.video import VideoInfo\n"
        "def late():\n    from pahs.engine import plan\n    import pahs.kernels.ops\n    from pahs import deblur\n"
    )
    assert imports(file, modules()) == {"video", "engine.plan", "kernels.ops", "deblur"}


def test_the_top_level_stays_a_table_of_contents() -> None:
    files = sorted(path.name for path in (SOURCE / "pahs").glob("*.py"))
    assert len(files) <= 15, f"{len(files)} files: {', '.join(files)}; move one into a room"


def test_the_map_names_every_room_and_file_at_the_top() -> None:
    page = (SOURCE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [path.parent for path in (SOURCE / "pahs").glob("*/__init__.py")]
    assert [room.name for room in rooms if f"| `src/pahs/{room.name}/` |" not in page] == []
    files = [path.name for path in (SOURCE / "pahs").glob("*.py") if not path.name.startswith("__")]
    assert [name for name in files if f"`{name}`" not in page] == []


def test_files_are_short() -> None:
    long = {
        name: length
        for name, path in modules().items()
        if (length := len(path.read_text().splitlines())) > 350
    }
    assert not long, f"split {long}"
