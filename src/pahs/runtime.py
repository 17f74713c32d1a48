"""Where a network runs and in which precision: decided here, once, for every front end."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Literal

import torch

from pahs import weights
from pahs.errors import PahsError
from pahs.networks import Deblurrer

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DEFAULT_MODELS = {"cuda": ("pahs-s", "pahs-t"), "cpu": ("pahs-t", "pahs-s")}
"""What `auto` means, best first: the first whose weights are in the package."""

PROBE = """
import torch
x = torch.rand(1, 8, 32, 32, dtype=torch.{dtype})
torch.nn.functional.conv2d(x, torch.rand(8, 8, 3, 3, dtype=torch.{dtype}))
"""


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


@cache
def runs_on_cpu(dtype: str) -> bool:
    """Whether this CPU survives a convolution in `dtype`.

    Some processors announce matrix instructions that they cannot run, and the process dies: so ask a child process.
    """
    child = subprocess.run(
        [sys.executable, "-c", PROBE.format(dtype=dtype)], capture_output=True, check=False
    )
    return child.returncode == 0


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision != "auto" and precision not in DTYPES:
        raise PahsError(f"--precision {precision}: choose auto, fp32, bf16 or fp16")
    if device.type == "cuda":
        if precision != "auto":
            return DTYPES[precision]
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    dtype = DTYPES["fp32" if precision == "auto" else precision]
    if dtype != torch.float32 and not runs_on_cpu(str(dtype).removeprefix("torch.")):
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

    auto: the GPU if there is one, with the bundled network made for it; half precision on GPUs, float32 on CPUs.
    """
    where = choose_device(device)
    dtype = choose_dtype(precision, where)
    name = default_model(where) if str(model) == "auto" else model
    network = weights.load(name, random_weights).to(where, dtype)
    return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]
