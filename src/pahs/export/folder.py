"""`pahs export`: a folder with a network's graphs, what describes them, and a program that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from pahs.backends import graphs
from pahs.backends.graphs import SUFFIXES, Description, File, Graph, is_folder_of_graphs
from pahs.backends.network import GraphNetwork
from pahs.backends.sessions import open_graph
from pahs.choices import ExportPrecision, GraphFormat, check_choice
from pahs.errors import PahsError
from pahs.export.onnx import require, to_openvino, write_onnx
from pahs.export.readme import readme
from pahs.export.stages import Part, exportable, parts
from pahs.files import remove, whole
from pahs.networks import ARCHITECTURES, Deblurrer
from pahs.progress import bar
from pahs.runtime import weights

LICENCE = "Apache-2.0"
RUNNER = "restore.py"


def export(
    model: str | Path,
    output: Path,
    format: GraphFormat = "onnx",
    precision: ExportPrecision = "fp32",
    random_weights: bool = False,
    overwrite: bool = False,
    quiet: bool = True,
) -> Description:
    """Write a network's graphs into the folder `output`, whole or not at all."""
    check_choice("--format", format, GraphFormat)
    check_choice("--precision", precision, ExportPrecision)
    require(format, precision)
    if output.exists() and not (overwrite and is_folder_of_graphs(output)):
        hint = "is no earlier export and is not replaced" if overwrite else "exists already"
        raise PahsError(
            f"{output}: {hint}; name another folder" + ("" if overwrite else " or use --overwrite")
        )
    network = weights.load(model, random_weights)
    if not exportable(network):
        raise PahsError(
            f"{model}: a {network.contract.family} network has no state to step through and is not exported; "
            "choose a recurrent or bidirectional one, see `pahs models`"
        )
    name = str(model) if weights.bundled(str(model)) or random_weights else Path(model).stem
    return export_network(network, name, output, format, precision, quiet)


def export_network(
    network: Deblurrer,
    name: str,
    output: Path,
    format: GraphFormat = "onnx",
    precision: ExportPrecision = "fp32",
    quiet: bool = True,
) -> Description:
    """The same for a network in float32 on the CPU, under a name of the caller's."""
    about = describe(network, name, format, precision)
    with bar(f"exporting {name}", None, "graphs", quiet) as advance, whole(output) as partial:
        partial.mkdir()
        found = parts(network.half() if precision == "fp16" else network)
        about = replace(about, graphs=tuple(part.graph for part in found))
        for part in found:
            write_onnx(part, network, partial / _onnx_name(part.graph), metadata(about, part.graph))
            advance(1)
        if precision == "int8":
            about = _quantised(network, about, found, partial)
        if format == "openvino":
            for graph in about.graphs:
                to_openvino(partial / _onnx_name(graph), half=precision == "fp16")
        about = replace(about, graphs=tuple(_with_files(graph, partial, format) for graph in about.graphs))
        graphs.write(about, partial)
        (partial / "README.md").write_text(readme(about), encoding="utf-8")
        if format == "onnx":
            runner = files("pahs") / "export" / "runner.py"
            (partial / RUNNER).write_bytes(runner.read_bytes())
        if output.exists():
            remove(output)
    return about


def _quantised(network: Deblurrer, about: Description, found: Sequence[Part], folder: Path) -> Description:
    """Let the graphs in a folder have int8 layers, and say what that loses."""
    from pahs.export.quantise import feeds, loss, quantise

    examples = feeds(network, about, found)
    sessions = {}
    for graph in about.graphs:
        file = folder / _onnx_name(graph)
        quantise(file, graph, examples.pop(graph.name), metadata(about, graph))
        sessions[graph.name] = open_graph(file, graph, "onnxruntime", "int8")
    quantised = GraphNetwork(about, sessions, "onnxruntime", "int8")
    return replace(about, int8_loss=round(loss(network, quantised), 4))


def _onnx_name(graph: Graph) -> str:
    return f"{graph.name}{SUFFIXES['onnx'][0]}"


def describe(network: Deblurrer, name: str, format: GraphFormat, precision: ExportPrecision) -> Description:
    """Everything but the graphs."""
    contract = network.contract
    return Description(
        format=graphs.FORMAT,
        pahs=version("pahs"),
        model=name,
        architecture=next(key for key, kind in ARCHITECTURES.items() if type(network.config) is kind),
        config=asdict(network.config),
        weights_sha256=weights.checksum({key: x.contiguous() for key, x in network.state_dict().items()}),
        licence=LICENCE if weights.bundled(name) else f"that of the weights; {LICENCE} for all else",
        runtime=format,
        precision=precision,
        parameters=sum(p.numel() for p in network.parameters()),
        family=contract.family,
        look_ahead=contract.look_ahead,
        multiple_of=contract.multiple_of,
        min_size=contract.min_size,
        extract_halo=contract.extract_halo,
        reconstruct_halo=contract.reconstruct_halo,
        graphs=(),
    )


def metadata(about: Description, graph: Graph) -> dict[str, str]:
    """What a graph's own file says, so that it can be told apart from others without its folder."""
    facts = asdict(about)
    left_out = ("config", "runtime", "graphs", "int8_loss")
    return {f"pahs_{key}": str(value) for key, value in facts.items() if key not in left_out} | {
        "pahs_graph": graph.name
    }


def _with_files(graph: Graph, folder: Path, format: GraphFormat) -> Graph:
    names = [f"{graph.name}{suffix}" for suffix in SUFFIXES[format]]
    return replace(graph, files=tuple(File(name, graphs.checksum(folder / name)) for name in names))
