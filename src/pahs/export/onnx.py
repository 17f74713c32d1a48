"""A stage as a file, written by PyTorch's exporter to ONNX, with dynamic batch, height and width."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch

from pahs.backends.graphs import Named
from pahs.choices import ExportPrecision, GraphFormat
from pahs.errors import PahsError
from pahs.export.stages import Part
from pahs.networks import Deblurrer

OPSET = 20
EXAMPLE = 2, 6, 8
"""Batch, rows and columns of the traced example in multiples of the network's own; no two sizes may be equal, nor 1,
because the exporter would take them for one size, or for a fixed one."""


def require(format: GraphFormat, precision: ExportPrecision, asked: str = "pahs export") -> None:
    """Refuse early what cannot be written without a package that is not there."""
    for package, extra in _needed(format, precision).items():
        if find_spec(package) is None:
            raise PahsError(f"{asked} needs {package}; install it with pip install 'pahs[{extra}]'")


def writes(precision: ExportPrecision) -> bool:
    """Whether everything is there to write ONNX graphs."""
    return all(find_spec(package) is not None for package in _needed("onnx", precision))


def _needed(format: GraphFormat, precision: ExportPrecision) -> dict[str, str]:
    """Packages, each with the extra that brings it."""
    wanted = {"onnx": "export", "onnxscript": "export"}
    if format == "openvino":
        wanted["openvino"] = "openvino"
    if precision == "int8":
        wanted["onnxruntime"] = "onnxruntime"
    return wanted


def write_onnx(part: Part, network: Deblurrer, path: Path, metadata: Mapping[str, str]) -> None:
    """Write one graph, checked by onnx."""
    import onnx

    batch, rows, columns = EXAMPLE
    multiple = network.contract.multiple_of
    examples = part.examples(batch, rows * multiple, columns * multiple)
    dynamic = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            part.stage(network).eval(),
            tuple(x.to(network.device) for x in examples),
            input_names=[x.name for x in part.graph.taken],
            output_names=[x.name for x in part.graph.outputs],
            dynamic_shapes=(tuple(dynamic for _ in examples),),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            optimize=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _name_sizes(model, part)
    # What the exporter notes about the modules' source is as large as the graph itself, and tells of no use.
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for info in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del info.metadata_props[:]
    for initializer in model.graph.initializer:
        del initializer.metadata_props[:]
    del model.graph.metadata_props[:]
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def to_openvino(file: Path, half: bool) -> None:
    """Replace an ONNX file by OpenVINO's two."""
    import openvino

    openvino.save_model(openvino.convert_model(file), file.with_suffix(".xml"), compress_to_fp16=half)
    file.unlink()


def _name_sizes(model, part: Part) -> None:  # type: ignore[no-untyped-def]
    """Readable names for the dynamic sizes: batch, height, width, and height/4 for what is smaller."""
    tensors: tuple[Named, ...] = (*part.graph.taken, *part.graph.outputs)
    ports = {x.name: x for x in tensors}
    del model.graph.value_info[:]
    for info in (*model.graph.input, *model.graph.output):
        port = ports[info.name]
        below = "" if port.scale == 1 else f"/{port.scale}"
        names = {0: "batch", 2: f"height{below}", 3: f"width{below}"}
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if axis in names:
                dim.dim_param = names[axis]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes, which are about its own insides."""
    names = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export", "torch.fx")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
