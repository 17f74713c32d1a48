"""Where it runs and in which precision, decided from what the user asked and what the machine has."""

import gc
import resource
from pathlib import Path

import pytest
import torch

from pahs.engine.plan import free_memory, is_shortage, process_memory
from pahs.errors import PahsError
from pahs.networks import PRESETS
from pahs.runtime import precision
from pahs.runtime.device import choose_device, limit_memory, limited_memory
from pahs.runtime.load import load

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(("speed", "dtype"), [(0.0, "float32"), (1.1, "float32"), (1.8, "bfloat16")])
def test_auto_on_a_cpu_is_what_runs_faster(speed: float, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "cpu_speed", lambda name: {"bfloat16": speed}[name])
    assert precision.choose_dtype("auto", CPU) == getattr(torch, dtype)


@pytest.mark.parametrize(("supported", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_is_half_precision_on_a_gpu(
    supported: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: supported)
    assert precision.choose_dtype("auto", CUDA) == dtype
    assert precision.choose_dtype("fp32", CUDA) == torch.float32


def test_a_lower_precision_on_a_cpu_is_probed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "cpu_speed", lambda dtype: 0.1 if dtype == "bfloat16" else 0.0)
    assert precision.choose_dtype("bf16", CPU) == torch.bfloat16, "who asks for it gets it, slow or not"
    with pytest.raises(PahsError, match="--precision fp16: this CPU cannot run it"):
        precision.choose_dtype("fp16", CPU)


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is remembered yet; this is the file that it would be in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(precision, "cpu_speed", precision.cpu_speed.__wrapped__)
    return tmp_path / "pahs" / "cpu.json"


def test_a_probe_runs_once(forgetful: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speed = precision.cpu_speed("float32")
    assert 0.1 < speed < 10, "float32 against itself"
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("it was remembered"))
    assert precision.cpu_speed("float32") == pytest.approx(speed, abs=0.01)
    forgetful.write_text("{broken")
    assert precision.recall("float32") is None


def test_a_probe_that_dies_counts_as_no_and_is_not_remembered(forgetful: Path) -> None:
    assert precision.cpu_speed("float7") == 0.0
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


def test_memory_of_a_gpu_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (8 * 2**30, 16 * 2**30))
    monkeypatch.setattr(
        "torch.cuda.set_per_process_memory_fraction", lambda fraction, device: asked.append(fraction)
    )
    for gib in (4, 99):
        limit_memory(torch.device("cuda", 0), gib)
    assert asked == [0.25, 1.0]
    with pytest.raises(PahsError, match="--memory 0: it must be above 0"):
        limit_memory(torch.device("cuda", 0), 0)
