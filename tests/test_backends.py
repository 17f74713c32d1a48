"""Networks as graphs in the engine: the same frames as PyTorch's, whatever computes them, and what `auto` takes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import zoo
from clips import make_clip
from pahs import DeblurOptions, PahsError, cli, deblur
from pahs.backends import cache, choose, graphs, sessions
from pahs.backends.choose import TORCH, Choice
from pahs.backends.load import load
from pahs.backends.network import GraphNetwork
from pahs.backends.sessions import GraphBackend, Session
from pahs.engine import stream
from pahs.export.folder import describe, export_network
from pahs.export.stages import exportable, parts
from pahs.levels import to_pictures
from pahs.networks import Deblurrer, PAHSConfig, RefineConfig
from pahs.runtime import weights

BACKENDS: tuple[GraphBackend, ...] = ("onnxruntime", "openvino")


def in_stages(model: Deblurrer) -> GraphNetwork:
    """A network driven as its graphs are, with PyTorch in their place: what differs is the driver's fault."""
    found = parts(model)
    about = replace(describe(model, "m", "onnx", "fp32"), graphs=tuple(part.graph for part in found))

    def session(index: int) -> Session:
        part = found[index]
        stage = part.stage(model)
        channels = [p.channels * (2 * p.reach + 1) for p in part.graph.inputs]
        channels += [s.channels for s in part.graph.state]

        def run(inputs: Sequence[torch.Tensor], /) -> list[torch.Tensor]:
            assert [x.shape[1] for x in inputs] == channels, "PyTorch would broadcast what a graph refuses"
            return list(stage(*inputs))

        return run

    opened = {part.graph.name: session(i) for i, part in enumerate(found)}
    return GraphNetwork(about, opened, "onnxruntime", "fp32")


def restored(model: Deblurrer, clip: torch.Tensor, chunk: int) -> torch.Tensor:
    return torch.stack(list(stream(model, clip, chunk=chunk, scene_cuts=False)))


@pytest.mark.parametrize("name", [name for name in zoo.NARROW if exportable(zoo.NARROW[name].build())])
@pytest.mark.parametrize("chunk", [2, 9])
def test_graphs_are_driven_as_the_network_drives_itself(name: str, chunk: int) -> None:
    """Every kind of state and window, over chunks that are shorter and longer than the video, of an odd size."""
    model, clip = zoo.build(name), zoo.clip(7, height=18, width=33)[0]
    assert torch.allclose(restored(in_stages(model), clip, chunk), restored(model, clip, chunk), atol=1e-4)


@pytest.fixture(scope="module")
def narrow() -> Deblurrer:
    torch.manual_seed(0)
    once = RefineConfig(ping_pongs=1)  # a graph with fewer nodes is exported faster
    config = PAHSConfig(width=12, shared_extractor=True, global_skip=True, refine=once)
    model = config.build().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.02 * torch.randn_like(p))
    return model


@pytest.fixture(scope="module")
def folder(narrow: Deblurrer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("backends") / "graphs"
    export_network(narrow, "narrow", made)
    return made


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_restores_what_pytorch_does(narrow: Deblurrer, folder: Path, backend: GraphBackend) -> None:
    """Batches of several sizes, in bands too, and features that lie on the disk."""
    model = GraphNetwork.open(folder, backend, "fp32")
    clip = zoo.clip(12, height=50, width=70)[0]
    assert torch.allclose(restored(model, clip, 5), restored(narrow, clip, 5), atol=1e-4)
    frames = clip[None, :2].clone()
    frames = torch.nn.functional.pad(frames, (0, 10, 0, 14))
    features = model.extract(frames)
    apart = [[x[:, t] for x in features] for t in range(2)]
    for a, b in zip(
        model.propagate(features, None, 1)[0], model.propagate_frames(apart, None, 1)[0], strict=True
    ):
        assert torch.equal(a, b)
    for a, b in zip(features, narrow.extract(frames), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_an_export_for_openvino_and_in_int8(narrow: Deblurrer, tmp_path: Path) -> None:
    """OpenVINO's own files run; 8 bits restore nearly the same, and the folder says what they lose."""
    about = export_network(narrow, "narrow", tmp_path / "int8", "openvino", "int8")
    assert about.int8_loss is not None and abs(about.int8_loss) < 0.3
    assert sorted(x.name for x in (tmp_path / "int8").glob("forward.*")) == ["forward.bin", "forward.xml"]
    clip = zoo.clip(4, height=48, width=64)[0]
    model = load(tmp_path / "int8", backend="auto")
    assert isinstance(model, GraphNetwork) and model.runs == "openvino int8"
    error = (restored(model, clip, 4) - restored(narrow, clip, 4)).abs()
    assert 0 < error.mean() < 0.02
    with pytest.raises(PahsError, match=r"holds openvino graphs, which run by --backend openvino"):
        load(tmp_path / "int8", backend="onnxruntime")
    with pytest.raises(PahsError, match=r"is int8; leave --precision fp32 out"):
        load(tmp_path / "int8", precision="fp32", backend="auto")


def test_a_video_is_deblurred_by_graphs(folder: Path, narrow: Deblurrer, tmp_path: Path) -> None:
    source = tmp_path / "clip.mp4"
    make_clip(source, frames=4, width=64, height=48)
    options = DeblurOptions(backend="onnxruntime")
    report = deblur(source, tmp_path / "graphs.mp4", options, model=folder)
    assert report.frames == 4
    assert deblur(source, tmp_path / "torch.mp4", model=narrow).frames == 4


def test_large_frames_and_small_memories_are_pytorchs_where_the_choice_is_open(
    folder: Path, narrow: Deblurrer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs build maps of all pairs of tokens: 8 GB for a frame of 3840x2160, twice as wide 34."""
    model = GraphNetwork.open(folder, "onnxruntime", "fp32")
    assert model.for_size(1 << 20, 1 << 20) is model, "asked for by the user"
    model.instead = lambda: narrow
    assert model.for_size(48, 64) is model
    assert model.for_size(1 << 20, 1 << 20) is narrow
    monkeypatch.setattr("pahs.backends.network.limited", lambda: True)
    clip = zoo.clip(3, height=48, width=64)[0]
    assert torch.equal(restored(model, clip, 3), restored(narrow, clip, 3))


def test_damaged_and_foreign_graphs_are_one_line(folder: Path, tmp_path: Path) -> None:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(folder, tmp_path / name))

    def changed(name: str, **values: object) -> Path:
        made = copy(name)
        content = json.loads((made / "model.json").read_text()) | values
        (made / "model.json").write_text(json.dumps(content))
        return made

    short = copy("short")
    (short / "forward.onnx").write_bytes((short / "forward.onnx").read_bytes()[:1000])
    missing = copy("missing")
    (missing / "extract.onnx").unlink()
    garbled = copy("garbled")
    (garbled / "model.json").write_text("{")
    about = graphs.read(folder)
    swapped = changed("swapped", graphs=json.loads((folder / "model.json").read_text())["graphs"][:2])
    for made, words in (
        (short, r"short/forward.onnx is damaged or of another export: .*; export the model again"),
        (
            missing,
            r"missing/extract.onnx: cannot be read \(No such file or directory\); export the model again",
        ),
        (garbled, r"garbled/model.json: cannot be read; export the model again"),
        (changed("later", format="pahs-graphs-9"), r"its format is pahs-graphs-9, this version of pahs runs"),
        (changed("unknown", architecture="vit"), r"its architecture 'vit' is unknown; export"),
        (swapped, r"its graphs are extract, forward; a bidirectional network has"),
    ):
        with pytest.raises(PahsError, match=words) as error:
            load(made, backend="onnxruntime")
        assert "\n" not in str(error.value)
    graph = about.graphs[0]
    (tmp_path / "text.onnx").write_text("no graph at all")
    for backend in BACKENDS:
        with pytest.raises(PahsError, match=rf"text.onnx: {backend} cannot open it"):
            sessions.open_graph(tmp_path / "text.onnx", graph, backend, "fp32")


def test_what_does_not_go_together_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, options in (
        (r"--precision int8: .*--backend openvino", {"precision": "int8"}),
        (
            r"--backend openvino --precision fp16: choose fp32, int8",
            {"backend": "openvino", "precision": "fp16"},
        ),
        (r"--backend onnxruntime --precision bf16", {"backend": "onnxruntime", "precision": "bf16"}),
        (r"--backend 'tensorrt' is unknown; choose one of auto", {"backend": "tensorrt"}),
    ):
        with pytest.raises(PahsError, match=words):
            load("pahs-t", **options)  # type: ignore[arg-type]
    with pytest.raises(PahsError, match="edvr-m is a windowed network, which is not exported"):
        load("edvr-m", backend="onnxruntime", precision="fp32", random_weights=True)
    with pytest.raises(PahsError, match="holds graphs, which run by --backend onnxruntime or openvino"):
        load(folder, backend="torch")
    monkeypatch.setattr(sessions, "find_spec", lambda _: None)
    with pytest.raises(
        PahsError, match=r"--backend openvino: it is not installed; pip install 'pahs\[openvino\]'"
    ):
        load("pahs-t", backend="openvino")


def test_auto_is_pytorch_without_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pahs.export.onnx.find_spec", lambda _: None)
    assert choose.choices() == (TORCH,)
    assert not isinstance(load("pahs-t", backend="auto", precision="fp32"), GraphNetwork)


def test_auto_is_pytorch_where_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pahs.backends.load.limited", lambda: True)
    monkeypatch.setattr("pahs.backends.load.fastest", lambda *_: pytest.fail("measured"))
    assert not isinstance(load("pahs-t", "cpu", backend="auto"), GraphNetwork)


def test_auto_is_pytorch_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("pahs.backends.load.fastest", lambda *_: pytest.fail("it would measure in every run"))
    assert not isinstance(load("pahs-t", backend="auto", precision="fp32"), GraphNetwork)


ORT, INT8 = Choice("onnxruntime", "fp32"), Choice("openvino", "int8")


def test_auto_takes_the_fastest_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each is measured once in a process of its own, and remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    times = {("torch", "auto"): "100", ("onnxruntime", "fp32"): "97", ("openvino", "int8"): "30"}
    asked: list[tuple[str, str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append((command[-2], command[-1]))
        if asked[-1] == ("openvino", "bf16"):
            raise subprocess.CalledProcessError(-4, command)
        return subprocess.CompletedProcess(command, 0, times[asked[-1]])

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("pahs.backends.choose.cached", lambda *_: tmp_path)
    among = (TORCH, ORT, Choice("openvino", "bf16"), INT8)
    assert choose.fastest(among) == [INT8, TORCH, ORT], (
        "hardly faster does not count, and what dies does not run"
    )
    assert len(asked) == 4
    choose.fastest((TORCH, ORT, INT8))
    assert choose.fastest(among) == [INT8, TORCH, ORT]
    assert len(asked) == 4, "remembered, also what died"


def test_auto_leaves_int8_that_loses_too_much(
    narrow: Deblurrer, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lossy = Path(shutil.copytree(folder, tmp_path / "lossy"))
    content = json.loads((lossy / "model.json").read_text())
    (lossy / "model.json").write_text(json.dumps(content | {"precision": "int8", "int8_loss": 0.3}))
    weights.save(narrow, tmp_path / "narrow.safetensors")
    monkeypatch.setattr("pahs.backends.load.choices", lambda: (TORCH, ORT, INT8))
    monkeypatch.setattr("pahs.backends.load.fastest", lambda among, quiet: [INT8, ORT, TORCH])
    monkeypatch.setattr(
        "pahs.backends.load.cached", lambda _, precision, __: lossy if precision == "int8" else folder
    )
    taken = load(tmp_path / "narrow.safetensors", backend="auto")
    assert isinstance(taken, GraphNetwork) and taken.runs == "onnxruntime fp32"
    (lossy / "model.json").write_text(json.dumps(content | {"precision": "int8", "int8_loss": 0.05}))
    taken = load(tmp_path / "narrow.safetensors", backend="auto")
    assert isinstance(taken, GraphNetwork) and taken.runs == "openvino int8"


def test_auto_passes_over_graphs_that_cannot_be_stored(
    narrow: Deblurrer, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The times are remembered, and then the disk is full: here a file stands where graphs would be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("pahs.backends.load.choices", lambda: (TORCH, ORT, INT8))
    weights.save(narrow, tmp_path / "narrow.safetensors")
    for choice, taken in ((TORCH, 100), (ORT, 20), (INT8, 10)):
        choose.note(choice, taken)
    (tmp_path / "pahs" / "graphs").touch()
    assert not isinstance(load(tmp_path / "narrow.safetensors", "cpu", backend="auto"), GraphNetwork)
    with pytest.raises(PahsError, match="graphs: cannot be written"):
        load(tmp_path / "narrow.safetensors", "cpu", "fp32", backend="onnxruntime")

    def no_room_for_int8(network: Deblurrer, precision: str, quiet: bool) -> Path:
        if precision == "int8":
            raise PahsError("the disk is full")
        return folder

    monkeypatch.setattr("pahs.backends.load.cached", no_room_for_int8)
    taken_instead = load(tmp_path / "narrow.safetensors", "cpu", backend="auto")
    assert isinstance(taken_instead, GraphNetwork) and taken_instead.runs == "onnxruntime fp32"


def test_the_cache_exports_once_and_again_when_damaged(
    narrow: Deblurrer, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    written: list[Path] = []

    def export(network: Deblurrer, name: str, output: Path, *_: object) -> None:
        written.append(output)
        shutil.copytree(folder, output)

    monkeypatch.setattr(cache, "export_network", export)
    first = cache.cached(narrow, "fp32")
    assert cache.cached(narrow, "fp32") == first and len(written) == 1
    (first / "reconstruct.onnx").write_bytes(b"")
    assert cache.cached(narrow, "fp32") == first and len(written) == 2
    assert graphs.read(first)


def test_importing_the_loader_opens_no_runtime() -> None:
    """Every command loads it, most need no graph."""
    code = "import sys, pahs.backends.load; print({'onnx', 'onnxruntime', 'openvino', 'onnxscript'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_bench_compares_what_is_installed(
    narrow: Deblurrer,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One run: PyTorch and graphs from file to file, scored on the same frames; `auto` is told."""
    weights.save(narrow, tmp_path / "narrow.safetensors")
    for kind in ("blur", "sharp"):
        frames = tmp_path / "data" / "test" / "one" / kind
        frames.mkdir(parents=True)
        for t, frame in enumerate(zoo.clip(3, height=48, width=64)[0]):
            Image.fromarray(to_pictures(frame)).save(frames / f"{t:06d}.png")
    for module in ("benchmarks.backends", "backends.load"):
        monkeypatch.setattr(f"pahs.{module}.choices", lambda: (TORCH, ORT, Choice("openvino", "bf16")))
    monkeypatch.setattr("pahs.backends.load.cached", lambda *_: folder)
    monkeypatch.setattr("pahs.backends.load.knows_bf16", lambda: False)
    numbers = tmp_path / "numbers.json"
    arguments = ["bench", "--backends", "--model", str(tmp_path / "narrow.safetensors"), "--size", "64", "48"]
    arguments += ["--clip", "3", "--data", str(tmp_path / "data"), "--json", str(numbers)]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert "openvino bf16: left out (--backend openvino --precision bf16: choose fp32, int8 here)" in err
    assert "`--backend auto` takes torch fp32 here." in out
    rows = json.loads(numbers.read_text())["rows"]
    assert [(row["backend"], row["precision"]) for row in rows] == [
        ("torch", "fp32"),
        ("onnxruntime", "fp32"),
    ]
    assert rows[0]["psnr"] == pytest.approx(rows[1]["psnr"], abs=0.01)
    assert all(row["file_to_file"] > 0 and row["restore"] > 0 for row in rows)
    assert cli.main(["bench", "--backends", "--zoo"]) == 2
    assert cli.main(["bench", "--zoo", "--data", str(tmp_path)]) == 2
