"""The VapourSynth function: in order it gives the stream's frames, and any order and any thread get the right ones."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clips import moving_texture
from pahs import PahsError, load, stream
from pahs.networks import Deblurrer, PAHSConfig
from pahs.vapoursynth.clip import AHEAD, BEFORE, KEPT, Restored, deblur

EXAMPLE = Path(__file__).parents[1] / "examples" / "deblur.vpy"


class Counted:
    """A source of numbers, and a stream that runs ahead of what it gives."""

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def fetch(self, number: int) -> Tensor:
        time.sleep(0.0005)  # as long as a frame takes at least, so that threads take turns
        self.fetched.append(number)
        return torch.tensor(float(number))

    def restored(self, frames: Iterator[Tensor]) -> Iterator[Tensor]:
        waiting: list[Tensor] = []
        for frame in frames:
            waiting.append(frame)
            if len(waiting) > 5:
                yield waiting.pop(0)
        yield from waiting


def test_threads_that_ask_out_of_order_share_one_stream() -> None:
    counted = Counted()
    frames = Restored(counted.fetch, counted.restored, 400)
    order = [t + k for t in range(0, 400, 8) for k in random.Random(t).sample(range(8), 8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda t: float(frames[t]), order))
    assert found == order
    assert counted.fetched == list(range(400)), "each source frame is asked for once"


def test_a_jump_begins_a_little_earlier_and_memory_stays_bounded() -> None:
    counted = Counted()
    frames = Restored(counted.fetch, counted.restored, 1000)
    assert float(frames[500]) == 500
    assert min(counted.fetched) == 500 - BEFORE
    counted.fetched.clear()
    assert float(frames[500 + AHEAD]) == 500 + AHEAD and min(counted.fetched) > 500, "near enough to go on"
    assert float(frames[3]) == 3 and float(frames[999]) == 999
    for t in range(300):
        assert float(frames[t]) == t
    assert len(frames._kept) == KEPT
    counted.fetched.clear()
    assert float(frames[300 - KEPT]) == 300 - KEPT and not counted.fetched, (
        "what is kept is not computed again"
    )


def test_after_a_frame_that_failed_the_others_come() -> None:
    """A source may fail once, such as on a network's disk."""
    failing = [5, 5]

    def fetch(number: int) -> torch.Tensor:
        if number in failing:
            failing.remove(number)
            raise OSError(f"read error at {number}")
        return torch.full((3, 4, 4), float(number))

    frames = Restored(fetch, lambda source: (frame for frame in source), 100)
    assert float(frames[4].mean()) == 4
    for _ in range(2):
        with pytest.raises(OSError, match="read error at 5"):
            frames[5]
    assert [float(frames[number].mean()) for number in (5, 6, 7, 90, 6)] == [5, 6, 7, 90, 6]


@pytest.fixture(scope="module")
def vs() -> Any:
    return pytest.importorskip("vapoursynth", reason="VapourSynth has wheels for Python 3.12 and newer")


@pytest.fixture(scope="module")
def network() -> Deblurrer:
    torch.manual_seed(0)
    return PAHSConfig(width=12, look_ahead=3).build().eval()


def clip_of(vs: Any, frames: np.ndarray, format: int) -> Any:
    """A clip of (T, H, W, 3) floats, which counts its frames in a property."""

    def fill(n: int, f: Any) -> Any:
        made = f.copy()
        for plane in range(3):
            np.asarray(made[plane])[:] = frames[n, ..., plane]
        made.props["Number"] = n
        return made

    length, height, width, _ = frames.shape
    blank = vs.core.std.BlankClip(width=width, height=height, format=vs.RGBS, length=length)
    return blank.std.ModifyFrame(blank, fill).resize.Point(format=format)


def planes(frame: Any) -> np.ndarray:
    return np.stack([np.asarray(frame[plane]) for plane in range(3)], -1)


def test_frames_in_order_are_those_of_the_stream(vs: Any, network: Deblurrer) -> None:
    frames = moving_texture(40, 37, 51).astype(np.float32)
    clip = clip_of(vs, frames, vs.RGBS)
    result = deblur(clip, network)
    assert (result.format.id, result.width, result.height, len(result)) == (vs.RGBS, 51, 37, 40)
    expected = list(stream(network, torch.from_numpy(frames).permute(0, 3, 1, 2)))
    for number, (frame, right) in enumerate(zip(result.frames(prefetch=4), expected, strict=True)):
        np.testing.assert_allclose(planes(frame), right.permute(1, 2, 0).numpy(), atol=1e-5)
        assert frame.props["Number"] == number


def test_whole_numbers_are_rounded_and_a_seek_is_near(vs: Any) -> None:
    network = load("pahs-t", "cpu", "fp32")
    frames = moving_texture(30, 48, 64).astype(np.float32)
    clip = clip_of(vs, frames, vs.RGB24)
    result = deblur(clip, network, look_ahead=3, chunk=4)
    assert result.format.id == vs.RGB24
    eight = [planes(frame) for frame in clip.frames()]
    expected = list(stream(network, eight, look_ahead=3, chunk=4))
    for number in (28, 0, 12):
        found = planes(result.get_frame(number)).astype(int)
        assert abs(found - expected[number].astype(int)).mean() < 1, number
    in_order = [planes(frame).astype(int) for frame in deblur(clip, network, look_ahead=3, chunk=4).frames()]
    assert max(abs(a - b.astype(int)).max() for a, b in zip(in_order, expected, strict=True)) <= 1


def test_what_cannot_be_deblurred_is_refused_in_one_line(vs: Any, network: Deblurrer) -> None:
    core = vs.core
    with pytest.raises(PahsError, match=r"YUV420P8; convert it first: clip\.resize"):
        deblur(core.std.BlankClip(format=vs.YUV420P8), network)
    with pytest.raises(PahsError, match="8x8; the smallest is 16x16"):
        deblur(core.std.BlankClip(width=8, height=8, format=vs.RGB24), network)
    with pytest.raises(PahsError, match="give a clip of VapourSynth"):
        deblur([1, 2], network)
    other = core.std.BlankClip(width=64, height=48, format=vs.RGB24)
    mixed = core.std.Splice([other, core.std.BlankClip(format=vs.RGB24)], mismatch=True)
    with pytest.raises(PahsError, match="changes its format or size"):
        deblur(mixed, network)


def test_the_example_runs(vs: Any) -> None:
    names: dict[str, Any] = {}
    exec(compile(EXAMPLE.read_text("utf-8"), str(EXAMPLE), "exec"), names)
    shown = vs.get_output(0)
    shown = getattr(shown, "clip", shown)
    assert [frame.format.name for frame in shown.frames()] == ["YUV444P8"] * 6
    before, after = names["rgb"].get_frame(3), shown.get_frame(3)
    assert np.asarray(after[0]).std() > 0 and (before.width, before.height) == (after.width, after.height)


def test_without_vapoursynth_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vapoursynth", None)
    with pytest.raises(PahsError, match=r"pip install 'pahs\[vapoursynth\]', with Python 3\.12"):
        deblur(None)
