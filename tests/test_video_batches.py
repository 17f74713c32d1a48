"""Frames through a function, in batches: what comes out must not depend on how they were put together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clips import make_clip
from pahs.video import Frame, PixelLayout, apply_change, probe, to_rgb
from pahs.video.batches import Changed, batch_size, changed, in_batches

CPU = torch.device("cpu")


def frames_of(pixels: PixelLayout, count: int) -> list[Frame]:
    random = np.random.default_rng(count)
    vertical, horizontal = pixels.subsampling
    shapes = (
        [(11, 14)] if pixels.family == "gray" else [(11, 14)] + 2 * [(-(-11 // vertical), 14 // horizontal)]
    )
    return [
        Frame(
            tuple(random.integers(0, 2**pixels.depth, s).astype(pixels.dtype) for s in shapes), t, Fraction(1)
        )
        for t in range(count)
    ]


def brighter(frames: Iterator[Tensor], ahead: int) -> Iterator[Tensor]:
    """Every frame a little brighter, after reading some more."""
    read = []
    for frame in frames:
        read.append(frame)
        if len(read) > ahead:
            yield read.pop(0) + 0.1
    yield from (frame + 0.1 for frame in read)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(
        [PixelLayout("yuv420"), PixelLayout("yuv422", 10), PixelLayout("gray"), PixelLayout("rgb")]
    ),
    st.lists(st.booleans(), min_size=1, max_size=20),
    st.integers(1, 7),
    st.integers(0, 6),
)
def test_batches_change_neither_frames_nor_their_place_among_packets(pixels, kinds, size, ahead):
    frames = frames_of(pixels, sum(kinds))
    supply, items = iter(frames), []
    for number, is_frame in enumerate(kinds):
        items.append(next(supply) if is_frame else f"packet {number}")
    work = list(changed(in_batches(items, size, CPU), lambda x: brighter(x, ahead), pixels, CPU))
    result = [item for batch in work for item in batch]
    assert len(result) == len(items)
    assert max(sum(isinstance(x, Changed) for x in batch) for batch in work) == min(size, sum(kinds))
    for item, got in zip(items, result, strict=True):
        if isinstance(item, str):
            assert got == item
            continue
        assert isinstance(got, Changed)
        rgb = to_rgb(item.planes, pixels)
        alone = apply_change(item.planes, rgb, rgb + 0.1, pixels)
        finished = got.finish()
        assert finished.pts == item.pts
        for one, other in zip(finished.planes, alone, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda frames: (x for _, x in zip(range(3), frames, strict=False)), "only 3 frames"),
        (lambda frames: iter([*frames, torch.zeros(3, 11, 14)]), "more frames back than it took"),
        (lambda frames: (x[:, 1:] for x in frames), r"\(3, 10, 14\) for a frame of \(3, 11, 14\)"),
    ],
)
def test_a_function_that_gives_something_else_back_is_told_so(fn, message):
    pixels = PixelLayout("yuv420")
    with pytest.raises(ValueError, match=message):
        list(changed(in_batches(frames_of(pixels, 6), 2, CPU), fn, pixels, CPU))


def test_the_function_is_closed_when_nobody_wants_more():
    closed = threading.Event()

    def fn(frames: Iterator[Tensor]) -> Iterator[Tensor]:
        try:
            yield from frames
        finally:
            closed.set()

    pixels = PixelLayout("gray")
    work = changed(in_batches(frames_of(pixels, 4), 1, CPU), fn, pixels, CPU)
    next(work)
    work.close()
    assert closed.is_set()


def test_packets_without_any_frame_pass():
    pixels = PixelLayout("gray")
    batches = in_batches(["a", "b"], 3, CPU)
    assert list(changed(batches, lambda frames: frames, pixels, CPU)) == [["a", "b"]]


@pytest.mark.parametrize("size", [1, 4])
def test_sound_without_pictures_does_not_gather(size, monkeypatch):
    """Also where the function waits for frames that it wants to see ahead; frames that come later are changed too."""
    monkeypatch.setattr("pahs.video.batches._WAITING_BYTES", 1 << 20)
    pixels, asked, calls = PixelLayout("gray"), 0, 0
    frames = frames_of(pixels, 9)
    items = [*frames[:5], *range(20_000), frames[5], -1, *frames[6:], *range(20_000, 40_000)]

    def source() -> Iterator[object]:
        nonlocal asked
        for item in items:
            asked += 1
            yield item

    def fn(pictures: Iterator[Tensor]) -> Iterator[Tensor]:
        nonlocal calls
        calls += 1
        return brighter(pictures, 3)

    held, number = 0, 0
    for batch in changed(in_batches(source(), size, CPU), fn, pixels, CPU):
        held = max(held, asked - number)
        for got in batch:
            wanted = items[number]
            assert got.frame.pts == wanted.pts if isinstance(wanted, Frame) else got == wanted
            number += 1
    assert number == len(items) and calls == 2
    assert held < 4000


def test_a_gpu_is_given_more_frames_at_a_time_the_smaller_they_are(tmp_path):
    info, gpu = probe(make_clip(tmp_path / "clip.mp4", frames=2).path), torch.device("cuda")
    assert batch_size(info, CPU) == 1
    large, usual, small = (
        batch_size(replace(info, width=width, height=height), gpu)
        for width, height in ((3840, 2160), (1280, 720), (160, 90))
    )
    assert large == 1 and 4 <= usual <= 16 and small == 32
