"""Work that comes again and again as a CUDA graph: one launch instead of over a hundred small ones.

`sweep`: a recurrent cell's step is recorded once for a size and replayed for every frame, in either direction and for
any length of video. The graph reads and writes memory of its own: what a frame brings is copied in, and the state stays
there. `stage`: the same for a whole batch of frames, whose results are copied out; only where the host is so slow to
launch them that the device may wait for it.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

from pahs.networks import fused
from pahs.networks.contract import Tensors

log = logging.getLogger(__name__)

WARM_UP = 2
"""Steps before the recording, in which libraries choose their kernels and take their workspace."""


HOST_SHARE = 0.3
"""A stage is recorded where the host needs more than this share of the device's time for it: beside codecs it has less
than half of a processor for itself."""

Work = Callable[[Tensors], Tensors]


class Steps(Protocol):
    """A cell: what it reads of a frame and its state -> its new state, of the same shapes."""

    def step(self, read: Tensors, state: Tensors) -> Tensors: ...

    def parameters(self) -> Any: ...


class Recording:
    """The graph of one cell for the size it has seen last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.key: object = None
        self.graph: torch.cuda.CUDAGraph | None = None
        """None: this size could not be recorded."""
        self.read: Tensors = ()
        self.state: Tensors = ()
        self.used: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def sweep(self, cell: Steps, reads: Iterable[Tensors], state: Tensors) -> Iterator[Tensors]:
        # One sweep at a time: its state lies in the graph's memory until it ends.
        with self.lock:
            device, fresh = state[0].device, True
            try:
                for read in reads:
                    self._prepare(cell, read, state)
                    if self.graph is None:
                        state = cell.step(_beside(state, read), state)
                        yield state
                        continue
                    if fresh:
                        # The last sweep may still be running on another stream.
                        torch.cuda.current_stream(device).wait_event(self.used)
                        for mine, x in zip(self.state, state, strict=True):
                            mine.copy_(x)
                        fresh = False
                    for mine, x in zip(self.read, read, strict=True):
                        mine.copy_(x, non_blocking=True)
                    self.graph.replay()
                    state = self.state
                    yield state
            finally:
                # Only now has the caller taken what it wants of the last state.
                self.used.record(torch.cuda.current_stream(device))

    def _prepare(self, cell: Steps, read: Tensors, state: Tensors) -> None:
        """Record the step unless it is recorded for this size, these weights and this place."""
        where = next(iter(cell.parameters())).data_ptr()
        key = (where, *((x.shape, x.dtype, x.device) for x in (*read, *state)))
        if key == self.key:
            return
        self.key, self.graph = key, None
        try:
            device = state[0].device
            self.read, self.state = (
                tuple(x.to(device).clone(memory_format=torch.channels_last) for x in tensors)
                for tensors in (read, state)
            )
            side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side), fused.recording():
                for _ in range(WARM_UP):
                    cell.step(self.read, self.state)
            torch.cuda.synchronize(device)
            graph = torch.cuda.CUDAGraph()
            with _capture(graph, side), fused.recording():
                for mine, x in zip(self.state, cell.step(self.read, self.state), strict=True):
                    mine.copy_(x)
            self.graph = graph
        except Exception as error:  # a graph saves time and nothing else
            self.read = self.state = ()
            _give_up(error)


class Stages:
    """The recorded stages of one network: never two at a time, and so they share the memory they compute in."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stages: dict[str, RecordedStage] = {}
        self.pool: object = None
        self.used: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def __call__(self, name: str, work: Work, where: int, inputs: Tensors) -> Tensors:
        key = (where, *((x.shape, x.stride(), x.dtype, x.device) for x in inputs))
        here = torch.cuda.current_stream(inputs[0].device)
        with self.lock:
            stage = self.stages.setdefault(name, RecordedStage())
            if not stage.ready(key, work, inputs, self):
                return stage.plain(key, work, inputs)
            # Another thread may have called last, on another stream.
            here.wait_event(self.used)
            outputs = stage.replay(inputs)
            self.used.record(here)
            return outputs


class RecordedStage:
    """A function of tensors, and its graph for the sizes that come again and again."""

    def __init__(self) -> None:
        self.key: object = None
        self.last: object = None
        """The sizes of the last call: what comes only once, such as the end of a video, is not worth a recording."""
        self.timed: tuple[float, torch.cuda.Event, torch.cuda.Event] | None = None
        """Seconds that the host took for a call, and when the device began and ended it."""
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Tensors = ()
        self.outputs: Tensors = ()
        self.held = 0
        """Bytes that the graph computes in, beside its inputs and outputs."""

    def plain(self, key: object, work: Work, inputs: Tensors) -> Tensors:
        """The first call of a size lets libraries choose their kernels; the second tells what a call costs."""
        before, self.last = self.last, key
        if key == self.key or key != before:
            return work(inputs)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        began.record()
        started = time.perf_counter()
        outputs = work(inputs)
        seconds = time.perf_counter() - started
        ended.record()
        self.key, self.graph, self.inputs, self.outputs, self.held = key, None, (), (), 0
        computed = any(all(x is not given for given in inputs) for x in outputs)
        self.timed = (seconds, began, ended) if computed else None
        return outputs

    def ready(self, key: object, work: Work, inputs: Tensors, stages: Stages) -> bool:
        """Whether there is a graph for this size; recorded now if it is worth it."""
        if key != self.key:
            return False
        if self.timed is not None and self.timed[2].query():  # type: ignore[no-untyped-call]
            seconds, began, ended = self.timed
            self.timed = None
            if seconds > HOST_SHARE * began.elapsed_time(ended) / 1000:
                self._record(work, inputs, stages)
        self.last = key
        return self.graph is not None

    def replay(self, inputs: Tensors) -> Tensors:
        assert self.graph is not None
        for mine, x in zip(self.inputs, inputs, strict=True):
            mine.copy_(x, non_blocking=True)
        self.graph.replay()
        passed = {id(mine): x for mine, x in zip(self.inputs, inputs, strict=True)}
        return tuple(passed[id(x)] if id(x) in passed else x.clone() for x in self.outputs)

    def _record(self, work: Work, inputs: Tensors, stages: Stages) -> None:
        try:
            device = inputs[0].device
            self.inputs = tuple(x.clone() for x in inputs)
            if stages.pool is None:
                stages.pool = torch.cuda.graph_pool_handle()
            side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream(device))
            graph = torch.cuda.CUDAGraph()
            with _capture(graph, side, stages.pool):
                before = torch.cuda.memory_reserved(device)
                # Without `fused.recording`: the kernels are those of a call that is not recorded.
                self.outputs = work(self.inputs)
                taken = torch.cuda.memory_reserved(device) - before
            made = sum(x.nbytes for x in self.outputs if all(x is not mine for mine in self.inputs))
            self.held = max(0, taken - made)
            torch.cuda.current_stream(device).wait_stream(side)
            self.graph = graph
        except Exception as error:  # a graph saves time and nothing else
            self.inputs = self.outputs = ()
            _give_up(error)


def _capture(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any = None) -> torch.cuda.graph:
    # Other threads, such as one that decodes, may go on talking to the device.
    return torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local")


def _give_up(error: Exception) -> None:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    log.warning("running without a CUDA graph, which is slower: %s", reason)


_stages: weakref.WeakKeyDictionary[nn.Module, Stages] = weakref.WeakKeyDictionary()
_recordings: weakref.WeakKeyDictionary[Steps, Recording] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def sweep(cell: Steps, reads: Iterable[Tensors], state: Tensors) -> Iterator[Tensors]:
    """The state after every frame; valid until the next is asked for, so whoever keeps one keeps a copy.

    By a recorded graph where that is possible: on CUDA, without gradients and autocast.
    """
    if not _possible(state[0]):
        for read in reads:
            state = cell.step(_beside(state, read), state)
            yield state
        return
    with _lock:
        recording = _recordings.get(cell)
        if recording is None:
            recording = _recordings[cell] = Recording()
    yield from recording.sweep(cell, reads, state)


def stage(owner: nn.Module, name: str, work: Work, inputs: Tensors, record: bool = True) -> Tensors:
    """work(inputs), which is a stage of that name of the owner and reads nothing but its weights and the inputs.

    By a recorded graph where that is possible, wanted and of use: it holds the memory that the work takes.
    """
    if not record or not _possible(inputs[0]):
        return work(inputs)
    with _lock:
        stages = _stages.get(owner)
        if stages is None:
            stages = _stages[owner] = Stages()
    return stages(name, work, next(owner.parameters(), inputs[0]).data_ptr(), inputs)


def held(owner: nn.Module) -> int:
    """Bytes in which the recorded stages of a network compute, which PyTorch does not count as allocated."""
    stages = _stages.get(owner)
    return 0 if stages is None else sum(stage.held for stage in stages.stages.values())


def forget(owner: nn.Module) -> None:
    """Give the memory of a network's recorded stages back."""
    with _lock:
        _stages.pop(owner, None)


def _possible(x: torch.Tensor) -> bool:
    plain = not x.is_cuda or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda")
    return not plain and not torch.cuda.is_current_stream_capturing()


def _beside(state: Tensors, read: Tensors) -> Tensors:
    """What a frame brings, where the state is: frames may wait in the host's memory."""
    return tuple(x.to(state[0].device, non_blocking=True) for x in read)
