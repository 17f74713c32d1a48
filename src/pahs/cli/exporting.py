"""The command that writes graphs: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pahs.choices import ExportFormat, ExportPrecision
from pahs.cli.options import app
from pahs.errors import PahsError


@app.command
def export(
    model: Annotated[
        str, Parameter(name="MODEL", help="A name from `pahs models`, or a .safetensors file; not windowed.")
    ],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", help="Folder to write.")],
    format: Annotated[
        ExportFormat,
        Parameter(
            help="onnx runs almost everywhere, openvino on CPUs; browser: a page that restores videos."
        ),
    ] = "onnx",
    precision: Annotated[
        ExportPrecision,
        Parameter(
            help="fp16: half the size. int8: faster on CPUs; calibrated on clips that are made for it."
        ),
    ] = "fp32",
    random_weights: Annotated[
        bool, Parameter(negative="", help="Export a model without its weights: restores nothing.")
    ] = False,
    runtime: Annotated[
        Path | None,
        Parameter(help="With --format browser: folder with the archives that `npm pack` would fetch now."),
    ] = None,
    overwrite: Annotated[bool, Parameter(negative="", help="Replace an earlier export.")] = False,
) -> None:
    """Write a network as ONNX or OpenVINO graphs of any frame size, with a program that runs them without PyTorch.

    The graphs are the network's stages, with the recurrent state as inputs and outputs: docs/export.md.
    """
    if format == "browser":
        from pahs.export.page import export_page

        if precision != "fp32":
            raise PahsError(f"--precision {precision}: the page runs graphs in fp32; leave it out")
        export_page(model, output, runtime, random_weights, overwrite, quiet=False)
        print(f"{output}  serve it: python -m http.server -d {output}, then open http://localhost:8000")
        return
    if runtime is not None:
        raise PahsError("--runtime: only --format browser takes it; give both")
    from pahs.export.folder import export as run

    about = run(model, output, format, precision, random_weights, overwrite, quiet=False)
    print(
        f"{output}  {', '.join(graph.name for graph in about.graphs)}; README.md in it says how to run them"
    )
