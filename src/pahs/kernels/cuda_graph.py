"""A recurrent cell's step as a CUDA graph: one launch instead of over a hundred small ones.

A step is recorded once for a size and replayed for every frame, in either direction and for any length of video. The
graph reads and writes memory of its own: a frame's features are copied in, and the state stays there.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from pahs.kernels.dispatch import recording
from pahs.kernels.streams import Tensors

log = logging.getLogger(__name__)

WARM_UP = 2
"""Steps before the recording, in which libraries choose their kernels and take their workspace."""


class Steps(Protocol):
    """A cell: features of a frame and the state before it -> the state after it, of the same shapes."""

    def step(self, read: Tensors, state: Tensors) -> Tensors: ...

    def parameters(self) -> Any: ...


class Recording:
    """The graph of one cell, for the frame size that it has seen last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.key: object = None
        self.graph: torch.cuda.CUDAGraph | None = None
        """None: this size could not be recorded."""
        self.read: Tensors = ()
        """The graph's inputs."""
        self.state: Tensors = ()
        """The graph's state, which each replay overwrites."""
        self.used: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        """The end of the last sweep on its stream."""

    def sweep(self, cell: Steps, reads: Iterable[Tensors], state: Tensors) -> Iterator[Tensors]:
        # One sweep at a time: its state lies in the graph's memory until it ends.
        with self.lock:
            device, fresh = state[0].device, True
            try:
                for read in reads:
                    self._prepare(cell, read, state)
                    if self.graph is None:
                        state = cell.step(tuple(x.to(device, non_blocking=True) for x in read), state)
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
                # Only now has the caller copied the last state.
                self.used.record(torch.cuda.current_stream(device))

    def _prepare(self, cell: Steps, read: Tensors, state: Tensors) -> None:
        """Record the step unless it is recorded for these shapes, this device and these weights."""
        weights = next(iter(cell.parameters())).data_ptr()
        key = (weights, *((x.shape, x.dtype, x.device) for x in (*read, *state)))
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
            with torch.cuda.stream(side), recording():
                for _ in range(WARM_UP):
                    cell.step(self.read, self.state)
            torch.cuda.synchronize(device)
            graph = torch.cuda.CUDAGraph()
            # Other threads, such as one that decodes, may call CUDA during the capture.
            capture = torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local")
            with capture, recording():
                for mine, x in zip(self.state, cell.step(self.read, self.state), strict=True):
                    mine.copy_(x)
            self.graph = graph
        except Exception as error:  # the plain steps give the same result
            self.read = self.state = ()
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            log.warning("running without a CUDA graph, which is slower: %s", reason)


_recordings: weakref.WeakKeyDictionary[Steps, Recording] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def possible(state: Tensor) -> bool:
    """Whether a sweep can be recorded: on an NVIDIA GPU, without gradients, autocast or another recording."""
    plain = (
        not state.is_cuda
        or torch.version.hip is not None
        or torch.is_grad_enabled()
        or torch.is_autocast_enabled("cuda")
    )
    return not plain and not torch.cuda.is_current_stream_capturing()


def sweep(cell: Steps, reads: Iterable[Tensors], state: Tensors) -> Iterator[Tensors]:
    """The state after every frame; valid until the next is asked for."""
    with _lock:
        recorded = _recordings.get(cell)
        if recorded is None:
            recorded = _recordings[cell] = Recording()
    yield from recorded.sweep(cell, reads, state)
