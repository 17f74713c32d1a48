"""The queue of features: first in, first out, in memory that does not move."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pahs.engine.feature_queue import FeatureQueue, OffloadedQueue, SpooledFrame, SpooledQueue
from pahs.networks import Tensors


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=30), st.integers(1, 40))
def test_it_is_a_queue(actions: list[tuple[bool, int]], most: int) -> None:
    queue, expected, made = FeatureQueue(), list[int](), 0
    for adds, amount in actions:
        if adds:
            numbers = torch.arange(made, made + amount, dtype=torch.float32)
            wide = numbers.view(1, -1, 1, 1, 1).expand(1, amount, 2, 3, 4)
            queue.add((wide, -wide[..., :1]), most)
            expected += range(made, made + amount)
            made += amount
        else:
            gone = min(amount, queue.count)
            queue.drop(gone)
            del expected[:gone]
        assert queue.count == len(expected)
        if made:
            first, second = queue.features
            assert first.shape == (1, len(expected), 2, 3, 4)
            assert first[0, :, 1, 2, 3].tolist() == expected
            assert second[0, :, 0, 0, 0].tolist() == [-x for x in expected]


def place(frame: Tensors | SpooledFrame) -> int:
    """Where a frame lies, in memory or in the file."""
    return frame._offsets[0] if isinstance(frame, SpooledFrame) else frame[0].data_ptr()


@pytest.mark.parametrize("kind", [OffloadedQueue, SpooledQueue])
@given(actions=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=30))
def test_offloaded_it_is_a_queue_too(
    kind: type[OffloadedQueue | SpooledQueue], actions: list[tuple[bool, int]]
) -> None:
    queue, expected, made, most = kind(), list[int](), 0, 0
    for adds, amount in actions:
        if adds:
            numbers = torch.arange(made, made + amount, dtype=torch.float32)
            queue.add((numbers.view(1, -1, 1, 1, 1).expand(1, amount, 2, 3, 4).contiguous(),), most=1)
            expected += range(made, made + amount)
            made += amount
        else:
            gone = min(amount, queue.count)
            queue.drop(gone)
            del expected[:gone]
        most = max(most, len(expected))
        assert queue.count == len(expected)
        assert [float(frame[0][0, 1, 2, 3]) for frame in queue.frames] == expected
        buffers = {place(frame) for frame in (*queue.frames, *queue._spare)}
        assert len(buffers) == most, "buffers are used again"


def test_memory_is_taken_once_and_keeps_its_format() -> None:
    queue = FeatureQueue()
    buffers = list[int]()
    for _ in range(50):
        batch = torch.rand(3, 4, 5, 6).to(memory_format=torch.channels_last)
        queue.add((batch[None],), most=15)
        buffers.append(queue.features[0].data_ptr())
        frame = queue.features[0][:, -1]
        assert frame.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(frame[0], batch[-1])
        if queue.count >= 12:
            queue.drop(8)
    assert len(set(buffers[5:])) == 1


def test_a_look_ahead_beyond_the_video_costs_nothing() -> None:
    queue = FeatureQueue()
    queue.add((torch.rand(1, 2, 3, 4, 4),), most=10**9)
    assert queue.features[0].untyped_storage().nbytes() < 10**5


def test_with_little_memory_it_takes_no_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    grow = FeatureQueue._grow

    def cramped(self: FeatureQueue, like: Tensors, frames: int) -> None:
        if frames > 4:
            raise torch.OutOfMemoryError("no room")
        grow(self, like, frames)

    monkeypatch.setattr(FeatureQueue, "_grow", cramped)
    queue = FeatureQueue()
    clip = torch.rand(1, 4, 3, 4, 4)
    for frame in clip.split(1, 1):
        queue.add((frame,), most=40)
    assert torch.equal(queue.features[0], clip)
    with pytest.raises(torch.OutOfMemoryError):
        queue.add((clip,), most=40)
    assert torch.equal(queue.features[0], clip), "what the queue holds is still there"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_disk_keeps_every_bit_and_the_format(dtype: torch.dtype) -> None:
    plain = torch.randn(1, 3, 2, 6, 5).to(dtype)
    last = torch.randn(1, 3, 6, 5, 4).to(dtype).movedim(-1, 2)
    queue = SpooledQueue()
    queue.add((plain, last), 3)
    queue.drop(1)
    queue.add((plain[:, :1], last[:, :1]), 3)
    for found, t in zip(queue.frames, (1, 2, 0), strict=True):
        for x, whole in zip(found[0:2], (plain, last), strict=True):
            assert torch.equal(x, whole[:, t]) and x.stride() == whole[:, t].stride()
