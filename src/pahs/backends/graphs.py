"""What an exported folder says about its graphs: `model.json`, which is all that a runner needs besides them.

Every tensor has a name, and a graph takes by name what another one gives. Tensors are float32 (batch, channels,
height / scale, width / scale), where height and width are those of the padded frame.

    extract        frames -> features                    any number of frames as one batch
    forward        features, state -> latents, state     one frame
    backward       the same, from the last frame to the first; only in bidirectional networks
    reconstruct    frames, latents -> restored           any number of frames; missing where `forward` gives `restored`
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pahs import configs
from pahs.choices import ExportPrecision, GraphFormat
from pahs.errors import PahsError
from pahs.networks.contract import Contract, Family

FORMAT = "pahs-graphs-1"
DESCRIPTION = "model.json"
FRAMES, RESTORED = "frames", "restored"
"""Names of the first and the last tensor of every network."""
SUFFIXES = {"onnx": (".onnx",), "openvino": (".xml", ".bin")}
"""The files of a graph; the first one is opened."""

GraphName = Literal["extract", "forward", "backward", "reconstruct"]


@dataclass(frozen=True)
class Named:
    """A tensor by name."""

    name: str
    channels: int
    scale: int
    """Height and width of the frame are divided by this."""


@dataclass(frozen=True)
class Port(Named):
    """A tensor that a graph takes or gives."""

    reach: int = 0
    """Of an input: so many frames before and after this one are stacked with it along the channels, in their order.
    Where there is none, the nearest frame stands in. `channels` counts those of one frame."""


@dataclass(frozen=True)
class State(Named):
    """A tensor that a step takes from the step before."""

    next: str
    """The tensor that becomes this state: an output of the step, or one of its inputs."""
    start: tuple[str, ...] = ()
    """Before the first frame, the state is the concatenation of these tensors of the first frame; zero if none."""


@dataclass(frozen=True)
class File:
    """A file of the folder."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Graph:
    """One graph. Its inputs are `inputs` and then `state`."""

    name: GraphName
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    state: tuple[State, ...] = ()
    files: tuple[File, ...] = ()
    """The first one is opened."""

    @property
    def taken(self) -> tuple[Named, ...]:
        """All inputs, in their order."""
        return *self.inputs, *self.state

    @property
    def reach(self) -> int:
        """Frames before and after one that its inputs show."""
        return max(port.reach for port in self.inputs)


@dataclass(frozen=True)
class Description:
    """A folder of graphs."""

    format: str
    """Of this description and of the graphs' interface."""
    pahs: str
    """The version that wrote it."""
    model: str
    """The name it was exported by."""
    architecture: str
    config: dict[str, Any]
    """Of the architecture, as in a weights file."""
    weights_sha256: str
    """Checksum of the weights that the graphs hold."""
    licence: str
    runtime: GraphFormat
    precision: ExportPrecision
    parameters: int
    family: Family
    look_ahead: int
    """Future frames that an output is computed from, at least."""
    multiple_of: int
    """Height and width of the padded frame are multiples of this: pad right and below by reflection, and crop."""
    min_size: int
    extract_halo: int | None
    """Rows of context that make `extract` exact on a horizontal band of the frame; none: whole frames only."""
    reconstruct_halo: int | None
    graphs: tuple[Graph, ...]
    int8_loss: float | None = None
    """Decibels by which int8 restores a painted video worse than float32 does; none in other precisions."""

    @property
    def contract(self) -> Contract:
        names = ("family", "look_ahead", "multiple_of", "min_size", "extract_halo", "reconstruct_halo")
        return Contract(offloads=True, **{name: getattr(self, name) for name in names})

    def graph(self, name: GraphName) -> Graph | None:
        return next((graph for graph in self.graphs if graph.name == name), None)


def write(description: Description, folder: Path) -> None:
    text = json.dumps(asdict(description), indent=1)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def is_folder_of_graphs(path: Path | str) -> bool:
    return os.path.isfile(Path(path) / DESCRIPTION)  # noqa: PTH113 - that of Path raises where a folder is locked


def read(folder: Path) -> Description:
    """Read and check a folder's description, and that every file is there and whole."""
    file = folder / DESCRIPTION
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PahsError(f"{folder}: holds no {DESCRIPTION}; name a folder that `pahs export` wrote") from None
    except (OSError, ValueError, RecursionError):
        raise PahsError(f"{file}: cannot be read; export the model again") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise PahsError(
            f"{file}: its format is {found}, this version of pahs runs {FORMAT}; export the model again"
        )
    try:
        description = configs.build(Description, content)
        _check(description)
    except (ValueError, RecursionError) as error:
        raise PahsError(f"{file}: cannot be used: {error}; export the model again") from None
    for graph in description.graphs:
        for part in graph.files:
            if checksum(folder / part.name) != part.sha256:
                raise PahsError(
                    f"{folder / part.name} is damaged or of another export: its checksum does not match; "
                    "export the model again"
                )
    return description


def checksum(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise PahsError(f"{file}: cannot be read ({error.strerror}); export the model again") from None


def _check(description: Description) -> None:
    """Refuse a description that no runner can follow."""
    if description.multiple_of < 1 or description.look_ahead < 0 or description.min_size < 1:
        raise ValueError("a size is below 1")
    names = [graph.name for graph in description.graphs]
    wanted = ["extract", "forward"] + ["backward"] * (description.family == "bidirectional")
    if [name for name in names if name != "reconstruct"] != wanted:
        raise ValueError(
            f"its graphs are {', '.join(names)}; a {description.family} network has {', '.join(wanted)}"
        )
    known = {FRAMES}
    for graph in description.graphs:
        taken = {port.name for port in graph.inputs}
        if not graph.inputs or taken - known:
            raise ValueError(
                f"graph {graph.name} takes {sorted(taken - known) or 'nothing'}, which no graph gives"
            )
        given = {port.name for port in graph.outputs}
        for state in graph.state:
            if state.next not in given | taken or not set(state.start) <= taken:
                raise ValueError(f"state {state.name} of graph {graph.name} comes from nowhere")
        if any(min(x.channels, x.scale) < 1 for x in (*graph.taken, *graph.outputs)):
            raise ValueError(f"a tensor of graph {graph.name} has no size")
        suffixes = tuple(Path(file.name).suffix for file in graph.files)
        if suffixes != SUFFIXES[description.runtime] or any(Path(f.name).name != f.name for f in graph.files):
            raise ValueError(f"graph {graph.name} has the files {[file.name for file in graph.files]}")
        known |= given
    if RESTORED not in known:
        raise ValueError(f"no graph gives {RESTORED}")
