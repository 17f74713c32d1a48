"""The command that writes graphs: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pahs.choices import ExportPrecision, GraphFormat
from pahs.cli.options import app


@app.command
def export(
    model: Annotated[
        str, Parameter(name="MODEL", help="A name from `pahs models`, or a .safetensors file; not windowed.")
    ],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", help="Folder to write.")],
    format: Annotated[GraphFormat, Parameter(help="onnx runs almost everywhere, openvino on CPUs.")] = "onnx",
    precision: Annotated[
        ExportPrecision,
        Parameter(
            help="fp16: half the size. int8: faster on CPUs; calibrated on clips that are made for it."
        ),
    ] = "fp32",
    random_weights: Annotated[
        bool, Parameter(negative="", help="Export a model without its weights: restores nothing.")
    ] = False,
    overwrite: Annotated[bool, Parameter(negative="", help="Replace an earlier export.")] = False,
) -> None:
    """Write a network as ONNX or OpenVINO graphs of any frame size, with a program that runs them without PyTorch.

    The graphs are the network's stages, with the recurrent state as inputs and outputs: docs/export.md.
    """
    from pahs.export.folder import export as run

    about = run(model, output, format, precision, random_weights, overwrite, quiet=False)
    print(
        f"{output}  {', '.join(graph.name for graph in about.graphs)}; README.md in it says how to run them"
    )
