"""The stream: same frames as the whole clip, whatever the cut-up, and bounded in what it holds."""

import os
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pahs.engine import restore, stream
from pahs.engine.feature_queue import OffloadedQueue, SpooledQueue
from pahs.engine.plan import MEMORY_SHARE, Plan, free_memory
from pahs.engine.restorer import Restorer
from pahs.errors import PahsError
from pahs.networks import PAHS, PAHSConfig, Tensors

NET = PAHSConfig(width=6, global_skip=True).build().eval()
CAUSAL = PAHSConfig(width=6, global_skip=True, bidirectional=False).build().eval()


def whole(net: PAHS, clip: Tensor) -> Tensor:
    """The clip (T, 3, H, W) at once, padded and cropped as the design says."""
    height, width = clip.shape[2:]
    padded = F.pad(clip, (0, -width % 16, 0, -height % 16), mode="reflect")
    with torch.no_grad():
        restored: Tensor = net(padded[None])[0]
    return restored[..., :height, :width]


def streamed(net: PAHS, clip: Tensor, look_ahead: int | None = None, chunk: int | None = None) -> Tensor:
    return torch.stack(list(stream(net, clip, look_ahead=look_ahead, chunk=chunk, scene_cuts=False)))


@settings(max_examples=40)
@given(
    length=st.integers(1, 9),
    height=st.integers(16, 50),
    width=st.integers(16, 50),
    chunk=st.integers(1, 10),
    extra=st.integers(0, 3),
)
def test_streamed_equals_whole_clip(length: int, height: int, width: int, chunk: int, extra: int) -> None:
    clip = torch.rand(length, 3, height, width)
    result = streamed(NET, clip, look_ahead=length - 1 + extra, chunk=chunk)
    torch.testing.assert_close(result, whole(NET, clip), rtol=0, atol=1e-5)


@pytest.mark.parametrize("net", [NET, CAUSAL])
def test_a_clip_is_restored_at_once(net: PAHS) -> None:
    clip = torch.cat([textured(1, 3, 2), textured(2, 3, 2)])[..., :37, :50]
    restored = restore(net, clip)
    assert restored.shape == clip.shape
    torch.testing.assert_close(restored, whole(net, clip), rtol=0, atol=1e-5)


@given(length=st.integers(1, 9), chunk=st.integers(1, 10))
def test_chunks_do_not_matter_to_the_forward_state(length: int, chunk: int) -> None:
    clip = torch.rand(length, 3, 16, 32)
    torch.testing.assert_close(streamed(CAUSAL, clip, chunk=chunk), whole(CAUSAL, clip), rtol=0, atol=1e-5)


@pytest.mark.parametrize("look_ahead", [0, 1, 3])
def test_each_frame_sees_its_look_ahead(look_ahead: int) -> None:
    """With chunks of one, frame t is what the clip up to t + look-ahead gives."""
    clip = torch.rand(7, 3, 16, 16)
    result = streamed(NET, clip, look_ahead, chunk=1)
    for t in range(7):
        expected = whole(NET, clip[: t + look_ahead + 1])[t]
        torch.testing.assert_close(result[t], expected, rtol=0, atol=1e-5)


def test_look_ahead_of_the_model_is_the_default() -> None:
    net = PAHSConfig(width=6, look_ahead=2).build().eval()
    clip = torch.rand(6, 3, 16, 16)
    assert torch.equal(streamed(net, clip, chunk=1), streamed(net, clip, look_ahead=2, chunk=1))
    assert not torch.equal(streamed(net, clip, chunk=1), streamed(net, clip, look_ahead=4, chunk=1))


def test_two_streams_do_not_mix() -> None:
    one, other = torch.rand(2, 8, 3, 16, 16)
    a, b = (stream(NET, clip, look_ahead=2, chunk=2, scene_cuts=False) for clip in (one, other))
    pairs = list(zip(a, b, strict=True))
    assert torch.equal(torch.stack([x for x, _ in pairs]), streamed(NET, one, 2, 2))
    assert torch.equal(torch.stack([y for _, y in pairs]), streamed(NET, other, 2, 2))


def test_reads_only_as_far_as_it_must() -> None:
    taken = 0

    def endless() -> Iterator[Tensor]:
        nonlocal taken
        while True:
            taken += 1
            yield torch.rand(3, 16, 16)

    result = stream(NET, endless(), look_ahead=3, chunk=4, scene_cuts=False)
    for done in range(1, 40):
        next(result)
        assert taken <= done + 3 + 4


def test_arrays_come_back_as_arrays() -> None:
    clip = np.random.default_rng(0).integers(0, 256, (3, 17, 20, 3), dtype=np.uint8)
    result = list(stream(NET, clip, scene_cuts=False))
    floats = torch.from_numpy(clip).permute(0, 3, 1, 2) / 255
    expected = (whole(NET, floats).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    assert all(x.dtype == np.uint8 for x in result)
    assert np.array_equal(np.stack(result), expected.numpy())


def test_tensors_keep_their_type_and_are_not_clipped() -> None:
    clip = torch.rand(2, 3, 16, 16).half() * 3 - 1
    result = streamed(NET, clip)
    assert result.dtype == torch.float16
    assert result.min() < -0.1
    assert result.max() > 1.1


def test_no_frames_give_no_frames() -> None:
    assert list(stream(NET, list[Tensor]())) == []


def textured(seed: int, frames: int, shift: int) -> Tensor:
    """A picture that slides by `shift` pixels a frame."""
    generator = torch.Generator().manual_seed(seed)
    picture = F.interpolate(torch.rand(1, 3, 6, 24, generator=generator), (48, 192), mode="bicubic")[0]
    return torch.stack([picture[:, :, t * shift : t * shift + 64] for t in range(frames)]).clamp(0, 1)


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_a_scene_cut_starts_afresh(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    monkeypatch.setitem(sys.modules["pahs.engine.stream"].AHEAD, "cpu", ahead)
    first, second = textured(1, 8, 2), textured(2, 8, 3)
    joined = list(stream(NET, torch.cat([first, second]), chunk=3))
    apart = [*stream(NET, first, chunk=3), *stream(NET, second, chunk=3)]
    torch.testing.assert_close(torch.stack(joined), torch.stack(apart), rtol=0, atol=0)


@pytest.mark.parametrize("scene_cuts", [False, True])
def test_only_the_scene_keeps_frames(scene_cuts: bool) -> None:
    """PAHS needs a frame again for its skip; a frame that was given back, and the first one, must be gone."""
    alive: list[weakref.ref[Tensor]] = []

    def watched() -> Iterator[Tensor]:
        for frame in textured(3, 12, 2):
            mine = [frame.clone()]
            alive.append(weakref.ref(mine[0]))
            yield mine.pop()

    kept = []
    for _ in stream(NET, watched(), look_ahead=0, chunk=2, scene_cuts=scene_cuts):
        kept.append(sum(x() is not None for x in alive))
    # The one that was read last may still be in the hands of whoever reads.
    assert max(kept) <= 1, kept


def test_motion_is_no_scene_cut() -> None:
    panning = textured(3, 9, 4)
    assert torch.equal(torch.stack(list(stream(NET, panning, chunk=3))), streamed(NET, panning, chunk=3))


class Cramped(PAHS):
    """PAHS on a device whose memory holds `pixels` of frames in the frame-wise stages and `room` features."""

    pixels = 0
    room = 99
    calls: list[tuple[int, ...]]

    def _check(self, x: Tensor, scale: int) -> None:
        if x.shape[1] * x.shape[3] * x.shape[4] * scale**2 > self.pixels:
            raise torch.OutOfMemoryError("no room")
        self.calls.append(tuple(x.shape))

    def extract(self, frames: Tensor) -> Tensors:
        self._check(frames, 1)
        return super().extract(frames)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        if features[0].shape[1] > self.room:
            raise torch.OutOfMemoryError("no room")
        return super().propagate(features, state, keep)

    def reconstruct(self, latents: Tensors) -> Tensor:
        self._check(latents[0], 1)
        return super().reconstruct(latents)


def cramped(pixels: int) -> Cramped:
    net = Cramped(NET.config).eval()
    net.load_state_dict(NET.state_dict())
    net.pixels, net.calls = pixels, []
    return net


@pytest.mark.parametrize("pixels", [3 * 240 * 16, 240 * 16, 120 * 16 + 2 * 96 * 16])
def test_out_of_memory_means_smaller_pieces_and_the_same_frames(pixels: int) -> None:
    clip = torch.rand(6, 3, 230, 16)
    net = cramped(pixels)
    result = streamed(net, clip, look_ahead=6)
    assert net.calls
    torch.testing.assert_close(result, whole(NET, clip), rtol=0, atol=1e-5)


def test_no_memory_at_all_is_one_clear_line() -> None:
    with pytest.raises(PahsError, match="not enough memory for 16x64 frames"):
        streamed(cramped(1), torch.rand(2, 3, 64, 16))


def shrinking(framewise: bool) -> list[tuple[int, int, int, bool]]:
    plan: Plan | None = Plan(chunk=2, batch=2)
    seen = []
    while plan is not None:
        seen.append((plan.batch, plan.bands, plan.chunk, plan.offload))
        plan = plan.smaller(framewise, max_bands=3, may_offload=True)
    return seen


def test_plans_shrink_from_cheap_to_costly() -> None:
    frame_by_frame = [(2, 1, 2, False), (1, 1, 2, False), (1, 2, 2, False), (1, 3, 2, False), (1, 3, 2, True)]
    assert shrinking(framewise=True) == [*frame_by_frame, (1, 3, 1, True)]
    sweeping = [(2, 1, 2, False), (2, 1, 2, True), (2, 1, 1, True), (1, 1, 1, True), (1, 2, 1, True)]
    assert shrinking(framewise=False) == [*sweeping, (1, 3, 1, True)]


@pytest.mark.parametrize(("may_offload", "may_spool"), [(False, False), (True, False), (False, True)])
def test_chunk_follows_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, may_offload: bool, may_spool: bool
) -> None:
    frame = torch.rand(3, 32, 32)
    frame_bytes = sum(x.nbytes for x in NET.extract(frame[None, None]))
    plans = {}
    for room in (8, 30, 60, 500):
        monkeypatch.setattr(
            "pahs.engine.restorer.free_memory",
            lambda device, n=room: int(n * frame_bytes / MEMORY_SHARE) + 1,
        )
        restorer = Restorer(NET, frame, look_ahead=10, chunk=None)
        restorer.may_offload, restorer.may_spool = may_offload, may_spool
        restorer.plan = Plan(restorer.plan.chunk, 1)
        restorer.push(frame)
        plans[room] = restorer.plan.chunk, restorer.plan.offload
    if may_offload:  # as on a GPU
        assert plans == {8: (4, True), 30: (15, True), 60: (25, False), 500: (32, False)}
    elif may_spool:  # as on a CPU: to the disk, but only instead of a chunk of one frame
        assert plans == {8: (4, True), 30: (10, False), 60: (25, False), 500: (32, False)}
    else:
        assert plans == {8: (1, False), 30: (10, False), 60: (25, False), 500: (32, False)}


@pytest.mark.parametrize("disk", [False, True])
def test_offloaded_features_give_the_same_frames(disk: bool) -> None:
    """From the start, and when the sweeps find out only later that memory is short."""
    clip = textured(0, 14, 2)
    expected = streamed(NET, clip, look_ahead=3, chunk=4)
    for room in (99, 6):
        net = cramped(10**9)
        net.room = room
        restorer = Restorer(net, clip[0], look_ahead=3, chunk=4)
        restorer.may_offload = not disk
        if room == 99:
            restorer._adopt(replace(restorer.plan, offload=True))
        result = []
        for image in clip:
            restorer.push(image)
            result += list(restorer.ready())
        result += list(restorer.finish())
        assert restorer.plan.offload and restorer.plan.chunk == 4
        assert isinstance(restorer.queue, SpooledQueue if disk else OffloadedQueue)
        assert torch.equal(torch.stack(result), expected)


def test_free_memory_of_the_host_is_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**20 < free_memory(torch.device("cpu")) < 2**50
    monkeypatch.setattr(os, "sysconf_names", {"SC_AVPHYS_PAGES": 1, "SC_PAGE_SIZE": 2})
    monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": 700, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert free_memory(torch.device("cpu")) == 700 * 4096
    monkeypatch.setattr(os, "sysconf_names", {})
    assert free_memory(torch.device("cpu")) == 2 << 30, "a guess where the system does not say"


@pytest.mark.parametrize(("share", "expected"), [(1.0, 70 + 20 - 10), (0.5, 50 - 10)])
def test_free_memory_of_a_gpu_counts_what_may_be_allocated(
    monkeypatch: pytest.MonkeyPatch, share: float, expected: int
) -> None:
    """Memory that PyTorch has reserved can be allocated again; a limit counts what is allocated."""
    numbers = {
        "mem_get_info": (70, 100),
        "memory_allocated": 10,
        "memory_reserved": 20,
        "get_per_process_memory_fraction": share,
    }
    for name, number in numbers.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, number=number: number)
    assert free_memory(torch.device("cuda")) == expected


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (torch.rand(1, 3, 8, 8), "frames are 8x8; the smallest is 16x16"),
        (torch.rand(1, 4, 16, 16), r"must be \(3, H, W\)"),
        ([torch.rand(3, 16, 16), torch.rand(3, 16, 32)], "size changes from 16x16 to 32x16"),
    ],
)
def test_unusable_frames_are_named(frames: list[Tensor], message: str) -> None:
    with pytest.raises(PahsError, match=message):
        list(stream(NET, frames))


@pytest.mark.parametrize("option", ["look_ahead", "chunk"])
def test_unusable_options_are_named(option: str) -> None:
    with pytest.raises(PahsError, match="-1"):
        list(stream(NET, torch.rand(1, 3, 16, 16), **{option: -1}))
