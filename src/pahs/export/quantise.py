"""int8 by post-training quantisation: layers in 8 bits, with ranges from a video that is painted for it.

Convolutions take 8-bit numbers, and each channel of a weight has a scale of its own. Three things stay float32, because
pahs-t lost more than it gained with each of them in 8 bits: residual sums, the layers that give the hidden state, and
the layer that gives the picture.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pahs.backends.graphs import RESTORED, Description, Graph, GraphName
from pahs.backends.network import GraphNetwork
from pahs.backends.sessions import Session
from pahs.data.street import film
from pahs.engine import stream
from pahs.evaluation.metrics import mean_psnr, psnr
from pahs.export.stages import Part
from pahs.levels import to_levels
from pahs.networks import Deblurrer

LAYERS = ("Conv", "ConvTranspose")
STATE_LAYERS = ("to_hidden", "gates", "to_feature")
"""What the networks call the layers that give their hidden state."""
CALIBRATION = 6, 256, 160
"""Frames, width and height of the painted video whose values set the ranges; its negative is used too."""
TRIAL = 12, 320, 192
"""The same of the video on which the loss is measured."""

Feed = dict[str, NDArray[np.float32]]


def feeds(network: Deblurrer, about: Description, parts: Sequence[Part]) -> dict[GraphName, list[Feed]]:
    """What every graph is given while the network restores the painted video, frame by frame."""
    seen: dict[GraphName, list[Feed]] = {part.graph.name: [] for part in parts}

    def watched(part: Part) -> Session:
        stage, names = part.stage(network), [x.name for x in part.graph.taken]

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            for each in zip(*(x.chunk(len(x)) for x in inputs), strict=True):
                seen[part.graph.name].append(
                    {name: x.contiguous().numpy().copy() for name, x in zip(names, each, strict=True)}
                )
            return list(stage(*inputs))

        return run

    driver = GraphNetwork(about, {part.graph.name: watched(part) for part in parts}, "onnxruntime", "fp32")
    frames, width, height = CALIBRATION
    blurry = [image for image, _ in film(frames, width, height)]
    for clip in (blurry, [1 - image for image in blurry]):
        for _ in stream(driver, clip, scene_cuts=False):
            pass
    return seen


def quantise(file: Path, graph: Graph, examples: Sequence[Feed], metadata: Mapping[str, str]) -> None:
    """Replace a float32 graph by its int8 version."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = file.with_suffix(".prepared.onnx")
    with _quiet():
        quant_pre_process(file, prepared, skip_symbolic_shape=True)
        layers = [node for node in onnx.load(prepared).graph.node if node.op_type in LAYERS]
        kept = [node for node in layers if any(name in node.input[1].split(".") for name in STATE_LAYERS)]
        if any(port.name == RESTORED for port in graph.outputs):
            kept.append(layers[-1])
        quantize_static(
            prepared,
            file,
            _Reader(examples),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(LAYERS),
            nodes_to_exclude=[node.name for node in kept],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options={"QDQOpTypePerChannelSupportToAxis": {"Conv": 0, "ConvTranspose": 1}},
        )
    prepared.unlink()
    model = onnx.load(file)
    del model.metadata_props[:]
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, file)


def loss(network: Deblurrer, quantised: Deblurrer) -> float:
    """Decibels that are lost on a painted video whose sharp frames are known; below 0 where some are gained."""
    blurry, sharp = zip(*film(*TRIAL), strict=True)

    def score(candidate: Deblurrer) -> float:
        restored = stream(candidate, blurry, scene_cuts=False)
        return mean_psnr(psnr(to_levels(a), to_levels(b)) for a, b in zip(restored, sharp, strict=True))

    return score(network) - score(quantised)


class _Reader:
    """Hands out the examples one by one, as onnxruntime asks for them."""

    def __init__(self, examples: Sequence[Feed]) -> None:
        self._left: Iterator[Feed] = iter(examples)

    def get_next(self) -> Feed | None:
        return next(self._left, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without onnxruntime's advice to prepare a graph that is prepared."""
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logging.root.setLevel(level)
