"""How much work a frame is: counted, so that it holds on every machine, and a change that costs more is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pahs.benchmarks import compare, conditions, stages
from pahs.benchmarks.reference import literal_stream
from pahs.benchmarks.stages import Work, count_literal, count_work
from pahs.engine import plan, stream
from pahs.evaluation.flops import count, flops_per_frame
from pahs.networks import PAHS, PRESETS, PAHSConfig

CONVOLUTIONS = (torch.conv2d, torch.conv_transpose2d)


class Convolutions(TorchFunctionMode):
    """Notes the input channels and the batch of every convolution that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: Counter[int] = Counter()
        self.images: Counter[int] = Counter()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in CONVOLUTIONS:
            self.channels[args[0].shape[1]] += 1
            self.images[args[0].shape[1]] += args[0].shape[0]
        return func(*args, **(kwargs or {}))


def preset(name: str) -> PAHS:
    with torch.device("meta"):
        network = PRESETS[name].config.build()
    assert isinstance(network, PAHS)
    return network


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pahs", Work(26_158_301_184, 2_796_312_576, 2_796_312_576, 6_023_282_688)),
        ("pahs-s", Work(3_362_390_016, 699_267_072, 699_267_072, 1_511_129_088)),
        ("pahs-t", Work(843_251_712, 174_987_264, 174_987_264, 380_436_480)),
    ],
)
def test_operations_of_the_presets(name: str, expected: Work) -> None:
    """For one 96x64 frame. A change here is a change of everybody's speed: make it on purpose."""
    network = preset(name)
    assert count_work(network, 64, 96) == expected
    assert flops_per_frame(network, 64, 96) == expected.frame(1)


def test_frames_are_counted_with_their_padding() -> None:
    assert count_work(preset("pahs-t"), 50, 81) == count_work(preset("pahs-t"), 64, 96)


@pytest.mark.parametrize("name", ["pahs", "pahs-t"])
def test_hoisting_saves_what_it_should(name: str) -> None:
    """What depends on f_B alone is computed once per frame and direction, and never inside the sweeps."""
    network = preset(name)
    c, hidden, look_ahead = network.config.width, network.config.hidden, network.config.look_ahead
    pixels = 64 * 96 // 16
    ping_pong = 2 * 9 * c * hidden * pixels
    fuse = 2 * 9 * c * c * pixels
    query = 2 * c * hidden * pixels
    # M_P runs 8 times a step and reads f_B and f_L 4 times each: hoisted, f_L once in the step and f_B not at all.
    saved_per_step = (8 - 1) * ping_pong + fuse + query
    steps = 1 + (1 + look_ahead)
    computed_ahead = 2 * (ping_pong + fuse + query)
    hoisted = count_work(network, 64, 96).frame(1 + look_ahead)
    kept = count_literal(network, 64, 96, keep_features=True)
    assert kept - hoisted == steps * saved_per_step - computed_ahead
    shared = network.config.shared_extractor
    each = (count_work(network, 64, 96).extract - computed_ahead) // (1 if shared else 2)
    windows = look_ahead + (1 if shared else 0)
    assert count_literal(network, 64, 96) - kept == windows * each, "every window extracts its frames"


def test_sweeps_convolve_no_more_than_the_cell_needs() -> None:
    config = PAHSConfig(width=12)
    network, frames, keep = config.build().eval(), 5, 3
    with torch.inference_mode(), Convolutions() as reading:
        features = network.extract(torch.rand(1, frames, 3, 32, 32))
    with torch.inference_mode(), Convolutions() as sweeping:
        network.propagate(features, None, keep)
    steps = frames + keep
    # f_L: M_P's reading of it, three residual blocks, the hidden state extractor. Nothing reads f_B.
    assert sweeping.channels[config.width] == steps * (1 + 6 + 1)
    # h: M_P 8 times (its half, a residual block, its last), key, value, two enlargements, the fusion's half, and the
    # rest of the hidden state extractor. The merge of SNLA has twice as many.
    assert sweeping.channels[config.hidden] == steps * (8 * 4 + 2 + 2 + 1 + 3)
    assert sweeping.channels[2 * config.hidden] == steps
    assert set(sweeping.channels) == {config.width, config.hidden, 2 * config.hidden}
    # Ahead of them, all frames at once: ten in the residual blocks, and three hoisted ones per direction.
    assert reading.channels[config.width] == 2 * (10 + 3)
    assert reading.images[config.width] == frames * reading.channels[config.width]


def test_the_literal_reference_convolves_everything_again() -> None:
    config = PAHSConfig(width=12, look_ahead=4)
    with Convolutions() as seen:
        outputs = literal_stream(config.build().eval(), repeat(torch.rand(3, 16, 16)))
        next(outputs)
        first = seen.channels.copy()
        next(outputs)
    again = seen.channels - first
    steps = 1 + 5
    assert again[config.width + config.hidden] == steps * (8 + 1)
    assert again[config.width] == (1 + 5) * 10 + steps * (6 + 1 + 1)


def calls_per_frame(look_ahead: int, chunk: int, frames: int) -> tuple[float, float]:
    """Steps of the backward and of the forward sweep for one output frame of a long video."""
    network = PAHSConfig(width=6, shared_extractor=True).build().eval()
    assert network.backward_cell is not None
    steps = {"ahead": 0, "back": 0}

    def note(name: str) -> Callable[..., None]:
        def called(*_: object) -> None:
            steps[name] += 1

        return called

    network.forward_cell.to_hidden.register_forward_hook(note("ahead"))
    network.backward_cell.to_hidden.register_forward_hook(note("back"))
    outputs: Iterator[Tensor] = stream(
        network, repeat(torch.rand(3, 16, 16)), look_ahead=look_ahead, chunk=chunk, scene_cuts=False
    )
    assert len(list(islice(outputs, frames))) == frames
    return steps["back"] / frames, steps["ahead"] / frames


CHUNKS = [(0, 1), (3, 1), (3, 2), (5, 4), (19, 16)]


@pytest.mark.parametrize(("look_ahead", "chunk"), CHUNKS)
def test_chunks_repeat_no_more_than_the_look_ahead(
    look_ahead: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for large frames, which are extracted one by one."""
    monkeypatch.setitem(plan.BATCH_PIXELS, "cpu", 1)
    assert calls_per_frame(look_ahead, chunk, 3 * chunk) == ((chunk + look_ahead) / chunk, 1)


@pytest.mark.parametrize(("look_ahead", "chunk"), CHUNKS[2:])
def test_batches_of_frames_make_no_sweep_longer(look_ahead: int, chunk: int) -> None:
    assert calls_per_frame(look_ahead, chunk, 3 * chunk) == ((chunk + look_ahead) / chunk, 1)


def test_the_formula_is_what_a_stream_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operations of a real stream, counted as it runs, with attention as plain products."""
    monkeypatch.setitem(plan.BATCH_PIXELS, "cpu", 1)
    network = PAHSConfig(width=12, look_ahead=3).build().to("meta")
    outputs = stream(network, repeat(torch.empty(3, 20, 40, device="meta")), chunk=2, scene_cuts=False)
    list(islice(outputs, 2))
    counted = count(lambda: list(islice(outputs, 4)))
    assert counted == 4 * count_work(network, 20, 40).frame((2 + 3) / 2)


def test_a_network_without_a_second_sweep_has_no_such_work() -> None:
    work = count_work(PAHSConfig(width=12, bidirectional=False).build(), 32, 32)
    assert work.backward == 0 and work.frame(20) == work.frame(0) > work.forward > 0


def test_the_stopwatch_sees_every_stage_and_leaves_no_trace() -> None:
    network = PAHSConfig(width=6, look_ahead=2).build().eval()
    before = set(vars(network))
    outputs = stream(network, repeat(torch.rand(3, 16, 16)), chunk=2, scene_cuts=False)
    with stages.stopwatch(network, torch.device("cpu")) as laps:
        total = stages.take(outputs, 4, torch.device("cpu"))
    assert (laps.kept, laps.swept) == (4, 8)
    assert all(seconds > 0 for seconds in laps.seconds.values())
    assert sum(laps.seconds.values()) < total
    assert set(vars(network)) == before


def test_the_stopwatch_sees_features_in_the_hosts_memory() -> None:
    """The engine propagates frame by frame when features are offloaded: `pahs bench --reference --memory 2`."""
    network = PAHSConfig(width=6, look_ahead=2).build().eval()

    def offloaded() -> Iterator[Tensor]:
        state, chunk, look_ahead = None, 2, 2
        while True:
            with torch.inference_mode():
                features = network.extract(torch.rand(1, chunk + look_ahead, 3, 16, 16))
                frames = [tuple(x[:, t] for x in features) for t in range(chunk + look_ahead)]
                latents, state = network.propagate_frames(frames, state, chunk)
                yield from network.reconstruct(latents)[0]

    work, cpu = count_work(network, 16, 16), torch.device("cpu")
    timed = compare.time_stages(network, offloaded(), 4, work, cpu)
    assert [stage.name for stage in timed] == [*stages.STAGES, "queues and copies"]
    assert all(stage.seconds > 0 for stage in timed[:3])
    assert timed[1].flops == work.propagate((2 + 2) / 2)


def test_the_matrix_rate_is_that_of_the_fastest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which three products take 3, 1 and 2 seconds; the checks for the end lie between them."""
    times = iter([0.0, 0.0, 1.0, 4.0, 4.0, 5.0, 6.0, 6.0, 7.0, 9.0, 1e9])
    for module in (stages, conditions):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    monkeypatch.setattr(stages, "MATRIX_SECONDS", 100.0)
    monkeypatch.setitem(stages.MATRIX, "cpu", 64)
    assert stages.matrix_rate(torch.device("cpu"), torch.float32) == 2 * 64**3 / 1.0
    assert next(times, None) is None
