"""Weights files: safetensors that carry their own configuration and checksum.

A file is self-sufficient: `load(path)` builds the network that the file describes. Nothing in it is executed.
Metadata: `format` (this layout's version), `architecture` and `config` (JSON), `sha256` of the tensors, and whatever
the writer added (recipe, minutes, scores).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pahs import configs
from pahs.errors import PahsError
from pahs.files import whole
from pahs.networks import ARCHITECTURES, PRESETS, Deblurrer, ModelConfig

FORMAT = "pahs-1"
LARGEST = 1 << 16
"""No number of a configuration is larger."""


@dataclass(frozen=True)
class WeightsFile:
    """What a weights file says about itself."""

    path: Path
    architecture: str
    config: ModelConfig
    metadata: dict[str, str]


def save(
    model: Deblurrer, path: Path | str, notes: Mapping[str, str] | None = None, half: bool = False
) -> None:
    """Write `model` to `path`, all or nothing; `half` stores float16, which is read back as float32."""
    path = Path(path)
    architecture = next(name for name, kind in ARCHITECTURES.items() if type(model.config) is kind)
    tensors = {
        name: (x.half() if half and x.is_floating_point() else x).detach().cpu().contiguous()
        for name, x in model.state_dict().items()
    }
    metadata = {
        **(notes or {}),
        "format": FORMAT,
        "architecture": architecture,
        "config": json.dumps(asdict(model.config)),
        "sha256": checksum(tensors),
    }
    with whole(path) as partial:
        partial.touch()
        mode = partial.stat().st_mode
        try:
            save_file(tensors, partial, metadata)
        except SafetensorError as error:
            raise PahsError(f"{path}: cannot be written ({error})") from None
        partial.chmod(mode)  # safetensors writes for the owner alone, whatever the user's mask says


def checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        x = tensors[name]
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(x.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def bundled(name: str) -> Path | None:
    """The weights file that the package brings for a model name, if it does."""
    path = Path(str(files("pahs") / "bundled" / f"{name}.safetensors"))
    return path if path.is_file() else None


def describe(path: Path | str) -> WeightsFile:
    """Read and check a file's metadata without reading its tensors."""
    path = Path(path)
    try:
        if not path.exists():
            raise PahsError(f"{path}: no such weights file")
        if path.is_dir():
            raise PahsError(f"{path} is a folder; give the .safetensors file itself")
        with path.open("rb"):
            pass
        with safe_open(path, "pt") as file:
            metadata = dict(file.metadata() or {})
    except PermissionError:
        raise PahsError(f"{path}: cannot be read; check its permissions") from None
    except (SafetensorError, OSError) as error:
        raise PahsError(
            f"{path} is not a readable safetensors file ({error}); download or train it again"
        ) from None
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "none")
        raise PahsError(f"{path}: weights format is {found}, this version of pahs reads {FORMAT}")
    architecture = metadata.get("architecture", "")
    kind = ARCHITECTURES.get(architecture)
    if kind is None:
        known = ", ".join(ARCHITECTURES)
        raise PahsError(f"{path}: unknown architecture {architecture!r}; this version of pahs knows {known}")
    try:
        values = json.loads(metadata.get("config", "{}"))
        if not isinstance(values, dict):
            raise ValueError(f"it is a {type(values).__name__} instead of names with values")
        if _largest(values) > LARGEST:
            raise ValueError(f"{_largest(values):g} is more than any network has of anything")
        config = configs.build(kind, values)
    except (ValueError, RecursionError) as error:
        raise PahsError(f"{path}: its configuration cannot be used: {error}") from None
    return WeightsFile(path, architecture, config, metadata)


def _largest(value: object) -> float:
    """The largest number in plain data."""
    if isinstance(value, dict | list):
        return max((_largest(x) for x in (value.values() if isinstance(value, dict) else value)), default=0.0)
    return abs(value) if isinstance(value, int | float) else 0.0


def read(path: Path | str) -> Deblurrer:
    """The network that a file describes, with the file's weights, in float32."""
    about = describe(path)
    try:
        with safe_open(about.path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise PahsError(f"{path} is damaged ({error}); download or train it again") from None
    if checksum(tensors) != about.metadata.get("sha256"):
        raise PahsError(f"{path} is damaged: its checksum does not match; download or train it again")
    if not all(x.isfinite().all() for x in tensors.values()):
        raise PahsError(f"{path}: holds values that are not numbers; its training has diverged")
    # First without memory: a width that the tensors do not have could ask for more than there is.
    with torch.device("meta"):
        described = {name: x.shape for name, x in about.config.build().state_dict().items()}
    if described != {name: x.shape for name, x in tensors.items()}:
        raise PahsError(f"{path}: its tensors do not fit its configuration")
    model = about.config.build()
    try:
        model.load_state_dict({k: x.float() if x.is_floating_point() else x for k, x in tensors.items()})
    except RuntimeError:
        raise PahsError(f"{path}: its tensors do not fit its configuration") from None
    return model.eval()


def load(name_or_path: str | Path, random_weights: bool = False) -> Deblurrer:
    """A network by name (with the weights in the package) or from a file, in float32 on the CPU, ready to run.

    `random_weights` asks for a named network without any weights: it runs, and restores nothing.
    """
    name = str(name_or_path)
    preset = PRESETS.get(name)
    if preset is None:
        if not (name.endswith(".safetensors") or os.sep in name or Path(name).exists()):
            raise PahsError(f"no model named {name!r} and no such file; `pahs models` lists the names")
        return read(name_or_path)
    if random_weights:
        return preset.config.build().eval()
    path = bundled(name)
    if path is None:
        ready = ", ".join(n for n in PRESETS if bundled(n)) or "none yet"
        raise PahsError(
            f"no weights come with model {name!r} (with weights: {ready}); give a .safetensors file instead"
        )
    return read(path)
