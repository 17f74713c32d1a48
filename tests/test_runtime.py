"""Where it runs and in which precision, decided from what the user asked and what the machine has."""

import pytest
import torch

from pahs import runtime
from pahs.errors import PahsError
from pahs.networks import PRESETS

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_auto_is_float32_on_a_cpu() -> None:
    assert runtime.choose_dtype("auto", CPU) == torch.float32


@pytest.mark.parametrize(("supported", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_is_half_precision_on_a_gpu(
    supported: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: supported)
    assert runtime.choose_dtype("auto", CUDA) == dtype
    assert runtime.choose_dtype("fp32", CUDA) == torch.float32


def test_a_lower_precision_on_a_cpu_is_probed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.runs_on_cpu("float32")
    assert not runtime.runs_on_cpu("float7"), "a child process that fails must count as no"
    monkeypatch.setattr(runtime, "runs_on_cpu", lambda dtype: dtype == "bfloat16")
    assert runtime.choose_dtype("bf16", CPU) == torch.bfloat16
    with pytest.raises(PahsError, match="--precision fp16: this CPU cannot run it"):
        runtime.choose_dtype("fp16", CPU)


@pytest.mark.parametrize(("device", "message"), [("warp", "--device warp"), ("cuda", "sees no CUDA GPU")])
def test_devices_that_are_not_there(device: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(PahsError, match=message):
        runtime.choose_device(device)
    assert runtime.choose_device("auto") == CPU


def test_unknown_precision() -> None:
    with pytest.raises(PahsError, match="--precision fp8: choose"):
        runtime.choose_dtype("fp8", CPU)


def test_the_default_network_brings_its_weights() -> None:
    network = runtime.load(device="cpu")
    assert network.config == PRESETS["pahs-t"].config
    assert all(p.dtype == torch.float32 and p.device == CPU for p in network.parameters())
    assert not network.training


def test_memory_is_limited_on_gpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PahsError, match=r"--memory 4: .* runs on the CPU"):
        runtime.limit_memory(CPU, 4)
    asked = []
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (8 * 2**30, 16 * 2**30))
    monkeypatch.setattr(
        "torch.cuda.set_per_process_memory_fraction", lambda fraction, device: asked.append(fraction)
    )
    for gib in (4, 99):
        runtime.limit_memory(torch.device("cuda", 0), gib)
    assert asked == [0.25, 1.0]
    with pytest.raises(PahsError, match="--memory 0: it must be above 0"):
        runtime.limit_memory(torch.device("cuda", 0), 0)
