"""Where it runs and in which precision, decided from what the user asked and what the machine has."""

import gc
import resource
from pathlib import Path

import pytest
import torch

from pahs.engine.plan import free_memory, is_shortage, process_memory
from pahs.errors import PahsError
from pahs.networks import PRESETS
from pahs.runtime import precision, probe
from pahs.runtime.device import GPUS, choose_device, limit_memory, limited_memory
from pahs.runtime.load import load

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(("speed", "dtype"), [(0.0, "float32"), (1.1, "float32"), (1.8, "bfloat16")])
def test_auto_on_a_cpu_is_what_runs_faster(speed: float, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "probed_speed", lambda name, device: {"bfloat16": speed}[name])
    assert precision.choose_dtype("auto", CPU) == getattr(torch, dtype)


@pytest.mark.parametrize(("supported", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_is_half_precision_on_a_gpu(
    supported: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: supported)
    assert precision.choose_dtype("auto", CUDA) == dtype
    assert precision.choose_dtype("fp32", CUDA) == torch.float32


def test_a_lower_precision_on_a_cpu_is_probed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "probed_speed", lambda dtype, _: 0.1 if dtype == "bfloat16" else 0.0)
    assert precision.choose_dtype("bf16", CPU) == torch.bfloat16, "who asks for it gets it, slow or not"
    with pytest.raises(PahsError, match="--precision fp16: this CPU cannot run it"):
        precision.choose_dtype("fp16", CPU)


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is remembered yet; this is the file that it would be in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(precision, "probed_speed", precision.probed_speed.__wrapped__)
    return tmp_path / "pahs" / "cpu.json"


def test_a_probe_runs_once(forgetful: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speed = precision.probed_speed("float32")
    assert 0.1 < speed < 10, "float32 against itself"
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("it was remembered"))
    assert precision.probed_speed("float32") == pytest.approx(speed, abs=0.01)
    forgetful.write_text("{broken")
    assert precision.recall("float32") is None


def test_a_probe_that_dies_counts_as_no_and_is_not_remembered(forgetful: Path) -> None:
    assert precision.probed_speed("float7") == 0.0
    assert not forgetful.exists()


def test_a_probe_works_where_nothing_can_be_written(forgetful: Path) -> None:
    forgetful.parent.write_text("in the way")
    precision.remember("bfloat16", 2.0)
    assert precision.recall("bfloat16") is None


@pytest.mark.parametrize(("device", "message"), [("warp", "--device warp"), ("cuda", "sees no CUDA GPU")])
def test_devices_that_are_not_there(device: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(PahsError, match=message):
        choose_device(device)
    assert choose_device("auto") == CPU


@pytest.mark.parametrize(
    ("seen", "auto"),
    [({"cuda", "xpu", "mps"}, "cuda"), ({"xpu", "mps"}, "xpu"), ({"mps"}, "mps"), (set(), "cpu")],
)
def test_auto_takes_the_first_kind_of_gpu(seen: set[str], auto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such machine is at hand: what PyTorch sees is pretended."""
    for kind in GPUS:
        monkeypatch.setitem(GPUS, kind, lambda kind=kind: kind in seen)
    assert choose_device("auto") == torch.device(auto)
    for kind in GPUS:
        if kind in seen:
            assert choose_device(f"{kind}:1") == torch.device(kind, 1)
        else:
            with pytest.raises(PahsError, match=f"--device {kind}: this PyTorch sees no"):
                choose_device(kind)
    for word in ("meta", "cuda:", "mps:x"):
        with pytest.raises(PahsError, match=f"--device {word}: choose auto, cpu, cuda, xpu or mps"):
            choose_device(word)


@pytest.mark.parametrize(
    ("device", "speeds", "dtype"),
    [
        ("mps", {"float16": 1.5, "bfloat16": 1.9}, "float16"),
        ("mps", {"float16": 0.0, "bfloat16": 1.9}, "bfloat16"),
        ("xpu", {"float16": 1.5, "bfloat16": 1.3}, "bfloat16"),
        ("xpu", {"float16": 1.1, "bfloat16": 0.9}, "float32"),
        ("cuda", {"float16": 1.5, "bfloat16": 0.0}, "float16"),
    ],
)
def test_half_precision_elsewhere_is_what_a_probe_finds(
    device: str, speeds: dict[str, float], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs that no test has run on, AMD's among them, which PyTorch calls cuda."""
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(precision, "probed_speed", lambda name, place: speeds[name] if place == device else 0)
    assert precision.choose_dtype("auto", torch.device(device)) == getattr(torch, dtype)
    for name, short in (("float16", "fp16"), ("bfloat16", "bf16")):
        if speeds[name]:
            assert precision.choose_dtype(short, torch.device(device)) == getattr(torch, name)
        else:
            with pytest.raises(PahsError, match=f"--precision {short}: this {device} device cannot run it"):
                precision.choose_dtype(short, torch.device(device))


def test_a_precision_that_computes_something_else_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a driver might: fast, and wrong."""
    right = torch.rand(3, 3, 8, 8)
    assert probe.close(right + 0.01, right)
    assert not probe.close(right.flip(0), right) and not probe.close(right / 0, right)
    outputs = iter([(2.0, right), (1.0, right.flip(0)), (2.0, right), (1.0, right)])
    monkeypatch.setattr(probe, "timed", lambda network, frames: next(outputs))
    assert [probe.speed(torch.bfloat16), probe.speed(torch.bfloat16)] == [0.0, 2.0]


def test_unknown_precision() -> None:
    with pytest.raises(PahsError, match="--precision fp8: choose"):
        precision.choose_dtype("fp8", CPU)


def test_the_default_network_brings_its_weights() -> None:
    network = load(device="cpu")
    assert network.config == PRESETS["pahs-t"].config
    assert all(p.dtype == torch.float32 and p.device == CPU for p in network.parameters())
    assert not network.training


def test_memory_is_limited_for_a_job_on_a_cpu() -> None:
    """For the whole process, as far as it allocates; afterwards it has what it had."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    gc.collect()  # what is freed later would be room again
    used = process_memory("VmData") / 2**30
    with limited_memory(CPU, used + 0.5):
        assert free_memory(CPU) <= 2**29
        with pytest.raises(RuntimeError) as error:
            torch.ones(2**30)
        assert is_shortage(error.value)
        assert torch.ones(2**20).sum() == 2**20
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert not is_shortage(RuntimeError("something else"))
    for gib in (0.01, 0.0):
        with pytest.raises(PahsError, match=f"--memory {gib:g}"):
            limit_memory(CPU, gib)


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_memory_of_a_gpu_is_limited(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    if kind == "mps":
        monkeypatch.setattr("torch.mps.recommended_max_memory", lambda: 16 * 2**30)
        monkeypatch.setattr("torch.mps.current_allocated_memory", lambda: 2**30)
        assert free_memory(torch.device(kind)) == 15 * 2**30
    else:
        monkeypatch.setattr(f"torch.{kind}.mem_get_info", lambda device: (8 * 2**30, 16 * 2**30))
    monkeypatch.setattr(
        f"torch.{kind}.set_per_process_memory_fraction", lambda fraction, *_: asked.append(fraction)
    )
    for gib in (4, 99):
        limit_memory(torch.device(kind, 0), gib)
    assert asked == [0.25, 1.0]
    asked.clear()
    if kind != "mps":
        monkeypatch.setattr(f"torch.{kind}.get_per_process_memory_fraction", lambda number: 0.5)
    with (
        pytest.raises(PahsError, match="--memory nan"),
        limited_memory(torch.device(kind, 0), float("nan")),
    ):
        pass
    with pytest.raises(KeyError), limited_memory(torch.device(kind, 0), 4):
        raise KeyError
    with limited_memory(torch.device(kind, 0), None):
        pass
    before = 1.7 if kind == "mps" else 0.5
    assert asked == [before, 0.25, before], "the next job has what there was"
    assert is_shortage(RuntimeError("MPS backend out of memory (MPS allocated: 5.43 GiB)"))
    with pytest.raises(PahsError, match="--memory 0: it must be above 0"):
        limit_memory(torch.device("cuda", 0), 0)
