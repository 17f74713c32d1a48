"""The precision that a network runs in: chosen here, once, for every front end."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import torch

from pahs.engine.plan import told_by_linux
from pahs.errors import PahsError
from pahs.files import cache_folder, write_json
from pahs.runtime.device import cpu_name, device_name, runs_our_kernels

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

PROBE_SECONDS = 120
FASTER = 1.2
"""How many times as fast as float32 a precision must be before `auto` takes it where it is probed."""
HALVES = {"cpu": ("bfloat16",), "mps": ("float16", "bfloat16")}
"""What `auto` tries, best first: Apple's GPUs compute float16, and the older ones bfloat16 in software."""


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision != "auto" and precision not in DTYPES:
        raise PahsError(f"--precision {precision}: choose auto, fp32, bf16 or fp16")
    if runs_our_kernels(device):
        if precision != "auto":
            return DTYPES[precision]
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if precision == "auto":
        halves = HALVES.get(device.type, ("bfloat16", "float16"))
        fast = (name for name in halves if probed_speed(name, str(device)) >= FASTER)
        return getattr(torch, next(fast, "float32"))  # type: ignore[no-any-return]
    dtype = DTYPES[precision]
    if dtype != torch.float32 and not probed_speed(str(dtype).removeprefix("torch."), str(device)):
        kind = "CPU" if device.type == "cpu" else f"{device.type} device"
        raise PahsError(f"--precision {precision}: this {kind} cannot run it; use --precision fp32")
    return dtype


def name_of_dtype(dtype: torch.dtype) -> str:
    """fp32, bf16 or fp16; PyTorch's name of any other."""
    return next((name for name, known in DTYPES.items() if known == dtype), str(dtype).removeprefix("torch."))


@functools.cache
def probed_speed(dtype: str, device: str = "cpu") -> float:
    """How many times as fast as float32 a network runs in `dtype` on a device; 0 where it does not run, or is wrong.

    A child process tries it, which takes seconds; the answer is kept in the user's cache folder.
    """
    key = dtype if device == "cpu" else f"{dtype} on {device_name(torch.device(device))}"
    known = recall(key)
    if known is not None:
        return known
    try:
        child = subprocess.run(
            [sys.executable, "-m", "pahs.runtime.probe", dtype, device],
            capture_output=True,
            check=True,
            timeout=PROBE_SECONDS,
            text=True,
        )
        speed = float(child.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0.0
    remember(key, speed)
    return speed


def recall(dtype: str) -> float | None:
    """What `remember` stored on this CPU with this PyTorch, if anything."""
    known = _remembered().get(f"{_this_cpu()}, {dtype}")
    return float(known) if isinstance(known, int | float) else None


def remember(dtype: str, speed: float) -> None:
    known = {**_remembered(), f"{_this_cpu()}, {dtype}": round(speed, 2)}
    with suppress(PahsError):  # where the cache folder cannot be written, the next run measures again
        write_json(_memory(), known)


def _remembered() -> dict[str, object]:
    with suppress(OSError, ValueError, PahsError):
        found = json.loads(_memory().read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def _memory() -> Path:
    return cache_folder() / "cpu.json"


def _this_cpu() -> str:
    # Machines that share a home may have processors of the same name with different abilities.
    flags = told_by_linux("cpuinfo", "flags") or told_by_linux("cpuinfo", "Features")
    abilities = zlib.crc32(flags.encode())
    return f"{cpu_name()} {abilities:08x}, {torch.get_num_threads()} threads, torch {torch.__version__}"
