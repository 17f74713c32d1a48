"""The README of a folder of exported graphs."""

from __future__ import annotations

from pahs.backends.graphs import Description, Graph, Port, State


def readme(about: Description) -> str:
    tables = "\n\n".join(_table(graph) for graph in about.graphs)
    halos = (
        f"On horizontal bands of the frame, `extract` is exact with {about.extract_halo} more rows above and below, "
        f"`reconstruct` with {about.reconstruct_halo}."
    )
    run = f"    pahs deblur blurry.mp4 --model {{folder}} --backend {_BACKENDS[about.runtime]}\n"
    if about.runtime == "onnx":
        run = (
            "    python restore.py blurry.mp4 sharp.mp4          # numpy, onnxruntime and av; no PyTorch\n"
            + run
        )
    return f"""# {about.model}, {about.precision}

A network that deblurs video, as graphs ({about.runtime}), written by pahs {about.pahs}. Licence: {about.licence}.
{_loss(about)}`model.json` says all of this for programs; `weights_sha256` in it is the checksum of the weights that the
graphs hold.

{run}
`{{folder}}` is this folder. The graphs run in turns, and tensors of the same name are handed from one to the next:

1. Frames are RGB in [0, 1], float32 (batch, 3, height, width). Pad them on the right and below, by reflection, to
   multiples of {about.multiple_of}, and crop the result; the smallest frame is {about.min_size}x{about.min_size}.
2. `extract` and `reconstruct` take any number of frames as one batch, a step takes the next frame of one video (of
   several videos, as a batch). {_steps(about)}
3. A state is what the step before gave; before the first frame, and after a cut to another scene, it is as `model.json`
   says: zero, or a concatenation of tensors of the first frame.
4. `reach` frames before and after a frame are stacked with it along the channels, oldest first; the nearest frame
   stands in where there is none.

{tables}

{halos if about.extract_halo is not None else "The graphs run on whole frames only."}
Memory grows linearly with the pixels of the frame, but for attention between tokens of 16x16 pixels, which takes
4 bytes for each pair of them: 0.05 GB at 1280x720, 4 GB at 3840x2160.
"""


def _loss(about: Description) -> str:
    if about.int8_loss is None:
        return ""
    return (
        f"Convolutions run in 8 bits: on a painted video the network restores {about.int8_loss:.2f} dB worse than in\n"
        "float32. All inputs and outputs are float32.\n"
    )


_BACKENDS = {"onnx": "onnxruntime", "openvino": "openvino"}


def _steps(about: Description) -> str:
    if about.family == "bidirectional":
        return (
            "`forward` goes through all frames and never returns. `backward` goes from the last frame that is known "
            f"to the first that is not restored yet: every frame shall see at least {about.look_ahead} future frames."
        )
    return "`forward` goes through all frames" + (
        f", and a frame is restored once {about.look_ahead} frames after it are known."
        if about.look_ahead
        else "."
    )


def _table(graph: Graph) -> str:
    rows = [
        f"## {graph.files[0].name}",
        "",
        "| | tensor | channels | height, width | |",
        "|---|---|--:|---|---|",
    ]
    rows += [_row("in", x, f"reach {x.reach}" if x.reach else "") for x in graph.inputs]
    rows += [_row("state in", x, f"becomes `{x.next}`") for x in graph.state]
    rows += [_row("out", x, "") for x in graph.outputs]
    return "\n".join(rows)


def _row(kind: str, x: Port | State, note: str) -> str:
    size = "1" if x.scale == 1 else f"1/{x.scale}"
    return f"| {kind} | `{x.name}` | {x.channels} | {size} | {note} |"
