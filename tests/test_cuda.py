"""The same frames on a GPU: exact in float32, close in half precision, unchanged when memory is short; few launches."""

import math
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice, repeat
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from pahs import kernels
from pahs.engine import plan, stream
from pahs.engine.plan import Plan, longest_chunk
from pahs.engine.restorer import Restorer
from pahs.kernels import cuda_graph, dispatch, hopper
from pahs.kernels.dispatch import libraries
from pahs.networks import PRESETS, PAHSConfig
from pahs.networks.blocks import Conv, ResidualBlock, conv, double
from pahs.networks.snla import SNLA
from pahs.runtime.device import limit_memory
from pahs.runtime.load import load
from pahs.video import PixelLayout, apply_change, to_rgb

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.usefixtures("plain_float32"),
]


def clip(frames: int, height: int, width: int) -> Tensor:
    """A picture that slides, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    small = torch.rand(1, 3, height // 6, width // 4, generator=generator)
    picture = F.interpolate(small, (height, width + 4 * frames), mode="bicubic").clamp(0, 1)[0]
    return torch.stack([picture[:, :, 4 * t : 4 * t + width] for t in range(frames)])


def restored(device: str, precision: str, frames: Tensor) -> Tensor:
    network = load("pahs-t", device, precision)
    return torch.stack(list(stream(network, frames, scene_cuts=False)))


def psnr(a: Tensor, b: Tensor) -> float:
    error = float((a - b).double().square().mean())
    return -10 * math.log10(error) if error else math.inf


def test_float32_equals_the_cpu() -> None:
    frames = clip(6, 90, 150)
    torch.testing.assert_close(
        restored("cuda", "fp32", frames), restored("cpu", "fp32", frames), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_close(precision: str) -> None:
    frames = clip(24, 180, 320)
    assert psnr(restored("cuda", precision, frames), restored("cuda", "fp32", frames)) > 50


@pytest.mark.parametrize("capability", [(7, 0), (8, 0), (8, 6), (8, 9), (12, 0)])
@pytest.mark.parametrize("name", ["pahs-s", "pahs-t"])
def test_the_kernels_of_another_generation_give_the_same_frames(
    name: str, capability: tuple[int, int]
) -> None:
    """What Ampere, Ada and Blackwell choose, and cards that get no kernels of ours, computed by this GPU."""
    frames = clip(12, 360, 640)
    expected = torch.stack(list(stream(load(name, "cuda", "fp32"), frames, scene_cuts=False)))
    with dispatch.as_on(capability):
        found = torch.stack(list(stream(load(name, "cuda", "bf16"), frames, scene_cuts=False)))
        tried = libraries(0, capability).tried
    assert psnr(found, expected) > 50
    assert not tried.get("hopper") and any(tried.values()) == (capability >= (7, 5))


def test_the_tiles_of_triton_fit_the_shared_memory_of_small_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block may take 99 KiB on cards of capability 8.6, 8.9 and 12.0; on an H200, 227."""
    from pahs.kernels import triton

    most: list[int] = []
    for name in ("_conv", "_from_rgb", "_sum"):
        monkeypatch.setattr(triton, name, Watched(getattr(triton, name), most))
    for channels, outputs in ((16, 16), (32, 32), (64, 64), (64, 3), (32, 3)):
        for dtype in (torch.bfloat16, torch.float16):
            x = torch.rand(1, channels, 64, 64, device="cuda").to(dtype).to(memory_format=torch.channels_last)
            weight = x.new_zeros(outputs, channels, 3, 3).to(memory_format=torch.channels_last)
            triton.conv(x, weight, x.new_zeros(outputs), None, True)
            triton.add_(x, x.new_zeros(channels), x.clone())
            picture = x[:, :3].contiguous(memory_format=torch.channels_last)
            triton.conv_from_rgb(picture, x.new_zeros(channels, 3, 3, 3), x.new_zeros(channels))
    assert len(most) == 30 and max(most) <= 99 * 1024


class Watched:
    """A kernel of Triton that notes how much shared memory each launch takes."""

    def __init__(self, kernel: object, noted: list[int]) -> None:
        self.kernel, self.noted = kernel, noted

    def __getitem__(self, grid: object) -> object:
        def launch(*arguments: object, **options: object) -> None:
            self.noted.append(self.kernel[grid](*arguments, **options).metadata.shared)  # type: ignore[index]

        return launch


def test_short_memory_gives_the_same_frames() -> None:
    frames = clip(4, 1072, 1920)
    expected = restored("cuda", "fp32", frames)
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 1.1 * 2**30) / total)
        with pytest.raises(torch.OutOfMemoryError):
            load("pahs-t", "cuda", "fp32").extract(frames[None].cuda())
        torch.testing.assert_close(restored("cuda", "fp32", frames), expected, rtol=0, atol=1e-5)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


LAYERS = {
    "from RGB": (lambda: conv(3, 32), 3),
    "from RGB, an odd width": (lambda: conv(3, 30), 3),
    "to RGB": (lambda: conv(32, 3), 32),
    "to RGB, 16": (lambda: conv(16, 3), 16),
    "to RGB, 64": (lambda: conv(64, 3), 64),
    "stride": (lambda: conv(32, 96, 5, stride=2), 32),
    "residual": (lambda: ResidualBlock(96), 96),
    "residual, 16": (lambda: ResidualBlock(16), 16),
    "residual, 32": (lambda: ResidualBlock(32), 32),
    "residual, 64": (lambda: ResidualBlock(64), 64),
    "patches": (lambda: Conv(64, 32, 4, 4), 64),
    "residual, an odd width": (lambda: ResidualBlock(30), 30),
    "double": (lambda: double(96, 64), 96),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(1, 16, 16), (2, 45, 80), (3, 37, 130)])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("choice", ["chosen", "as on Ampere and Ada", "as for large pictures"])
def test_fused_layers_are_the_plain_ones(
    name: str, size: tuple[int, int, int], dtype: torch.dtype, choice: str
) -> None:
    """As near to float64 as the format allows, with the weights that the format can hold; by every kernel there is."""
    torch.manual_seed(0)
    capability = torch.cuda.get_device_capability() if choice == "chosen" else (8, 6)
    height = 1 << 22 if choice == "as for large pictures" else 1
    make, channels = LAYERS[name]
    layer: nn.Module = make().cuda().to(dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = (
        torch.rand(size[0], channels, *size[1:], device="cuda")
        .to(dtype)
        .to(memory_format=torch.channels_last)
    )
    with torch.inference_mode():
        with dispatch.recording(), dispatch.band(1, height), dispatch.as_on(capability):
            result = layer(x)
        expected = layer.double()(x.double())
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), expected, rtol=2 * step, atol=4 * step)
    assert "triton" in libraries(0) and "cudnn" in libraries(0)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != hopper.CAPABILITY,
    reason="needs a Hopper GPU",
)
@settings(max_examples=60)
@given(
    channels=st.sampled_from(hopper.CHANNELS),
    frames=st.integers(1, 3),
    height=st.integers(1, 95),
    groups=st.integers(1, 40),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    parts=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_a_hopper_convolution_is_the_plain_one(
    channels: int,
    frames: int,
    height: int,
    groups: int,
    dtype: torch.dtype,
    parts: tuple[bool, bool, bool],
) -> None:
    """Sizes that leave tiles half empty, with and without bias, residual and ReLU."""
    assert "hopper" in libraries(0)
    random = torch.Generator("cuda").manual_seed(0)

    def numbers(*size: int) -> Tensor:
        return torch.randn(size, generator=random, device="cuda").to(dtype)

    width = groups * (hopper.VALUES // channels)
    x, residual = (
        numbers(frames, channels, height, width).to(memory_format=torch.channels_last) for _ in range(2)
    )
    weight = numbers(channels, channels, 3, 3).div_(3 * channels**0.5).to(memory_format=torch.channels_last)
    bias = numbers(channels)
    has_bias, adds, relu = parts
    with torch.inference_mode():
        expected = F.conv2d(x.double(), weight.double(), bias.double() if has_bias else None, padding=1)
        expected = expected + residual.double() if adds else expected
        expected = expected.relu() if relu else expected
        result = hopper.conv(x, weight, bias if has_bias else None, residual if adds else None, relu)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), expected, rtol=step, atol=4 * step)


def test_without_a_compiler_it_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(*_: object) -> None:
        raise OSError("libnvrtc.so: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "pahs.kernels.triton", raising=False)
    monkeypatch.delattr(kernels, "triton", raising=False)
    monkeypatch.setattr(hopper, "kernel", missing)
    frames = clip(8, 90, 160)
    try:
        libraries.cache_clear()
        found = restored("cuda", "bf16", frames)
        lines = [record.message for record in caplog.records if "which is slower" in record.message]
        assert "triton" not in libraries(0) and "hopper" not in libraries(0)
    finally:
        libraries.cache_clear()
    assert sum("Triton" in line for line in lines) == 1, "said once"
    assert psnr(found, restored("cuda", "fp32", frames)) > 50


@pytest.mark.parametrize("hidden", [16, 30, 64])
def test_fused_attention_is_the_plain_one(hidden: int) -> None:
    torch.manual_seed(0)
    snla = SNLA(8, hidden, selective=True, query="frame").cuda().eval()
    f_B, h = (torch.rand(2, c, 36, 52, device="cuda") for c in (8, hidden))
    with torch.inference_mode():
        expected = snla(snla.to_query(f_B), h)
        half = snla.bfloat16().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        f_B, h = (x.bfloat16().to(memory_format=torch.channels_last) for x in (f_B, h))
        with dispatch.recording():
            result = half(half.to_query(f_B), h)
    assert psnr(result.float(), expected) > 45


def test_a_recorded_sweep_is_the_plain_one() -> None:
    """Replayed from another state, in both directions, and anew for other frames and other weights."""
    torch.manual_seed(0)
    net = PAHSConfig(width=12, look_ahead=2).build().cuda().eval()
    with torch.inference_mode():
        for height, width in ((32, 48), (48, 32), (32, 48)):
            features = net.extract(torch.rand(1, 5, 3, height, width, device="cuda"))
            reads = [tuple(x[:, t] for x in features[1:4]) for t in range(5)]
            state = net.forward_cell.start(reads[0])
            expected = []
            for read in reads:
                state = net.forward_cell.step(read, state)
                expected.append(state[0])
            got = [now[0].clone() for now in net.forward_cell.sweep(reads, None)]
            torch.testing.assert_close(torch.stack(got), torch.stack(expected), rtol=0, atol=1e-5)
            assert cuda_graph._recordings[net.forward_cell].graph is not None
        net.load_state_dict(PAHSConfig(width=12, look_ahead=2).build().state_dict())
        assert not torch.equal(next(net.forward_cell.sweep(reads, None))[0], expected[0])


def test_two_interleaved_streams_do_not_mix() -> None:
    net = load("pahs-t", "cuda", "bf16")
    clips = clip(10, 64, 96).cuda(), clip(10, 64, 96).flip(-1).cuda()
    apart = [torch.stack(list(stream(net, frames, chunk=2, scene_cuts=False))) for frames in clips]
    both = [stream(net, frames, chunk=2, scene_cuts=False) for frames in clips]
    turns = [torch.stack(x, 0) for x in zip(*zip(*both, strict=True), strict=True)]
    for one, other in zip(turns, apart, strict=True):
        assert torch.equal(one, other)


def test_offloaded_features_give_the_same_frames() -> None:
    net = load("pahs-t", "cuda", "fp32")
    frames = clip(30, 96, 160).cuda()
    expected = torch.stack(list(stream(net, frames, look_ahead=5, chunk=4, scene_cuts=False)))
    restorer = Restorer(net, frames[0], look_ahead=5, chunk=4)
    with torch.inference_mode():
        restorer._adopt(Plan(4, 2, offload=True))
    result = []
    for image in frames:
        restorer.push(image)
        result += list(restorer.ready())
    result += list(restorer.finish())
    torch.testing.assert_close(torch.stack(result), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_4k_fits_ordinary_cards(caplog: pytest.LogCaptureFixture) -> None:
    """The paper's network at 3840x2160: the same frames with all memory, with 12 GiB and with 8 GiB."""
    gpu = torch.device("cuda", 0)
    if torch.cuda.mem_get_info(gpu)[1] < 32 * 2**30:
        pytest.skip("the comparison itself needs 32 GiB")
    picture = clip(6, 2160, 3840)
    caplog.set_level("INFO", "pahs.engine")
    found: dict[float, list[Tensor]] = {}
    try:
        for gib in (1000, 12, 8):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(gpu)
            limit_memory(gpu, gib)
            torch.manual_seed(0)
            with gpu:
                net = PRESETS["pahs"].config.build().eval().bfloat16()
            net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            work = stream(net, cycle(picture), chunk=4, scene_cuts=False)
            found[gib] = [x.cpu() for x in islice(work, 8)]
            started = time.perf_counter()
            list(islice(work, 12))
            torch.cuda.synchronize()
            speed = 12 / (time.perf_counter() - started)
            peak, taken = (
                x(gpu) / 2**30 for x in (torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved)
            )
            pairs = list(zip(found[gib], found[1000], strict=True))
            difference = max(float((one - other).abs().max()) for one, other in pairs)
            print(
                f"{gib} GiB: {speed:.2f} frames/s, {peak:.2f} GiB in use and {taken:.2f} GiB taken at most, "
                f"difference {difference:.1e}; {caplog.messages[-1] if caplog.messages else 'memory was enough'}"
            )
            assert taken <= gib
            assert all(psnr(one, other) > 60 for one, other in pairs)
            del net, work
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, gpu)


def launches(work: Iterator[Tensor], frames: int) -> dict[str, int]:
    """What the host asks of the device for the next frames of a stream."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        list(islice(work, frames))
        torch.cuda.synchronize()
    counts = {"kernels": 0, "graphs": 0, "waits": 0}
    for event in seen.key_averages():
        if event.key.startswith(("cudaLaunchKernel", "cuLaunchKernel")):
            counts["kernels"] += event.count
        elif event.key.startswith("cudaGraphLaunch"):
            counts["graphs"] += event.count
        elif event.key in ("cudaStreamSynchronize", "cudaEventSynchronize"):
            counts["waits"] += event.count
    return counts


@pytest.mark.parametrize("name", ["pahs", "pahs-s"])
def test_a_frame_takes_few_launches(name: str) -> None:
    """A regression guard that does not depend on the machine: counted in the middle of a long video."""
    with torch.device("cuda"):
        net = PRESETS[name].config.build().eval().bfloat16()
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    frames = longest_chunk(torch.device("cuda"))
    work = stream(net, repeat(torch.rand(3, 64, 96, device="cuda")), scene_cuts=False)
    list(islice(work, frames))
    counts = launches(work, frames)
    steps = 1 + (frames + 19) / frames
    print(name, {key: value / frames for key, value in counts.items()}, "a frame")
    assert counts["graphs"] == pytest.approx(steps * frames)
    assert counts["kernels"] < 30 * frames, (
        "copies in and out of the steps, and a share of the batched stages"
    )
    assert counts["waits"] <= 2, "the host waits for the device inside a chunk"


def test_scene_cuts_are_found_as_on_the_cpu() -> None:
    """There they are judged a batch later: three scenes, of which one is shorter than a batch."""
    picture = clip(80, 60, 96)
    frames = torch.cat([picture[:70], 1 - picture[:3], picture[20:60].flip(-1)])
    here, there = (
        torch.stack(list(stream(load("pahs-t", device, "fp32"), frames, chunk=16)))
        for device in ("cpu", "cuda")
    )
    torch.testing.assert_close(there, here, rtol=0, atol=1e-4)


def test_a_file_is_deblurred_as_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through batches, page-locked memory and the threads of the codecs; with sound between the frames."""
    pytest.importorskip("av", reason="needs PyAV, which pahs installs")
    from clips import make_clip
    from pahs import DeblurOptions, deblur
    from pahs.video import EncodeOptions, VideoReader

    source = make_clip(tmp_path / "clip.mkv", frames=45, width=96, height=64, audio="aac").path
    results = []
    monkeypatch.setitem(plan.MAX_CHUNK, "cuda", plan.MAX_CHUNK["cpu"])
    for device in ("cpu", "cuda"):
        target = tmp_path / f"{device}.mkv"
        network = load("pahs-t", device, "fp32")
        deblur(source, target, DeblurOptions(encode=EncodeOptions(lossless=True)), network)
        with VideoReader(target) as reader:
            results.append(list(reader))
    here, there = results
    assert len(here) == len(there) == 45
    for one, other in zip(here, there, strict=True):
        assert one.pts == other.pts
        for a, b in zip(one.planes, other.planes, strict=True):
            assert np.abs(a.astype(int) - b.astype(int)).max() <= 2
            assert (a != b).mean() < 0.02


@pytest.mark.parametrize("depth", [8, 10])
def test_colours_are_converted_on_the_gpu_as_on_the_cpu(depth: int) -> None:
    random = np.random.default_rng(0)
    pixels = PixelLayout("yuv420", depth, False, (0.2126, 0.0722), "left")
    shapes = ((36, 50), (18, 25), (18, 25))
    planes = tuple(random.integers(0, 2**depth, shape).astype(pixels.dtype) for shape in shapes)
    here, there = (to_rgb(planes, pixels, device) for device in ("cpu", "cuda"))
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-6)
    change = 0.2 * torch.rand(3, 36, 50)
    for unchanged, plane in zip(apply_change(planes, there, there, pixels), planes, strict=True):
        assert np.array_equal(unchanged, plane)
    on_gpu = apply_change(planes, there, there + change.cuda(), pixels)
    for one, other in zip(on_gpu, apply_change(planes, here, here + change, pixels), strict=True):
        assert one.dtype == other.dtype and np.abs(one.astype(int) - other.astype(int)).max() <= 1
        assert (one != other).mean() < 0.01
