"""The same frames on a GPU: exact in float32, close in half precision, and unchanged when memory is short."""

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pahs import runtime
from pahs.engine import stream

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.fixture(autouse=True)
def plain_float32() -> Iterator[None]:
    """TF32 is a precision of its own; here float32 means float32."""
    allowed = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = allowed


def clip(frames: int, height: int, width: int) -> Tensor:
    """A picture that slides, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    small = torch.rand(1, 3, height // 6, width // 4, generator=generator)
    picture = F.interpolate(small, (height, width + 4 * frames), mode="bicubic").clamp(0, 1)[0]
    return torch.stack([picture[:, :, 4 * t : 4 * t + width] for t in range(frames)])


def restored(device: str, precision: str, frames: Tensor) -> Tensor:
    network = runtime.load("pahs-t", device, precision)
    return torch.stack(list(stream(network, frames, scene_cuts=False)))


def psnr(a: Tensor, b: Tensor) -> float:
    return -10 * math.log10(float((a - b).double().square().mean()))


def test_float32_equals_the_cpu() -> None:
    frames = clip(6, 90, 150)
    torch.testing.assert_close(
        restored("cuda", "fp32", frames), restored("cpu", "fp32", frames), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_close(precision: str) -> None:
    frames = clip(24, 180, 320)
    assert psnr(restored("cuda", precision, frames), restored("cuda", "fp32", frames)) > 50


def test_short_memory_gives_the_same_frames() -> None:
    frames = clip(4, 1072, 1920)
    expected = restored("cuda", "fp32", frames)
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 1.1 * 2**30) / total)
        with pytest.raises(torch.OutOfMemoryError):
            runtime.load("pahs-t", "cuda", "fp32").extract(frames[None].cuda())
        torch.testing.assert_close(restored("cuda", "fp32", frames), expected, rtol=0, atol=1e-5)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
