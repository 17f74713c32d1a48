"""Every bundled and every recurrent network as ONNX graphs, against PyTorch: a minute for each on two cores.

PAHS_EXPORT_ALL=1 pytest tests/test_export_all.py        all of them: make test-export
PAHS_EXPORT_ALL=pahs-t,ovd pytest tests/test_export_all.py
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import zoo
from pahs.backends import graphs
from pahs.backends.network import GraphNetwork
from pahs.data import street
from pahs.engine import stream
from pahs.evaluation.metrics import mean_psnr, psnr
from pahs.export import runner
from pahs.export.folder import export_network
from pahs.export.stages import exportable
from pahs.levels import to_pictures
from pahs.networks import PRESETS, Deblurrer
from pahs.runtime import weights

CHOSEN = os.environ.get("PAHS_EXPORT_ALL", "")
NAMES = [name for name in PRESETS if exportable(zoo.NARROW.get(name, PRESETS[name].config).build())]
NAMES = [name for name in NAMES if CHOSEN == "1" or name in CHOSEN.split(",")]
pytestmark = pytest.mark.skipif(not CHOSEN, reason="takes half an hour: make test-export")
SIZES = (64, 64), (50, 70), (33, 97)


@pytest.fixture(scope="module", params=NAMES or ["none"])
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Deblurrer, Path]:
    torch.manual_seed(0)
    name = request.param
    network = weights.load(name, random_weights=weights.bundled(name) is None)
    folder = tmp_path_factory.mktemp("all") / name
    export_network(network, name, folder)
    return network, folder


def clip(frames: int, height: int, width: int) -> Tensor:
    """The painted street, blurry."""
    return torch.stack([blurry for blurry, _ in street.film(frames, width, height)])


def test_it_is_valid_onnx(exported: tuple[Deblurrer, Path]) -> None:
    for graph in graphs.read(exported[1]).graphs:
        onnx.checker.check_model(onnx.load(exported[1] / graph.files[0].name), full_check=True)


@pytest.mark.parametrize("size", SIZES)
def test_twelve_frames_are_those_of_pytorch(exported: tuple[Deblurrer, Path], size: tuple[int, int]) -> None:
    network, folder = exported
    frames = clip(12, *size)
    expected = torch.stack(list(stream(network, frames, chunk=7, scene_cuts=False)))
    opened = GraphNetwork.open(folder, "onnxruntime", "fp32")
    got = torch.stack(list(stream(opened, frames, chunk=7, scene_cuts=False)))
    difference = float((got - expected).abs().max())
    pictures = [to_pictures(x) for x in frames]
    levels = list(runner.Network(folder, 7).restore(pictures))
    by_engine = list(stream(network, pictures, chunk=7, scene_cuts=False))
    furthest = max(
        int(np.abs(a.astype(int) - b.astype(int)).max()) for a, b in zip(levels, by_engine, strict=True)
    )
    print(f"{folder.name} {size}: {difference:.1e}, the runner {furthest} levels")
    assert difference <= 1e-4
    assert furthest <= 1


def test_a_long_stream_has_bounded_memory(exported: tuple[Deblurrer, Path]) -> None:
    """166 frames take no more memory than 80 do."""
    picture = to_pictures(clip(1, 48, 64)[0])

    def frames(count: int) -> Iterator[NDArray[np.uint8]]:
        return (np.roll(picture, t, 1) for t in range(count))

    peaks = []
    for count in (80, 166):
        network = runner.Network(exported[1], 16)
        tracemalloc.start()
        assert sum(1 for _ in network.restore(frames(count))) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    print(f"{exported[1].name}: {peaks[0] / 2**20:.1f} and {peaks[1] / 2**20:.1f} MiB")
    assert peaks[1] <= 1.05 * peaks[0]


def test_the_demonstration_scores_the_same(exported: tuple[Deblurrer, Path]) -> None:
    network, folder = exported
    blurry, sharp = ([to_pictures(x) for x in each] for each in zip(*street.film(12), strict=True))
    scores = [
        mean_psnr(psnr(a, b) for a, b in zip(restored, sharp, strict=True))
        for restored in (runner.Network(folder).restore(blurry), stream(network, blurry, scene_cuts=False))
    ]
    print(f"{folder.name}: {scores[0]:.4f} dB by the runner, {scores[1]:.4f} dB by PyTorch")
    assert abs(scores[0] - scores[1]) <= 0.01
