"""Load a network by name, file or folder of graphs, ready for `stream`. Every front end calls this."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from pahs.backends import graphs
from pahs.backends.cache import cached, writable
from pahs.backends.choose import LARGEST_LOSS, TORCH, Choice, GraphPrecision, choices, fastest
from pahs.backends.network import GraphNetwork
from pahs.backends.sessions import READS, GraphBackend, installed, knows_bf16, require
from pahs.choices import Backend, ExportPrecision, check_choice
from pahs.engine.plan import limited
from pahs.errors import PahsError
from pahs.export.onnx import require as require_exporter
from pahs.export.stages import exportable
from pahs.networks import Deblurrer
from pahs.runtime import load as torch_load
from pahs.runtime import weights
from pahs.runtime.device import choose_device


def load(
    model: str | Path = "auto",
    device: str = "auto",
    precision: str = "auto",
    random_weights: bool = False,
    backend: str = "torch",
    quiet: bool = True,
) -> Deblurrer:
    """A network by name, weights file, or folder that `pahs export` wrote, on its device and ready for `stream`.

    The backend is torch, onnxruntime, openvino, or auto: what is fastest here and restores as well to 0.1 dB. Only
    PyTorch's networks can be trained, and only they run on GPUs.
    """
    check_choice("--backend", backend, Backend)
    if graphs.is_folder_of_graphs(model):
        return _exported(Path(model), device, precision, backend)
    where = choose_device("cpu" if device == "auto" and backend not in ("torch", "auto") else device)
    if (
        backend in ("torch", "auto")
        and precision == "int8"
        and not (backend == "auto" and where.type == "cpu")
    ):
        raise PahsError("--precision int8: PyTorch's networks have none; add --backend openvino")
    # Runtimes of graphs take gigabytes of address space, which a limit counts.
    short = limited() and precision != "int8"
    if backend == "torch" or (backend == "auto" and (where.type != "cpu" or short)):
        return torch_load.load(model, device, precision, random_weights)
    if where.type != "cpu":
        raise PahsError(f"--backend {backend} --device {device}: it runs on CPUs; leave one of the two out")
    wanted = _suiting(backend, precision)
    if wanted == (TORCH,):
        return torch_load.load(model, device, precision, random_weights)
    name = torch_load.default_model(where) if str(model) == "auto" else model
    network = weights.load(name, random_weights)
    if not exportable(network):
        if backend == "auto":
            return torch_load.load(model, device, precision, random_weights)
        raise PahsError(
            f"--backend {backend}: {name} is a {network.contract.family} network, which is not exported; "
            "use --backend torch"
        )

    def in_torch() -> Deblurrer:
        return torch_load.load(model, device, precision, random_weights)

    chosen = _fastest(network, wanted, quiet)
    if isinstance(chosen, GraphNetwork) and backend == "auto" and precision != "int8":
        chosen.instead = in_torch
    return chosen or in_torch()


def _fastest(network: Deblurrer, wanted: tuple[Choice, ...], quiet: bool) -> Deblurrer | None:
    """The network by the fastest choice that keeps its quality; None for PyTorch.

    Where PyTorch is a choice too, graphs that cannot be stored or opened are passed over.
    """
    failed: set[str] = set()
    for choice in fastest(wanted, quiet) or wanted[:1]:
        if choice.backend == "torch":
            return None
        stored: ExportPrecision = "int8" if choice.precision == "int8" else "fp32"
        if stored in failed:
            continue
        try:
            folder = cached(network, stored, quiet)
            opened = GraphNetwork.open(folder, choice.backend, choice.precision or "fp32")
        except (PahsError, OSError):
            if TORCH not in wanted:
                raise
            failed.add(stored)
            continue
        if len(wanted) == 1 or (opened.description.int8_loss or 0) <= LARGEST_LOSS:
            return opened
    return None


def _suiting(backend: str, precision: str) -> tuple[Choice, ...]:
    """The choices that the user left open."""
    if backend == "auto":
        if precision != "int8" and not writable():
            return (TORCH,)
        precisions = ("fp32", "bf16", "int8") if precision == "auto" else (precision,)
        found = tuple(x for x in choices() if x == TORCH or x.precision in precisions)
        if precision != "int8":
            return found
        if len(found) == 1:
            raise PahsError("--precision int8: needs another backend; pip install 'pahs[backends]'")
        return found[1:]
    chosen = cast(GraphBackend, backend)
    require(chosen)
    require_exporter("onnx", "int8" if precision == "int8" else "fp32", f"--backend {backend}")
    if precision == "auto":
        return tuple(x for x in choices() if x.backend == backend)
    allowed = ("fp32", "int8", *(("bf16",) if backend == "openvino" and knows_bf16() else ()))
    if precision not in allowed:
        raise PahsError(f"--backend {backend} --precision {precision}: choose {', '.join(allowed)} here")
    return (Choice(chosen, cast(GraphPrecision, precision)),)


def _exported(folder: Path, device: str, precision: str, backend: str) -> Deblurrer:
    """The graphs of a folder as they are."""
    if backend == "torch" or choose_device(device if device != "auto" else "cpu").type != "cpu":
        raise PahsError(
            f"{folder}: holds graphs, which run by --backend onnxruntime or openvino on --device cpu"
        )
    about = graphs.read(folder)
    able = [name for name, formats in READS.items() if about.runtime in formats]
    chosen = next((name for name in reversed(able) if installed(name)), able[-1])
    if backend != "auto":
        if backend not in able:
            raise PahsError(
                f"{folder}: holds {about.runtime} graphs, which run by --backend {' or '.join(able)}"
            )
        chosen = backend
    rounded = (
        "bf16" if chosen == "openvino" and about.precision == "fp32" and knows_bf16() else about.precision
    )
    allowed = {about.precision, rounded, "auto"}
    if precision not in allowed:
        raise PahsError(f"{folder}: is {about.precision}; leave --precision {precision} out, or export it so")
    return GraphNetwork.open(folder, chosen, rounded if precision == "auto" else precision)
