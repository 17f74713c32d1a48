"""Which kernel computes what: the tables against the rules written out, over a grid of shapes."""

import random
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from pahs.kernels import dispatch, ops
from pahs.kernels.dispatch import Call, Convolution, choose, describe

KERNELS = {"native", "hopper", "triton-rgb", "triton", "cudnn-relu", "cudnn-add", "conv-then-sum"}
KINDS = [(3, 1, 1), (3, 2, 1), (5, 2, 2), (5, 1, 2), (1, 1, 0), (4, 4, 0)]
SIZES = [(1, 4, 8), (1, 45, 80), (3, 90, 159), (4, 180, 320), (2, 362, 640), (1, 722, 1282), (9, 720, 1280)]


def expected(c: Convolution, libraries: frozenset[str], recording: bool, band: tuple[int, int]) -> str:
    """The rules as they were measured on an H200, one after the other."""
    rows, height = band

    def of_whole(numbers: int) -> int:
        return numbers * height // rows

    def ordered(*tensors: Tensor | None) -> bool:
        return all(t is None or t.is_contiguous(memory_format=torch.channels_last) for t in tensors)

    x, weight, bias, residual, relu, stride, padding = c
    outputs, inputs, size, _ = weight.shape
    if not recording and of_whole(x.numel()) * max(1.0, outputs / inputs) < 1 << 23:
        return "native"
    if (size, stride, padding) == (3, 1, 1) and ordered(x, residual):
        ours = inputs == outputs and inputs in (16, 32, 64) and x.shape[3] % (64 // inputs) == 0
        if "hopper" in libraries and ours:
            return "hopper"
        if "triton" in libraries:
            if (
                inputs == 3
                and outputs in (16, 32, 64, 128)
                and bias is not None
                and residual is None
                and not relu
            ):
                return "triton-rgb"
            small = of_whole(x.shape[0] * x.shape[2] * x.shape[3]) <= 1 << 17
            if inputs in (16, 32, 64) and (outputs == 3 or (inputs == outputs and (inputs <= 32 or small))):
                return "triton"
    if relu and bias is not None and residual is None:
        return "cudnn-relu"
    large = of_whole(x.numel()) // inputs * outputs // stride**2 >= (1 << 22 if recording else 1 << 23)
    eights = inputs % 8 == 0 and outputs % 8 == 0
    if "cudnn" in libraries and bias is not None and not relu and large and eights and ordered(x, residual):
        return "cudnn-add"
    return "conv-then-sum"


def hollow(*shape: int, last: bool = True) -> Tensor:
    """A tensor without values."""
    memory = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=torch.bfloat16, device="meta").to(memory_format=memory)


def test_every_convolution_gets_the_kernel_that_was_measured_to_be_fastest() -> None:
    draw = random.Random(0)
    seen = Counter[str]()
    for _ in range(6000):
        inputs, outputs = (
            draw.choice([3, 3, 6, 16, 30, 32, 48, 64, 96, 192]),
            draw.choice([3, 16, 30, 32, 64, 128]),
        )
        outputs = inputs if draw.random() < 0.4 else outputs
        size, stride, padding = draw.choice([*3 * KINDS[:1], *KINDS])
        N, H, W = draw.choice(SIZES)
        rows, columns = ((extent + 2 * padding - size) // stride + 1 for extent in (H, W))
        if min(rows, columns) < 1:
            continue
        last = draw.random() < 0.9
        residual = hollow(N, outputs, rows, columns, last=last) if draw.random() < 0.5 else None
        bias = torch.empty(outputs, device="meta") if draw.random() < 0.7 else None
        relu = draw.random() < 0.4
        weight = hollow(outputs, inputs, size, size, last=draw.random() < 0.5)
        c = Convolution(hollow(N, inputs, H, W, last=last), weight, bias, residual, relu, stride, padding)
        found = frozenset(name for name in ("hopper", "triton", "cudnn") if draw.random() < 0.8)
        recording = draw.random() < 0.3
        band = draw.choice([(1, 1), (1, 1), (16 * H, 16 * 3 * H), (H, 5 * H)])
        with dispatch.band(*band), dispatch.recording() if recording else nullcontext():
            kernel = choose(ops.CONVOLUTION, describe(c), found).name
        right = expected(c, found, recording, band)
        assert kernel == right, (c[4:], c.x.shape, weight.shape, found, recording, band)
        seen[kernel] += 1
    assert set(seen) == KERNELS == {kernel.name for kernel in ops.CONVOLUTION.kernels}
    assert min(seen.values()) >= 10, seen


def test_transposes_sums_and_selections_follow_their_rules() -> None:
    both, none = frozenset({"triton", "cudnn"}), frozenset[str]()
    for inputs, outputs in ((192, 64), (64, 192), (6, 6)):
        for pixels in (1, 1 << 14, 1 << 17, 1 << 20, 1 << 23):
            for recording in (False, True):
                large = recording or pixels * inputs * max(1.0, inputs / outputs) >= 1 << 23
                call = Call(inputs, outputs, pixels=pixels, recording=recording)
                name = choose(ops.TRANSPOSED, call, both).name
                assert name == ("transpose-then-sum" if large else "native")
    for outputs in (3, 8, 30, 96):
        for bias in (False, True):
            for dense in (False, True):
                for found in (both, none):
                    call = Call(outputs=outputs, bias=bias, dense=dense)
                    ours = bias and dense and outputs % 8 == 0 and "triton" in found
                    assert choose(ops.SUM, call, found).name == ("triton" if ours else "native")
    for channels in (4, 16, 30, 32, 64, 128, 256):
        for found in (both, none):
            ours = channels in (16, 32, 64, 128) and "triton" in found
            name = choose(ops.SELECTION, Call(channels), found).name
            assert name == ("triton" if ours else "native")


def test_an_unaligned_weight_is_not_for_hopper() -> None:
    values = torch.zeros(64 * 64 * 9 + 4, dtype=torch.bfloat16)

    def chosen(weight: Tensor) -> str:
        with dispatch.recording():
            call = describe(Convolution(hollow(1, 64, 8, 8), weight))
        return choose(ops.CONVOLUTION, call, frozenset({"hopper"})).name

    for offset, name in ((0, "hopper"), (4, "conv-then-sum")):
        weight = values[offset : offset + 64 * 64 * 9].view(64, 3, 3, 64).permute(0, 3, 1, 2)
        assert chosen(weight) == name
        copied = weight.permute(0, 1, 3, 2)  # not channels-last: copied before it is used
        assert chosen(copied) == "hopper"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_a_gpu_nothing_is_chosen(dtype: torch.dtype) -> None:
    x = torch.zeros(1, 8, 4, 4, dtype=dtype)
    with torch.inference_mode():
        assert dispatch.fused(x, x) is None


@pytest.mark.parametrize(
    ("capability", "found"),
    [
        ((7, 0), set()),
        ((7, 5), {"triton", "cudnn"}),
        ((8, 0), {"triton", "cudnn"}),
        ((8, 6), {"triton", "cudnn"}),
        ((8, 9), {"triton", "cudnn"}),
        ((9, 0), {"hopper", "triton", "cudnn"}),
        ((10, 0), {"triton", "cudnn"}),
        ((12, 0), {"triton", "cudnn"}),
    ],
)
def test_a_generation_of_gpus_gets_the_kernels_that_it_can_run(
    capability: tuple[int, int], found: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where everything works: a kernel is not even tried on a generation that lacks its instructions."""
    tried = []
    for name in dispatch.TRIALS:
        monkeypatch.setitem(dispatch.TRIALS, name, lambda name=name: tried.append(name))
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    libraries = dispatch.Libraries(0, capability)
    assert {name for name in dispatch.TRIALS if name in libraries} == set(tried) == found
    assert set(dispatch.RUNS_ON) == set(dispatch.TRIALS)
    c = Convolution(hollow(1, 64, 720, 1280), hollow(64, 64, 3, 3), torch.empty(64, device="meta"))
    with dispatch.recording():
        kernel = choose(ops.CONVOLUTION, describe(c), libraries).name
    assert kernel == ("hopper" if "hopper" in found else "cudnn-add" if found else "conv-then-sum")


def test_a_library_that_does_not_work_is_tried_once_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def broken() -> None:
        tries.append(1)
        raise RuntimeError("no compiler\nand much more")

    monkeypatch.setitem(dispatch.TRIALS, "triton", broken)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    found = dispatch.Libraries(0, (8, 9))
    assert "triton" not in found and "triton" not in found
    assert len(tries) == 1
    assert [record.message for record in caplog.records] == [
        "running without Triton kernels, which is slower: no compiler"
    ]
