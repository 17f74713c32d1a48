"""Where a network runs and in which precision: decided here, once, for every front end."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Literal

import torch

from pahs import cache, weights
from pahs.atomic import write_whole
from pahs.errors import PahsError
from pahs.networks import Deblurrer

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DEFAULT_MODELS = {"cuda": ("pahs-s", "pahs-t"), "cpu": ("pahs-t", "pahs-s")}
"""What `auto` means, best first: the first whose weights are in the package."""

PROBE_SECONDS = 120
FASTER = 1.2
"""How many times as fast as float32 a precision must be before `auto` takes it on a CPU."""


def choose_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise PahsError(f"--device {device}: choose auto, cpu or cuda") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise PahsError("--device cuda: this PyTorch sees no CUDA GPU; use --device cpu or auto")
    return chosen


@functools.cache
def cpu_speed(dtype: str) -> float:
    """How many times as fast as float32 a network runs in `dtype` on this CPU; 0 where it does not run.

    Tried in a child process, which takes seconds: the answer is remembered in the user's cache folder.
    """
    known = recall(dtype)
    if known is not None:
        return known
    try:
        child = subprocess.run(
            [sys.executable, "-m", "pahs.probe", dtype],
            capture_output=True,
            check=True,
            timeout=PROBE_SECONDS,
            text=True,
        )
        speed = float(child.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0.0
    remember(dtype, speed)
    return speed


def recall(dtype: str) -> float | None:
    """What `remember` was told on this CPU with this PyTorch, if anything."""
    known = _remembered().get(f"{_this_cpu()}, {dtype}")
    return float(known) if isinstance(known, int | float) else None


def remember(dtype: str, speed: float) -> None:
    text = json.dumps({**_remembered(), f"{_this_cpu()}, {dtype}": round(speed, 2)}, indent=1)
    with suppress(PahsError):  # nowhere to write: the next run tries again
        write_whole(_memory(), lambda partial: partial.write_text(text + "\n", encoding="utf-8"))


def _remembered() -> dict[str, object]:
    with suppress(OSError, ValueError, PahsError):
        found = json.loads(_memory().read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def _memory() -> Path:
    return cache.folder() / "cpu.json"


def _this_cpu() -> str:
    # Machines that share a home may have processors of one name and different abilities.
    abilities = zlib.crc32((_cpuinfo("flags") or _cpuinfo("Features")).encode())
    return f"{cpu_name()} {abilities:08x}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def cpu_name() -> str:
    """The processor's own name where the system tells it, else its architecture."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(field: str) -> str:
    """What Linux says of the first processor, or nothing."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision != "auto" and precision not in DTYPES:
        raise PahsError(f"--precision {precision}: choose auto, fp32, bf16 or fp16")
    if device.type == "cuda":
        if precision != "auto":
            return DTYPES[precision]
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if precision == "auto":
        return torch.bfloat16 if cpu_speed("bfloat16") >= FASTER else torch.float32
    dtype = DTYPES[precision]
    if dtype != torch.float32 and not cpu_speed(str(dtype).removeprefix("torch.")):
        raise PahsError(f"--precision {precision}: this CPU cannot run it; use --precision fp32")
    return dtype


def limit_memory(device: torch.device, gib: float) -> None:
    """Use no more memory of this GPU than that; the engine then cuts its work to fit."""
    if device.type != "cuda":
        raise PahsError(
            f"--memory {gib:g}: it limits the memory of a GPU, and this runs on the CPU; leave it out"
        )
    number = torch.cuda.current_device() if device.index is None else device.index
    _, total = torch.cuda.mem_get_info(number)
    if gib <= 0:
        raise PahsError(f"--memory {gib:g}: it must be above 0")
    torch.cuda.set_per_process_memory_fraction(min(1.0, gib * 2**30 / total), number)


def default_model(device: torch.device) -> str:
    names = DEFAULT_MODELS["cuda" if device.type == "cuda" else "cpu"]
    return next((name for name in names if weights.bundled(name)), names[0])


def load(
    model: str | Path = "auto",
    device: str = "auto",
    precision: str = "auto",
    random_weights: bool = False,
) -> Deblurrer:
    """A network by name or file, on its device and ready for `stream`.

    auto: the GPU if there is one, with the bundled network made for it; half precision on GPUs and on CPUs that are
    faster with it.
    """
    where = choose_device(device)
    dtype = choose_dtype(precision, where)
    name = default_model(where) if str(model) == "auto" else model
    network = weights.load(name, random_weights).to(where, dtype)
    return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]
