"""Commands for weights files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pahs.cli.options import app
from pahs.errors import PahsError

weights = App(name="weights", help="Work on weights files.")
app.command(weights)


@weights.command
def average(
    files: Annotated[
        list[str],
        Parameter(name="FILE", help="Weights files of one configuration, or names of bundled weights."),
    ],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", help="The .safetensors file to write.")],
    factors: Annotated[
        str, Parameter(name="--weights", help="A number for each file, such as 2,1,1. Equal by default.")
    ] = "",
    half: Annotated[
        bool, Parameter(negative="", help="Store float16: half the size, read as float32.")
    ] = False,
    overwrite: Annotated[bool, Parameter(negative="", help="Replace the output if it exists.")] = False,
) -> None:
    """Average the weights of related training runs into one file."""
    from pahs.runtime.average import average as run

    try:
        numbers = [float(number) for number in factors.split(",")] if factors else []
    except ValueError:
        raise PahsError(f"--weights {factors}: use numbers with commas between them, such as 2,1,1") from None
    run(files, output, numbers, half, overwrite)
    print(output)
