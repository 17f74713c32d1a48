"""3x3 convolutions of 64, 32 and 16 channels on Hopper GPUs (H100, H200): `hopper.cu`, compiled at first use.

The kernels of cuDNN and Triton fetch every pixel nine times, once for each of the nine weights; with few channels the
cache cannot keep up. This kernel fetches it once. PyTorch has already loaded the compiler (NVRTC) and the driver.
"""

from __future__ import annotations

import ctypes
import hashlib
from contextlib import suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p, create_string_buffer
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from pahs.errors import PahsError
from pahs.files import cache_folder, whole

CHANNELS = (64, 32, 16)
CAPABILITY = (9, 0)
VALUES = 64
"""Values of a pixel group: one pixel of 64 channels, or as many neighbouring pixels of fewer as give 64 values."""
ROWS, SMALL_ROWS, COLUMNS = 30, 22, 8
"""Rows of a tile, rows of a tile of a small picture, and columns of either, in pixel groups."""
THREADS = 288
TYPES = {torch.float16: 6, torch.bfloat16: 9}
SWIZZLE_128, PROMOTE_256 = 3, 3
MAX_SHARED_MEMORY = 8


class Attribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_int), ("rest", c_int * 15))


class Launch(ctypes.Structure):
    _fields_ = (
        *(
            (name, c_uint32)
            for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "memory")
        ),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", c_uint32),
    )


OVERLAP = Attribute(6, 0, 1)
"""The kernel may start while the one before it still runs ("programmatic stream serialization")."""


class HopperError(RuntimeError):
    """The driver or the compiler returned an error."""


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    relu: bool = False,
    mask: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """relu(conv(x) + bias + residual), 3x3 with a padding of 1; all tensors are half precision and channels-last.

    With a mask: conv(x) where it is positive, 0 elsewhere. Rows of x are a whole number of pixel groups long, and the
    weight begins at a multiple of 16 bytes.
    """
    y = torch.empty_like(x) if out is None else out
    second = residual if mask is None else mask
    N, channels, H, W = x.shape
    group = VALUES // channels
    with torch.cuda.device(x.device):
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        groups = (VALUES, W // group, H, N)
        wide = -(-groups[1] // COLUMNS)
        # Small tiles are done sooner, unless a multiprocessor gets more than one of them.
        rows = SMALL_ROWS if wide * -(-H // SMALL_ROWS) * N <= multiprocessors else ROWS
        high = -(-H // rows)
        tiles = wide * high * N
        run, memory = kernel(x.device.index, group, x.dtype == torch.float16, rows)
        box = (VALUES, COLUMNS, rows, 1)
        maps = (
            tensor_map(x.dtype, x.data_ptr(), groups, (VALUES, COLUMNS + 2, rows + 2, 1)),
            tensor_map(x.dtype, (y if second is None else second).data_ptr(), groups, box),
            tensor_map(x.dtype, y.data_ptr(), groups, box),
        )
        kind = 0 if second is None else 1 if mask is None else 2
        numbers = (weight.stride(0), weight.stride(3), kind, relu, wide, high, tiles)
        arguments = (
            *(map_ for map_, _ in maps),
            c_void_p(weight.data_ptr()),
            c_void_p(None if bias is None else bias.data_ptr()),
            *map(c_int, numbers),
        )
        pointers = (c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        grid = min(tiles, multiprocessors)
        stream = torch.cuda.current_stream(x.device).cuda_stream
        launch = Launch(grid, 1, 1, THREADS, 1, 1, memory, stream, ctypes.pointer(OVERLAP), 1)
        _call("cuLaunchKernelEx", byref(launch), run, pointers, None)
    return y


@lru_cache(maxsize=4096)
def tensor_map(
    dtype: torch.dtype, address: int, size: tuple[int, ...], box: tuple[int, ...]
) -> tuple[ctypes.Array[Any], object]:
    """The copy engine's description of a tensor, innermost dimension first, and the memory that holds it."""
    memory = create_string_buffer(128 + 63)
    made = (ctypes.c_char * 128).from_buffer(memory, -ctypes.addressof(memory) % 64)
    strides = [2 * size[0], 2 * size[0] * size[1], 2 * size[0] * size[1] * size[2]]
    _call(
        "cuTensorMapEncodeTiled", made, TYPES[dtype], 4, c_void_p(address), (c_uint64 * 4)(*size),
        (c_uint64 * 3)(*strides), (c_uint32 * 4)(*box), (c_uint32 * 4)(1, 1, 1, 1), 0, SWIZZLE_128, PROMOTE_256, 0,
    )  # fmt: skip
    return made, memory


@cache
def kernel(device: int, group: int, half: bool, rows: int) -> tuple[c_void_p, int]:
    """The compiled function, for the current device, and the shared memory that it needs."""
    memory = 1024 + 9 * 8192 + 2 * (rows + 2) * (COLUMNS + 2) * 128 + 2 * rows * COLUMNS * 128 + 64
    module, function = c_void_p(), c_void_p()
    _call("cuModuleLoadData", byref(module), compiled(group, half, rows))
    _call("cuModuleGetFunction", byref(function), module, b"conv")
    _call("cuFuncSetAttribute", function, MAX_SHARED_MEMORY, memory)
    return function, memory


@cache
def compiled(group: int, half: bool, rows: int) -> bytes:
    """The source as machine code, which is kept in the cache folder between runs."""
    source = files("pahs.kernels").joinpath("hopper.cu").read_bytes()
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17"]
    options += [b"-DGROUP=%d" % group, b"-DHALF=%d" % half, b"-DROWS=%d" % rows]
    key = hashlib.sha256(b"\n".join([source, *options, str(torch.version.cuda).encode()])).hexdigest()
    with suppress(OSError, PahsError):
        return (cache_folder() / f"{key}.cubin").read_bytes()
    binary = compile_source(source, options)
    with suppress(PahsError), whole(cache_folder() / f"{key}.cubin") as partial:
        partial.write_bytes(binary)  # where this fails, the next run compiles again
    return binary


def compile_source(source: bytes, options: list[bytes]) -> bytes:
    nvrtc = ctypes.CDLL(f"libnvrtc.so.{str(torch.version.cuda).partition('.')[0]}")
    program, size = c_void_p(), c_size_t()
    if nvrtc.nvrtcCreateProgram(byref(program), source, b"hopper.cu", 0, None, None):
        raise HopperError("NVRTC takes no program")
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), (c_char_p * len(options))(*options)):
            nvrtc.nvrtcGetProgramLogSize(program, byref(size))
            log = create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise HopperError(log.value.decode(errors="replace"))
        nvrtc.nvrtcGetCUBINSize(program, byref(size))
        binary = create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, binary)
        return binary.raw
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: object) -> None:
    status = getattr(_driver(), name)(*arguments)
    if status:
        reason = c_char_p()
        _driver().cuGetErrorString(status, byref(reason))
        raise HopperError(f"{name}: {(reason.value or b'unknown').decode()}")
