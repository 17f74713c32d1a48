"""Exported graphs give what PyTorch gives, and a folder says all that a runner needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

import zoo
from pahs import PahsError
from pahs.backends import graphs
from pahs.data import street
from pahs.demo import demo, read_video
from pahs.engine import stream
from pahs.evaluation.metrics import mean_psnr, psnr
from pahs.export import runner
from pahs.export.folder import export
from pahs.export.stages import exportable, parts
from pahs.levels import to_pictures
from pahs.runtime import weights


@pytest.fixture(scope="session")
def pahs_t(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled network as ONNX graphs."""
    folder = tmp_path_factory.mktemp("graphs") / "pahs-t"
    export("pahs-t", folder)
    return folder


def pictures(frames: int, height: int, width: int) -> list[NDArray[np.uint8]]:
    """Something that moves, so that time matters."""
    still = np.random.default_rng(0).integers(0, 256, (height + frames, width + frames, 3), np.uint8)
    return [still[t : t + height, t : t + width].copy() for t in range(frames)]


def furthest(folder: Path, model: torch.nn.Module, frames: list[NDArray[np.uint8]], chunk: int) -> int:
    """The largest difference between the reference runner and the engine, in levels."""
    expected = list(stream(model, frames, chunk=chunk, scene_cuts=False))  # type: ignore[type-var, arg-type]
    got = list(runner.Network(folder, chunk).restore(frames))
    assert len(got) == len(expected)
    return max(int(np.abs(a.astype(int) - b.astype(int)).max()) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", [name for name in zoo.NARROW if exportable(zoo.NARROW[name].build())])
def test_stages_driven_by_name_are_the_network(name: str) -> None:
    """What becomes a graph computes the network's own stages: step after step, as a runner does."""
    model = zoo.build(name).double()
    clip = zoo.clip(5, height=16, width=32).double()
    assert torch.allclose(drive(model, clip), model(clip), atol=1e-9)


def drive(model: torch.nn.Module, clip: torch.Tensor) -> torch.Tensor:
    film = [{"frames": frame} for frame in clip[0][:, None]]
    for part in parts(model):  # type: ignore[arg-type]
        order = range(len(film))
        state: dict[str, torch.Tensor] | None = None
        for t in reversed(order) if part.graph.name == "backward" else order:
            if state is None:
                first = film[t]
                height, width = first["frames"].shape[2:]
                state = {
                    s.name: torch.cat([first[k] for k in s.start], 1)
                    if s.start
                    else first["frames"].new_zeros(1, s.channels, height // s.scale, width // s.scale)
                    for s in part.graph.state
                }
            inputs = [
                torch.cat(
                    [
                        film[min(max(k, 0), len(film) - 1)][p.name]
                        for k in range(t - p.reach, t + p.reach + 1)
                    ],
                    1,
                )
                for p in part.graph.inputs
            ]
            with torch.no_grad():
                results = part.function(*inputs, *(state[s.name] for s in part.graph.state))
            film[t] |= {p.name: x for p, x in zip(part.graph.outputs, results, strict=True)}
            state = {s.name: film[t][s.next] for s in part.graph.state}
    return torch.stack([frame["restored"][0] for frame in film])[None]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(16, 16), (33, 50), (48, 70)])
def test_the_reference_runner_restores_as_the_engine_does(pahs_t: Path, size: tuple[int, int]) -> None:
    """Frames of odd sizes are padded; the chunk is shorter than the video, so both directions are cut up."""
    assert furthest(pahs_t, weights.load("pahs-t"), pictures(12, *size), chunk=5) <= 1


@pytest.mark.slow
def test_every_file_says_what_it_is(pahs_t: Path) -> None:
    about = graphs.read(pahs_t)
    for graph in about.graphs:
        model = onnx.load(pahs_t / graph.files[0].name)
        onnx.checker.check_model(model, full_check=True)
        told = {x.key: x.value for x in model.metadata_props}
        assert told["pahs_model"] == "pahs-t" and told["pahs_graph"] == graph.name
        assert told["pahs_licence"] == "Apache-2.0" and told["pahs_extract_halo"] == "96"
        assert [x.name for x in model.graph.input] == [x.name for x in graph.taken]
        shapes = [
            [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input
        ]
        assert all(shape[0] == "batch" and str(shape[2]).startswith("height") for shape in shapes)
    assert f"`{about.graphs[1].state[0].name}`" in (pahs_t / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("frames", [6])
def test_the_program_restores_the_demonstrations_clip_as_well_as_pytorch_does(
    pahs_t: Path, tmp_path: Path, frames: int
) -> None:
    """From file to file: `pahs demo`'s clip, restored by restore.py, and by `pahs deblur` with the same encoder."""
    report = demo(tmp_path, "pahs-t", "cpu", "fp32", frames, backend="torch")
    target = tmp_path / "sharp.mp4"
    program = [sys.executable, str(pahs_t / "restore.py"), str(report.blurry), str(target)]
    subprocess.run(program, check=True, cwd=tmp_path)
    restored, truth = list(read_video(target)), [to_pictures(sharp) for _, sharp in street.film(frames)]
    score = mean_psnr(psnr(a, b) for a, b in zip(restored, truth, strict=True))
    assert score == pytest.approx(report.psnr_deblurred, abs=0.01)


def test_wrong_use_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear")
    for overwrite in (False, True):
        with pytest.raises(PahsError, match=r"mine: .*name another folder"):
            export("pahs-t", tmp_path / "mine", overwrite=overwrite)
    assert (tmp_path / "mine" / "diary.txt").exists()
    with pytest.raises(PahsError, match="edvr-m: a windowed network"):
        export("edvr-m", tmp_path / "new", random_weights=True)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(PahsError, match=r"pahs export needs onnxscript; .*pahs\[export\]"):
        export("pahs-t", tmp_path / "new")
    assert not (tmp_path / "new").exists()
